"""The report of a run: one HTML page, made from the run directory's files alone."""

from pathlib import Path

import numpy as np

from fedkoopman.durable import written_whole
from fedkoopman.reports.benefit import benefit_section, benefit_sentence
from fedkoopman.reports.beside import beside_section
from fedkoopman.reports.figures import MOST_CLIENTS, bin_width, clients_figure, curves_figure
from fedkoopman.reports.page import Cell, Page, number
from fedkoopman.reports.run_files import (
    RunFiles,
    learning_curve,
    not_finite,
    read_run,
    tail_spread,
    untrained,
)
from fedkoopman.reports.run_model import inputs_section, spectrum_section, trajectory_section
from fedkoopman.reports.tables import counted, site_errors, spread_text
from fedkoopman.reports.trust import trust_section, trust_sentence

SYMBOLS = {"l1": "ℓ1", "l2": "ℓ2", "l3": "ℓ3", "E": "E", "horizon": "horizon"}
MEANINGS = {
    "l1": "linear dynamics: how far K is from advancing the lifted state",
    "l2": "reconstruction: how far the decoder is from undoing the encoder",
    "l3": "prediction: error of the next state, lifted, advanced and decoded",
    "E": "prediction error over several steps",
    "horizon": "steps for which a free rollout stays valid",
}
LISTED_SLOTS = 12
MOST_NAMES = 25
"""Sites that are named beside a figure."""


def write_report(directory: str | Path, beside: str | Path | None = None) -> Path:
    """Write `report.html` into a run directory, of a finished run or of one still going on.

    Arguments:
        beside: the directory of another run, whose numbers and forecast are shown beside.
    """
    directory = Path(directory)
    page = _page(read_run(directory), None if beside is None else read_run(Path(beside)))
    target = directory / "report.html"
    with written_whole(target) as [partial], partial.open("wb") as file:
        file.writelines(page.html())
    return target


def _page(run: RunFiles, other: RunFiles | None) -> Page:
    page = Page(str(run.study.get("name", "unnamed study")))
    _overview(page, run)
    if other is not None:
        beside_section(page, run, other)
    benefit_section(page, run)
    trust_section(page, run)
    _learning(page, run)
    sites_section(page, run)
    _clients(page, run)
    trajectory_section(page, run)
    inputs_section(page, run)
    spectrum_section(page, run)
    _again(page, run)
    return page


def _overview(page: Page, run: RunFiles) -> None:
    numbers = [seed.seed for seed in run.seeds]
    system = run.study.get("system", {}).get("name")
    facts = [
        *([f"scheme {run.study['scheme']}"] if "scheme" in run.study else []),
        *([f"system {system}"] if system else []),
        counted(run.clients, "client"),
        counted(run.slots, "time slot"),
        f"seed {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} seeds",
    ]
    page.paragraph(" · ".join(facts), "lede")
    if run.summary is None:
        page.paragraph(_progress(run), "notice")
    benefit_sentence(page, run)
    trust_sentence(page, run)
    page.without_scripts("The charts need JavaScript. The numbers in the tables do not.")

    several = len(run.seeds) > 1
    tail = min(run.tail, max(1, int(max(seed.slots[-1] for seed in run.seeds))))
    rows = []
    for metric, symbol in SYMBOLS.items():
        before = untrained(run, metric)
        rows.append(
            [
                Cell(symbol),
                Cell(spread_text(tail_spread(run, metric), several), "number strong"),
                Cell("–" if before is None else spread_text(before, several), "number"),
                Cell(MEANINGS[metric], "meaning"),
            ]
        )
    spread = " ± std" if several else ""
    head = [
        Cell(""),
        Cell(f"last {counted(tail, 'slot')}, mean{spread}"),
        Cell("untrained"),
        Cell("", "meaning"),
    ]
    page.table("summary", head, rows)

    per_seed = " per seed" if several else ""
    trainings = np.mean([sum(ids.size for ids in seed.active) for seed in run.seeds])
    samples = np.mean([seed.samples for seed in run.seeds])
    dropped = sum(ids.size for seed in run.seeds for ids in seed.dropped)
    seconds = (run.summary or {}).get("seconds")
    if seconds is None:
        seconds = max(seed.seconds for seed in run.seeds)
    page.facts(
        {
            f"client trainings{per_seed}": f"{trainings:,.1f}".removesuffix(".0"),
            f"trained samples{per_seed}": f"{round(samples):,}",
            "seconds": f"{seconds:,.1f}",
        }
        | ({"segments dropped (estimate diverged)": f"{dropped:,}"} if dropped else {})
    )


