"""Does federating help? What a run's summary says of it, on a page and in a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedkoopman.reports.page import Cell, Page
from fedkoopman.reports.run_files import RunFiles
from fedkoopman.reports.tables import counted, new_table, plain_console

__all__ = ["benefit_section", "benefit_sentence", "show_benefit"]

CAPTION = (
    "Root mean square errors of forecasts on the smoothed states of held-out segments, in units of "
    "each state's spread there, by steps ahead. Bold: the best of a column. “A site alone” is what "
    "the same study would have learned from that site only; DMD and EDMD are least squares over "
    "all sites' data, from sums that they send."
)
Row = tuple[str, list[str], list[bool]]
"""A forecast, its errors as text, and where it is the best."""


def benefit_sentence(page: Page, run: RunFiles) -> None:
    """Add what the comparison says in words; nothing where there was none."""
    found = _of(run.summary)
    if found:
        lost = found["worse_than"]["holding"] or found["worse_than"]["dmd"]
        page.paragraph(found["sentence"], "notice" if lost else "")


def benefit_section(page: Page, run: RunFiles) -> None:
    """Add the table: means over sites, and below a line every site's own."""
    found = _of(run.summary)
    if not found:
        return
    page.heading("Does federating help?")
    page.paragraph(CAPTION, "caption")
    sites = found["sites"]
    head = [Cell(_over(sites)), *(Cell(counted(h, "step")) for h in found["horizons"])]
    page.table("benefit", head, [_cells(row) for row in _rows(found["mean"], found["degree"])])
    if len(sites) > 1:
        every = [
            _cells((f"{site}: {name}", texts, best))
            for site, own in sites.items()
            for name, texts, best in _rows(own, found["degree"])
        ]
        page.table("benefit-sites", [Cell("site"), *head[1:]], every, below="The same by site")


def show_benefit(summary: Mapping[str, Any]) -> None:
    """Print the table of means and the sentence; nothing where there was no comparison."""
    found = _of(summary)
    if not found:
        return
    table = new_table(
        _over(found["sites"]),
        right=[counted(h, "step") for h in found["horizons"]],
        title="error of forecasts in units of the states' spread (* best)",
        title_justify="left",
        title_style="",
    )
    for name, texts, best in _rows(found["mean"], found["degree"]):
        marked = [f"{text}{'*' if b else ' '}" for text, b in zip(texts, best, strict=True)]
        table.add_row(name, *marked)
    console = plain_console()
    console.print(table)
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


def _cells(row: Row) -> list[Cell]:
    name, texts, best = row
    styles = ["number strong" if one else "number" for one in best]
    return [Cell(name), *map(Cell, texts, styles)]


def _text(value: float | str | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.3g}"
