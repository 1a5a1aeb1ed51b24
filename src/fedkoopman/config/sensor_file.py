"""A sensor file: the part of a site file that says how a site sees the state, without tables.

    kind = "linear"                     # the keys of [sensor]
    matrix = [[1, 0, 0], [0, 0, 1]]     # z = (x − offset) matrixᵀ
    noise = 0.5                         # noise.observation; 1 if absent
    columns = ["first", "third"]        # data.columns

It is read as the site file that it stands for, by the same rules.
"""

import glob
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedkoopman.config.formats import check_source
from fedkoopman.config.loader import read_toml
from fedkoopman.config.site_file import SiteFile
from fedkoopman.errors import InputError, unknown_name
from fedkoopman.paths import naming, readable_file, shown
from fedkoopman.rules import LARGEST
from fedkoopman.sensors import SENSORS
from fedkoopman.user_code import is_reference

_PLACES = {
    "columns": ("data", "columns"),
    "noise": ("noise", "observation"),
    "initial_mean": ("initial", "mean"),
    "initial_cov": ("initial", "cov"),
}
"""Where a key that is not the sensor's own stands in a site file."""

_SENSORS = [SENSORS.find(name) for name in SENSORS]
KEYS = {"kind", *_PLACES}.union(*({*kind.keys, *kind.former_names} for kind in _SENSORS))

_FLAT = {f"{section}.{key}": name for name, (section, key) in _PLACES.items()} | {
    "data.segment": "--segment-column",
    "data.time": "--time-column",
    "data.inputs": "--inputs",
    "data.hold": "--hold",
    **{f"sensor.{key}": key for key in KEYS},
}
_WORDS = re.compile(rf"\b({'|'.join(map(re.escape, _FLAT))})\b")


def read_sensor(
    path: Path,
    data: Path,
    *,
    columns: tuple[str, ...] = (),
    **about: Any,
) -> SiteFile:
    """The site file that a sensor file and a file of observations stand for.

    Arguments:
        data, columns, about: as of `site_of_file`; without columns, the sensor file's.
    """
    if not readable_file(path):
        raise InputError(f"there is no sensor file {shown(path)}: check the path")
    check_source(data, shown(data))
    tables: dict[str, dict[str, Any]] = {
        "sensor": {},
        "data": {},
        "noise": {"observation": 1.0},
        "initial": {"mean": 0.0, "cov": 1.0},
    }
    with naming(path):
        given = read_toml(path)
        for key, value in given.items():
            if key not in KEYS and not is_reference(str(given.get("kind"))):
                raise unknown_name("key", key, KEYS)
            section, name = _PLACES.get(key, ("sensor", key))
            tables.setdefault(section, {})[name] = value
        chosen = columns or tables["data"].get("columns", ())
        return site_of_file(data, columns=chosen, path=path, tables=tables, **about)


def site_of_file(
    data: Path,
    *,
    columns: Any = (),
    segment: str | None = None,
    time: str | None = None,
    inputs: Any = (),
    hold: str = "until",
    path: Path = Path("site.toml"),
    tables: Mapping[str, Any] | None = None,
) -> SiteFile:
    """A site whose data is one file, of which no segment is cut.

    Arguments:
        columns: its observed columns; all that are left if empty.
        segment, time: the columns that tell segments apart and give the instants; None takes those
            called so, if there are any.
        inputs, hold: the columns of known inputs, and when a row's act.
        path: the file that says so, for messages and for what it names.
        tables: the other tables of the site file; without, every column is a state.
    """
    check_source(data, shown(data))
    about = {
        "files": glob.escape(str(data.absolute())),
        "columns": columns,
        "inputs": inputs,
        "hold": hold,
        "longest": LARGEST,
        **{key: name for key, name in (("segment", segment), ("time", time)) if name is not None},
    }
    with in_flat_words():
        return SiteFile.from_dict(
            {"sensor": {"kind": "identity"}, **(tables or {}), "name": "site", "data": about}, path
        )


@contextmanager
def in_flat_words() -> Iterator[None]:
    """Let errors name a key as it stands in a sensor file, or the option that takes its place."""
    try:
        yield
    except InputError as error:
        raise InputError(_WORDS.sub(lambda word: _FLAT[word[0]], str(error))) from error
