"""What fedkoopman raises: a user's mistake and a failed computation are told apart by type."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["ComputationError", "InputError", "short", "unknown_name"]


class InputError(ValueError):
    """The input is wrong. The message is one line with cause, value and remedy (exit code 2)."""


class ComputationError(RuntimeError):
    """The input is well formed but the computation failed; says what was affected (exit code 1)."""


def short(value: object) -> str:
    """A value as it may stand in a message: on one line, cut after 60 characters."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # a whole number of thousands of digits
        text = f"a {type(value).__name__} too long to show"
    return text if len(text) <= 60 else text[:57] + "..."


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not among the known ones; it suggests the nearest.

    Arguments:
        kind: what is named ("system", "parameter"), as it should read in the message.
        name: what the user wrote.
        known: the names that exist.
    """
    names = sorted(known)
    nearest = get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    listed = ", ".join(names) if names else "none"
    return InputError(f"unknown {kind} {name!r}: {hint}known: {listed}")
