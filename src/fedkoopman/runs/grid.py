"""The grid of a sweep: values by key, their product, and every combination as a checked study."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedkoopman.config.study import Study
from fedkoopman.config.toml import toml_value
from fedkoopman.errors import InputError
from fedkoopman.paths import folder_name

__all__ = ["Combination", "Grid", "combinations", "read_grid", "split_values", "written"]

Grid = dict[str, tuple[str, ...]]
"""TOML texts by dotted key, in the order in which they were given."""

_CLOSING = {"[": "]", "{": "}"}


@dataclass(frozen=True)
class Combination:
    """One value of every key of a grid.

    Attributes:
        name: of its directory in that of the sweep, as "training.epochs=5,policy.segments=3".
        values: TOML texts, in the order of the grid's keys.
        study: the study with these values, fully checked.
    """

    name: str
    values: tuple[str, ...]
    study: Study


def read_grid(words: Sequence[str]) -> Grid:
    """A grid from words KEY=VALUE,VALUE,… as on the command line."""
    grid: Grid = {}
    for word in words:
        key, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not key or not text:
            raise InputError(f"--grid {word!r}: write KEY=VALUE,VALUE, as training.epochs=5,10,20")
        if key in grid:
            raise InputError(f"--grid gives {key} twice: name all its values in one")
        grid[key] = tuple(split_values(text, f"--grid {word!r}"))
    return grid


def split_values(text: str, whose: str = "the list") -> list[str]:
    """Split a text at its commas, except inside brackets, braces and quotes.

    Arguments:
        text: as "[1, 1], [1, 3]", which holds two values.
        whose: begins the message if the text is no list of values.
    """
    values, depth, quote, escaped = [""], list[str](), "", False
    for letter in text:
        if quote:
            quote = "" if letter == quote and not escaped else quote
            escaped = quote == '"' and letter == "\\" and not escaped
        elif letter in "\"'":
            quote = letter
        elif letter in _CLOSING:
            depth.append(_CLOSING[letter])
        elif letter in "]}":
            if not depth or depth.pop() != letter:
                raise InputError(f"{whose} has a {letter} that closes nothing: open it first")
        elif letter == "," and not depth:
            values.append("")
            continue
        values[-1] += letter
    if quote or depth:
        raise InputError(f"{whose} ends before {quote or depth[-1]}: close what is open")
    values = [value.strip() for value in values]
    if "" in values:
        raise InputError(f"{whose} has a comma with no value beside it: give one, or remove it")
    return values


def written(grid: Mapping[str, Sequence[Any]]) -> Grid:
    """A grid with all its values as texts.

    Arguments:
        grid: by dotted key, Python objects, or texts as for `Study.with_values`.
    """
    if not grid:
        raise InputError("the grid is empty: give a key with its values, as training.epochs=5,10")
    texts: Grid = {}
    for key, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise InputError(f"the grid's {key} is {values!r}: give a list of values")
        texts[key] = tuple(v.strip() if isinstance(v, str) else toml_value(v) for v in values)
    return texts


def combinations(base: Study, grid: Grid) -> list[Combination]:
    """The product of a grid, the last key changing fastest; every study of it is checked.

    Arguments:
        base: the study whose values the grid replaces.
        grid: texts by dotted key.
    """
    found: list[Combination] = []
    by_study: dict[str, str] = {}
    for values in itertools.product(*grid.values()):
        study = base.with_values(dict(zip(grid, values, strict=True)))
        study.check()
        name = folder_name(",".join(f"{k}={_bare(v)}" for k, v in zip(grid, values, strict=True)))
        same = by_study.setdefault(study.to_toml(), name)
        if same != name or name.casefold() in {other.name.casefold() for other in found}:
            raise InputError(
                f"the grid holds {same} twice, the second time as {name}: give every value once, "
                "and texts that differ in more than punctuation"
            )
        found.append(Combination(name, values, study))
    return found


def _bare(text: str) -> str:
    """A TOML text without quotes and spaces, to stand in a name."""
    return "".join(text.replace('"', "").replace("'", "").split())
