"""What a user would do next, as a line that can be pasted into a shell."""

import shlex
from pathlib import Path

import typer


def tell_next(*words: str | Path) -> None:
    """Print the next command.

    Arguments:
        words: of the command, after `fedkoopman`.
    """
    typer.echo(f"next: {shlex.join(['fedkoopman', *map(str, words)])}")
