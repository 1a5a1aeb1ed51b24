"""What one value of a study, site or sensor may be: a rule reads a value or refuses it by its key.

A rule's `allows` is both what the printed reference says of a key and the remedy in a refusal, so
that the two cannot differ. Nothing here loads NumPy or JAX.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol

from fedkoopman.errors import InputError, short
from fedkoopman.registry import Registry
from fedkoopman.session_objects import is_object, reference_to

LARGEST = 2**31 - 1
REFERENCE = re.compile(r".+\.py:[A-Za-z_]\w*")


class Rule(Protocol):
    """How a key's value is read."""

    @property
    def allows(self) -> str:
        """What may be given, as it stands after "give"."""

    def read(self, value: Any, key: str) -> Any:
        """The value in its one normal form (tuples for lists, floats for real numbers).

        Arguments:
            value: as it came from TOML or from Python.
            key: the dotted key, for the message.
        """


def refused(value: object, key: str, remedy: str) -> InputError:
    """The error for a value that a key cannot take."""
    return InputError(f"{key} is {short(value)}: give {remedy}")


def plain(value: Any) -> Any:
    """NumPy's and JAX's numbers and arrays as Python's own."""
    return value.tolist() if hasattr(value, "tolist") else value


def quoted(names: tuple[str, ...]) -> str:
    """Names as they are written in TOML, in one list."""
    *first, last = (f'"{name}"' for name in names)
    return f"{', '.join(first)} or {last}" if first else last


@dataclass(frozen=True)
class Whole:
    """A whole number; true and false are none."""

    least: int = 1
    most: int = LARGEST

    @property
    def allows(self) -> str:
        """The range, the upper end only where it is the key's own."""
        if self.most == LARGEST:
            return f"a whole number >= {self.least}"
        return f"a whole number from {self.least} to {_power(self.most)}"

    def read(self, value: Any, key: str) -> int:
        """The number as an int."""
        number = plain(value)
        if isinstance(number, bool) or not isinstance(number, int):
            raise refused(value, key, self.allows)
        if not self.least <= number <= self.most:
            range_ = f"a whole number from {self.least} to {_power(self.most)}"
            raise refused(value, key, range_ if number > self.most else self.allows)
        return number


def _power(number: int) -> str:
    return "2**63 - 1" if number == 2**63 - 1 else str(number)


SEED = Whole(0, 2**63 - 1)


