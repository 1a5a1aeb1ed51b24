"""The sections of a site file: every key with its default, its meaning and what it may be.

Nothing here loads NumPy or JAX, so that a site file is read and written at once.
"""
# ruff: noqa: RUF009 - what `key` returns is a field

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar

from fedkoopman.config.loader import Section, key
from fedkoopman.config.tables import Covariance
from fedkoopman.errors import InputError, short
from fedkoopman.rules import (
    Auto,
    Choice,
    Names,
    OneOrEach,
    Real,
    Text,
    Whole,
    plain,
    refused,
)

AUTO = "auto"
"""Of a column: the one with the usual name, if there is one."""
MOST_HELD_OUT = 0.9
LARGEST = 1e100
_NAME = re.compile(r"\w[\w.-]{0,99}")


@dataclass(frozen=True)
class SiteName:
    """A name that can stand in tables and in the names of files."""

    allows: str = "letters, digits, dashes, dots and underscores, at most 100, none of them a slash"

    def read(self, value: Any, key: str) -> str:
        """The name as it is."""
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise refused(value, key, self.allows)
        return value


@dataclass(frozen=True)
class OptionalName:
    """A column's name, "" for none, or "auto" for the column with the usual name."""

    allows: str = '"auto", a column\'s name, or "" for none'

    def read(self, value: Any, key: str) -> str:
        """The name as it is."""
        if value == "":
            return ""
        try:
            return Text().read(value, key)
        except InputError:
            raise refused(value, key, self.allows) from None


@dataclass(frozen=True)
class HeldOut:
    """A share of the segments, or their names."""

    allows: str = f"a number from 0 to {MOST_HELD_OUT:g}, or a list of names of segments"

    def read(self, value: Any, key: str) -> float | tuple[str, ...]:
        """The share as a float, or the names as a tuple."""
        if isinstance(value, list | tuple):
            return Names(self.allows).read(value, key)
        try:
            return Real(0.0, MOST_HELD_OUT).read(value, key)
        except InputError:
            raise refused(value, key, self.allows) from None


@dataclass(frozen=True)
class SiteCovariance(Covariance):
    """A covariance as in studies; a bare list is a diagonal, and a list of rows is a matrix."""

    allows: str = (
        "a variance >= 0, a list of variances, { diagonal = [...] } or { matrix = [[...], ...] }"
    )

    def read(self, value: Any, key: str) -> float | dict[str, Any]:
        """As of `Covariance`."""
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
        """The table, its values as pairs of floats."""
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


@dataclass(frozen=True)
class DataSection(Section):
    """What was recorded, and where."""

    section: ClassVar[str] = "data"

    files: tuple[str, ...] = key(
        MISSING,
        Names("a file or a pattern such as data/*.csv, or a list of them", single=True, least=1),
        "The site's files, relative to this one: CSV, Parquet, NPY, NPZ or MAT, or a format that "
        "another package adds",
    )
    columns: tuple[str, ...] = key(
        (),
        Names("a list of names"),
        "Observed columns in the sensor's order (in MAT, variables); empty for plain arrays, and "
        "for tables of nothing else",
    )
    segment: str = key(
        AUTO,
        OptionalName(),
        "Column that tells segments apart, usually the one called segment; without one every file "
        "is one segment",
    )
    time: str = key(
        AUTO,
        OptionalName(),
        "Column of sampling instants, usually the one called time; without one rows are one dt "
        "apart",
    )
    off_grid: str = key(
        "refuse",
        Choice(("refuse", "resample")),
        "What is done with instants off the study's grid; between samples values are interpolated "
        "linearly, never across a gap",
    )
    scale: float | tuple[float, ...] = key(
        1.0,
        OneOrEach(Real(), "column"),
        "Factor from what is recorded to the sensor's units: z = scale × recorded + shift",
    )
    shift: float | tuple[float, ...] = key(
        0.0, OneOrEach(Real(), "column"), "What is added after scaling"
    )
    inputs: tuple[str, ...] = key(
        (), Names("a list of names"), "Columns of known inputs u of the system"
    )
    held_out: float | tuple[str, ...] = key(
        0.2,
        HeldOut(),
        "Segments kept for evaluation: a share (at least one segment, if there are two) or names",
    )
    longest: int = key(
        10_000, Whole(2), "Samples; longer segments are cut, which bounds the memory that is used"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("scale", "shift"):
            given = getattr(self, name)
            numbers = given if isinstance(given, tuple) else (given,)
            if max(map(abs, numbers)) > LARGEST or (name == "scale" and 0.0 in numbers):
                wanted = "between 0 and" if name == "scale" else "of at most"
                raise InputError(
                    f"data.{name} is {short(given)}: give sizes {wanted} {LARGEST:g}, or none"
                )
        if self.columns:
            self.check_scale(len(self.columns), "data.columns names")
        taken = {name: "data.columns" for name in self.columns}
        for where, names in (
            ("data.inputs", self.inputs),
            ("data.segment", (self.segment,)),
            ("data.time", (self.time,)),
        ):
            for name in names:
                if name in ("", AUTO) and where != "data.inputs":
                    continue
                if name in taken:
                    raise InputError(
                        f"{where} names {name!r}, which {taken[name]} names too: a column serves "
                        "one purpose"
                    )
                taken[name] = where

    def check_scale(self, columns: int, source: str) -> None:
        """Refuse a list of scales or shifts that is not one per observed column.

        Arguments:
            columns: how many there are.
            source: who says so, as it stands before the number.
        """
        for name in ("scale", "shift"):
            given = getattr(self, name)
            if isinstance(given, tuple) and len(given) != columns:
                raise InputError(
                    f"data.{name} has {len(given)} numbers but {source} {columns} "
                    f"component{'s' * (columns > 1)}: give one number for all, or one per column"
                )


@dataclass(frozen=True)
class NoiseSection(Section):
    """How far observations and dynamics are to be trusted."""

    section: ClassVar[str] = "noise"

    observation: Any = key(
        "auto", Auto(SiteCovariance()), "Covariance of the observation noise, in the sensor's units"
    )
    process: Any = key(
        "auto",
        Auto(SiteCovariance()),
        "Covariance of the process noise: the filter's doubt in the dynamics",
    )


@dataclass(frozen=True)
class InitialSection(Section):
    """What is known of the state before a segment's first sample."""

    section: ClassVar[str] = "initial"

    mean: float | tuple[float, ...] = key(0.0, OneOrEach(Real(), "state"), "Expected state")
    cov: Any = key(1.0, SiteCovariance(), "Its covariance")
