"""Child processes that are kept running, and none of which outlives its parent.

A child that ends is started again, after half a second at first and after half a minute at most;
one that lived for a minute starts from half a second again. Children that only work together are
started again together.
"""

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedkoopman.deploy.processes import Process
from fedkoopman.errors import ComputationError, InputError

__all__ = ["Child", "Supervisor"]

FIRST, LAST = 0.5, 30.0
"""Seconds before a child is started again: after its first end, and after many."""
SOUND = 60.0
"""Seconds that a child must live to be trusted again."""


@dataclass(frozen=True)
class Child:
    """A process that is wanted.

    Arguments:
        name: for people.
        command: and its arguments.
        log: the file that takes its output.
        env: its whole environment; None: that of this process.
        restart: whether it is started again when it ends; with False, its end is final.
        partners: names of children that are started again whenever this one is.
        final: exit statuses after which it is not started again either.
        echo: hears every line of its output, as the log does.
        orphaned: the signal that it gets when this process is killed.
    """

    name: str
    command: list[str]
    log: Path
    env: Mapping[str, str] | None = None
    restart: bool = True
    partners: tuple[str, ...] = ()
    final: tuple[int, ...] = ()
    echo: Callable[[str], None] | None = None
    orphaned: signal.Signals = signal.SIGKILL

    def launch(self) -> Process:
        """Start it."""
        return Process(self.name, self.command, self.log, self.env, self.echo, self.orphaned)


@dataclass
class _Kept:
    """A child and how it fares.

    Arguments:
        wait: seconds before it is started again, when it next ends.
        due: when it is to be started again.
        over: whether it has ended for good.
    """

    child: Child
    process: Process
    wait: float = FIRST
    due: float | None = None
    over: bool = False


class Supervisor:
    """Keeps children running. To be used from one thread, which must live as long as they do.

    Arguments:
        say: is told what happens, in lines.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._kept: dict[str, _Kept] = {}

    def __enter__(self) -> "Supervisor":
        return self

    def __exit__(self, *cause: object) -> None:
        self.stop()

    def start(self, child: Child) -> None:
        """Start a child and keep it running."""
        self._kept[child.name] = _Kept(child, child.launch())

    def alive(self, name: str) -> bool:
        """Whether a child runs."""
        return name in self._kept and not self._kept[name].process.dead

    def pid(self, name: str) -> int:
        """Of a child's process, the last one if it has ended."""
        return self._kept[name].process.pid

    def status(self, name: str) -> int | None:
        """The exit status of a child that has ended; negative: by which signal."""
        return self._kept[name].process.status

    def final(self, name: str) -> bool:
        """Whether a child has ended for good."""
        return self._kept[name].over

    def last_line(self, name: str) -> str:
        """What a child said last."""
        return self._kept[name].process.last_line

    def poll(self) -> list[str]:
        """Look after the children; gives the names of those that have just ended.

        To be called several times a second.
        """
        ended = []
        for kept in self._kept.values():
            if not kept.over and kept.due is None and kept.process.dead:
                ended.append(kept.child.name)
                self._report_exit(kept)
        for kept in self._kept.values():
            if kept.due is not None and kept.due <= time.monotonic():
                self._renew(kept)
        return ended

    def restart(self, name: str) -> None:
        """Start a child again, now; it is told to end first."""
        self._kept[name].process.end()
        self._renew(self._kept[name])

    def stop(self) -> None:
        """End all children, the last one first; those that do not heed are killed."""
        for kept in reversed(self._kept.values()):
            kept.process.end()
        self._kept.clear()

    def _report_exit(self, kept: _Kept) -> None:
        """Tell of a child's end, and decide when it comes back."""
        child, status = kept.child, kept.process.reap()
        how = f"ended with status {status}" if status >= 0 else f"was ended by {_named(-status)}"
        if not child.restart or status in child.final:
            kept.over = True
            if status:
                self._say(f"{child.name} {how}; its log: {child.log}")
            return
        if time.monotonic() - kept.process.started >= SOUND:
            kept.wait = FIRST
        self._say(f"{child.name} {how}; it is started again in {kept.wait:g} s ({child.log})")
        self._postpone(kept)

    def _postpone(self, kept: _Kept) -> None:
        kept.due = time.monotonic() + kept.wait
        kept.wait = min(2 * kept.wait, LAST)

    def _renew(self, kept: _Kept) -> None:
        """Start a child again, and those that must be with it."""
        for name in kept.child.partners:
            partner = self._kept.get(name)
            if partner is not None and not partner.over:
                self._say(f"{name} is started again with {kept.child.name}")
                partner.process.end()
                self._relaunch(partner)
        self._relaunch(kept)

    def _relaunch(self, kept: _Kept) -> None:
        try:
            kept.process = kept.child.launch()
        except (InputError, ComputationError) as error:  # a full disk, for one: it may pass
            self._say(f"{error}; trying again in {kept.wait:g} s")
            self._postpone(kept)
            return
        kept.due, kept.over = None, False


def _named(number: int) -> str:
    """What a signal is called."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
