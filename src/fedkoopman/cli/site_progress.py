"""How far sites have come with their own data, before anybody trains."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedkoopman.signals import raise_if_interrupted


@contextmanager
def site_progress(wanted: bool) -> Iterator[Callable[[str, int, int], None]]:
    """What is told of the sites' work: a bar on a terminal, a line per piece of work elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not wanted:
        yield lambda *_: raise_if_interrupted()
        raise_if_interrupted()
        return
    if not console.is_terminal:
        told: set[str] = set()

        def line(what: str, done: int, of: int) -> None:
            raise_if_interrupted()
            if what not in told:
                told.add(what)
                print(what, file=sys.stderr, flush=True)

        yield line
        raise_if_interrupted()
        return
    layout = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*layout, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(what: str, done: int, of: int) -> None:
            raise_if_interrupted()
            bar.update(task, description=what, completed=done, total=of)

        yield show
        raise_if_interrupted()
