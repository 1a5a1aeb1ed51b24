"""`fedkoopman report`: the page of a run, or of several beside each other, from records alone."""

from pathlib import Path
from typing import Annotated

import typer

from fedkoopman.cli.options import option

EXAMPLE = """
fedkoopman run --set slots=30 --out runs/short
fedkoopman run --set slots=30 --set policy.segments=2 --out runs/eager
fedkoopman report runs/eager runs/short --out comparison.html
"""


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR…",
            help="Directories of runs; the first one is told, the others stand beside it.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        option("FILE", "The page's file, ending in .html; otherwise report.html in the first DIR."),
    ] = None,
) -> None:
    """Write the report of a run, finished or not, or of several runs beside each other."""
    from fedkoopman.durable import check_output
    from fedkoopman.reports.run import write_report

    if out is not None:
        check_output(out, (".html", ".htm"))
    typer.echo(f"report: {write_report(directories, out=out)}")
