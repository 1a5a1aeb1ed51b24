"""The program's own process: its standard output, and where JAX keeps what it compiled.

Only the program sets options of JAX, not the library: here the process is ours.
"""

import hashlib
import os
import platform
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import typer

from fedkoopman.errors import MachineError


class OutputError(MachineError):
    """Standard output cannot be written, as on a full disk."""


class Output:
    """A stream that raises `OutputError` where writing fails; in all else, the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text."""
        with _told():
            return self._stream.write(text)

    def flush(self) -> None:
        """Write what is waiting."""
        with _told():
            self._stream.flush()


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        cause = error.strerror or error
        raise OutputError(f"cannot write to standard output: {cause}; make room there") from error


def tell_next(*words: str | Path) -> None:
    """Print the next command.

    Arguments:
        words: of the command, after `fedkoopman`.
    """
    typer.echo(f"next: {shlex.join(['fedkoopman', *map(str, words)])}")


def say(line: str) -> None:
    """Print a line of a service, which goes on where it cannot be written, as on a full disk."""
    with suppress(OSError, OutputError):
        typer.echo(line)


def keep_compiled() -> None:
    """Let JAX keep compiled functions in the user's cache, where that can be written.

    Compiled code is for one kind of processor, and a home directory may be shared by several; so
    each kind has a directory of its own. `JAX_COMPILATION_CACHE_DIR`, if set, goes first. Where JAX
    is loaded already, someone else uses it in this process, and nothing is changed.
    """
    if "jax" in sys.modules or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        # JAX reads these when it is loaded, which a refused study should not have to wait for.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


def cache_folder(program: str = "fedkoopman") -> Path:
    """The directory of a program's compiled functions, for this JAX and kind of processor."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / program / f"jaxlib-{version('jaxlib')}-{_processor()}"


def _processor() -> str:
    """A short name for the kind of processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        about = sorted({line for line in lines if line.startswith(("model name", "flags"))})
    except OSError:
        about = [platform.processor()]
    text = "\n".join([platform.machine(), *about])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
