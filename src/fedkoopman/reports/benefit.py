"""Does federating help? What a run's summary says of it, on a page and in a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedkoopman.reports.blocks import (
    Block,
    Section,
    chart,
    frame,
    line,
    panel,
    section,
    table,
    text,
)
from fedkoopman.reports.run_files import RunFiles
from fedkoopman.reports.tables import new_table, plain_console
from fedkoopman.reports.wording import counted

__all__ = ["benefit_section", "show_benefit"]

CAPTION = (
    "Root mean square errors of forecasts on {states}, in units of "
    "each state's spread there, by steps ahead. Bold: the best of a column. “A site alone” is what "
    "the same study would have learned from that site only; DMD and EDMD are least squares over "
    "all sites' data, from sums that they send."
)
Row = tuple[str, list[str], list[bool]]
"""A forecast, its errors as text, and where it is the best."""
COLOURS = {"holding": "held", "alone": "b", "dmd": "e", "edmd": "d", "federated": "a"}


def benefit_section(run: RunFiles) -> Section | None:
    """What the comparison says in words, errors of every site alone and shared, and tables."""
    found = _of(run.summary)
    if not found:
        return None
    lost = found["worse_than"]["holding"] or found["worse_than"]["dmd"]
    sites = found["sites"]
    states = "the smoothed states of held-out segments"
    if not run.sites:
        states = "noise-free held-out trajectories"
    head = [_over(sites), *(counted(h, "step") for h in found["horizons"])]
    blocks = [
        text(found["sentence"], "warning" if lost else ""),
        _bars(found),
        text(CAPTION.format(states=states), "caption"),
        table("benefit", head, [_cells(row) for row in _rows(found["mean"], found["degree"])]),
    ]
    if len(sites) > 1:
        every = [
            _cells((f"{site}: {name}", texts, best))
            for site, own in sites.items()
            for name, texts, best in _rows(own, found["degree"])
        ]
        blocks.append(table("benefit-sites", ["site", *head[1:]], every, folded="The same by site"))
    return section("gain", "What did federating gain?", *blocks)


def _bars(found: Mapping[str, Any]) -> Block:
    """By steps ahead, the error at every site of its own model and of the shared one."""
    sites = list(found["sites"])
    frames = []
    for place, steps in enumerate(found["horizons"]):
        lines = []
        for key, name in (("alone", "a site alone"), ("federated", "the shared model")):
            values = [found["sites"][site][key][place] for site in sites]
            words = [f"{name}: {_text(value)}" for value in values]
            x = [value if isinstance(value, int | float) else None for value in values]
            rows = [i for i, value in enumerate(x) if value is not None]
            offset = -0.2 if key == "alone" else 0.2
            lines.append(
                line(
                    name, [x[i] for i in rows], [i + offset for i in rows], COLOURS[key],
                    style="dots", words=[words[i] for i in rows],
                )
            )  # fmt: skip
        axes = panel("error / spread", "", rows=sites, nearest=True)
        frames.append(frame(counted(steps, "step"), "", lines, [axes]))
    usual = found["horizons"].index(20) if 20 in found["horizons"] else len(frames) - 1
    return chart(
        "alone", "Each site alone, and the shared model",
        "Errors of forecasts of each site's held-out data: by what the site learned alone, and by "
        "the shared model. Further left is better.",
        frames[0]["panels"], frames=frames,
        control="slider: steps ahead", start=usual,
    )  # fmt: skip


def show_benefit(summary: Mapping[str, Any]) -> None:
    """Print the table of means and the sentence; nothing where there was no comparison."""
    found = _of(summary)
    if not found:
        return
    grid = new_table(
        _over(found["sites"]),
        right=[counted(h, "step") for h in found["horizons"]],
        title="error of forecasts in units of the states' spread (* best)",
        title_justify="left",
        title_style="",
    )
    for name, texts, best in _rows(found["mean"], found["degree"]):
        marked = [f"{text}{'*' if b else ' '}" for text, b in zip(texts, best, strict=True)]
        grid.add_row(name, *marked)
    console = plain_console()
    console.print(grid)
    console.print(found["sentence"], soft_wrap=True)


def _of(summary: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    found = (summary or {}).get("benefit")
    return found if isinstance(found, Mapping) else None


def _over(sites: Mapping[str, Any]) -> str:
    return f"mean over {len(sites)} sites" if len(sites) > 1 else next(iter(sites))


def _rows(errors: Mapping[str, Sequence[Any]], degree: int) -> list[Row]:
    names = {
        "holding": "holding the last value",
        "alone": "a site alone",
        "dmd": "linear DMD, all sites",
        "edmd": f"EDMD of degree {degree}, all sites",
        "federated": "the shared model",
    }
    columns = list(zip(*(errors[key] for key in names), strict=True))
    least = [min((v for v in column if isinstance(v, float)), default=None) for column in columns]
    return [
        (
            name,
            [_text(value) for value in errors[key]],
            [v is not None and v == best for v, best in zip(errors[key], least, strict=True)],
        )
        for key, name in names.items()
    ]


def _cells(row: Row) -> list[Any]:
    name, texts, best = row
    return [name, *((words, "number strong" if one else "number")
                    for words, one in zip(texts, best, strict=True))]  # fmt: skip


def _text(value: float | str | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.3g}"
