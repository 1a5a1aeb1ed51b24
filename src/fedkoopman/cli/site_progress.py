"""How far sites have come with their own data, before anybody trains."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedkoopman.cli.interruption import heed


@contextmanager
def site_progress(wanted: bool) -> Iterator[Callable[[str, int, int], None]]:
    """What is told of the sites' work: a bar on a terminal, a line per piece of work elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not wanted:
        yield lambda *_: heed()
        heed()
        return
    if not console.is_terminal:
        told: set[str] = set()

        def line(what: str, done: int, of: int) -> None:
            heed()
            if what not in told:
                told.add(what)
                print(what, file=sys.stderr, flush=True)

        yield line
        heed()
        return
    layout = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*layout, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(what: str, done: int, of: int) -> None:
            heed()
            bar.update(task, description=what, completed=done, total=of)

        yield show
        heed()
