"""Which setting a laboratory, or both together, would choose from the manoeuvres they learn from.

Plain least squares in NumPy, by the formulas of `koopman.gram`, because some hundred fits are
needed: x' = W r, r = [ψ, δ] or [ψ, δ ψ], ψ the monomials of the standardised state up to a degree,
held within the range of the training states, lifted anew at every step. What the settings chosen
here reach is measured with `fk.run`, not with this.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from measured_ships_data import LABORATORIES, Array, Manoeuvre

Data = Mapping[str, Mapping[str, Manoeuvre]]
Path_ = tuple[Array, Array]
"""States at model scale (T, 3) and rudder (T, 1)."""

FOLDS = (
    {"marin": ["zz_10"], "hsva": ["10_01", "20_05", "30_05"]},
    {"marin": ["zz_-10"], "hsva": ["10_05", "20_10_P", "10_10_P"]},
    {"marin": ["zz_-20"], "hsva": ["15_01", "25_05", "10_10_S"]},
)
"""Left out together. The smallest and the largest manoeuvres are always learned from: without them
the others would be judged by extrapolation."""


@dataclass(frozen=True)
class Setting:
    """What is chosen."""

    degree: int
    bilinear: bool
    ridge: float

    def __str__(self) -> str:
        form = "bilinear" if self.bilinear else "linear in δ"
        return f"degree {self.degree}, {form}, ridge {self.ridge:.0e}".replace("e-0", "e-")


SETTINGS = [
    Setting(*chosen) for chosen in itertools.product((1, 2, 3), (False, True), (1e-9, 1e-6))
]


@lru_cache(maxsize=16)
def monomials(degree: int) -> list[Array]:
    """Factors of every monomial of (u, v, r), by degree from 1 on."""
    return [
        np.array(list(itertools.combinations_with_replacement(range(3), k)))
        for k in range(1, degree + 1)
    ]


def regressors(setting: Setting, z: Array, drive: Array) -> Array:
    """r for standardised states (n, 3) and rudder (n, 1)."""
    products = [z[:, factors].prod(axis=2) for factors in monomials(setting.degree)]
    lifted = np.hstack([np.ones((len(z), 1)), *products])
    return np.hstack([lifted, lifted * drive if setting.bilinear else drive])


@dataclass(frozen=True)
class Fit:
    """A fitted map; see the module."""

    setting: Setting
    mean: Array
    std: Array
    strength: float
    low: Array
    high: Array
    matrix: Array

    def step(self, x: Array, rudder: Array) -> Array:
        """The next states (n, 3)."""
        z = np.clip((x - self.mean) / self.std, self.low, self.high)
        return (
            regressors(self.setting, z, rudder / self.strength) @ self.matrix * (self.std)
            + self.mean
        )

    def simulated(self, paths: Sequence[Path_]) -> list[Array]:
        """Whole manoeuvres from their first states, (T − 1, 3) each."""
        longest = max(len(rudder) for _, rudder in paths)
        drive = np.stack([np.pad(u, ((0, longest - len(u)), (0, 0)), "edge") for _, u in paths])
        x, found = np.stack([states[0] for states, _ in paths]), []
        for k in range(longest - 1):
            x = np.clip(self.step(x, drive[:, k]), -1e3, 1e3)
            found.append(x)
        every = np.stack(found, axis=1)
        return [one[: len(states) - 1] for one, (states, _) in zip(every, paths, strict=True)]


def fit(setting: Setting, sites: Sequence[Sequence[Path_]], weights: Sequence[float] = ()) -> Fit:
    """By least squares; a site's rows may count more or less than 1."""
    every = [path for site in sites for path in site]
    x = np.concatenate([states for states, _ in every])
    mean, std = x.mean(axis=0), x.std(axis=0)
    strength = float(np.sqrt(np.mean(np.concatenate([u for _, u in every]) ** 2)))
    z = (x - mean) / std
    low, high = z.min(axis=0), z.max(axis=0)
    margin = 0.1 * (high - low) / 2
    gram, right = 0.0, 0.0
    for site, weight in zip(sites, weights or [1.0] * len(sites), strict=True):
        for states, rudder in site:
            z = (states - mean) / std
            r = regressors(setting, z[:-1], rudder[:-1] / strength)
            gram, right = gram + weight * r.T @ r, right + weight * r.T @ z[1:]
    size = np.sqrt(np.diagonal(gram))
    values, vectors = np.linalg.eigh(gram / size[:, None] / size)
    kept = values > setting.ridge * values[-1]
    solved = (vectors[:, kept] / values[kept]) @ (vectors[:, kept].T @ (right / size[:, None]))
    return Fit(setting, mean, std, strength, low - margin, high + margin, solved / size[:, None])


def root_mean_square(parts: Sequence[Array] | Sequence[float]) -> float:
    """Over manoeuvres, each as much as any other."""
    return float(np.sqrt(np.mean([np.mean(np.square(part)) for part in parts])))


def errors(model: Fit, paths: Sequence[Path_], spread: Array) -> float:
    """Of simulating whole manoeuvres, in standard deviations."""
    found = model.simulated(paths)
    return root_mean_square([(a - x[1:]) / spread for a, (x, _) in zip(found, paths, strict=True)])


def paths_of(
    data: Data, name: str, without: Sequence[str] = (), mirror: bool = False
) -> list[Path_]:
    """A laboratory's manoeuvres at model scale, without some of them."""
    [lab] = [each for each in LABORATORIES if each.name == name]
    chosen = [one for key, one in data[name].items() if key not in without]
    chosen += [one.mirrored() for one in chosen] if mirror else []
    return [(lab.model_scale(one.states), one.rudder) for one in chosen]


def validation_error(
    data: Data,
    setting: Setting,
    spread: Array,
    names: Sequence[str] = ("marin", "hsva"),
    mirror: bool = False,
    weights: Sequence[float] = (),
) -> float:
    """On left-out manoeuvres of those who learn; geometric mean over laboratories.

    Held-out manoeuvres take no part: `data` holds those to learn from.
    """
    found: dict[str, list[float]] = {name: [] for name in names}
    for left_out in FOLDS:
        sites = [paths_of(data, name, left_out[name], mirror) for name in names]
        model = fit(setting, sites, weights)
        for name in names:
            others = [key for key in data[name] if key not in left_out[name]]
            found[name].append(errors(model, paths_of(data, name, others), spread))
    return float(np.exp(np.mean([np.log(root_mean_square(each)) for each in found.values()])))


def chosen(
    data: Data, spread: Array, names: Sequence[str], mirror: bool = False
) -> tuple[Setting, float]:
    """The setting with the least error on left-out manoeuvres, and that error."""
    found = {one: validation_error(data, one, spread, names, mirror) for one in SETTINGS}
    best = min(found, key=found.__getitem__)
    return best, found[best]
