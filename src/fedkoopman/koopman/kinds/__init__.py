"""The model kinds: one file each, found by name."""

from typing import TYPE_CHECKING, Any

from fedkoopman.errors import InputError, short
from fedkoopman.registry import Registry

if TYPE_CHECKING:
    from fedkoopman.koopman.kind import Kind

__all__ = ["KINDS", "find_kind", "name_of"]


def _wrong(member: Any) -> str:
    from fedkoopman.koopman.kind import Kind  # with JAX, which a list of names does not need

    if not (isinstance(member, type) and issubclass(member, Kind)):
        return "is not a model kind: write a subclass of fedkoopman.koopman.kind.Kind"
    return "" if hasattr(member, "name") else 'has no name: write name = "…" in the class'


KINDS: "Registry[type[Kind]]" = Registry("model kind", "fedkoopman.koopman.kinds", "KIND", _wrong)


def find_kind(given: "str | type[Kind]") -> "type[Kind]":
    """The model kind of a name, or the class itself.

    Arguments:
        given: one of `KINDS`, "file.py:name", or a class.
    """
    if isinstance(given, str):
        return KINDS.find(given)
    if wrong := _wrong(given):
        raise InputError(f"kind is {short(given)}, which {wrong}, or give a name")
    return given


def name_of(kind: "type[Kind]") -> "str | type[Kind]":
    """By what `find_kind` finds a class: its name, or else the class itself."""
    return kind.name if kind.name in KINDS and KINDS.find(kind.name) is kind else kind
