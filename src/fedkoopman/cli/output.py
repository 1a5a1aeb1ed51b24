"""Standard output, whose failures are told apart from those of other files."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from fedkoopman.errors import MachineError

__all__ = ["Output", "OutputError"]


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
