"""How far a command has come: a bar on a terminal, a line now and then in a log."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedkoopman.signals import raise_if_interrupted

if TYPE_CHECKING:
    from fedkoopman.runs.run import Progress


LINES = 10
"""How many lines a whole run puts into a log."""
NAMED_CLIENTS = 6
"""Up to so many active clients are named; more are counted."""


@dataclass
class Tally:
    """The slots done of all seeds and combinations, and what the latest records say.

    Attributes:
        total: how many slots there are.
        title: what is running, where there is more than one thing.
        passed: slots of combinations that came before.
    """

    total: int
    title: str = ""
    passed: int = 0
    reached: dict[int, int] = field(default_factory=dict)
    latest: dict[int, dict[str, Any]] = field(default_factory=dict)
    began: float = math.nan
    since: int = 0
    """Slots done since `began`, for the time that is left; resumed ones do not count."""

    def add(self, event: "Progress") -> None:
        """Count a finished slot."""
        if math.isnan(self.began):
            self.began = time.monotonic()
        else:
            self.since += 1
        self.reached[event.seed] = event.slot
        self.latest[event.seed] = event.record

    def following(self, title: str, passed: int) -> None:
        """Go on to another combination, after so many slots of all before it."""
        self.title, self.passed = title, passed
        self.reached, self.latest = {}, {}

    @property
    def done(self) -> int:
        """Slots done."""
        return self.passed + sum(self.reached.values())

    @property
    def left(self) -> str:
        """The time that is left, as 1:02:03 or 2:03; empty until it can be estimated."""
        if not self.since:
            return ""
        rate = self.since / max(time.monotonic() - self.began, 1e-9)
        seconds = math.ceil(max(self.total - self.done, 0) / rate)
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
        return f"{clock} left"

    @property
    def count(self) -> str:
        """The slots done, of how many."""
        return f"slot {self.done:,} of {self.total:,}"

    @property
    def news(self) -> str:
        """Loss and E, over several seeds their means, and who trained."""
        if not self.latest:
            return "starting"
        several = len(self.latest) > 1
        words = [f"{'mean ' if several else ''}loss {self._mean('loss')}", f"E {self._mean('E')}"]
        if several:
            active = sum(len(record["active"]) for record in self.latest.values())
            words.append(f"{active} active in {len(self.latest)} seeds")
        else:
            [record] = self.latest.values()
            words.append(f"active {_clients(record['active'])}")
        return "  ".join(words)

    def _mean(self, metric: str) -> str:
        values = [record.get(metric) for record in self.latest.values()]
        good = [v for v in values if v is not None and math.isfinite(v)]
        return f"{sum(good) / len(good):.4g}" if good else "not finite"


@contextmanager
def slot_progress(wanted: bool, total: int) -> Iterator[tuple[Tally, Callable[[], None]]]:
    """A tally of all seeds' and combinations' slots, and what shows it on stderr if wanted."""
    from rich.console import Console

    tally = Tally(total)
    console = Console(stderr=True)
    if not wanted:
        yield tally, lambda: None
    elif console.is_terminal:
        with _bar(console, tally) as show:
            yield tally, show
    else:
        yield tally, _lines(tally)


@contextmanager
def _bar(console: Any, tally: Tally) -> Iterator[Callable[[], None]]:
    from rich.progress import BarColumn, Progress, TextColumn

    names = ("title", "count", "news", "left")
    title, *after = (TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in names)

    def fields() -> dict[str, Any]:
        return {name: getattr(tally, name) for name in names}

    # A thread of its own draws the bar while the main thread works.
    layout = (title, BarColumn(bar_width=14), *after)
    with Progress(*layout, console=console, transient=True, refresh_per_second=5) as bar:
        task = bar.add_task("", total=tally.total, **fields())

        def show() -> None:
            bar.update(task, total=tally.total, completed=tally.done, **fields())

        yield show


def _lines(tally: Tally) -> Callable[[], None]:
    title, part = "", 0

    def show() -> None:
        nonlocal title, part
        if tally.title != title:
            title = tally.title
            print(title, file=sys.stderr, flush=True)
        if tally.latest and (now := LINES * tally.done // tally.total) != part:
            part = now
            words = (tally.count, tally.news, tally.left)
            print("  ".join(word for word in words if word), file=sys.stderr, flush=True)

    return show


def _clients(active: list[int]) -> str:
    if not active:
        return "none"
    few = len(active) <= NAMED_CLIENTS
    return ",".join(map(str, active)) if few else f"{len(active)} clients"


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