@dataclass(frozen=True)
class Real:
    """A finite number in [low, high], or in (low, high] where `above`."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False

    @property
    def allows(self) -> str:
        """The range."""
        if self.low == -math.inf:
            return "a finite number"
        if self.high == math.inf:
            return f"a number {'>' if self.above else '>='} {self.low:g}"
        if self.above:
            return f"a number > {self.low:g} and <= {self.high:g}"
        return f"a number from {self.low:g} to {self.high:g}"

    def read(self, value: Any, key: str) -> float:
        """The number as a float; a whole number is one too."""
        number = plain(value)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise refused(value, key, self.allows)
        try:
            number = float(number)
        except OverflowError:
            number = math.inf
        inside = self.low < number if self.above else self.low <= number
        if not math.isfinite(number) or not inside or number > self.high:
            raise refused(value, key, self.allows)
        return number


@dataclass(frozen=True)
class Flag:
    """true or false."""

    allows: str = "true or false"

    def read(self, value: Any, key: str) -> bool:
        """The value as a bool."""
        flag = plain(value)
        if not isinstance(flag, bool):
            raise refused(value, key, self.allows)
        return flag


@dataclass(frozen=True)
class Text:
    """A few printable words on one line."""

    allows: str = "text on one line, not empty"

    def read(self, value: Any, key: str) -> str:
        """The text as it is."""
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise refused(value, key, self.allows)
        return value


@dataclass(frozen=True)
class Names:
    """A list of distinct names; or, where `single`, one by itself."""

    allows: str
    single: bool = False
    least: int = 0

    def read(self, value: Any, key: str) -> tuple[str, ...]:
        """The names as a tuple."""
        given = [value] if self.single and isinstance(value, str) else value
        if not isinstance(given, list | tuple) or len(given) < self.least:
            raise refused(value, key, self.allows)
        names = tuple(Text().read(entry, f"{key}[{i}]") for i, entry in enumerate(given))
        twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if twice is not None:
            raise InputError(f"{key} names {twice!r} twice: name each once")
        return names


@dataclass(frozen=True)
class Files:
    """Any number of files, each with one of some endings."""

    endings: tuple[str, ...]

    @property
    def allows(self) -> str:
        """The form, and the endings."""
        return f"a list of files that end in {' or '.join(self.endings)}"

    def read(self, value: Any, key: str) -> tuple[str, ...]:
        """The paths as they are written."""
        if not isinstance(value, list | tuple):
            raise refused(value, key, self.allows)
        for i, entry in enumerate(value):
            Text().read(entry, f"{key}[{i}]")
            if not entry.lower().endswith(self.endings):
                endings = " or ".join(self.endings)
                raise refused(entry, f"{key}[{i}]", f"a file that ends in {endings}")
        return tuple(value)


@dataclass(frozen=True)
class Choice:
    """One of some names; or, with `reference`, an object in a Python file of the user's own.

    The names may be those of a registry, which lists them without loading its members.
    """

    names: tuple[str, ...] | Registry[Any]
    reference: str | None = None
    """How such an object is written, as "file.py:function"."""

    @property
    def allows(self) -> str:
        """The names."""
        return quoted((*self.names, *([self.reference] if self.reference else [])))

    def read(self, value: Any, key: str) -> str:
        """The name; for one that is not known the error suggests the nearest. An object becomes
        the name by which it is found again."""
        if self.reference and is_object(value):
            return reference_to(value)
        if isinstance(value, str):
            if value in self.names or (self.reference and REFERENCE.fullmatch(value)):
                return str(value)
            nearest = get_close_matches(value, list(self.names), n=1, cutoff=0.5)
            if nearest:
                hint = f"did you mean {nearest[0]!r}?"
                raise InputError(f"{key} is {short(value)}: {hint} give {self.allows}")
        raise refused(value, key, self.allows)


@dataclass(frozen=True)
class Auto:
    """Another rule's value, or "auto"."""

    rule: Rule

    @property
    def allows(self) -> str:
        """Both."""
        return f'"auto" or {self.rule.allows}'

    def read(self, value: Any, key: str) -> Any:
        """ "auto", or what the rule reads."""
        if isinstance(value, str) and value == "auto":
            return value
        try:
            return self.rule.read(value, key)
        except InputError as error:
            if isinstance(value, str) or not str(error).startswith(f"{key}."):
                raise refused(value, key, self.allows) from None
            raise  # it names what is wrong within the value


@dataclass(frozen=True)
class OneOrEach:
    """One value for all, or a list with one for each."""

    rule: Rule
    of: str = "client"

    @property
    def allows(self) -> str:
        """Both forms."""
        return f"{self.rule.allows}; or a list with one per {self.of}"

    def read(self, value: Any, key: str) -> Any:
        """What the rule reads, or a tuple of such."""
        given = plain(value)
        if isinstance(given, list | tuple) and given:
            return tuple(self.rule.read(entry, f"{key}[{i}]") for i, entry in enumerate(given))
        if isinstance(given, Mapping):  # a table's own error says which of its keys is wrong
            return self.rule.read(given, key)
        try:
            return self.rule.read(given, key)
        except InputError:
            raise refused(value, key, self.allows) from None


@dataclass(frozen=True)
class Row:
    """A list of values of one kind, at least one."""

    rule: Rule
    allows: str

    def read(self, value: Any, key: str) -> tuple[Any, ...]:
        """The values as a tuple."""
        given = plain(value)
        if not isinstance(given, list | tuple) or not given:
            raise refused(given, key, self.allows)
        return tuple(self.rule.read(entry, f"{key}[{i}]") for i, entry in enumerate(given))


@dataclass(frozen=True)
class Matrix:
    """Rows of equal length."""

    allows: str = "a list of rows of numbers, all of one length"

    def read(self, value: Any, key: str) -> tuple[tuple[float, ...], ...]:
        """The rows as floats."""
        rows = Row(Row(Real(), "a list of numbers"), self.allows).read(value, key)
        if len({len(row) for row in rows}) > 1:
            raise refused(plain(value), key, self.allows)
        return rows


@dataclass(frozen=True)
class Weights:
    """Several weights of a sum."""

    count: int

    @property
    def allows(self) -> str:
        """How many, and their range."""
        return f"a list of {self.count} numbers >= 0, not all 0"

    def read(self, value: Any, key: str) -> tuple[float, ...]:
        """The weights as floats."""
        given = plain(value)
        if not isinstance(given, list | tuple) or len(given) != self.count:
            raise refused(value, key, self.allows)
        weights = tuple(Real(0.0).read(entry, f"{key}[{i}]") for i, entry in enumerate(given))
        if not any(weights):
            raise refused(value, key, self.allows)
        return weights
