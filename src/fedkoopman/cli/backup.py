"""`fedkoopman backup` and `fedkoopman restore`: a run, a fleet or a site's state in one file."""

from pathlib import Path
from typing import Annotated

import typer

from fedkoopman.cli.options import argument, option

EXAMPLE = """
fedkoopman init swings --example pendulum
fedkoopman provision swings/study.toml
fedkoopman backup swings/fleet --to fleet.backup
"""
RESTORE_EXAMPLE = (
    EXAMPLE
    + """\
fedkoopman restore fleet.backup --to elsewhere
"""
)


def backup(
    what: Annotated[
        list[Path],
        argument(
            "DIR...",
            "A server's run and fleet, or a site's state (.fedkoopman/NAME beside site.toml).",
        ),
    ],
    to: Annotated[Path, option("FILE", "The new file.")],
) -> None:
    """Save directories in one file; they may be in use meanwhile."""
    from fedkoopman.deploy.backup import backup as save

    saved = save(what, to)
    for name, kind in saved.parts.items():
        typer.echo(f"saved {name}: {kind}")
    typer.echo(
        f"wrote {to}: {saved.files:,} files, {saved.size:,} bytes; it holds private keys: protect "
        "it like them"
    )


def restore(
    file: Annotated[Path, argument("FILE", "A backup.")],
    to: Annotated[
        Path,
        option("DIR", "The directory into which what was saved is put, each under its own name."),
    ],
) -> None:
    """Put back what was saved; every byte is checked, and nothing is overwritten."""
    from fedkoopman.deploy.backup import restore as put_back

    saved = put_back(file, to)
    for name, kind in saved.parts.items():
        typer.echo(f"restored {to / name}: {kind}, as it was at {saved.made}")
    typer.echo("it does not hold what happened since: see docs/deployment.md, Backup and restore")
