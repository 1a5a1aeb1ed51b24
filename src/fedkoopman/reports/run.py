"""The report of a run, or of several beside each other: one HTML page, from their records alone."""

from collections.abc import Sequence
from pathlib import Path

from fedkoopman.durable import written_whole
from fedkoopman.reports.document import document
from fedkoopman.reports.story import story

__all__ = ["write_report"]


def write_report(
    directory: str | Path | Sequence[str | Path],
    beside: str | Path | None = None,
    out: str | Path | None = None,
) -> Path:
    """Write the report of a run directory, of a finished run or of one still going on.

    Arguments:
        directory: the run's; of several, the first run is told and the others stand beside it.
        beside: the directory of one more run.
        out: the page's file; `report.html` in the first directory if None.
    """
    given = [directory] if isinstance(directory, str | Path) else list(directory)
    every = [Path(one) for one in (*given, *([beside] if beside is not None else []))]
    target = every[0] / "report.html" if out is None else Path(out)
    pieces = list(document(story(every)))
    with written_whole(target) as [partial], partial.open("wb") as file:
        file.writelines(pieces)
    return target
