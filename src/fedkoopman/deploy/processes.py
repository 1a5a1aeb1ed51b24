"""One child process: its birth, its log, and its end together with its parent's.

A child leads a process group of its own, so that Ctrl-C reaches the parent alone and what a child
starts is ended with it. Its output goes to a log line by line, through a thread of the parent: so
the log is rotated while the child runs, no line is lost, and a child is never held up by its log
for longer than a disk takes.
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
from pathlib import Path
from typing import IO

from fedkoopman.durable import writing
from fedkoopman.errors import system_error

__all__ = ["Process"]

GRACE = 10.0
"""Seconds to end in, when told to."""
BYTES, FILES = 2 * 2**20, 5
"""Of a log: the size of a file, and how many are kept."""
_ASK = """
import ctypes, os, sys
PR_SET_PDEATHSIG = 1
parent, sign = map(int, sys.argv[1:3])
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, sign)
if os.getppid() == parent:  # otherwise the parent died before it could be asked for
    os.execv(sys.argv[3], sys.argv[3:])
"""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Process:
    """A process that was started.

    Arguments:
        name: for messages.
        command: and its arguments.
        log: the file that takes its output, each line with its time.
        env: its whole environment; None: that of this process.
        echo: hears every line of its output, as the log does.
        orphaned: the signal that it gets when this process is killed.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        echo: Callable[[str], None] | None = None,
        orphaned: signal.Signals = signal.SIGKILL,
    ) -> None:
        with writing(log):
            log.parent.mkdir(parents=True, exist_ok=True)
            lines = logging.handlers.RotatingFileHandler(
                log, maxBytes=BYTES, backupCount=FILES - 1, encoding="utf-8", errors="replace"
            )
        try:
            self._process = subprocess.Popen(
                _die_with_parent(command, env, orphaned),
                env=None if env is None else dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            lines.close()
            raise system_error(f"cannot start {name} ({command[0]})", error) from error
        self.pid = self._process.pid
        self.started = time.monotonic()
        self.last_line = ""

        def hear(line: str) -> None:
            self.last_line = line
            if echo is not None:
                with contextlib.suppress(Exception):  # who listens must not hold up the child
                    echo(line)

        arguments = (self._process.stdout, lines, hear)
        self._reader = threading.Thread(target=_write_down, args=arguments, name=name, daemon=True)
        self._reader.start()

    @property
    def dead(self) -> bool:
        """Whether it has ended; its number stays its own until it is buried."""
        if self._process.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    @property
    def status(self) -> int | None:
        """Its exit status once it is buried; negative: the signal that ended it."""
        return self._process.returncode

    def end(self) -> int:
        """Tell it to end, and kill it if it does not; gives its exit status."""
        end = time.monotonic() + GRACE
        if not self.dead:
            self._signal(signal.SIGTERM)
        while not self.dead and time.monotonic() < end:
            time.sleep(0.02)
        return self.reap()

    def reap(self) -> int:
        """Kill it if it still runs, and what it started; wait for its last lines."""
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)
        status = self._process.wait()
        self._reader.join(timeout=2.0)
        return status

    def _signal(self, sign: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, sign)


def _write_down(output: IO[bytes], log: logging.Handler, hear: Callable[[str], None]) -> None:
    """Copy lines to a log until there are no more; a full disk loses lines, not the child."""
    log.handleError = lambda record: None  # type: ignore[method-assign]
    log.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    with output:
        for line in iter(lambda: output.readline(2**16), b""):
            text = _COLOURS.sub("", line.decode(errors="replace")).rstrip()
            if text:
                log.handle(logging.makeLogRecord({"msg": text}))
                hear(text)
    log.close()


def _die_with_parent(
    command: list[str], env: Mapping[str, str] | None, orphaned: signal.Signals
) -> list[str]:
    """A command whose process gets a signal when this one ends, however that comes about, where
    there is a way. It asks for that itself before it becomes what it is to be: between fork and
    exec, where a process with threads must not run Python, this one could not ask for it."""
    place = (os.environ if env is None else env).get("PATH")
    program = shutil.which(command[0], path=place)
    if program is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if not sys.platform.startswith("linux"):
        return [program, *command[1:]]
    return [
        sys.executable, "-I", "-S", "-c", _ASK, str(os.getpid()), str(int(orphaned)), program,
        *command[1:],
    ]  # fmt: skip
