"""How the model was learnt: curves over slots, and who was asked when."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedkoopman.reports.blocks import Block, Section, chart, line, panel, section, table, text
from fedkoopman.reports.quality import SYMBOLS
from fedkoopman.reports.run_files import (
    Curve,
    RunFiles,
    learning_curve,
    not_finite,
    thinned,
)
from fedkoopman.reports.wording import counted, number

__all__ = ["COLOURS", "learning_section", "raster_section"]

COLOURS = "abcdef"
"""Of runs, the first being told."""
LISTED_SLOTS = 12
MOST_CLIENTS = 60
"""Clients with a row of their own; of more, each slot's count is drawn."""
MOST_SLOTS = 400
"""Slots with a cell of their own; of more, consecutive ones are counted together."""


def learning_section(runs: Mapping[str, RunFiles]) -> Section:
    """Test losses of the first run, and the prediction error and valid samples of all runs."""
    run = next(iter(runs.values()))
    curves = {m: learning_curve(run.seeds, m) for m in ("l1", "l2", "l3", "E")}
    last = int(curves["E"].slots[-1])
    shade = (last - run.tail + 0.5, last) if last > run.tail else ()
    losses = [
        _curve(SYMBOLS[m], curves[m], colour)
        for m, colour in (("l1", "a"), ("l2", "b"), ("l3", "c"))
    ]
    several = len(runs) > 1
    scores = [
        _curve(name if several else label, learning_curve(one.seeds, metric), colour, panel=place)
        for (name, one), colour in zip(runs.items(), COLOURS, strict=False)
        for place, (metric, label) in enumerate((("E", "E"), ("horizon", "valid samples")))
    ]
    axes = [
        panel("time slot", "prediction error E", log=True, whole=True, shade=shade),
        panel("time slot", "valid samples", whole=True, shade=shade),
    ]
    counts = not_finite(run)
    where = ", ".join(f"{counted(n, 'slot')} of seed {seed}" for seed, n in counts.items())
    return section(
        "learning",
        "How it learned",
        text(_caption(run, bool(shade)), "caption"),
        text(f"Not finite, and so shown as gaps: {where}.", "notice") if counts else None,
        chart(
            "losses", "Test losses", "Three test losses over time slots, logarithmic.",
            [panel("time slot", "test loss", log=True, whole=True, shade=shade,
                   yrange=_usual(curves))],
            losses,
            height=260,
        ),
        chart(
            "error", "Prediction error, and for how long forecasts are valid",
            "Prediction error E and the number of valid samples over time slots.",
            axes, scores, columns=2,
        ),
        _table(curves),
    )  # fmt: skip


def _usual(curves: Mapping[str, Curve]) -> tuple[float, float] | None:
    """Limits without single values that are next to nothing, as a stage may give in between."""
    values = np.concatenate([curves[m].mean for m in ("l1", "l2", "l3")])
    values = values[np.isfinite(values) & (values > 0)]
    if not values.size:
        return None
    low = max(values.min(), np.quantile(values, 0.05) * 1e-2)
    return float(low / 1.3), float(values.max() * 1.3)


def _caption(run: RunFiles, shaded: bool) -> str:
    real = bool(run.study.get("sites", {}).get("files"))
    kind = (
        "the smoothed states of held-out segments" if real else "noise-free held-out trajectories"
    )
    if run.study.get("scheme") == "observations":
        kind = f"what each client's sensor shows of {kind}, means over clients"
    words = f"On {kind}; slot 0 is the untrained model."
    if len(run.seeds) > 1:
        words += (
            f" Lines are means over {len(run.seeds)} seeds, bands reach one standard deviation"
            " to either side, though never below the lowest seed."
        )
    if len(reached := {int(seed.slots[-1]) for seed in run.seeds}) > 1:
        words += f" Past slot {min(reached)} they are over the seeds that have got there."
    return words + (" The shaded slots are those of the means above." if shaded else "")


def _curve(name: str, curve: Curve, colour: str, panel: int = 0) -> Block:
    drawn = thinned(curve)
    wide = np.isfinite(drawn.low) & (drawn.high > drawn.low)
    low, high = (drawn.low, drawn.high) if wide.any() else (None, None)
    return line(name, drawn.slots, drawn.mean, colour, panel=panel, low=low, high=high)


def _table(curves: Mapping[str, Curve]) -> Block:
    slots = curves["E"].slots
    chosen = np.unique(np.linspace(0, len(slots) - 1, LISTED_SLOTS).round().astype(int))
    rows = [
        [str(slots[i]), *((number(curve.mean[i]), "number") for curve in curves.values())]
        for i in chosen
    ]
    head = ["slot", *(SYMBOLS[metric] for metric in curves)]
    return table("curves", head, rows, folded="Some of these numbers")


