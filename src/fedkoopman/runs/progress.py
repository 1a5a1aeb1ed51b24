"""How far runs have come: a bar on a terminal or in a notebook, a line now and then in a log."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedkoopman.runs.run import Progress

LINES = 10
"""How many lines a whole run puts into a log."""
REDRAWN = 0.2
"""Seconds between two bars in a notebook, but for the last."""
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
    elif (display := _notebook()) is not None:
        yield tally, cell_bar(display, tally)
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


def _notebook() -> Callable[..., Any] | None:
    """What shows things in the notebook that this process serves; None if it serves none."""
    if "IPython" not in sys.modules:
        return None
    kernel = getattr(import_module("IPython").get_ipython(), "kernel", None)  # of a notebook
    return None if kernel is None else import_module("IPython.display").display


def cell_bar(display: Callable[..., Any], tally: Tally) -> Callable[[], None]:
    """A bar of HTML below the cell that runs, which needs no widgets."""
    handle, drawn = None, -math.inf

    def show() -> None:
        nonlocal handle, drawn
        now = time.monotonic()
        if now - drawn < REDRAWN and tally.done < tally.total:
            return
        drawn = now
        words = "  ".join(w for w in (tally.title, tally.count, tally.news, tally.left) if w)
        bar = f'<progress max="{tally.total}" value="{tally.done}"></progress>'
        content = {"text/plain": words, "text/html": f"{bar} <small>{escape(words)}</small>"}
        if handle is None:
            handle = display(content, raw=True, display_id=True)
        else:
            handle.update(content, raw=True)

    return show


@contextmanager
def told(wanted: Any, slots: int) -> Iterator[Callable[["Progress"], None] | None]:
    """What is called after every slot: the caller's own function, a bar for True, or nothing.

    Arguments:
        slots: of all seeds together.
    """
    if not isinstance(wanted, bool):
        yield wanted
        return
    with slot_progress(wanted, slots) as (tally, show):

        def tell(event: "Progress") -> None:
            tally.add(event)
            show()

        yield tell


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