def _learning(page: Page, run: RunFiles) -> None:
    page.heading("Learning curves")
    real = bool(run.study.get("sites", {}).get("files"))
    kind = (
        "the smoothed states of held-out segments" if real else "noise-free held-out trajectories"
    )
    if run.study.get("scheme") == "observations":
        kind = f"what each client's sensor shows of {kind}, means over clients"
    caption = f"On {kind}; slot 0 is the untrained model."
    if len(run.seeds) > 1:
        caption += (
            f" Lines are means over {len(run.seeds)} seeds, bands reach one standard deviation"
            " to either side, though never below the lowest seed."
        )
    if len(reached := {int(seed.slots[-1]) for seed in run.seeds}) > 1:
        caption += f" Past slot {min(reached)} they are over the seeds that have got there."
    curves = {m: learning_curve(run.seeds, m) for m in ("l1", "l2", "l3", "E")}
    last = int(curves["E"].slots[-1])
    tail_from = last - run.tail + 0.5 if last > run.tail else None
    if tail_from is not None:
        caption += " The shaded slots are those of the means above."
    page.paragraph(caption, "caption")
    if counts := not_finite(run):
        where = ", ".join(f"{counted(n, 'slot')} of seed {seed}" for seed, n in counts.items())
        page.paragraph(f"Not finite, and so shown as gaps: {where}.", "notice")
    losses = {SYMBOLS[m]: curves[m] for m in ("l1", "l2", "l3")}
    error = {"E": curves["E"]}
    with page.beside():
        page.chart("losses", curves_figure(losses, "test loss", tail_from), "Test losses")
        page.chart("error", curves_figure(error, "prediction error", tail_from), "Prediction error")
    slots = curves["E"].slots
    chosen = np.unique(np.linspace(0, len(slots) - 1, LISTED_SLOTS).round().astype(int))
    head = [Cell("slot"), *(Cell(SYMBOLS[metric]) for metric in curves)]
    rows = [
        [Cell(str(slots[i])), *(Cell(number(curves[m].mean[i]), "number") for m in curves)]
        for i in chosen
    ]
    page.table("curves", head, rows, below="Some of these numbers")


def _clients(page: Page, run: RunFiles) -> None:
    seed = run.seeds[0]
    width = bin_width(int((seed.slots > 0).sum()))
    page.heading("Who trained when")
    if seed.slots[-1] == 0:
        page.paragraph("No slot has passed yet.", "caption")
        return
    if run.clients > MOST_CLIENTS:
        caption = "How many clients made a successful observation, and how many trained, per slot."
    elif width > 1:
        caption = f"How often each client trained, in {width} slots at a time."
    else:
        caption = "Light: a client's observation succeeded. Dark: it trained the shared model."
        if any(ids.size for ids in seed.dropped):
            caption += " Orange: its estimate diverged, and the segment was dropped."
    if len(run.seeds) > 1:
        caption += f" Seed {seed.seed}, the first of {len(run.seeds)}."
    page.paragraph(caption, "caption")
    names = list(run.sites) if len(run.sites) == run.clients <= MOST_NAMES else []
    figure = clients_figure(seed, run.clients, names)
    page.chart("clients", figure, "Arrivals and trainings over slots")


def _again(page: Page, run: RunFiles) -> None:
    if run.served:
        how = "To serve it again, where its fleet is; its sites join as before:"
        commands = ["fedkoopman serve study.toml --out again"]
    else:
        how = "To run it again, in this report's directory:"
        numbers = sorted([*(seed.seed for seed in run.seeds), *run.waiting])
        commands = _commands(numbers, run.study.get("seed", 0))
    page.heading("The study")
    page.paragraph(how, "caption")
    page.code("\n".join(commands))
    page.code(run.toml.strip(), below="The whole study (study.toml)")


def _commands(seeds: list[int], default: int) -> list[str]:
    """Commands that run the same seeds: one, unless there are gaps between them."""
    whole = seeds == list(range(seeds[0], seeds[0] + len(seeds)))
    commands = []
    for first in seeds[:1] if whole else seeds:
        command = "fedkoopman run study.toml"
        if first != default:
            command += f" --set seed={first}"
        if whole and len(seeds) > 1:
            command += f" --seeds {len(seeds)}"
        commands.append(f"{command} --out {'again' if whole else f'again-{first}'}")
    return commands


def _progress(run: RunFiles) -> str:
    reached = [int(seed.slots[-1]) for seed in run.seeds]
    if min(reached) == run.slots and not run.waiting:
        return "All slots are done, but the run has not written its summary yet."
    low, high = min(reached), max(reached)
    text = f"Not finished: {'slot' if low == high else 'slots'} {low}"
    text += "" if low == high else f" to {high}"
    text += f" of {run.slots} reached"
    if run.waiting:
        text += f"; no slot yet of seed {', '.join(map(str, run.waiting))}"
    return f"{text}. The numbers below are of what is there."


CAPTION = (
    "Root mean square errors on held-out segments. Predicted states are seen through the site's "
    "sensor and compared with what it recorded, so that errors contain the sensor's noise; "
    "“holding” keeps the last state."
)


def sites_section(page: Page, run: RunFiles) -> None:
    """Add what each real site held, and how well it is predicted; nothing for simulated clients."""
    sites = run.sites
    if not sites:
        return
    page.heading("Sites")
    page.paragraph(CAPTION, "caption")
    first = next(iter(sites.values()))
    steps = len(first.get("observation_error") or [None])
    head = ["", "segments to train on", "held out", "one step ahead"]
    head += [f"{steps} steps ahead", f"{steps} steps, holding", "noise σ"]
    rows = [
        [
            Cell(name),
            *(Cell(f"{site[f'{part}_segments']:,}", "number") for part in ("train", "held_out")),
            *(Cell(text, "number") for text in site_errors(site)),
        ]
        for name, site in sites.items()
    ]
    page.table("sites", [Cell(text) for text in head], rows)
    dropped = [f"{name}, {reason}" for name, site in sites.items() for reason in site["dropped"]]
    if dropped:
        page.paragraph(f"Segments that were not used: {'; '.join(dropped)}.", "notice")
    left_out = [
        f"{name}, {reason}" for name, site in sites.items() for reason in site.get("left_out", [])
    ]
    if left_out:
        page.paragraph(f"Samples that were not used: {'; '.join(left_out)}.", "notice")
    found = (run.summary or {}).get("parameters") or {}
    if found:
        page.facts({n: f"{number(v['mean'])} ± {number(v['std'], 2)}" for n, v in found.items()})
