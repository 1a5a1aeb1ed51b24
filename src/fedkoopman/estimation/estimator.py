"""What an estimator is: observations of a batch of trajectories in, states with covariances out.

`fk.estimate` checks the input, cuts it into pieces and asks an estimator to `run` each. All else
that callers ask of a method is stated by the estimator itself. There are two ways to write one:

- `GaussianEstimator` (in `gaussian_estimator`) with a `Transform`: how a Gaussian passes through a
  function. Filter step, smoother, batches and streaming follow from it.
- `SequenceEstimator`: a function of one whole trajectory.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray

from fedkoopman.estimation.problem import Problem
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System
from fedkoopman.systems.integrate import trajectory_key

__all__ = ["Estimator", "Options", "SequenceEstimator", "Trajectory"]


class Options(NamedTuple):
    """The settings of all methods; each takes what concerns it."""

    alpha: float = 0.1
    beta: float = 2.0
    kappa: float = -1.0
    particles: int = 1000
    seed: int = 0


class Estimator(ABC):
    """A method of estimation; it holds no data."""

    smooths: bool = True
    """Whether it has a smoother."""
    consistent: bool = True
    """Whether its innovation covariances and its likelihood are those of the model."""
    learns_constants: bool = True
    """Whether it can estimate a component of the state that never moves."""
    takes_padding: bool = True
    """Whether steps without observations may be added after a trajectory's end: nothing before
    them changes, and trajectories of several lengths share what is compiled."""

    def widest(self, dim: int) -> int:
        """How many trajectories with `dim` states `run` takes at once.

        A compiled batch of another width rounds differently. With 1, a trajectory's result never
        depends on the batch that it is in.
        """
        return 1

    def check(self, options: Options, dim: int) -> None:  # noqa: B027 - optional
        """Raise `InputError` for options with which `dim` states cannot be estimated.

        The message begins with the option's name.
        """

    def needs_density(self, smooth: bool) -> Mapping[str, str]:
        """Which of process_noise and observation_noise must be positive definite, and why."""
        return {}

    def indefinite(self, options: Options) -> str:
        """A warning that covariances may lose positive definiteness; empty if they cannot."""
        return ""

    @abstractmethod
    def run(
        self, piece: Problem, rows: np.ndarray, options: Options, smooth: bool
    ) -> tuple[dict[str, Any], bool]:
        """Estimate the trajectories of a piece.

        Arguments:
            piece: at most `widest` trajectories.
            rows: their numbers in the batch, which name their random draws.
            options: checked.
            smooth: whether states are smoothed, or filtered.

        Returns mean, cov, initial_mean, initial_cov, log_likelihood, innovations and
        innovation_cov, as in `Estimates` but with the trajectories on the last axis; and whether
        several pieces may run at the same time (see `batches`).
        """


class Trajectory(NamedTuple):
    """One trajectory, and what is known of it."""

    system: System
    sensor: Sensor
    mean: np.ndarray  # (n,): the state at time 0
    cov: np.ndarray  # (n, n)
    z: np.ndarray  # (T, m); NaN is missing
    q: np.ndarray  # (n, n), or (T, n, n)
    r: np.ndarray  # (m, m), or (T, m, m)
    inputs: np.ndarray | None  # (T, u)
    dt: np.ndarray | None  # (T,)


class SequenceEstimator(Estimator):
    """An estimator of one trajectory at a time."""

    takes_padding = False

    @abstractmethod
    def track(
        self, one: Trajectory, options: Options, smooth: bool, *, key: PRNGKeyArray
    ) -> tuple[dict[str, Any], bool]:
        """Filter (and smooth) one trajectory; `key` is for random draws.

        Returns as `run`, without the last axis.
        """

    def run(
        self, piece: Problem, rows: np.ndarray, options: Options, smooth: bool
    ) -> tuple[dict[str, Any], bool]:
        """The one trajectory of the piece; its draws depend on its own row only."""
        key = trajectory_key(options.seed, int(rows[0]))
        steps = piece.z.shape[1] if piece.lengths is None else int(piece.lengths[0])

        def noise(cov: np.ndarray) -> np.ndarray:
            cov = cov[0] if cov.ndim == 4 else cov
            cov = cov[0] if cov.ndim == 3 and len(cov) == 1 else cov
            return cov if cov.ndim == 2 else cov[:steps]

        one = Trajectory(
            piece.system[0] if isinstance(piece.system, list) else piece.system,
            piece.sensor[0] if isinstance(piece.sensor, list) else piece.sensor,
            piece.mean[0],
            piece.cov[0],
            piece.z[0, :steps],
            noise(piece.q),
            noise(piece.r),
            None if piece.inputs is None else piece.inputs[0, :steps],
            None if piece.dt is None else piece.dt[0, :steps],
        )
        result, overlap = self.track(one, options, smooth, key=key)
        return {name: np.asarray(value)[..., None] for name, value in result.items()}, overlap