def raster_section(run: RunFiles) -> Section:
    """Whose observations arrived and who trained, in every slot from the first."""
    seed = run.seeds[0]
    begun = int(seed.slots[0] == 0)  # nothing happens in slot 0
    slots = seed.slots[begun:]
    if not len(slots):
        return section("slots", "Who trained when", text("No slot has passed yet.", "caption"))
    width = bin_width(len(slots))
    of = f" Seed {seed.seed}, the first of {len(run.seeds)}." if len(run.seeds) > 1 else ""
    lists = {"arrived": seed.arrived[begun:], "trained": seed.active[begun:]}
    if any(ids.size for ids in seed.dropped):
        lists["dropped"] = seed.dropped[begun:]
    if run.clients > MOST_CLIENTS:
        caption = "How many clients made a successful observation, and how many trained, per slot."
        shown = _counts(slots, lists)
    elif width > 1:
        caption = f"How often each client trained, in {width} slots at a time."
        shown = _binned(slots, lists, run, width)
    else:
        caption = "Light: a client's observation succeeded. Dark: it trained the shared model."
        if "dropped" in lists:
            caption += " Red: its estimate diverged, and the segment was dropped."
        shown = _cells(slots, lists, run)
    return section("slots", "Who trained when", text(caption + of, "caption"), shown)


RASTER = {"arrived": "light", "trained": "a", "dropped": "b"}


def rows_of(run: RunFiles) -> list[str]:
    """What the rows are called."""
    return [run.names[n] if n < len(run.names) else f"client {n}" for n in range(run.clients)]


def _cells(slots: np.ndarray, lists: Mapping[str, Sequence[np.ndarray]], run: RunFiles) -> Block:
    marks = [
        line(
            name, np.repeat(slots, [ids.size for ids in found]), np.concatenate([*found]),
            RASTER[name], style="marks",
        )
        for name, found in sorted(lists.items(), key=lambda one: list(RASTER).index(one[0]))
    ]  # fmt: skip
    axes = panel("time slot", "", whole=True, rows=rows_of(run), xrange=_span(slots, 1))
    return chart("clients", "Arrivals and trainings", _described(lists), [axes], marks)


def _binned(
    slots: np.ndarray, lists: Mapping[str, Sequence[np.ndarray]], run: RunFiles, width: int
) -> Block:
    first = np.arange(0, len(slots), width)
    rounds, seen = (
        np.add.reduceat(_incidence(lists[name], run.clients), first, axis=1)
        for name in ("trained", "arrived")
    )
    row, column = np.nonzero(rounds + seen)
    words = [f"{rounds[r, c]} trainings, {seen[r, c]} arrivals"
             for r, c in zip(row, column, strict=True)]  # fmt: skip
    heat = line("trainings", slots[first][column], row, "a", style="heat", words=words)
    heat |= {"z": rounds[row, column].tolist(), "size": width}
    axes = panel("time slot", "", whole=True, rows=rows_of(run), xrange=_span(slots, width))
    return chart("clients", "Trainings", _described(lists), [axes], [heat])


def _counts(slots: np.ndarray, lists: Mapping[str, Sequence[np.ndarray]]) -> Block:
    width = -(-len(slots) // 600)
    first = np.arange(0, len(slots), width)
    lines = [
        line(
            name, slots[first],
            np.maximum.reduceat(np.array([ids.size for ids in found]), first),
            {"arrived": "e"}.get(name, RASTER[name]), style="steps",
        )
        for name, found in lists.items()
    ]  # fmt: skip
    axes = panel("time slot", "clients" if width == 1 else f"clients, most in {width} slots",
                 whole=True)  # fmt: skip
    return chart("clients", "Arrivals and trainings", _described(lists), [axes], lines)


def _described(lists: Mapping[str, Sequence[np.ndarray]]) -> str:
    total = ", ".join(f"{sum(ids.size for ids in found):,} {name}" for name, found in lists.items())
    return f"Which clients' observations arrived and which trained, by time slot: {total}."


def _span(slots: np.ndarray, width: int) -> tuple[float, float]:
    return slots[0] - 0.5, max(slots[-1], slots[0] + width - 1) + 0.5


def bin_width(slots: int) -> int:
    """How many consecutive slots are counted together; 1 draws each."""
    if slots <= MOST_SLOTS:
        return 1
    return next(w for w in (5, 10, 20, 50, 100, 200, 500, 10**3, 10**4, 10**6) if slots <= 150 * w)


def _incidence(lists: Sequence[np.ndarray], clients: int) -> np.ndarray:
    """(clients, slots): 1 where a client is in a slot's list."""
    incidence = np.zeros((clients, len(lists)), np.int32)
    columns = np.repeat(np.arange(len(lists)), [ids.size for ids in lists])
    incidence[np.concatenate([*lists]), columns] = 1
    return incidence
