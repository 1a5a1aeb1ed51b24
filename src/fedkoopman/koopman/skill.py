"""Skill: how much better than holding the last state a model forecasts, over many horizons.

For h applications of K, with errors divided by the spread of each component,

    S_h = 1 − RMSE of the model at h / RMSE of holding at h,

and the skill is the mean of S_h over the horizons: 1 is perfect, 0 as good as holding the last
state, negative worse. R² of one step would compare with the mean of the states, which near any
trajectory sampled finely enough every model beats.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedkoopman.koopman.inputs import ahead_of
from fedkoopman.koopman.trajectories import windows_of

HORIZONS = (1, 2, 5, 10, 20, 50)
"""In applications of K, as far as trajectories reach."""

WORST = -100.0
"""The least that a horizon counts: a forecast a hundred times worse than holding, or infinite."""

ENOUGH = 100_000
"""Windows from which forecasts are judged; more tell nothing new."""

Rollout: TypeAlias = Callable[..., Iterable[NDArray[np.float64]]]
"""From windows (n, d_X) and rising horizons to the states (n, d) at each; where a system is driven,
`inputs=` has the inputs of all steps, (n, steps, m)."""


def skill(
    rollout: Rollout,
    parts: Sequence[NDArray[np.float64]],
    window: int,
    depth: int,
    inputs: int = 0,
) -> dict[int, float]:
    """S_h for every horizon that some trajectory reaches.

    Arguments:
        rollout: the model.
        parts: trajectories (T_i, d), each long enough for a window and one application.
        window, depth: μ and τ.
        inputs: how many columns of the trajectories, the last ones, are inputs.
    """
    reach = max(len(part) - window for part in parts) // depth
    horizons = [h for h in HORIZONS if h <= reach]
    rows = np.concatenate(parts)
    ends = np.cumsum([len(part) for part in parts])
    # Where windows end, with the rows that are left after them in their trajectory.
    last = np.concatenate(
        [np.arange(e - len(p) + window - 1, e) for p, e in zip(parts, ends, strict=True)]
    )
    left = np.repeat(ends, [len(part) - window + 1 for part in parts]) - 1 - last
    windows = np.concatenate([windows_of(part, window, inputs) for part in parts])
    chosen = np.flatnonzero(left >= depth)
    chosen = chosen[:: -(-len(chosen) // ENOUGH)]
    last, left, windows = last[chosen], left[chosen], windows[chosen]
    more = {"inputs": ahead_of(rows, last, max(horizons), inputs)} if inputs else {}
    rows = rows[:, : rows.shape[1] - inputs]
    scale = _spread(rows)
    found = {}
    for h, states in zip(horizons, rollout(windows, horizons, **more), strict=True):
        known = left >= h * depth
        truth = rows[last[known] + h * depth]
        error = _rms((states[known] - truth) / scale)
        held = _rms((rows[last[known]] - truth) / scale)
        found[h] = _against(error, held)
    return found


def mean_skill(found: dict[int, float]) -> float:
    """The mean over the horizons, each counting alike."""
    return float(np.mean(list(found.values())))


def _spread(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The standard deviation of each component; of one that never changes, its size, or 1."""
    size = np.abs(rows).max(axis=0)
    still = np.where(size > 0, size, 1.0)
    return np.where(np.ptp(rows, axis=0) > 0, rows.std(axis=0), still)


def _rms(error: NDArray[np.float64]) -> float:
    with np.errstate(over="ignore", invalid="ignore"):  # a model may have diverged
        return float(np.sqrt(np.mean(error**2)))


def _against(error: float, held: float) -> float:
    if held == 0:
        return 1.0 if error == 0 else WORST
    share = 1 - error / held
    return max(share, WORST) if np.isfinite(share) else WORST
