"""`fedkoopman init`: a directory with a study for real sites, to be filled in or to be tried."""

from pathlib import Path
from typing import Annotated

import typer

from fedkoopman.cli.next_step import tell_next
from fedkoopman.errors import InputError

EXAMPLE = """
fedkoopman init swings --example pendulum
"""
SITES = "site-a,site-b,site-c"


def init(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The new directory.", show_default=False),
    ],
    example: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Fill it with a worked example and made-up data: pendulum.",
            show_default=False,
        ),
    ] = None,
    sites: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME",
            help=f"Names of the sites; otherwise {SITES}.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Begin a study of data from several sites: study.toml, a site.toml per site, dynamics.py."""
    if example is not None and sites is not None:
        raise InputError("--example brings its own sites: leave out --sites")

    from fedkoopman.config.scaffold import example_files, plain_files, write_scaffold

    if example is not None:
        content = example_files(example)
    else:
        names = [name.strip() for name in (sites or SITES).split(",")]
        content = plain_files(directory.resolve().name, names)
    write_scaffold(directory, content)
    typer.echo(f"wrote {directory}: {len(content)} files, study.toml among them")
    if example is None:
        typer.echo(
            f"next: put data beside each site.toml and describe it, see {directory}/README.md"
        )
    tell_next("check", directory / "study.toml")
