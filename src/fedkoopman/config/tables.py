"""Rules for values that only study and site files have: covariances, sensors, tables, names."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedkoopman.errors import InputError, short
from fedkoopman.rules import (
    Choice,
    Matrix,
    Names,
    Real,
    Row,
    Rule,
    Text,
    Whole,
    plain,
    refused,
)
from fedkoopman.sensors import SENSORS
from fedkoopman.user_code import is_reference

MOST_HELD_OUT = 0.9
_NAME = re.compile(r"\w[\w.-]{0,99}")


def _read(rule: Rule, value: Any, key: str, allows: str) -> Any:
    """A value by one of several rules, refused in the words of them all."""
    try:
        return rule.read(value, key)
    except InputError:
        raise refused(value, key, allows) from None


@dataclass(frozen=True)
class Covariance:
    """A variance, a diagonal or a matrix; its size is checked where the dimension is known."""

    allows: str = "a variance >= 0, { diagonal = [...] } or { matrix = [[...], ...] }"

    def read(self, value: Any, key: str) -> float | dict[str, Any]:
        """A float, or a table with tuples; matrices are symmetric and positive semi-definite."""
        if not isinstance(value, Mapping):
            return _read(Real(0.0), value, key, self.allows)
        if set(value) == {"diagonal"}:
            diagonal = Row(Real(0.0), "a list of numbers >= 0")
            return {"diagonal": diagonal.read(value["diagonal"], f"{key}.diagonal")}
        if set(value) == {"matrix"}:
            return {"matrix": _covariance_matrix(value["matrix"], f"{key}.matrix")}
        raise refused(value, key, self.allows)


def _covariance_matrix(value: Any, key: str) -> tuple[tuple[float, ...], ...]:
    rows = Matrix().read(value, key)
    if len(rows) != len(rows[0]):
        raise InputError(
            f"{key} is {len(rows)} x {len(rows[0])}: a covariance has as many rows as columns"
        )
    from fedkoopman.covariance import covariance

    covariance(rows, len(rows), f"{key} = {short(plain(value))}")
    return rows


@dataclass(frozen=True)
class Sensor:
    """How a client sees the system: a table with a kind and the keys of that kind."""

    own: bool = False
    """Whether it is a site's own sensor, so that a kind that is drawn at random needs its seed."""

    @property
    def allows(self) -> str:
        """The kinds with their keys; what a kind cannot do without stands in angle brackets."""
        forms = [f'"{name}" ({SENSORS.find(name).form})' for name in SENSORS]
        table = "[sensor]" if self.own else "{ kind = ... }"
        return f'a table {table} of kind {", ".join(forms)} or "file.py:name"'

    def read(self, value: Any, key: str) -> dict[str, Any]:
        """The table, with every value in its normal form.

        A kind in a Python file reads its keys where the file is looked up, in `config.parts`.
        """
        if not isinstance(value, Mapping):
            raise refused(value, key, self.allows)
        kinds = Choice(SENSORS, "file.py:name")
        if "kind" not in value:
            raise InputError(f"{key} has no kind: give kind = {kinds.allows}")
        kind = kinds.read(value["kind"], f"{key}.kind")
        if is_reference(kind):
            return {str(name): _tuples(plain(entry)) for name, entry in value.items()}
        table = SENSORS.find(kind).read(value, key)
        if self.own and SENSORS.find(kind).random and "seed" not in table:
            raise InputError(
                f"{key}.kind is {kind!r}, which is drawn at random: give its seed, as seed = 0"
            )
        return table


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class ByName:
    """A table of values by name; the names are checked against the system."""

    rule: Rule
    allows: str

    def read(self, value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise refused(value, key, self.allows)
        return {name: self.rule.read(entry, f"{key}.{name}") for name, entry in value.items()}


@dataclass(frozen=True)
class Keyword:
    """What a system's constructor may take: a number, or a list of indices or of names."""

    allows: str = "a finite number, or a list of whole numbers or of names"

    def read(self, value: Any, key: str) -> Any:
        """The number as it is (whole numbers stay whole), or a tuple."""
        given = plain(value)
        if isinstance(given, list | tuple):
            rule = Text() if given and isinstance(given[0], str) else Whole(0)
            return tuple(rule.read(entry, f"{key}[{i}]") for i, entry in enumerate(given))
        number = _read(Real(), given, key, self.allows)
        return given if isinstance(given, int) else number


@dataclass(frozen=True)
class SiteName:
    """A name that can stand in tables and in the names of files."""

    allows: str = "letters, digits, dashes, dots and underscores, at most 100, none of them a slash"

    def read(self, value: Any, key: str) -> str:
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise refused(value, key, self.allows)
        return value


@dataclass(frozen=True)
class OptionalName:
    """A column's name, "" for none, or "auto" for the column with the usual name."""

    allows: str = '"auto", a column\'s name, or "" for none'

    def read(self, value: Any, key: str) -> str:
        if value == "":
            return ""
        return _read(Text(), value, key, self.allows)


@dataclass(frozen=True)
class HeldOut:
    """A share of the segments, or their names."""

    allows: str = f"a number from 0 to {MOST_HELD_OUT:g}, or a list of names of segments"

    def read(self, value: Any, key: str) -> float | tuple[str, ...]:
        if isinstance(value, list | tuple):
            return Names(self.allows).read(value, key)
        return _read(Real(0.0, MOST_HELD_OUT), value, key, self.allows)


@dataclass(frozen=True)
class SiteCovariance(Covariance):
    """A covariance as in studies; a bare list is a diagonal, and a list of rows is a matrix."""

    allows: str = (
        "a variance >= 0, a list of variances, { diagonal = [...] } or { matrix = [[...], ...] }"
    )

    def read(self, value: Any, key: str) -> float | dict[str, Any]:
        given = plain(value)
        if isinstance(given, list | tuple) and given:
            form = "matrix" if isinstance(given[0], list | tuple) else "diagonal"
            given = {form: given}
        return super().read(given, key)


@dataclass(frozen=True)
class Bounds:
    """Plausible values of states by name; an end may be infinite."""

    allows: str = "a table [bounds] with [lowest, highest] by state, such as theta = [-20.0, 20.0]"

    def read(self, value: Any, key: str) -> dict[str, tuple[float, float]]:
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise refused(value, key, self.allows)
        return {name: _interval(plain(entry), f"{key}.{name}") for name, entry in value.items()}


def _interval(value: Any, key: str) -> tuple[float, float]:
    numbers = value if isinstance(value, list | tuple) and len(value) == 2 else (True, True)
    if not any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers):
        low, high = map(float, numbers)
        if low < high and (math.isfinite(low) or math.isfinite(high)):
            return low, high
    raise refused(value, key, "[lowest, highest], two numbers of which the first is less")


TABLES = (Covariance, Sensor, ByName)
"""Rules whose values may be tables, into which a dotted key may reach."""
