"""Child processes that are kept running, and none of which outlives its parent.

A child leads its own process group. So Ctrl-C reaches only the parent, and whatever a child has
started is ended with it. A thread of the parent copies the child's output to a log, line by line:
the log is rotated while the child runs, and no line is lost.

A child that ends is started again, after half a second at first and after half a minute at most;
one that ran for a minute starts from half a second again.

`exit_status` is the child's side: how it ends when its work fails.
"""

import contextlib
import errno
import logging
import logging.handlers
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fedkoopman.durable import writing
from fedkoopman.errors import ComputationError, InputError, system_error
from fedkoopman.user_code import blamed

GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL."""
LOG_BYTES, LOG_FILES = 2 * 2**20, 5
"""Size of a log file, and how many are kept."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before a child is restarted: after its first exit, and after many."""
STABLE = 60.0
"""Seconds that a child must run before its waits start from the first again."""
_START = """
import ctypes, os, sys
PR_SET_PDEATHSIG = 1
parent, sign = map(int, sys.argv[1:3])
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, sign)
if os.getppid() == parent:  # otherwise the parent has already died
    os.execv(sys.argv[3], sys.argv[3:])
"""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Child:
    """A process that is to be kept running.

    Arguments:
        name: for messages.
        command: and its arguments.
        log: the file that takes its output, each line with its time.
        env: its whole environment; None: that of this process.
        restart: whether it is restarted when it ends; with False, its end is final.
        final: exit statuses after which it is not restarted either.
        echo: is called with every line of its output.
        orphaned: the signal that it gets when this process is killed.
    """

    name: str
    command: list[str]
    log: Path
    env: Mapping[str, str] | None = None
    restart: bool = True
    final: tuple[int, ...] = ()
    echo: Callable[[str], None] | None = None
    orphaned: signal.Signals = signal.SIGKILL


