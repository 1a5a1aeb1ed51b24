"""How far off a model is, and forecasts that say so.

A lifted state y with covariance P is, h applications of K later,

    y_h = K^h y,   P_h = K^h P K^hᵀ + M_h,

and as a state φ⁻¹(y_h) with covariance D P_h Dᵀ, where D is the Jacobian of φ⁻¹ at y_h.

M_h is what the model adds: the second moment of its error e_h = φ(x_{k+h}) − K^h φ(x_k), about zero
and not about the mean, because a constant error is an error too. If the one-step errors were
independent in time, M_h would be K M_{h−1} Kᵀ + Q with Q = E[e_1 e_1ᵀ]. They are not: a model is
wrong in the same way at neighbouring states, and errors that agree add up faster. So M_h is
measured as far as the data reach. Beyond, and for filters, which need one covariance per step, Q is
scaled so that what adds up is as large as what was measured.

Where there are many trajectories the states' own errors are better still (`koopman.bands`): they
are known for forecasts that are lifted anew too, and ±2σ then covers 95 of 100 of them, whatever
their law. Such bands take the place of D M_h Dᵀ as far as they reach, and scale it beyond.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import ComputationError, InputError
from fedkoopman.koopman.bands import extended, state_errors
from fedkoopman.koopman.frames import pandas
from fedkoopman.koopman.learned import Learned
from fedkoopman.koopman.rollout import rollout
from fedkoopman.koopman.trajectories import Trajectories, as_trajectories, windows_of

SPANS = 20
"""Fewer spans of h steps that do not overlap say too little of how far off h steps lead: the
relative error of a variance from n independent samples is √(2/n)."""

ENOUGH = 100_000
"""Samples of which errors are measured; more tell nothing new."""

LONG = 1000
"""Samples below which no trajectory is cut short."""

REACH = 64
"""The longest span, in applications of K, by which the noise is scaled."""

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ErrorSum:
    """What one group of trajectories tells of h steps: it adds up with what others tell."""

    moment: Array
    """Σ e_h e_hᵀ, (O, O)."""
    count: int
    """Of the errors."""
    spans: int
    """Of h steps that do not overlap."""


def spread(learned: Learned, parts: list[Array], steps: int) -> Array:
    """M_1 … M_steps, (steps, O, O): the second moments of the model's error h steps ahead.

    Arguments:
        learned: the model.
        parts: trajectories of states (T_i, d); those too short for one step are left out.
        steps: how many applications of K.
    """
    measured = np.array(list(_means([_sums(learned, parts, steps, SPANS)])))
    if len(measured) == steps:
        return measured
    noise, more = lifted_noise(learned, parts), steps - len(measured)
    return np.concatenate([measured, accumulated(learned, noise, more, measured[-1])])


def enough(learned: Learned, parts: list[Array]) -> bool:
    """Whether trajectories are enough to tell how far off the model is after one step."""
    window, depth = learned.architecture.window, learned.architecture.depth
    return sum(max(0, len(part) - window) // depth for part in parts) >= SPANS


def accumulated(learned: Learned, noise: Array, steps: int, start: Any = 0.0) -> Array:
    """M_h = K M_{h−1} Kᵀ + Q from M_0 = `start`, for 1 … steps, (steps, O, O)."""
    operator, result = learned.operator, np.empty((steps, *noise.shape))
    moment = np.broadcast_to(start, noise.shape)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller checks the result
        for h in range(steps):
            moment = result[h] = operator @ moment @ operator.T + noise
    return result


def lifted_noise(learned: Learned, parts: list[Array]) -> Array:
    """Q, scaled by how much faster errors add up than independent ones would, (O, O).

    The scale is the mean, over spans of 1, 2, 4, … steps, of the ratio of the variance measured to
    the variance that Q alone would give; each component counts by its share in one step.
    """
    return noise_of_sums(learned, [_sums(learned, parts, REACH, SPANS)])


def error_sums(learned: Learned, parts: list[Array]) -> list[ErrorSum]:
    """What trajectories tell of 1, 2, … steps, to be added to what is known elsewhere."""
    return list(_sums(learned, parts, REACH, 1))


def noise_of_sums(learned: Learned, groups: Sequence[Iterable[ErrorSum]]) -> Array:
    """`lifted_noise` of all trajectories of several groups, from their sums alone."""
    measured = np.array(list(_means(groups)))
    noise = measured[0]
    independent = accumulated(learned, noise, len(measured))
    variance = np.diagonal(noise)
    share = np.divide(1, variance, out=np.zeros_like(variance), where=variance > 0)
    scales = []
    for h in range(len(measured).bit_length()):
        total = float(np.diagonal(independent[2**h - 1]) @ share)
        found = float(np.diagonal(measured[2**h - 1]) @ share)
        if np.isfinite(total) and np.isfinite(found) and total > 0:
            scales.append(found / total)
    return noise * float(np.mean(scales or [1.0]))


def _means(groups: Sequence[Iterable[ErrorSum]]) -> Iterator[Array]:
    """E[e_h e_hᵀ] for h = 1, 2, … while there are enough spans; one step at least."""
    for h, sums in enumerate(zip_longest(*groups), 1):
        told = [one for one in sums if one is not None]
        if h > 1 and sum(one.spans for one in told) < SPANS:
            return
        moment = sum((one.moment for one in told[1:]), told[0].moment)
        yield moment / sum(one.count for one in told)


def _sums(learned: Learned, parts: list[Array], most: int, least: int) -> Iterator[ErrorSum]:
    """Sums over the errors after h = 1, 2, … steps while there are so many spans; one at least."""
    kind = learned.architecture
    window, depth, m = kind.window, kind.depth, kind.inputs
    parts = _sample([part for part in parts if len(part) >= window + depth])
    if not parts:
        raise InputError(
            f"no trajectory has the {window + depth} samples that one step of the model and its "
            "outcome need: give longer ones"
        )
    lengths = [len(part) - window + 1 for part in parts]
    joined = np.concatenate([windows_of(part, window, m) for part in parts])
    lifted = np.split(learned.lift(joined), np.cumsum(lengths)[:-1])
    drives = [part[window - 1 :, -m:] for part in parts] if m else [None] * len(parts)
    ahead = lifted
    for h in range(1, most + 1):
        spans = sum((length - 1) // (h * depth) for length in lengths)
        if h > 1 and spans < least:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # a model may have diverged
            ahead = [
                learned.step(part[:-depth], None if u is None else u[h - 1 :][: len(part) - depth])
                for part, u in zip(ahead, drives, strict=True)
            ]
            errors = np.concatenate(
                [y[h * depth :] - part for y, part in zip(lifted, ahead, strict=True)]
            )
            moment: Any = errors.T @ errors
        if h > 1 and not np.isfinite(moment).all():
            return
        yield ErrorSum((moment + moment.T) / 2, len(errors), spans)


def _sample(parts: list[Array]) -> list[Array]:
    """Trajectories from all over, of about `ENOUGH` samples: of long ones the beginnings, of many
    short ones every so many."""
    total = sum(map(len, parts))
    if total <= ENOUGH:
        return parts
    each = ENOUGH // len(parts)
    return [part[:each] for part in parts] if each >= LONG else parts[:: -(-total // ENOUGH)]


@dataclass(frozen=True)
class Forecast:
    """States to come; row h − 1 is h applications of K ahead.

    Attributes:
        mean: (H, d), or (B, H, d) for several trajectories.
        cov: (H, d, d) or (B, H, d, d).
        time: (H,), from the last sample on.
        names: of the state's components, where they are known.
        units: of the state's components, where they are known.
    """

    mean: Array
    cov: Array
    time: Array
    names: tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None

    @property
    def std(self) -> Array:
        """Standard deviations of the components of `mean`."""
        return np.sqrt(np.diagonal(self.cov, axis1=-2, axis2=-1))

    def first(self) -> "Forecast":
        """The forecast of the first trajectory, without the leading axis."""
        return replace(self, mean=self.mean[0], cov=self.cov[0])

    def to_frame(self) -> Any:
        """A DataFrame with `time`, each state and its standard deviation, as x and x_std; of
        several trajectories also `segment`, counted from 0."""
        names = self.names or tuple(f"x{i + 1}" for i in range(self.mean.shape[-1]))
        count = self.mean.shape[0] if self.mean.ndim == 3 else 1
        means, stds = (part.reshape(-1, len(names)) for part in (self.mean, self.std))
        table: dict[str, Any] = {}
        if self.mean.ndim == 3:
            table["segment"] = np.repeat(np.arange(count), len(self.time))
        table["time"] = np.tile(self.time, count)
        table |= dict(zip(names, means.T, strict=True))
        table |= {f"{name}_std": std for name, std in zip(names, stds.T, strict=True)}
        return pandas().DataFrame(table)


def forecast(
    learned: Learned,
    given: Trajectories,
    steps: int,
    std: Any = None,
    relift: int = 0,
    inputs: Array | None = None,
) -> Forecast:
    """What follows the last window of each trajectory; see `DeepKoopman.forecast`.

    Arguments:
        given: trajectories of states, with inputs after them where there are some, long enough for
            a window each.
        steps: how many applications of K.
        std: standard deviations of the states, in the form of the trajectories.
        relift: after how many applications to lift anew; 0: never.
        inputs: of the steps to come, (B, steps, m), the first from the last state on.
    """
    window, m = learned.architecture.window, learned.architecture.inputs
    last = np.concatenate([windows_of(part[-window:], window, m) for part in given.parts])
    lifted = learned.lift(last)
    none = np.zeros((len(last), lifted.shape[1], lifted.shape[1]))
    # Trajectories that tell too little are not asked where the model knows its own noise.
    if learned.noise is not None and not enough(learned, given.parts):
        found = propagate(learned, lifted, none, steps, inputs, noise=learned.noise)
    else:
        added = spread(learned, given.parts, steps)
        found = propagate(learned, lifted, none, steps, inputs, added=added)
    measured = state_errors(learned, given.parts, steps, relift)
    cov = extended(measured, found.cov)
    if std is not None:
        cov = cov + _carried(
            learned, last, _last_stds(given, std, window, m), steps, relift, inputs
        )
    mean = found.mean
    if relift:
        every = rollout(learned, last, range(1, steps + 1), relift, inputs)
        mean = np.stack(list(every), axis=1)
    _check_finite(mean, cov)
    found = replace(found, mean=mean, cov=cov)
    return found if given.several else found.first()


def _carried(
    learned: Learned, last: Array, stds: Array, steps: int, relift: int, inputs: Array | None
) -> Array:
    """What becomes of the doubt in the last windows, (B, H, d, d).

    Lifted once, it goes through the Jacobians of φ, K^h and φ⁻¹. Lifted anew, windows one standard
    deviation to either side are forecast too: half their differences are the columns of its root.
    """
    if not relift:
        slope = learned.lift_slope(last) * stds[:, None]
        cov = slope @ slope.swapaxes(1, 2)
        return propagate(learned, learned.lift(last), cov, steps, inputs).cov
    count, width = last.shape
    moved = stds[:, None] * np.eye(width)
    both = np.concatenate([last[:, None] + moved, last[:, None] - moved], axis=1)
    moves = None if inputs is None else np.repeat(inputs, 2 * width, axis=0)
    every = rollout(learned, both.reshape(-1, width), range(1, steps + 1), relift, moves)
    states = np.stack(list(every), axis=1).reshape(count, 2, width, steps, -1)
    root = (states[:, 0] - states[:, 1]) / 2
    return np.einsum("bwhi,bwhj->bhij", root, root)


def propagate(
    learned: Learned,
    lifted: Array,
    cov: Array,
    steps: int,
    inputs: Array | None = None,
    *,
    noise: Array | float = 0.0,
    added: Array | None = None,
) -> Forecast:
    """Forecasts from lifted states.

    Arguments:
        lifted, cov: where they start, (B, O) and (B, O, O).
        steps: H.
        inputs: (B, H, m).
        noise: Q of every step, which later steps carry on, (O, O).
        added: M_1 … M_H, all that the model is off after so many steps, (H, O, O).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        means = learned.advance(lifted, steps, inputs).swapaxes(0, 1)
        covs = np.empty((len(lifted), steps, *cov.shape[1:]))
        for h in range(steps):
            step = learned.step_matrix(None if inputs is None else inputs[:, h])
            cov = step @ cov @ step.swapaxes(-1, -2) + noise
            covs[:, h] = cov if added is None else cov + added[h]
        mean, state_cov = lower_covariance(learned, means, covs)
    _check_finite(mean, state_cov)
    time = np.arange(1.0, steps + 1) * (learned.architecture.depth * learned.dt)
    return Forecast(mean, state_cov, time, learned.names, learned.units)


