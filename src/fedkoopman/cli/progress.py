"""How far a command has come with states: a bar on a terminal, a line now and then in a log."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedkoopman.runs.progress import slot_progress
from fedkoopman.signals import raise_if_interrupted

__all__ = ["progress_bar", "site_progress", "slot_progress"]


@contextmanager
def site_progress(wanted: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Show the sites' work: a bar on a terminal, a line per piece of work elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console, told = Console(stderr=True), set()
    drawn = wanted and console.is_terminal
    layout = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*layout, console=console, transient=True, disable=not drawn) as bar:
        task = bar.add_task("", total=None)

        def tell(what: str, done: int, of: int) -> None:
            raise_if_interrupted()
            if wanted and not drawn and what not in told:
                told.add(what)
                print(what, file=sys.stderr, flush=True)
            bar.update(task, description=what, completed=done, total=of)

        yield tell
        raise_if_interrupted()


@contextmanager
def progress_bar(
    wanted: bool | None, trajectories: int
) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on stderr, where there is a terminal to draw it on or where it is wanted."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, force_terminal=True if wanted else None)
    if wanted is False or not console.is_terminal:
        yield None
        return
    # one trajectory is one compiled loop, which cannot say how far it has come: the bar pulses
    many = trajectories > 1
    counts = [TextColumn("{task.completed:,} of {task.total:,} trajectories")] if many else []
    layout = (TextColumn("estimating"), BarColumn(), *counts, TimeElapsedColumn())
    with Progress(*layout, console=console, transient=True) as bar:
        task = bar.add_task("", total=trajectories if many else None)
        yield lambda done, total: bar.update(task, completed=done)
