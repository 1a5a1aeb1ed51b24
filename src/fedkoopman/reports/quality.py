"""How good is the model? The first screen: in words and in the states' units, then the scores."""

from typing import Any

import numpy as np

from fedkoopman.reports.blocks import Block, Section, facts, section, table, text
from fedkoopman.reports.run_files import RunFiles, tail_spread, untrained
from fedkoopman.reports.wording import counted, labelled, listed, number, spread_text, with_unit

__all__ = [
    "SYMBOLS", "overview", "quality_section", "quality_words", "scale_free", "valid_median",
]  # fmt: skip

SYMBOLS = {"l1": "ℓ1", "l2": "ℓ2", "l3": "ℓ3", "E": "E", "horizon": "horizon"}
MEANINGS = {
    "l1": "linear dynamics: how far K is from advancing the lifted state",
    "l2": "reconstruction: how far the decoder is from undoing the encoder",
    "l3": "prediction: mean square error of the next state, lifted, advanced and decoded",
    "E": "prediction error over several steps, of states and lifted states",
    "horizon": "samples for which a forecast that is lifted once stays valid",
}
TOLD_APART = 3
"""Up to so many states, each one's error is told."""
AT_ONCE = 10
"""A forecast that is valid for fewer samples dies at once."""


def overview(run: RunFiles) -> str:
    """What was run, in one line."""
    numbers = [seed.seed for seed in run.seeds]
    system = run.study.get("system", {}).get("name")
    kind = run.study.get("network", {}).get("kind")
    return " · ".join(
        [
            *([f"system {system}"] if system else []),
            *([f"model kind {kind}"] if kind else []),
            *([f"scheme {run.study['scheme']}"] if "scheme" in run.study else []),
            counted(run.clients, "client"),
            counted(run.slots, "time slot"),
            f"seed {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} seeds",
        ]
    )


def quality_section(run: RunFiles) -> Section:
    """Sentences, then the scores with what they mean."""
    several = len(run.seeds) > 1
    tail = min(run.tail, max(1, int(max(seed.slots[-1] for seed in run.seeds))))
    rows = []
    for metric, symbol in SYMBOLS.items():
        before = untrained(run, metric)
        rows.append(
            [
                symbol,
                (spread_text(tail_spread(run, metric), several), "number strong"),
                ("–" if before is None else spread_text(before, several), "number"),
                (MEANINGS[metric], "meaning"),
            ]
        )
    spread = " ± std" if several else ""
    head = ["", f"last {counted(tail, 'slot')}, mean{spread}", "untrained", "what it says"]
    return section(
        "quality",
        "How good is the model?",
        *([text(_progress(run), "notice")] if run.summary is None else []),
        *quality_words(run),
        _facts(run),
        table("summary", head, rows, stacked=True),
    )


def quality_words(run: RunFiles) -> list[Block]:
    """What the model can do, and what it cannot."""
    found = [one for one in (_error_words(run), _valid_words(run)) if one is not None]
    if not found and run.sites:
        found = _site_words(run)
    return found


def _error_words(run: RunFiles) -> Block | None:
    errors = run.evidence.get("errors")
    if not errors:
        return None
    leads = run.evidence["leads"]
    wanted = int(run.study.get("evaluation", {}).get("horizon", 5))
    place = min(range(len(leads)), key=lambda i: abs(leads[i] - wanted))
    model, held = (_array(errors[name][place]) for name in ("model", "holding"))
    time = number(leads[place] * run.evidence["depth"] * run.evidence["dt"])
    start = f"Predicts {counted(leads[place], 'step')} ahead ({time} time units)"
    if not np.isfinite(model).all():
        return text(f"{start[:-1]}): its forecasts are not finite.", "warning")
    words = f"{start} to {_sizes(run, model)}; holding the last value: {_sizes(run, held)}."
    ratio = scale_free(run, held) / max(scale_free(run, model), 1e-300)
    if ratio < 1:
        return text(f"{words} Holding the last value is better.", "warning")
    return text(words, "verdict")


def _sizes(run: RunFiles, errors: np.ndarray) -> str:
    """Root mean square errors in the states' units: of each state, or of all that are alike."""
    names, units = run.evidence["names"], run.evidence["units"] or [""] * len(errors)
    if len(errors) > TOLD_APART and len(set(units)) == 1:
        return f"±{with_unit(number(float(np.sqrt(np.mean(errors**2))), 2), units[0])}"
    if len(errors) == 1:
        return f"±{with_unit(number(errors[0], 2), units[0])}"
    told = [
        f"{name} ±{with_unit(number(error, 2), unit)}"
        for name, error, unit in zip(names, errors, units, strict=True)
    ][:6]
    return listed(told)


