"""Lines on standard output: what happens, and what a user would do next."""

import shlex
from contextlib import suppress
from pathlib import Path

import typer

from fedkoopman.cli.output import OutputError


def tell_next(*words: str | Path) -> None:
    """Print the next command.

    Arguments:
        words: of the command, after `fedkoopman`.
    """
    typer.echo(f"next: {shlex.join(['fedkoopman', *map(str, words)])}")


def say(line: str) -> None:
    """Print a line of a service, which goes on where it cannot be written, as on a full disk."""
    with suppress(OSError, OutputError):
        typer.echo(line)
