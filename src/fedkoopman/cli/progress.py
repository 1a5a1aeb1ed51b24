"""A progress bar for long input."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