class Process:
    """One started process of a child."""

    def __init__(self, child: Child) -> None:
        with writing(child.log):
            child.log.parent.mkdir(parents=True, exist_ok=True)
            lines = logging.handlers.RotatingFileHandler(
                child.log,
                maxBytes=LOG_BYTES,
                backupCount=LOG_FILES - 1,
                encoding="utf-8",
                errors="replace",
            )
        try:
            self._process = subprocess.Popen(
                _die_with_parent(child),
                env=None if child.env is None else dict(child.env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            lines.close()
            raise system_error(f"cannot start {child.name} ({child.command[0]})", error) from error
        self.pid = self._process.pid
        self.started = time.monotonic()
        self.last_line = ""

        def receive(line: str) -> None:
            self.last_line = line
            if child.echo is not None:
                with contextlib.suppress(Exception):  # a failing listener must not stop the log
                    child.echo(line)

        arguments = (self._process.stdout, lines, receive)
        self._reader = threading.Thread(
            target=_copy_lines, args=arguments, name=child.name, daemon=True
        )
        self._reader.start()

    @property
    def dead(self) -> bool:
        """Whether it has ended. Its process number is not reused before `reap`."""
        if self._process.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    @property
    def status(self) -> int | None:
        """Its exit status after `reap`; negative: the signal that ended it."""
        return self._process.returncode

    def end(self) -> int:
        """Send SIGTERM, and SIGKILL if it does not end; gives its exit status."""
        end = time.monotonic() + GRACE
        if not self.dead:
            self._signal(signal.SIGTERM)
        while not self.dead and time.monotonic() < end:
            time.sleep(0.02)
        return self.reap()

    def reap(self) -> int:
        """Kill it, if it still runs, and what it started; wait for its last lines."""
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)
        status = self._process.wait()
        self._reader.join(timeout=2.0)
        return status

    def _signal(self, sign: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, sign)


def _copy_lines(output: IO[bytes], log: logging.Handler, receive: Callable[[str], None]) -> None:
    """Copy lines to a log until there are no more; a full disk loses lines, not the child."""
    log.handleError = lambda record: None  # type: ignore[method-assign]
    log.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    with output:
        for line in iter(lambda: output.readline(2**16), b""):
            text = _COLOURS.sub("", line.decode(errors="replace")).rstrip()
            if text:
                log.handle(logging.makeLogRecord({"msg": text}))
                receive(text)
    log.close()


def _die_with_parent(child: Child) -> list[str]:
    """A command whose process gets a signal when this process ends in any way (on Linux).

    The new process asks the kernel for the signal and then executes the command. This process
    cannot ask in its place: that would run Python between fork and exec, which is unsafe in a
    process with threads.
    """
    path = (os.environ if child.env is None else child.env).get("PATH")
    program = shutil.which(child.command[0], path=path)
    if program is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if not sys.platform.startswith("linux"):
        return [program, *child.command[1:]]
    start = [sys.executable, "-I", "-S", "-c", _START, str(os.getpid()), str(int(child.orphaned))]
    return [*start, program, *child.command[1:]]


@dataclass
class _Supervised:
    """A child and its current process.

    Arguments:
        wait: seconds before it is restarted, when it next ends.
        due: when it is to be restarted.
        over: whether it has ended for good.
    """

    child: Child
    process: Process
    wait: float = FIRST_WAIT
    due: float | None = None
    over: bool = False


class Supervisor:
    """Keeps children running. To be used from one thread, which must live as long as they do.

    Arguments:
        say: is called with lines that tell what happens.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._children: dict[str, _Supervised] = {}

    def __enter__(self) -> "Supervisor":
        return self

    def __exit__(self, *cause: object) -> None:
        self.stop()

    def start(self, child: Child) -> None:
        """Start a child and keep it running."""
        self._children[child.name] = _Supervised(child, Process(child))

    def alive(self, name: str) -> bool:
        """Whether a child runs."""
        return name in self._children and not self._children[name].process.dead

    def pid(self, name: str) -> int:
        """The number of a child's process, of the last one if it has ended."""
        return self._children[name].process.pid

    def status(self, name: str) -> int | None:
        """The exit status of a child that has ended; negative: the signal that ended it."""
        return self._children[name].process.status

    def final(self, name: str) -> bool:
        """Whether a child has ended for good."""
        return self._children[name].over

    def last_line(self, name: str) -> str:
        """The last line of a child's output."""
        return self._children[name].process.last_line

    def poll(self) -> list[str]:
        """Restart children that are due; gives the names of those that have just ended.

        To be called several times a second.
        """
        ended = []
        for one in self._children.values():
            if not one.over and one.due is None and one.process.dead:
                ended.append(one.child.name)
                self._report_exit(one)
        for one in self._children.values():
            if one.due is not None and one.due <= time.monotonic():
                self._launch(one)
        return ended

    def stop(self) -> None:
        """End all children, the last one first; those that ignore SIGTERM are killed."""
        for one in reversed(self._children.values()):
            one.process.end()
        self._children.clear()

    def _report_exit(self, one: _Supervised) -> None:
        """Say how a child ended, and decide when it is restarted."""
        child, status = one.child, one.process.reap()
        how = f"ended with status {status}" if status >= 0 else f"was ended by {_named(-status)}"
        if not child.restart or status in child.final:
            one.over = True
            if status:
                self._say(f"{child.name} {how}; its log: {child.log}")
            return
        if time.monotonic() - one.process.started >= STABLE:
            one.wait = FIRST_WAIT
        self._say(f"{child.name} {how}; it is started again in {one.wait:g} s ({child.log})")
        self._postpone(one)

    def _postpone(self, one: _Supervised) -> None:
        one.due = time.monotonic() + one.wait
        one.wait = min(2 * one.wait, LONGEST_WAIT)

    def _launch(self, one: _Supervised) -> None:
        try:
            one.process = Process(one.child)
        except (InputError, ComputationError) as error:  # a full disk, for example, may pass
            self._say(f"{error}; trying again in {one.wait:g} s")
            self._postpone(one)
            return
        one.due, one.over = None, False


def exit_status(work: Callable[[], int], short_of_memory: str) -> int:
    """Do a child's work; what a person should know of a failure is its last line.

    Returns what `work` returns. After an error: 2 if the input is wrong and a person must act, 1 if
    the child may be started again.
    """
    told: object
    try:
        return work()
    except (InputError, ComputationError) as error:
        told, status = error, error.exit_code
    except OSError as error:
        told, status = f"the machine failed: {error}", 1
    except MemoryError:
        told, status = short_of_memory, 1
    except Exception as error:
        if (users := blamed(error)) is None:
            raise
        told, status = users, users.exit_code
    print(f"error: {' '.join(str(told).split())}", file=sys.stderr, flush=True)
    return status


def _named(number: int) -> str:
    """The name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
