"""Forecasts over many steps: lift once and apply K, or lift anew every few steps.

Lifted once, y_h = K^h φ(x) stays a linear model of time; that is Koopman's meaning, and what the
paper's E measures. A lift of limited rank leaves a little of the state out at every step, and the
error grows. Lifted anew after every n applications, y = φ(φ⁻¹(y)), the forecast is a nonlinear map
again and often good for longer, where the decoder is good; where it is not, each lift adds error.
Which way is better is a question to held-out data: `better_way` answers it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedkoopman.koopman.inputs import ahead_of
from fedkoopman.koopman.trajectories import windows_of

if TYPE_CHECKING:
    from fedkoopman.koopman.learned import Learned

__all__ = ["HORIZONS", "WAYS", "better_way", "rollout", "starts_of", "way_errors", "way_scores"]

WAYS = (0, 1, 5, 20)
"""After how many applications of K a forecast may be lifted anew; 0: never."""
HORIZONS = (1, 2, 5, 10, 20, 50, 100)
"""Applications of K after which ways are compared, as far as trajectories reach."""
ENOUGH = 1_000
"""Starts from which ways are compared, about."""

LARGEST = 1e200
"""Stands for errors that are not finite, which sums could not hold."""

Array = NDArray[np.float64]


def rollout(
    learned: "Learned",
    windows: Array,
    horizons: Iterable[int],
    relift: int = 0,
    inputs: Array | None = None,
) -> Iterator[Array]:
    """The states after so many applications of K each, for rising numbers, (n, d).

    Arguments:
        windows: where to start, (n, d_X).
        relift: after how many applications to lift anew; 0: never.
        inputs: of the steps to come, (n, steps, m), where the model has some.
    """
    lifted, done = learned.lift(windows), 0
    kind = learned.architecture
    known = (kind.window - 1) * kind.inputs
    past = windows[:, :known]
    with np.errstate(over="ignore", invalid="ignore"):  # the caller sees what is not finite
        for horizon in horizons:
            for step in range(done, horizon):
                if relift and step and step % relift == 0:
                    window = learned.lower_window(lifted)
                    if known:  # inputs are known, and need not be decoded
                        window = np.hstack([past, window[:, known:]])
                    lifted = learned.lift(window)
                drive = None if inputs is None else inputs[:, step]
                lifted = learned.step(lifted, drive)
                if known and drive is not None:
                    past = np.hstack([past, drive])[:, kind.inputs :]
            done = horizon
            yield learned.lower(lifted)


def starts_of(
    parts: Sequence[Array], window: int, depth: int, most: int = ENOUGH, inputs: int = 0
) -> tuple[Array, NDArray[np.intp], NDArray[np.intp]]:
    """Windows from all over the trajectories, where they end in the joined rows, and how many
    applications of K their trajectories go on for.

    Arguments:
        most: about how many windows; those without a successor are left out.
        inputs: how many columns, the last ones, are inputs.
    """
    ends, windows, last, left = 0, [], [], []
    for part in parts:
        if len(part) >= window + depth:
            place = np.arange(window - 1, len(part) - depth)
            windows.append(windows_of(part[:-depth], window, inputs))
            last.append(ends + place)
            left.append((len(part) - 1 - place) // depth)
        ends += len(part)
    if not windows:
        width = window * (parts[0].shape[1] if parts else 1) - inputs
        return np.zeros((0, width)), np.zeros(0, np.intp), np.zeros(0, np.intp)
    every = slice(None, None, max(1, sum(map(len, windows)) // most))
    joined = np.concatenate(windows)[every]
    return joined, np.concatenate(last)[every], np.concatenate(left)[every]


def way_errors(learned: "Learned", parts: Sequence[Array], scale: Array) -> tuple[Array, Array]:
    """Sums of squared errors of every way at every horizon, (ways, horizons), and their counts.

    Sums of several holders of data add up.

    Arguments:
        parts: trajectories of states (T_i, d), with inputs after them where there are some.
        scale: by which errors are divided, one number for each state.
    """
    kind = learned.architecture
    window, depth, d = kind.window, kind.depth, kind.state_dim
    squares, counts = np.zeros((len(WAYS), len(HORIZONS))), np.zeros(len(HORIZONS))
    windows, last, left = starts_of(parts, window, depth, inputs=kind.inputs)
    if not len(windows):
        return squares, counts
    reached = [h for h in HORIZONS if h <= left.max()]
    rows = np.concatenate([np.asarray(part) for part in parts])
    inputs = ahead_of(rows, last, max(reached), kind.inputs)
    for i, way in enumerate(WAYS):
        for j, states in enumerate(rollout(learned, windows, reached, way, inputs)):
            known = left >= reached[j]
            with np.errstate(over="ignore", invalid="ignore"):
                truth = rows[last[known] + reached[j] * depth, :d]
                error = (states[known] - truth) / scale
                total = float((error**2).sum())
            squares[i, j] = total if np.isfinite(total) else LARGEST
            counts[j] = error.size
    return squares, counts


def way_scores(squares: Array, counts: Array) -> dict[int, float]:
    """For each way, the logarithm of the geometric mean of its errors over the horizons.

    Arguments:
        squares, counts: sums of `way_errors`.
    """
    known = counts > 0
    if not known.any():
        return {}
    means = squares[:, known] / counts[known]
    scores = np.log(np.clip(means, 1 / LARGEST, LARGEST)).mean(axis=1) / 2
    return dict(zip(WAYS, scores.tolist(), strict=True))


def better_way(squares: Array, counts: Array) -> int:
    """The way with the least error; of equal ones the first."""
    scores = way_scores(squares, counts)
    return min(scores, key=lambda way: round(scores[way], 6), default=0)
