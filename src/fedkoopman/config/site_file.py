"""A site file: what one site has recorded, how it observes, and what it knows beforehand.

    site = SiteFile.load("lab-a/site.toml")
    site.data.columns, site.sensor["kind"], site.noise.observation, site.bounds

It is private to its site and read strictly: unknown keys fail and suggest the nearest. What can be
told without the system is checked on construction, the rest by `SiteFile.check_states`.
"""
# ruff: noqa: RUF009 - what `key` and `_part` return is a field, with a factory where it needs one

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from fedkoopman.config.formats import check_source
from fedkoopman.config.loader import Section, key, keys_of, listed, read_toml, unknown_key
from fedkoopman.config.site_sections import (
    Bounds,
    DataSection,
    InitialSection,
    NoiseSection,
    SiteName,
)
from fedkoopman.config.tables import Sensor
from fedkoopman.config.toml import comment, toml_key, toml_value
from fedkoopman.errors import InputError, short, unknown_name
from fedkoopman.paths import naming, readable_file, shown
from fedkoopman.sensors import SENSORS, SensorKind

__all__ = ["SiteFile"]


def _part(kind: type[Section], required: bool = False) -> Any:
    """A field that holds a section."""
    about = {"section": kind}
    return field(metadata=about) if required else field(default_factory=kind, metadata=about)


@dataclass(frozen=True)
class SiteFile(Section):
    """The checked content of a site file.

    Attributes:
        name: of the site.
        data: files, columns, units, segments; absent columns are empty, as () and "".
        sensor: a table with a kind and its keys, in the form of a study's `clients.sensor`.
        noise: covariances, each "auto" or in the form of a study's `clients.observation_noise`.
        initial: law of the state before a segment's first sample.
        bounds: (lowest, highest) by the name of a state.
        path: the file; what it names is relative to its directory.
    """

    name: str = key(MISSING, SiteName(), "The site's name, its own among all sites of a study")
    data: DataSection = _part(DataSection, required=True)
    sensor: dict[str, Any] = key(MISSING, Sensor(own=True), "How the site sees the state")
    noise: NoiseSection = _part(NoiseSection)
    initial: InitialSection = _part(InitialSection)
    bounds: dict[str, tuple[float, float]] = key(
        {}, Bounds(), "Plausible states: estimates outside are reported, and their segments dropped"
    )
    path: Path = field(default=Path("site.toml"), compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for part in _parts():
            given, kind = getattr(self, part.name), part.metadata["section"]
            if not isinstance(given, kind):
                object.__setattr__(self, part.name, kind.from_table(given, _known()))
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
            table: as `tomllib` reads it.
            path: where the file is, or would be.
        """
        names = [f.name for f in fields(cls) if f.metadata]
        for name in table:
            if name not in names:
                raise unknown_key(str(name), _known())
        if "name" not in table:
            raise InputError('name is missing: give the site one, as name = "lab-a"')
        SiteName().read(table["name"], "name")
        data = table.get("data", {})
        if isinstance(data, Mapping) and "files" not in data:
            # a misspelt key is the likelier cause, and is named first
            DataSection.from_table({"files": "any", **data}, _known())
            raise InputError('data.files is missing: give a pattern, as files = "data/*.csv"')
        if "sensor" not in table:
            raise InputError(f"sensor is missing: give {Sensor(own=True).allows}")
        return cls(**table, path=path)

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
            count: how many there are.
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
        """Refuse what does not fit the system.

        Arguments:
            names: of its states.
        """
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
        return {
            f.name: getattr(self, f.name).table()
            if "section" in f.metadata
            else listed(getattr(self, f.name))
            for f in fields(self)
            if f.metadata
        }

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
                lines += ["", *said, f"[{f.name}]", *_lines(value, comments)]
            elif f.metadata:
                said = comment(f.metadata) if comments else []
                table = isinstance(value, dict)
                lines += ["", *said, f"[{f.name}]"] if table else said
                pairs = value.items() if table else [(f.name, value)]
                lines += [f"{toml_key(name)} = {toml_value(entry)}" for name, entry in pairs]
        return "\n".join(lines) + "\n"


def _parts() -> list[Field[Any]]:
    return [f for f in fields(SiteFile) if "section" in f.metadata]


def _known() -> list[str]:
    """Every dotted key, and every section."""
    kinds: list[type[Section]] = [part.metadata["section"] for part in _parts()]
    dotted = [kind.dotted(f.name) for kind in kinds for f in keys_of(kind)]
    return [*(f.name for f in fields(SiteFile) if f.metadata), *dotted]


def _lines(section: Section, comments: bool) -> list[str]:
    lines = []
    for name, value in section.table().items():
        about = next(f for f in keys_of(type(section)) if f.name == name)
        if comments:
            differs = about.default is not MISSING and getattr(section, name) != about.default
            lines += comment(about.metadata, toml_value(about.default) if differs else None)
        lines.append(f"{name} = {toml_value(value)}")
    return lines


def _check_size(form: Any, dim: int, key: str, said: str) -> None:
    """Refuse a covariance whose diagonal or matrix has another size."""
    for kind, entries in form.items() if isinstance(form, Mapping) else ():
        if len(entries) != dim:
            what = "numbers" if kind == "diagonal" else "rows"
            raise InputError(f"{key}.{kind} has {len(entries)} {what} but {said}: give {dim}")
