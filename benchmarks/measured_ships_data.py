"""KVLCC2 at two laboratories: from the published files to manoeuvres of one form.

MARIN's numbers are those of the full-scale ship, HSVA's those of the 7 m model (scale 1:45.714).
What no site file can say is done here: Earth-fixed velocities become the ship's own, MARIN's rows
get the times that its three digits lost, the offset of its yaw rate and the last rows of its
circles go, and both are averaged over half seconds of the model. Units stay as published;
`scale` in MARIN's site file makes model scale of them, by Froude's law.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SCALE = 45.714
"""λ, of the model."""
DT = 0.5
"""Seconds of the model over which states and rudder are averaged."""
MARIN_INTERVAL = 0.135264
"""Seconds of the ship between two rows; the printed times repeat beyond 100 s."""
HSVA_INTERVAL = 0.05
ARTEFACT = 100
"""Rows at the end of MARIN's circles that its filter spoilt."""
RADIAN = math.pi / 180


@dataclass(frozen=True)
class Manoeuvre:
    """Speed ahead u, sway v (to starboard), yaw rate r, rows DT apart, in the laboratory's units.

    Attributes:
        states: (T, 3).
        rudder: (T, 1) in degrees, each the mean from its row to the next.
    """

    states: Array
    rudder: Array

    def mirrored(self) -> "Manoeuvre":
        """The same to the other side, if port and starboard do not differ."""
        return replace(self, states=self.states * [1.0, -1.0, -1.0], rudder=-self.rudder)


@dataclass(frozen=True)
class Laboratory:
    """A site: how it writes things down, and which of its manoeuvres are held out.

    Attributes:
        columns: what it calls u, v, r and the rudder.
        scale: from its units to m/s, m/s and rad/s of the model.
        zigzags, circles: held-out manoeuvres by name.
    """

    name: str
    prefix: str
    suffix: str
    columns: tuple[str, str, str, str]
    scale: tuple[float, float, float]
    zigzags: tuple[str, ...]
    circles: tuple[str, ...] = ()

    @property
    def held_out(self) -> tuple[str, ...]:
        return self.zigzags + self.circles

    def manoeuvres(self, folder: Path, artefact: int = ARTEFACT) -> dict[str, Manoeuvre]:
        """All manoeuvres in the laboratory's own folder, by name.

        Arguments:
            artefact: how many rows at the end of MARIN's circles are left out.
        """
        found = {}
        for path in sorted((folder / self.name).glob(f"{self.prefix}*{self.suffix}.csv")):
            name = path.stem.removeprefix(self.prefix).removesuffix(self.suffix)
            table = read(path)
            last = artefact if name.startswith("tc_") else 0
            found[name] = marin(table, last) if self is MARIN else hsva(table)
        return found

    def model_scale(self, states: Array) -> Array:
        """States in m/s and rad/s of the model, as the package makes them by `data.scale`."""
        return states * np.array(self.scale)


FROUDE = math.sqrt(SCALE)
MARIN = Laboratory(
    "marin",
    "MARIN_FREE_KVLCC2_",
    "_m",
    ("u", "v", "r", "delta"),
    (1 / FROUDE, 1 / FROUDE, FROUDE * RADIAN),
    ("zz_20",),
    ("tc_35",),
)
HSVA = Laboratory(
    "hsva",
    "HSVA_CPMC_KVLCC2_Z_",
    "",
    ("surge", "sway", "yaw_rate", "rudder"),
    (1.0, 1.0, RADIAN),
    ("15_05", "20_10_S"),
)
LABORATORIES = (MARIN, HSVA)


def read(path: Path) -> dict[str, Array]:
    """Columns of a published file by name."""
    with path.open(encoding="utf-8") as file:
        names = file.readline().strip().split(",")
        rows = np.loadtxt(file, delimiter=",", ndmin=2)
    return dict(zip(names, rows.T, strict=True))


def body_velocities(table: Mapping[str, Array]) -> tuple[Array, Array]:
    """Ahead and to starboard, from velocities north and east and the heading."""
    psi = table["psi"] * RADIAN
    north, east = table["dx0"], table["dy0"]
    ahead = north * np.cos(psi) + east * np.sin(psi)
    return ahead, east * np.cos(psi) - north * np.sin(psi)


def yaw_offset(psi: Array, r: Array, interval: float) -> float:
    """By how much r exceeds dψ/dt, a constant: the slope of ∫r − ψ.

    Single headings are too coarse (1° beyond 100°) to be differentiated; a line through all is not.
    """
    turned = np.concatenate([[0.0], np.cumsum((r[1:] + r[:-1]) / 2 * interval)])
    return float(np.polyfit(np.arange(len(r)) * interval, turned - psi, 1)[0])


def marin(table: Mapping[str, Array], left_out: int = 0) -> Manoeuvre:
    """One of MARIN's files, at full scale, without so many rows at its end."""
    r = table["r"] - yaw_offset(table["psi"], table["r"], MARIN_INTERVAL)
    states = np.stack([*body_velocities(table), r], axis=1)
    last = len(r) - left_out
    return averaged(states[:last], table["delta"][:last], MARIN_INTERVAL / FROUDE)


def hsva(table: Mapping[str, Array]) -> Manoeuvre:
    """One of HSVA's files, at model scale."""
    states = np.stack([*body_velocities(table), table["r"]], axis=1)
    return averaged(states, table["delta"], HSVA_INTERVAL)


def averaged(states: Array, rudder: Array, interval: float, dt: float = DT) -> Manoeuvre:
    """Means of rows: of states over dt about every instant, of the rudder from it to the next.

    The first instant is dt after the first row, so that every mean is over a whole dt.
    """
    # Samples on the edge of two means belong to the later one, whatever rounding says.
    place = np.arange(len(states)) * interval / dt + 1e-9
    count = int(place[-1] - 0.5)
    about, after = np.floor(place + 0.5).astype(int), np.floor(place).astype(int)

    def means(values: Array, group: Array) -> Array:
        total = np.bincount(group, values, minlength=count + 2)
        return (total / np.bincount(group, minlength=count + 2).clip(1))[1 : count + 1]

    found = np.stack([means(column, about) for column in states.T], axis=1)
    return Manoeuvre(found, means(rudder, after)[:, None])
