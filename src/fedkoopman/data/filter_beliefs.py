"""What a site's filter is told; small, since a site's agent keeps it without loading JAX."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ENOUGH = 5_000
"""Samples from which noise and parameters are estimated."""


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What a site's filter is told: as declared or, where that is "auto", as estimated.

    Attributes:
        observation_noise, process_noise: covariances, (m, m) and (d, d).
        initial_mean, initial_cov: of the state before a segment's first sample, (d,) and (d, d).
    """

    observation_noise: NDArray[np.float64]
    process_noise: NDArray[np.float64]
    initial_mean: NDArray[np.float64]
    initial_cov: NDArray[np.float64]

    @property
    def initial(self) -> dict[str, Any]:
        """The initial state, as `fk.estimate` takes it."""
        return {"initial_mean": self.initial_mean, "initial_cov": self.initial_cov}
