"""`fedkoopman reproduce`: the paper's tables and figures, each by its name."""

import os
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from fedkoopman.cli.values import whole
from fedkoopman.errors import InputError, unknown_name

RESULTS = {
    "table-estimators": (
        "fedkoopman.studies.paper.table_estimators",
        "state estimators on Lorenz63: error, its spread and seconds, beside the paper's",
    ),
}
"""Name → module with `compute(trajectories, seed, progress)`, and what it shows."""

EXAMPLE = """
fedkoopman reproduce table-estimators --trajectories 200 --out results
"""


def reproduce(
    result: Annotated[
        str | None, typer.Argument(help="The result's name; --list shows them.", show_default=False)
    ] = None,
    trajectories: Annotated[
        int,
        typer.Option(
            parser=whole(2),
            metavar="COUNT",
            help="Trajectories to average over; the paper takes 10.",
        ),
    ] = 10,
    seed: Annotated[
        int,
        typer.Option(parser=whole(0), metavar="SEED", help="Of states, sensors and noise."),
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory for the result's files; made if missing.",
            show_default=False,
        ),
    ] = None,
    list_results: Annotated[
        bool, typer.Option("--list", help="List the results that can be reproduced and exit.")
    ] = False,
) -> None:
    """Reproduce a table or figure of the paper: ours beside the paper's."""
    if list_results:
        for name, (_, shows) in RESULTS.items():
            typer.echo(f"{name}  {shows}")
        return
    if result is None:
        raise InputError(f"which result? name one of: {', '.join(RESULTS)}")
    if result not in RESULTS:
        raise unknown_name("result", result, RESULTS)
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file: give a directory")
    if out is not None and not out.absolute().parent.is_dir():
        raise InputError(f"--out {out}: there is no directory {out.parent}, create it first")
    if out is not None and not os.access(out if out.exists() else out.absolute().parent, os.W_OK):
        raise InputError(f"--out {out}: no permission to write there, choose another directory")
    from rich.console import Console

    from fedkoopman.reports import tables

    with Console(stderr=True).status("starting") as status:
        table = import_module(RESULTS[result][0]).compute(trajectories, seed, status.update)
    tables.show(table)
    if out is not None:
        report, *_ = tables.write(table, out)
        typer.echo(f"report: {report}")
