"""Ten lines of NumPy each: what any user could write instead of a library.

A forecast is a function (states (n, d), steps) → (n, steps, d). Everything that is compared, ours
and the peers' models too, is brought to this form.
"""

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Forecast = Callable[[Array, int], Array]


def holding(states: Array, steps: int) -> Array:
    """The last value, for ever."""
    return np.repeat(states[:, None], steps, axis=1)


def monomials(u: Array, degree: int) -> Array:
    """1, u and all products of up to `degree` coordinates; (…, d) → (…, D)."""
    columns = [np.ones_like(u[..., :1]), u]
    powers = {(i,): u[..., i] for i in range(u.shape[-1])}
    for n in range(2, degree + 1):
        for term in combinations_with_replacement(range(u.shape[-1]), n):
            powers[term] = powers[term[:-1]] * u[..., term[-1]]
            columns.append(powers[term][..., None])
    return np.concatenate(columns, axis=-1)


class Edmd:
    """EDMD with monomials of standardised states; degree 1 is linear DMD with a constant.

    Arguments:
        ridge: added to the mean square of every function of scale 1; 0 leaves out directions of
            the Gram matrix below 1e-14 of its largest.
        margin: re-lifted states are held within the training range and this share of it beyond;
            None does not hold them.
    """

    def __init__(
        self, train: Sequence[Array], degree: int, ridge: float = 0.0, margin: float | None = 0.1
    ) -> None:
        states = np.concatenate([np.asarray(x) for x in train])
        self.mean, self.std, self.degree = states.mean(axis=0), states.std(axis=0), degree
        low, high = states.min(axis=0), states.max(axis=0)
        spare = np.inf if margin is None else margin * (high - low)
        self.low, self.high = low - spare, high + spare
        lifted = [self.lift(np.asarray(x)) for x in train]
        n = sum(len(y) - 1 for y in lifted)
        g = sum(y[:-1].T @ y[:-1] for y in lifted) / n
        a = sum(y[:-1].T @ y[1:] for y in lifted) / n
        scale = 1 / np.sqrt(np.diag(g))
        values, vectors = np.linalg.eigh(scale[:, None] * g * scale)
        keep = values > 1e-14 * values[-1]
        inverse = (vectors[:, keep] / (values[keep] + ridge)) @ vectors[:, keep].T
        self.operator = scale[:, None] * (inverse @ (scale[:, None] * a))

    def lift(self, states: Array) -> Array:
        return monomials((states - self.mean) / self.std, self.degree)

    def decode(self, lifted: Array) -> Array:
        return lifted[..., 1 : 1 + len(self.mean)] * self.std + self.mean

    def once(self, states: Array, steps: int) -> Array:
        """Lifted once, then advanced by powers of K alone."""
        y, found = self.lift(states), []
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(steps):
                y = y @ self.operator
                found.append(self.decode(y))
        return np.stack(found, axis=1)

    def relifted(self, states: Array, steps: int, every: int = 1) -> Array:
        """Decoded, held within the range and lifted again at every step, or every few."""
        y, found = self.lift(states), []
        for step in range(steps):
            if step and step % every == 0:
                y = self.lift(found[-1])
            y = y @ self.operator
            found.append(np.clip(self.decode(y), self.low, self.high))
        return np.stack(found, axis=1)

    def at(self, states: Array, horizons: Sequence[int], coordinates: slice) -> list[Array]:
        """Lift-once forecasts of some coordinates at some horizons, without those between."""
        ahead = np.eye(len(self.operator))[:, 1:][:, coordinates]
        lifted, found = self.lift(states), []
        for step in range(1, max(horizons) + 1):
            ahead = self.operator @ ahead
            if step in horizons:
                found.append((lifted @ ahead) * self.std[coordinates] + self.mean[coordinates])
        return found


def root_mean_square(error: Array) -> float:
    return float(np.sqrt(np.mean(np.square(error))))


def mean_square(error: Array) -> float:
    return float(np.mean(np.square(error)))


def spread(states: Array) -> float:
    """Root mean square distance of states (…, d) from their mean."""
    rows = states.reshape(-1, states.shape[-1])
    return float(np.sqrt(((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean()))


def valid_steps(error: Array, limit: float) -> NDArray[np.int64]:
    """Steps before the norm of an error (…, steps, d) first exceeds the limit, or is no number."""
    fine = np.linalg.norm(error, axis=-1) <= limit
    return np.cumprod(fine, axis=-1).sum(axis=-1)
