"""The agent's worker: a process that computes, and holds JAX only while there is something to do.

    agent ── a socket: one connection per call ──▶ worker (`worker_process`)

The agent calls the methods of `work.Work` on a `Worker` as if it were one. A call starts the worker
if there is none; `rest` ends it when nothing was asked of it for a while. All calls are pure
functions of their arguments: one whose worker was killed is made again, by a new one, and comes to
the same. A worker ends as soon as its agent does, since the socket between them then ends.
"""

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.deploy.site.handover import receive, send
from fedkoopman.errors import ComputationError, InputError, MachineError, PeerError, system_error

if TYPE_CHECKING:
    from fedkoopman.deploy.site.work import Work

__all__ = ["CALLS", "STREAMS", "Worker", "WorkerFailed", "worker_for"]

LOG = logging.getLogger("fedkoopman.agent")
CALLS = (
    "facts", "survey", "first_held_out", "learn",
    "answer", "over_budget", "epsilon", "scored", "compare", "warm",
)  # fmt: skip
"""All that a worker can be asked, but for what comes piece by piece."""
STREAMS = ("estimated",)
ERRORS = {one.__name__: one for one in (PeerError, InputError, MachineError, ComputationError)}
"""Errors that are told as they are; the more special ones first."""
ATTEMPTS = 3
"""Workers that may be killed over one call."""
PATIENCE = 5.0
"""Seconds in which a worker that has nothing to do ends."""


class WorkerFailed(RuntimeError):
    """Something that was not foreseen failed in the worker, which goes on.

    Attributes:
        kind: the class of the error.
    """

    def __init__(self, kind: str, words: str) -> None:
        self.kind = kind
        super().__init__(words)


class Worker:
    """Has `Work`'s methods computed by a process; threads may share it."""

    def __init__(
        self, site: SiteFile, study: Study, identity: int, clients: int, idle: float
    ) -> None:
        """Arguments:

        idle: seconds without a call after which `rest` ends the process.
        """
        # The files may change before the next worker is started, what the site agreed to may not.
        self._about = [
            site.to_dict(), site.path, study.to_dict(), study.folder, identity, clients,
        ]  # fmt: skip
        self._idle = idle
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._calls, self._last = 0, time.monotonic()
        self._closed, self._status = False, 0
        """Whether no more is to be computed, and the exit status of the last process."""

    def __getattr__(self, name: str) -> Any:
        """A method of `Work`, as far as it is on the list."""
        if name in CALLS:
            return partial(self._call, name)
        if name in STREAMS:
            return partial(self._stream, name)
        raise AttributeError(f"a worker has no {name!r}")

    @property
    def pid(self) -> int | None:
        """The number of the process; None if there is none."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def rest(self) -> None:
        """End the process if it was idle for long enough."""
        with self._guard:
            if not self._calls and time.monotonic() - self._last >= self._idle:
                self._end()

    def close(self) -> None:
        """End the process, whatever it does, for good."""
        with self._guard:
            self._closed = True
            if self._process is not None and self._calls:
                self._process.kill()
            self._end()

    def _call(self, name: str, *arguments: Any) -> Any:
        for value in self._stream(name, *arguments):
            return value
        raise AssertionError(f"the worker answers {name} with nothing")

    def _stream(self, name: str, *arguments: Any) -> Iterator[Any]:
        """What the worker gives. After its death it begins anew, and what was given is skipped."""
        given, killed = 0, 0
        while True:
            try:
                for place, value in enumerate(self._once(name, arguments)):
                    if place >= given:
                        given, killed = given + 1, 0
                        yield value
                return
            except (EOFError, ConnectionError) as error:
                killed += 1
                if killed == ATTEMPTS:
                    raise MachineError(
                        f"the process that computes ended {ATTEMPTS} times over this, at last with "
                        f"status {self._status}: see the agent's log; the machine may be short of "
                        "memory: cut segments by data.longest, or add swap"
                    ) from error

    def _once(self, name: str, arguments: Sequence[Any]) -> Iterator[Any]:
        with self._connection() as connection:
            send(connection, [name, *arguments])
            while (told := receive(connection))[0] == "value":
                yield told[1]
            if told[0] == "over":
                return
            _, kind, words = told
            raise ERRORS[kind](words) if kind in ERRORS else WorkerFailed(kind, words)

    @contextmanager
    def _connection(self) -> Iterator[socket.socket]:
        """A connection to the worker, which is started if need be."""
        with self._guard:
            if self._closed:
                raise MachineError("the agent is ending: nothing more is computed")
            if self._process is None:
                self._start()
            process, control = self._process, self._control
            assert process is not None and control is not None
            ours, theirs = socket.socketpair()
            self._calls += 1
        try:
            with ours:
                with theirs:
                    socket.send_fds(control, [b"c"], [theirs.fileno()])
                yield ours
        except (EOFError, ConnectionError):
            with self._guard:
                if self._process is process:
                    process.kill()  # if it has not ended, it is of no use any more
                    self._end()
                    LOG.warning("the process that computes ended with status %d", self._status)
            raise
        finally:
            with self._guard:
                self._calls -= 1
                self._last = time.monotonic()

    def _start(self) -> None:
        command = [sys.executable, "-m", "fedkoopman.deploy.site.worker_process"]
        control, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(command, stdin=theirs.fileno())
            except OSError as error:
                control.close()
                raise system_error("cannot start the process that computes", error) from error
        self._control = control
        with suppress(ConnectionError):  # whoever asks it next finds out
            send(control, self._about)

    def _end(self) -> None:
        """End the process, if there is one."""
        process, control = self._process, self._control
        if process is None or control is None:
            return
        control.close()
        try:
            self._status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            self._status = process.wait()
        self._process = self._control = None


def worker_for(site: SiteFile, study: Study, identity: int, clients: int, idle: float) -> "Work":
    """A worker, as what it stands for."""
    return cast("Work", Worker(site, study, identity, clients, idle))
