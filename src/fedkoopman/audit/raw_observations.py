"""No filter: states that are the raw observations, brought to state space.

The baseline of the paper's claim that filtered states tell less of a site than its observations do.
A study chooses it as any estimator of a user's own, by "file.py:name", so that simulated and real
sites go through their usual steps with it.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.estimation.estimator import Estimator, Options, Problem
from fedkoopman.sensors import Sensor

__all__ = ["METHOD", "RawObservations"]


class RawObservations(Estimator):
    """x = x̂_0 + H⁺ (z − h(x̂_0)), with H the sensor's slope at the expected state x̂_0.

    Directions that the sensor does not see stay at the expected state, and a missing observation
    is the one before it.
    """

    consistent = False  # there are no innovations to judge it by
    takes_padding = False

    def widest(self, dim: int) -> int:
        """As many as there are."""
        return 64

    def run(
        self, piece: Problem, rows: NDArray[Any], options: Options, smooth: bool
    ) -> tuple[dict[str, Any], bool]:
        """Observations through the pseudo-inverse; smoothed or not is the same."""
        batch, steps, observed = piece.z.shape
        states, dim = [], piece.mean.shape[1]
        for b in range(batch):
            sensor = piece.sensor[b] if isinstance(piece.sensor, list) else piece.sensor
            mean = piece.mean[b]
            expected, slope = (np.asarray(found) for found in _linearised(sensor, mean))
            z = _filled(piece.z[b], expected)
            states.append(mean + (z - expected) @ np.linalg.pinv(slope).T)
        found = {
            "mean": np.stack(states),
            "cov": np.broadcast_to(np.eye(dim), (batch, steps, dim, dim)),
            "initial_mean": piece.mean,
            "initial_cov": np.broadcast_to(np.eye(dim), (batch, dim, dim)),
            "log_likelihood": np.zeros(batch),
            "innovations": np.zeros((batch, steps, observed)),
            "innovation_cov": np.broadcast_to(np.eye(observed), (batch, steps, observed, observed)),
        }
        return {name: np.moveaxis(value, 0, -1) for name, value in found.items()}, False


RAW = RawObservations()
METHOD = f"{Path(__file__).resolve()}:RAW"
"""As `estimation.method` takes it."""


@jax.jit
def _linearised(
    sensor: Sensor, x: Float[Array, " state"]
) -> tuple[Float[Array, " observed"], Float[Array, "observed state"]]:
    return sensor(x), jax.jacfwd(sensor)(x)


def _filled(z: NDArray[np.float64], expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Observations without gaps: the value before holds on, and first of all the expected one."""
    missing = np.isnan(z)
    if not missing.any():
        return z
    last = np.maximum.accumulate(np.where(missing, -1, np.arange(len(z))[:, None]), axis=0)
    held = np.take_along_axis(z, np.maximum(last, 0), axis=0)
    return np.where(last < 0, expected, held)
