"""A site file: what one site has recorded, how it observes, and what it knows beforehand.

    site = SiteFile.load("lab-a/site.toml")
    site.data.columns, site.sensor["kind"], site.noise.observation, site.bounds

It is private to its site and read strictly: unknown keys fail and suggest the nearest. What can be
told without the system is checked on construction, the rest by `SiteFile.check_states`.
"""
# ruff: noqa: RUF009 - what `key` and `part` return is a field, with a factory where it needs one

import glob
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from fedkoopman.config.formats import check_source
from fedkoopman.config.loader import (
    Section,
    comment,
    key,
    part,
    read_toml,
    toml_key,
    toml_value,
)
from fedkoopman.config.mqtt_section import MqttSection
from fedkoopman.config.tables import Bounds, HeldOut, OptionalName, Sensor, SiteCovariance, SiteName
from fedkoopman.errors import InputError, short, unknown_name
from fedkoopman.paths import naming, readable_file, shown
from fedkoopman.rules import Auto, Choice, Names, OneOrEach, Real, Whole
from fedkoopman.sensors import SENSORS, SensorKind

AUTO = "auto"
"""Of a column: the one with the usual name, if there is one."""
LARGEST = 1e100


@dataclass(frozen=True)
class DataSection(Section):
    """What was recorded, and where."""

    section: ClassVar[str] = "data"

    files: tuple[str, ...] = key(
        MISSING,
        Names("a file or a pattern such as data/*.csv, or a list of them", single=True, least=1),
        "The site's files, relative to this one: CSV, Parquet, NPY, NPZ, MAT, HDF5, ULog, ROS "
        "bags, MCAP, WFDB, EDF or BDF, or a format that another package adds",
    )
    columns: tuple[str, ...] = key(
        (),
        Names("a list of names"),
        "Observed columns in the sensor's order (in MAT, variables; in bags, topics with "
        "fields); empty for plain arrays, and for tables of nothing else",
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
    hold: str = key(
        "until",
        Choice(("until", "from")),
        "When a row's inputs act: from the row before until this row, or from this row on",
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

    mean: float | tuple[float, ...] | str = key(
        "auto",
        Auto(OneOrEach(Real(), "state")),
        "Expected state; auto: estimated from the beginnings of the segments to train on",
    )
    cov: Any = key("auto", Auto(SiteCovariance()), "Its covariance; auto: likewise")


@dataclass(frozen=True)
class BudgetSection(Section):
    """How much privacy the site gives up, at most."""

    section: ClassVar[str] = "privacy"

    budget: float = key(
        0.0,
        Real(0.0),
        "ε at the study's δ, over the whole life of the site's data: the site stops taking part "
        "before it is exceeded; 0: no limit",
    )

    @property
    def limit(self) -> float:
        """The budget as a number."""
        return self.budget or math.inf


@dataclass(frozen=True)
class WorkerSection(Section):
    """The process that computes, which is there only while there is something to compute."""

    section: ClassVar[str] = "worker"

    idle: float = key(
        30.0,
        Real(0.0),
        "Seconds without work after which it ends and its memory, some 300 MB, is free; the next "
        "request then takes some seconds longer",
    )


@dataclass(frozen=True)
class SiteFile(Section):
    """The checked content of a site file.

    Attributes:
        name: of the site.
        data: files, columns, units, segments; absent columns are empty, as () and "".
        sensor: a table with a kind and its keys, in the form of a study's `clients.sensor`.
        noise: covariances, each "auto" or in the form of a study's `clients.observation_noise`.
        initial: law of the state before a segment's first sample.
        privacy: the site's own budget.
        mqtt: where samples come from live, beside files.
        worker: when the memory of computing is given back.
        bounds: (lowest, highest) by the name of a state.
        path: the file; what it names is relative to its directory.
    """

    name: str = key(MISSING, SiteName(), "The site's name, its own among all sites of a study")
    data: DataSection = part(DataSection, required=True)
    sensor: dict[str, Any] = key(MISSING, Sensor(own=True), "How the site sees the state")
    noise: NoiseSection = part(NoiseSection)
    initial: InitialSection = part(InitialSection)
    privacy: BudgetSection = part(BudgetSection)
    mqtt: MqttSection = part(MqttSection)
    worker: WorkerSection = part(WorkerSection)
    bounds: dict[str, tuple[float, float]] = key(
        {},
        Bounds(),
        "Plausible states: samples whose estimates lie outside are reported and left out",
    )
    path: Path = field(default=Path("site.toml"), compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "path", Path(self.path))
        count = len(self.data.columns)
        # a single column may be a matrix, in files of variables, unless it has a scale of its own
        if count > 1 or (count and isinstance(self.data.scale, tuple)):
            self.check_observed(count, "data.columns names")
        if self.observed is not None:
            self.check_observed(self.observed, "the sensor observes")

    @classmethod
    def load(cls, path: str | Path) -> "SiteFile":
        """Read a site file and check all of it that needs neither system nor data."""
        path = Path(path)
        if not readable_file(path):
            problem = "is a directory" if path.is_dir() else "does not exist"
            raise InputError(f"the site file {shown(path)} {problem}: check the path")
        with naming(path):
            return cls.from_dict(read_toml(path), path)

    @classmethod
    def from_dict(cls, table: Mapping[str, Any], path: Path = Path("site.toml")) -> "SiteFile":
        """A site file from nested tables; what is missing takes its default.

        Arguments:
            path: where the file is, or would be.
        """
        cls.check_keys(table, cls.known())
        if "name" not in table:
            raise InputError('name is missing: give the site one, as name = "lab-a"')
        SiteName().read(table["name"], "name")
        data = table.get("data", {})
        if isinstance(data, Mapping) and "files" not in data:
            # a misspelt key is the likelier cause, and is named first
            DataSection.from_table({"files": "any", **data}, cls.known())
            raise InputError('data.files is missing: give a pattern, as files = "data/*.csv"')
        if "sensor" not in table:
            raise InputError(f"sensor is missing: give {Sensor(own=True).allows}")
        made = cls(**table, path=path)
        made.mqtt.check_data(made.data)
        return made

    @property
    def folder(self) -> Path:
        """The directory to which the site's files and functions are relative."""
        return self.path.parent

    @property
    def observed(self) -> int | None:
        """Number of observed components, where the sensor says it by itself."""
        return self._kind.observed(self._kind.values(self.sensor), None)

    @property
    def _kind(self) -> SensorKind:
        return SENSORS.find(self.sensor["kind"], self.folder)

    def files(self) -> tuple[Path, ...]:
        """The site's files, each once: pattern by pattern, in the order of their names."""
        found: dict[str, Path] = {}
        for pattern in self.data.files:
            names = sorted(glob.glob(pattern, root_dir=self.folder, recursive=True))
            paths = [self.folder / name for name in names]
            if glob.has_magic(pattern):
                paths = [path for path in paths if not path.is_dir()]
            if not paths:
                raise InputError(
                    f"{shown(self.path)}: data.files names {short(pattern)}, which matches no "
                    "file: check the path, which is relative to the site file"
                )
            for path in paths:
                found.setdefault(os.path.realpath(path), path)  # links may lead to one file twice
        for path in found.values():
            check_source(path, shown(path))
        return tuple(found.values())

    def check_observed(self, count: int, source: str) -> None:
        """Refuse what does not fit the number of observed components.

        Arguments:
            source: who says so, as it stands before the number.
        """
        said = f"{source} {count} component{'s' * (count > 1)}"
        if self.observed is not None and self.observed != count:
            own = f"{'dim' if 'dim' in self.sensor else 'observed'} is {self.observed}"
            if "matrix" in self.sensor:
                own = f"matrix has {self.observed} row{'s' * (self.observed > 1)}"
            raise InputError(f"sensor.{own} but {said}: choose the columns or mend the sensor")
        angles = self.sensor.get("angles", ())
        if any(i >= count for i in angles):
            raise InputError(
                f"sensor.angles is {list(angles)} but {said}: give indices from 0 to {count - 1}"
            )
        _check_size(self.noise.observation, count, "noise.observation", said)
        self.data.check_scale(count, source)

    def check_states(self, names: Sequence[str]) -> None:
        """Refuse what does not fit the system."""
        dim = len(names)
        said = f"the system has {dim} state{'s' * (dim > 1)}"
        with naming(self.path):
            count = self._kind.observed(self._kind.values(self.sensor), dim)
            if self.observed is None and count is not None:
                self.check_observed(count, f"the {self.sensor['kind']} sensor observes")
            widths = {"sensor.matrix has rows of": len(self.sensor.get("matrix", [names])[0])}
            widths["sensor.offset has"] = len(self.sensor.get("offset", names))
            if isinstance(self.initial.mean, tuple):
                widths["initial.mean has"] = len(self.initial.mean)
            for which, width in widths.items():
                if width != dim:
                    raise InputError(f"{which} {width} numbers but {said}: give one per state")
            _check_size(self.initial.cov, dim, "initial.cov", said)
            _check_size(self.noise.process, dim, "noise.process", said)
            for name in self.bounds:
                if name not in names:
                    raise unknown_name("state in bounds", name, names)

    def to_dict(self) -> dict[str, Any]:
        """Nested tables with every key, as `from_dict` takes them."""
        return self.table()

    def to_toml(self, comments: bool = True) -> str:
        """The whole file as TOML; reading it gives an equal site file.

        Arguments:
            comments: precede each key with what it means and what it may be.
        """
        lines: list[str] = []
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Section):
                said = [f"# {type(value).__doc__}"] if comments else []
                lines += ["", *said, f"[{f.name}]", *value.lines(value.table(), comments)]
            elif f.metadata:
                said = comment(f.metadata) if comments else []
                table = isinstance(value, dict)
                lines += ["", *said, f"[{f.name}]"] if table else said
                pairs = value.items() if table else [(f.name, value)]
                lines += [f"{toml_key(name)} = {toml_value(entry)}" for name, entry in pairs]
        return "\n".join(lines) + "\n"


def _check_size(form: Any, dim: int, key: str, said: str) -> None:
    """Refuse a covariance whose diagonal or matrix has another size."""
    for kind, entries in form.items() if isinstance(form, Mapping) else ():
        if len(entries) != dim:
            what = "numbers" if kind == "diagonal" else "rows"
            raise InputError(f"{key}.{kind} has {len(entries)} {what} but {said}: give {dim}")
