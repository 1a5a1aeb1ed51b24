"""Data formats by suffix, and whether a path is a file of one of them.

A format is one file in `data/formats/`, named after its suffix, or an entry point of another
package in the group `fedkoopman.formats`. What a format does is in `data.row_blocks`. Suffixes are
listed without importing any reader.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedkoopman.errors import InputError
from fedkoopman.registry import Registry
from fedkoopman.rules import Files


@dataclass(frozen=True)
class Wanted:
    """Which columns of a file are what.

    Attributes:
        columns: the observed ones in the sensor's order; empty where the format chooses.
        inputs: those of known inputs.
        segment: the one that tells segments apart; empty for none.
        time: the one with the sampling instants; empty for none.
    """

    columns: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    segment: str = ""
    time: str = ""


def _wrong(member: Any) -> str:
    return "" if callable(member) else "is no data format: give a function (path, columns) → rows"


FORMATS: Registry[Any] = Registry(
    "data format", "fedkoopman.data.formats", "FORMAT", _wrong, group="fedkoopman.formats"
)
"""Readers by suffix without the dot, as "csv"."""


@dataclass(frozen=True)
class DataFiles:
    """The rule of a key that names any number of files, each in a format that we read."""

    @property
    def allows(self) -> str:
        return Files(_endings()).allows

    def read(self, value: Any, key: str) -> tuple[str, ...]:
        return Files(_endings()).read(value, key)


def _endings() -> tuple[str, ...]:
    """The suffixes of all formats, as ".csv"; found when they are needed, as that takes time."""
    return tuple(f".{suffix}" for suffix in FORMATS)


def suffix_of(path: Path) -> str:
    """The suffix by which a file's format is found: without the dot, in small letters."""
    return path.suffix.lower().removeprefix(".")


def check_source(path: Path, name: str) -> None:
    """Refuse what is no readable file of a format that we know."""
    try:
        if path.is_dir():
            raise InputError(f"{name} is a directory: name the files in it, as {name}/*.csv")
        if suffix_of(path) not in FORMATS:
            raise InputError(
                f"{name} ends in {path.suffix or 'no suffix'!r}, which names no format we read: "
                f"use one of {', '.join(_endings())}"
            )
        if not path.is_file():
            raise InputError(f"there is no file {name}: check the path")
        with path.open("rb") as file:
            if not file.read(1):
                raise InputError(f"{name} is empty: it needs observations")
    except InputError:
        raise
    except (OSError, ValueError) as error:
        # ValueError: a name that no file can have
        cause = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {name}: {cause}") from error