def _check_finite(mean: Array, cov: Array) -> None:
    bad = ~np.isfinite(mean).all(axis=(0, 2)) | ~np.isfinite(cov).all(axis=(0, 2, 3))
    if bad.any():
        steps = mean.shape[1]
        raise ComputationError(
            f"the forecast is no longer finite after {int(bad.argmax())} of {steps} steps: the "
            "model grows without bound, ask for fewer steps"
        )


def lower_covariance(learned: Learned, lifted: Array, cov: Array) -> tuple[Array, Array]:
    """φ⁻¹(y) and D P Dᵀ for lifted states (…, O) with covariances (…, O, O)."""
    before, rows = lifted.shape[:-1], lifted.reshape(-1, lifted.shape[-1])
    states, slope = learned.lower(rows), learned.lower_slope(rows)
    spread = slope @ cov.reshape(-1, *cov.shape[-2:]) @ slope.swapaxes(1, 2)
    spread = (spread + spread.swapaxes(1, 2)) / 2
    dim = states.shape[1]
    return states.reshape(*before, dim), spread.reshape(*before, dim, dim)


def _last_stds(given: Trajectories, std: Any, window: int, inputs: int) -> Array:
    """The standard deviations of the last windows, (B, d_X); inputs are exact."""
    stds = as_trajectories(std).parts
    shapes = [(len(part), part.shape[1] - inputs) for part in given.parts]
    if [part.shape for part in stds] != shapes:
        raise InputError("std has another shape than X: give one number for every state in X")
    if min(part.min() for part in stds) < 0:
        raise InputError("std has numbers below 0: give standard deviations")
    states = np.stack([part[-window:].ravel() for part in stds])
    return np.hstack([np.zeros((len(states), (window - 1) * inputs)), states])
