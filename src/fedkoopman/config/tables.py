"""Rules for the values of a study that are tables: covariances, sensors, parameters by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedkoopman.config.rules import Choice, Real, Rule, Text, Whole, plain, refused
from fedkoopman.errors import InputError, unknown_name

SEED = Whole(0, 2**63 - 1)


@dataclass(frozen=True)
class Covariance:
    """A variance, a diagonal or a matrix; its size is checked where the dimension is known."""

    allows: str = "a variance >= 0, { diagonal = [...] } or { matrix = [[...], ...] }"

    def read(self, value: Any, key: str) -> float | dict[str, Any]:
        """A float, or a table with tuples; matrices are symmetric and positive semi-definite."""
        if not isinstance(value, Mapping):
            try:
                return Real(0.0).read(value, key)
            except InputError:
                raise refused(value, key, self.allows) from None
        if set(value) == {"diagonal"}:
            entries = _list(value["diagonal"], f"{key}.diagonal", "a list of numbers >= 0")
            return {"diagonal": _row(entries, f"{key}.diagonal", Real(0.0))}
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
    from fedkoopman.errors import short

    covariance(rows, len(rows), f"{key} = {short(plain(value))}")
    return rows


@dataclass(frozen=True)
class Matrix:
    """Rows of equal length."""

    allows: str = "a list of rows of numbers, all of one length"

    def read(self, value: Any, key: str) -> tuple[tuple[float, ...], ...]:
        """The rows as floats."""
        rows = tuple(
            _row(_list(row, f"{key}[{i}]", "a list of numbers"), f"{key}[{i}]", Real())
            for i, row in enumerate(_list(value, key, self.allows))
        )
        if len({len(row) for row in rows}) > 1:
            raise refused(plain(value), key, self.allows)
        return rows


@dataclass(frozen=True)
class Row:
    """A list of values of one kind."""

    rule: Rule
    allows: str

    def read(self, value: Any, key: str) -> tuple[Any, ...]:
        """The values as a tuple."""
        return _row(_list(value, key, self.allows), key, self.rule)


def _list(value: Any, key: str, allows: str) -> list[Any] | tuple[Any, ...]:
    given = plain(value)
    if not isinstance(given, list | tuple) or not given:
        raise refused(given, key, allows)
    return given


def _row(entries: list[Any] | tuple[Any, ...], key: str, rule: Rule) -> tuple[Any, ...]:
    return tuple(rule.read(entry, f"{key}[{i}]") for i, entry in enumerate(entries))


ANGLES = Row(Whole(0), "a list of indices, from 0, of observed components that wrap at 2π")
KINDS: Mapping[str, Mapping[str, Rule]] = {
    "random-frame": {"observed": Whole(1), "seed": SEED},
    "identity": {"angles": ANGLES},
    "perturbed-identity": {"spread": Real(0.0), "seed": SEED},
    "linear": {
        "matrix": Matrix(),
        "offset": Row(Real(), "a list of numbers, one per state"),
        "angles": ANGLES,
    },
    "function": {
        "function": Choice((), "file.py:function"),
        "observed": Whole(1),
        "angles": ANGLES,
    },
}
REQUIRED = {"linear": ("matrix",), "function": ("function", "observed")}
ALIASES: Mapping[str, str] = {"dim": "observed"}
"""Words of older files, which are still read, and stay as they are written."""


@dataclass(frozen=True)
class Sensor:
    """How a client sees the system: a table with a kind and the keys of that kind."""

    @property
    def allows(self) -> str:
        """The kinds with their keys; what a kind cannot do without stands in angle brackets."""
        forms = []
        for kind, keys in KINDS.items():
            needed = REQUIRED.get(kind, ())
            listed = ", ".join(f"<{name}>" if name in needed else name for name in keys)
            forms.append(f'"{kind}" ({listed})')
        return f"a table {{ kind = ... }} of kind {', '.join(forms)}"

    def read(self, value: Any, key: str) -> dict[str, Any]:
        """The table, with every value in its normal form."""
        if not isinstance(value, Mapping):
            raise refused(value, key, self.allows)
        kinds = Choice(tuple(KINDS))
        if "kind" not in value:
            raise InputError(f"{key} has no kind: give kind = {kinds.allows}")
        kind = kinds.read(value["kind"], f"{key}.kind")
        rules = KINDS[kind]
        table: dict[str, Any] = {"kind": kind}
        for name, entry in value.items():
            if name == "kind":
                continue
            word: str = ALIASES.get(name, name)
            if word not in rules:
                raise unknown_name(f'key in {key} of kind "{kind}"', name, ["kind", *rules])
            if word != name and word in value:
                raise InputError(f"{key} has {name} and {word}, which are the same: give {word}")
            table[name] = rules[word].read(entry, f"{key}.{name}")
        given = {ALIASES.get(name, name) for name in table}
        for name in REQUIRED.get(kind, ()):
            if name not in given:
                raise InputError(f'{key} of kind "{kind}" has no {name}: give {rules[name].allows}')
        return table


@dataclass(frozen=True)
class ByName:
    """A table of values by name; the names are checked against the system."""

    rule: Rule
    allows: str

    def read(self, value: Any, key: str) -> dict[str, Any]:
        """The table."""
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
            return _row(given, key, Text() if given and isinstance(given[0], str) else Whole(0))
        try:
            number = Real().read(given, key)
        except InputError:
            raise refused(given, key, self.allows) from None
        return given if isinstance(given, int) else number


TABLES = (Covariance, Sensor, ByName)
"""Rules whose values may be tables, into which a dotted key may reach."""
