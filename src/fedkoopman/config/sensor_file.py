"""A site's sensor as a TOML file: what it observes of the state, and how noisily.

    kind = "linear"                     # linear | identity | random-frame | function
    matrix = [[1, 0, 0], [0, 0, 1]]     # z = (x − offset) matrixᵀ
    noise = 0.5                         # variance: a number, a diagonal or a matrix

The file is checked without loading JAX; `SensorFile.sensor` builds the sensor.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkoopman.config.toml import parse_toml
from fedkoopman.covariance import covariance
from fedkoopman.errors import InputError, short, system_error, unknown_name
from fedkoopman.paths import readable_file
from fedkoopman.user_code import load_object, plain_function

if TYPE_CHECKING:
    from fedkoopman.sensors import Sensor

OF_ANY_KIND = ("kind", "noise", "columns", "initial_mean", "initial_cov")
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "linear": ("matrix",),
    "identity": (),
    "random-frame": ("seed",),
    "function": ("function", "dim"),
}
OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "linear": ("offset", "angles"),
    "identity": ("angles",),
    "random-frame": ("dim",),
    "function": ("angles",),
}
LARGEST_DIM = 4096
"""As `systems.checks` has it, which loads JAX."""
KEYS = {*OF_ANY_KIND}.union(*REQUIRED.values(), *OPTIONAL.values())


@dataclass(frozen=True)
class SensorFile:
    """The checked content of a sensor file.

    Attributes:
        path: the file.
        kind: linear, identity, random-frame or function.
        matrix, offset: of a linear sensor.
        noise: observation noise covariance, as a number, a diagonal or a matrix of variances.
        angles: indices of observed components that wrap at 2π.
        columns: the data's columns in the sensor's order.
        initial_mean, initial_cov: what is known of the state before the first observation.
        seed: of a random frame.
        function: `file.py:name` of a function sensor, the file beside the sensor file.
        dim: number of observed components, where the kind needs it.
    """

    path: Path
    kind: str
    matrix: np.ndarray | None = None
    offset: np.ndarray | None = None
    noise: np.ndarray | float = 1.0
    angles: tuple[int, ...] = ()
    columns: tuple[str, ...] | None = None
    initial_mean: np.ndarray | None = None
    initial_cov: np.ndarray | float | None = None
    seed: int = 0
    function: str | None = None
    dim: int | None = None

    def sensor(self, state_dim: int) -> "Sensor":
        """Build the sensor for a system with `state_dim` states, checking that they fit."""
        from fedkoopman.sensors import FunctionSensor, LinearSensor

        name = self.path.name
        if self.kind == "linear":
            assert self.matrix is not None
            if self.matrix.shape[1] != state_dim:
                raise InputError(
                    f"matrix in {name} has {self.matrix.shape[1]} columns but the system has "
                    f"{state_dim} states: give each row one number per state"
                )
            if self.offset is not None and self.offset.shape != (state_dim,):
                raise InputError(
                    f"offset in {name} has {self.offset.size} numbers but the system has "
                    f"{state_dim} states: give one per state"
                )
            return LinearSensor(self.matrix, self.offset, angles=self.angles)
        if self.kind == "identity":
            self.check_observed(state_dim)
            return LinearSensor(np.eye(state_dim), angles=self.angles)
        if self.kind == "random-frame":
            frame = LinearSensor.random_frame(state_dim, self.dim, seed=self.seed)
            self.check_observed(frame.dim)
            return frame
        assert self.function is not None and self.dim is not None
        found = load_object(self.function, self.path.parent)
        h = plain_function(found, f"{self.function} in {name}", "h(x)")
        return FunctionSensor(h, self.dim, angles=self.angles)

    def check_observed(self, dim: int) -> None:
        """Check noise, angles and columns against the number of observed components."""
        name = self.path.name
        covariance(self.noise, dim, f"noise in {name}")
        if any(i >= dim for i in self.angles):
            raise InputError(
                f"angles in {name} is {list(self.angles)} but the sensor observes {dim} "
                f"components: write indices from 0 to {dim - 1}"
            )
        if self.columns is not None and len(self.columns) != dim:
            raise InputError(
                f"columns in {name} names {len(self.columns)} columns but the sensor observes "
                f"{dim} components: name one column per component"
            )

    def check_states(self, state_dim: int) -> None:
        """Check the initial state's law against the system's dimension."""
        if self.initial_mean is not None and self.initial_mean.shape != (state_dim,):
            raise InputError(
                f"initial_mean in {self.path.name} has {self.initial_mean.size} numbers but the "
                f"system has {state_dim} states: give one per state"
            )
        if self.initial_cov is not None:
            covariance(self.initial_cov, state_dim, f"initial_cov in {self.path.name}")


def read_sensor(path: Path) -> SensorFile:
    """Read and check a sensor file; an unknown key fails and names the nearest known one."""
    if not readable_file(path):
        raise InputError(f"there is no sensor file {path}: check the path")
    try:
        content = parse_toml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path.name} is not valid TOML: {error}") from error
    except OSError as error:
        raise system_error(f"cannot read {path}", error) from error
    _check_keys(content, path.name)

    fields: dict[str, Any] = {"path": path, "kind": content["kind"]}
    for key, ndim in (("matrix", 2), ("offset", 1), ("initial_mean", 1)):
        if key in content:
            fields[key] = _numbers(content[key], key, path.name, (ndim,))
    for key in ("noise", "initial_cov"):
        if key in content:
            fields[key] = _numbers(content[key], key, path.name, (0, 1, 2))
    for key in ("seed", "dim"):
        if key in content:
            fields[key] = _integer(content[key], key, path.name, 1 if key == "dim" else 0)
    if fields.get("dim", 1) > LARGEST_DIM:
        raise InputError(f"dim in {path.name} is {fields['dim']}: give at most {LARGEST_DIM}")
    if "angles" in content:
        fields["angles"] = tuple(
            _integer(i, "angles", path.name, 0)
            for i in _list(content["angles"], "angles", path.name)
        )
    if "columns" in content:
        fields["columns"] = tuple(
            _text(c, "columns", path.name) for c in _list(content["columns"], "columns", path.name)
        )
    if "function" in content:
        fields["function"] = _text(content["function"], "function", path.name)
    found = SensorFile(**fields)
    observed = found.dim if found.matrix is None else len(found.matrix)
    if observed is not None:
        found.check_observed(observed)
    return found


def _check_keys(content: Mapping[str, Any], name: str) -> None:
    for key in content:
        if key not in KEYS:
            raise unknown_name(f"key in {name}", key, KEYS)
    kind = content.get("kind", "")
    if not isinstance(kind, str) or kind not in REQUIRED:
        problem = "has no kind" if kind == "" else f"has kind = {short(kind)}"
        raise InputError(f"{name} {problem}: write kind as one of {', '.join(REQUIRED)}")
    for key in REQUIRED[kind]:
        if key not in content:
            raise InputError(f"{name} has no {key!r}, which kind = {kind!r} needs: add it")
    known = OF_ANY_KIND + REQUIRED[kind] + OPTIONAL[kind]
    for key in content:
        if key not in known:
            raise InputError(
                f"{name} has {key!r}, which kind = {kind!r} does not take: "
                "remove it or change the kind"
            )


def _numbers(value: object, key: str, name: str, ndims: tuple[int, ...]) -> np.ndarray:
    try:
        array = np.array(value)
    except ValueError:
        raise InputError(f"{key} in {name} has rows of different lengths: {short(value)}") from None
    if array.dtype.kind not in "fi" or array.size == 0:
        raise InputError(f"{key} in {name} is {short(value)}: write numbers")
    if array.ndim not in ndims:
        forms = " or ".join(("a number", "a list", "a list of rows")[n] for n in ndims)
        raise InputError(f"{key} in {name} is {short(value)}: write {forms}")
    if not np.isfinite(array).all():
        raise InputError(f"{key} in {name} is {short(value)}: write finite numbers")
    return array.astype(np.float64)


def _integer(value: object, key: str, name: str, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{key} in {name} is {short(value)}: write an integer of at least {least}")
    return value


def _list(value: object, key: str, name: str) -> list[object]:
    if not isinstance(value, list):
        raise InputError(f"{key} in {name} is {short(value)}: write a list, [...]")
    return value


def _text(value: object, key: str, name: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{key} in {name} is {short(value)}: write text in quotes")
    return value
