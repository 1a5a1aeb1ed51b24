"""What is known of the state before a trajectory's first sample, from the observations alone.

1. Laws to begin with. A state that a linear sensor shows has the mean and variance of all its
   samples. Of other states the sensor says nothing, so their variances are a common factor times a
   guess; every power of ten is tried.
2. From each, mean and spread of the smoothed initial states, and once more under the law found:
   steps of expectation-maximisation, which add the mean of the smoothed covariances to the spread
   of the means, so that the law is not too narrow where little is seen.
3. The law under which the observations are likeliest, of those nearly as good the one that began
   narrowest: a sensor that shows the sine of an angle cannot tell a turn from none. The median over
   trajectories decides, as some may be lost under any law.

Why not the first samples themselves: they are as noisy as any, and do not show hidden states. Why
step 2 before the choice: where the filter is not linear it may miss under a wide law that is right.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.estimation import checks
from fedkoopman.estimation.estimates import Estimates, estimate
from fedkoopman.estimation.track_loss import lost_track
from fedkoopman.sensors import LinearSensor, Sensor
from fedkoopman.systems import System
from fedkoopman.systems.initial_law import InitialLaw, initial_law

FACTORS = 10.0 ** np.arange(-2, 5)
"""Of the variances of states that are not seen."""
PASSES = 2
WIDER = 4.0
"""By how much the covariance is larger as long as the noise is not known."""
NEARLY = 1.0
"""Of the log-likelihood, in the median over trajectories."""
METHOD = "ukf-resampled"
"""Its likelihood is that of the model, whichever filter runs afterwards."""

Trajectories = Sequence[NDArray[np.float64]]


def first_law(
    system: System,
    sensor: Sensor,
    z: Trajectories,
    *,
    mean: NDArray[np.float64] | None = None,
    doubt: float | None = None,
    **options: Any,
) -> InitialLaw:
    """A law that is surely wide enough, to estimate noise with.

    Arguments:
        z: observations (T_i, m) of each trajectory.
        mean: the expected state, if it is known; the covariance is then about it.
        doubt: process noise relative to the law's variances, where the options give none.
        options: noise and the like, as `fk.estimate` takes them.
    """
    checks.observations(list(z), sensor.dim)
    own = initial_law(system)
    guess = np.diag(own.cov) + own.mean**2
    middle, variances, hidden = seen_spread(sensor, z, np.where(guess > 0, guess, 1.0))
    laws, curves = [], []
    for factor in FACTORS if hidden.any() else (1.0,):
        law = InitialLaw(middle, np.diag(np.where(hidden, factor * variances, variances)))
        if mean is not None:
            law = InitialLaw(mean, law.cov + np.outer(middle - mean, middle - mean))
        if doubt is not None:
            options["process_noise"] = doubt * np.diag(np.diag(law.cov))
        law = estimated_law(system, sensor, z, law, mean=mean, **options)
        found = _estimates(system, sensor, z, law, **options)
        laws.append(InitialLaw(law.mean, WIDER * law.cov))
        curves.append(np.where(found.ok, np.asarray(found.log_likelihood), -np.inf))
    table = np.stack(curves, axis=1)
    table = table[np.isfinite(table).any(axis=1)]
    if not len(table):
        return laws[-1]
    scores = np.median(table - table.max(axis=1, keepdims=True), axis=0)
    return laws[int(np.argmax(scores >= scores.max() - NEARLY))]


def estimated_law(
    system: System,
    sensor: Sensor,
    z: Trajectories,
    law: InitialLaw,
    *,
    mean: NDArray[np.float64] | None = None,
    **options: Any,
) -> InitialLaw:
    """The moments of the smoothed initial states, under a law that is wide enough.

    Where the filter follows no trajectory the law stays as it is; from a single one its mean alone
    is learned.

    Arguments: as of `first_law`.
    """
    for _ in range(PASSES):
        found = _estimates(system, sensor, z, law, **options)
        lost = np.array([bool(reason) for reason in lost_track(found)])
        follows = np.atleast_1d(found.ok) & ~lost
        count = int(follows.sum())
        if not count:
            return law
        starts = np.asarray(found.initial_mean)[follows]
        middle = starts.mean(axis=0) if mean is None else mean
        if count == 1:
            return InitialLaw(middle, law.cov)
        off = starts - middle
        freedom = count - 1 if mean is None else count
        spread = off.T @ off / freedom + np.asarray(found.initial_cov)[follows].mean(axis=0)
        # the mean is not known better than from so many starts
        law = InitialLaw(middle, (1 + 1 / count) * (spread + spread.T) / 2)
    return law


def _estimates(
    system: System, sensor: Sensor, z: Trajectories, law: InitialLaw, **options: Any
) -> Estimates:
    return estimate(
        system, sensor, list(z), initial_mean=law.mean, initial_cov=law.cov, method=METHOD,
        warn=False, **options,
    )  # fmt: skip


def seen_spread(
    sensor: Sensor, z: Trajectories, guess: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """A mean and variances (d,) of the states, from all observations pulled back through the
    sensor; and which of them the sensor does not show, or only mixed with others.

    Arguments:
        guess: variances of states of which it shows nothing.
    """
    dim = len(guess)
    rows = np.concatenate(list(z))
    rows = rows[~np.isnan(rows).any(axis=1)]
    if not isinstance(sensor, LinearSensor) or len(rows) < 2:
        return np.zeros(dim), guess, np.ones(dim, bool)
    matrix, offset = np.asarray(sensor.matrix, float), np.asarray(sensor.offset, float)
    back = np.linalg.pinv(matrix)
    states = rows @ back.T + offset
    variances = states.var(axis=0)
    hidden = np.diag(back @ matrix) < 1 - 1e-9
    return states.mean(axis=0), np.where(variances > 0, variances, guess), hidden
