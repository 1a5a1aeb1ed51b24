"""What fedkoopman raises, told apart by whose fault it is.

- `InputError`: the user's input; the program ends with 2, and starting it again is no use.
- `MachineError`: storage or the machine (a full disk, no memory); it ends with 1, and a service is
  started again.
- `PeerError`: what another machine sent is wrong; also 1.
- `ComputationError`: the input is well formed but the computation failed; also 1.
"""

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

__all__ = [
    "ComputationError",
    "InputError",
    "MachineError",
    "PeerError",
    "cause_of",
    "short",
    "system_error",
    "underway",
    "unknown_name",
]

MACHINE = frozenset(
    getattr(errno, name)
    for name in (
        "EAGAIN", "EDQUOT", "EFBIG", "EIO", "EMFILE", "ENFILE", "ENOBUFS", "ENODEV", "ENOLCK",
        "ENOMEM", "ENOSPC", "ENXIO", "ESTALE", "ETIMEDOUT",
    )
    if hasattr(errno, name)
)  # fmt: skip
"""Errors of the system that are never due to what the user wrote."""
_LONGEST, _LISTED = 60, 60
_services = 0


class InputError(ValueError):
    """The input is wrong. The message is one line with cause, value and remedy."""

    exit_code = 2


class ComputationError(RuntimeError):
    """The input is well formed but the computation failed; the message says what was affected."""

    exit_code = 1


class MachineError(ComputationError):
    """Storage or the machine failed: a full disk, a lost permission, no memory. It may pass."""


class PeerError(InputError):
    """What another machine sent is wrong.

    Who reads messages refuses it like any other wrong input. Where it ends a process, the process
    may be started again: the user of this machine has nothing to mend.
    """

    exit_code = 1


def short(value: object) -> str:
    """A value as it may stand in a message: on one line, cut after 60 characters."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a number of thousands of digits, lists nested too deep, a user's own repr
        text = f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def cause_of(error: BaseException) -> str:
    """An exception in one line: its type and the first line of what it says."""
    try:
        said = str(error)
    except Exception:  # a user's own exception may fail to describe itself
        said = "its message cannot be shown"
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    words = lines[0] if lines else ""
    name = type(error).__name__
    return f"{name}: {words if len(words) <= 200 else words[:197] + '...'}" if words else name


def system_error(doing: str, error: OSError, remedy: str = "") -> InputError | MachineError:
    """What the operating system refused, as the error of the one who can do something about it.

    A path that does not exist or may not be used is the user's mistake, as long as the program is
    about to begin. Once work is under way the paths were good, and so the machine has changed.

    Arguments:
        doing: what failed, as "cannot write DIR/model.safetensors".
        error: what the system said.
        remedy: what the user can do.
    """
    words = f"{doing}: {error.strerror or error}" + (f"; {remedy}" if remedy else "")
    return MachineError(words) if _services or error.errno in MACHINE else InputError(words)


@contextmanager
def underway() -> Iterator[None]:
    """Within it, whatever the system refuses is the machine's fault; see `system_error`."""
    global _services
    _services += 1
    try:
        yield
    finally:
        _services -= 1


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not among the known ones; it suggests the nearest.

    Arguments:
        kind: what is named ("system", "parameter"), as it should read in the message.
        name: what the user wrote.
        known: the names that exist.
    """
    names = sorted(known)
    nearest = get_close_matches(str(name)[:_LONGEST], names, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    more = len(names) - _LISTED
    listed = ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")
    listed = " ".join(listed.split())  # names that come from a damaged file may hold anything
    return InputError(f"unknown {kind} {short(name)}: {hint}known: {listed or 'none'}")