def scale_free(run: RunFiles, errors: Any) -> float:
    """The root mean square of states' errors, each in units of its spread over held-out data."""
    spread = _array(run.evidence["spread"])
    moving = spread > 0
    return float(np.sqrt(np.mean((_array(errors)[moving] / spread[moving]) ** 2)))


def _array(values: Any) -> np.ndarray:
    return np.array(values, dtype=float)


def valid_median(run: RunFiles, name: str) -> float | None:
    """For how many samples half of the forecasts stay valid."""
    found = (run.evidence.get("valid") or {}).get(name)
    return float(np.median(found)) if found else None


def _valid_words(run: RunFiles) -> Block | None:
    steps, held = valid_median(run, "model"), valid_median(run, "holding")
    if steps is None or held is None or "dt" not in run.evidence:
        return None
    dt = run.evidence["dt"]
    every = run.evidence["valid"]["model"]
    share = run.study.get("evaluation", {}).get("valid_error", 0.4)
    span = f"{number(steps * dt)} time units ({counted(round(steps), 'sample')})"
    of = f"median of {counted(len(every), 'held-out trajectory')}".replace(
        "trajectorys", "trajectories"
    )
    means = f"Valid: off by less than {number(100 * share)} % of the states' spread."
    beside = f"holding the last value for {number(held * dt)}"
    if steps < AT_ONCE or steps <= held:
        advice = ""
        if run.study.get("network", {}).get("kind", "paper") == "paper":
            advice = " For forecasts that last, run the study with --recommended."
        return text(
            f"Its forecasts die at once: from a first state they stay valid for {span}, {of}; "
            f"{beside}. One step ahead it may be good; do not trust it for longer.{advice} {means}",
            "warning",
        )
    whole = max(every) > 0 and steps >= max(every)
    reach = f"to the end of the held-out trajectories, {span}" if whole else f"for {span}"
    return text(f"From a first state, forecasts stay valid {reach}, {of}; {beside}. {means}")


def _site_words(run: RunFiles) -> list[Block]:
    """Of a served run: what sites measured, each on its own data."""
    sites = {name: one for name, one in run.sites.items() if one.get("state_error")}
    if not sites or run.rollout is None:
        return []
    last = [one["state_error"][-1] for one in sites.values()]
    steps = len(next(iter(sites.values()))["state_error"])
    if any(row is None or None in row for row in last):
        return []
    errors = np.sqrt(np.mean(np.square(_array(last)), axis=0))
    told = [
        f"{name} ±{with_unit(number(error, 2), unit)}"
        for name, error, unit in zip(run.rollout.names, errors, run.rollout.units, strict=False)
    ]
    return [
        text(
            f"Predicts {counted(steps, 'step')} ahead to {listed(told[:6])}, as sites measured it "
            "on their own held-out data.",
            "verdict",
        )
    ]


def _facts(run: RunFiles) -> Block:
    per_seed = " per seed" if len(run.seeds) > 1 else ""
    trainings = np.mean([sum(ids.size for ids in seed.active) for seed in run.seeds])
    samples = np.mean([seed.samples for seed in run.seeds])
    dropped = sum(ids.size for seed in run.seeds for ids in seed.dropped)
    seconds = (run.summary or {}).get("seconds")
    if seconds is None:
        seconds = max(seed.seconds for seed in run.seeds)
    return facts(
        {
            f"client trainings{per_seed}": f"{trainings:,.1f}".removesuffix(".0"),
            f"trained samples{per_seed}": f"{round(samples):,}",
            "seconds": f"{seconds:,.1f}",
        }
        | ({"segments dropped (estimate diverged)": f"{dropped:,}"} if dropped else {})
        | {
            labelled(name, ""): f"{number(one['mean'])} ± {number(one['std'], 2)}"
            for name, one in ((run.summary or {}).get("parameters") or {}).items()
        }
    )


def _progress(run: RunFiles) -> str:
    reached = [int(seed.slots[-1]) for seed in run.seeds]
    if min(reached) == run.slots and not run.waiting:
        return "All slots are done, but the run has not written its summary yet."
    low, high = min(reached), max(reached)
    words = f"Not finished: {'slot' if low == high else 'slots'} {low}"
    words += "" if low == high else f" to {high}"
    words += f" of {run.slots} reached"
    if run.waiting:
        words += f"; no slot yet of seed {', '.join(map(str, run.waiting))}"
    return f"{words}. The numbers below are of what is there."
