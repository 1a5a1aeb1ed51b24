"""What an estimator is: observations of a batch of trajectories in, states with covariances out.

`fk.estimate` makes a `Problem` of its arguments, which `checks` examines before anything is
compiled, cuts it into pieces and asks an estimator to `run` each. All else that callers ask of a
method is stated by the estimator itself. There are two ways to write one:

- `GaussianEstimator` (in `gaussian_estimator`) with a `Transform`: how a Gaussian passes through a
  function. Filter step, smoother, batches and streaming follow from it.
- `SequenceEstimator`: a function of one whole trajectory.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray

from fedkoopman.errors import InputError, short
from fedkoopman.estimation import checks
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System
from fedkoopman.systems.integrate import trajectory_key


@dataclass(frozen=True)
class Problem:
    """A batch of trajectories of one length: NumPy arrays, batch first, all checked."""

    system: System | list[System]
    sensor: Sensor | list[Sensor]
    z: np.ndarray  # (B, T, m)
    lengths: np.ndarray | None  # (B,) where trajectories end early, else None
    mean: np.ndarray  # (B, n)
    cov: np.ndarray  # (B, n, n)
    q: np.ndarray  # (n, n), (T, n, n) or (B, T, n, n)
    r: np.ndarray
    inputs: np.ndarray | None  # (B, T, u)
    dt: np.ndarray | None  # (B, T)

    def take(self, rows: np.ndarray) -> "Problem":
        """The trajectories `rows` of the batch."""

        def pick(value: Any) -> Any:
            return None if value is None else value[rows]

        def per_trajectory(value: Any) -> Any:
            return [value[i] for i in rows] if isinstance(value, list) else value

        return replace(
            self,
            system=per_trajectory(self.system),
            sensor=per_trajectory(self.sensor),
            z=self.z[rows],
            lengths=pick(self.lengths),
            mean=self.mean[rows],
            cov=self.cov[rows],
            q=self.q[rows] if self.q.ndim == 4 and len(self.q) > 1 else self.q,
            r=self.r[rows] if self.r.ndim == 4 and len(self.r) > 1 else self.r,
            inputs=pick(self.inputs),
            dt=pick(self.dt),
        )

    def filled(self, steps: int) -> "Problem":
        """The same with room for `steps` steps; what is added is no part of any trajectory."""
        batch, now = self.z.shape[:2]
        if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < now:
            raise InputError(f"room is {short(steps)}: give a whole number of at least {now} steps")
        for name, cov in (("process_noise", self.q), ("observation_noise", self.r)):
            if cov.ndim != 2 and cov.shape[-3] != 1:
                raise InputError(f"{name} changes with time: leave out room")

        def longer(array: np.ndarray | None, **how: Any) -> np.ndarray | None:
            if array is None:
                return None
            return np.pad(array, [(0, 0), (0, steps - now), *[(0, 0)] * (array.ndim - 2)], **how)

        return replace(
            self,
            z=np.pad(self.z, [(0, 0), (0, steps - now), (0, 0)], constant_values=np.nan),
            lengths=np.full(batch, now) if self.lengths is None else self.lengths,
            inputs=longer(self.inputs, mode="edge"),
            dt=longer(self.dt, mode="edge"),
        )

    def cut(self, steps: int) -> "Problem":
        """The first `steps` steps."""

        def first(cov: np.ndarray) -> np.ndarray:
            return cov if cov.ndim == 2 else cov[..., :steps, :, :]

        return replace(
            self,
            z=self.z[:, :steps],
            q=first(self.q),
            r=first(self.r),
            inputs=None if self.inputs is None else self.inputs[:, :steps],
            dt=None if self.dt is None else self.dt[:, :steps],
        )


def problem_of(
    system: System | list[System],
    sensor: Sensor | list[Sensor],
    z: Any,
    *,
    process_noise: Any,
    observation_noise: Any,
    initial_mean: Any,
    initial_cov: Any,
    inputs: Any,
    dt: Any,
) -> tuple[Problem, str]:
    """The problem behind the arguments of `fk.estimate`, and the form that z came in.

    Arguments: as those of `fk.estimate`; the form is "single", "batch" or "list".
    """
    first = checks.first_of(system, System, "system")
    n, m = first.dim, checks.first_of(sensor, Sensor, "sensor").dim
    z, lengths, form = checks.observations(z, m)
    batch, steps = z.shape[:2]
    checks.check_inputs(first, inputs)
    if inputs is not None:
        inputs = checks.per_step(inputs, "inputs", (steps, first.input_dim), batch)
    problem = Problem(
        system=checks.one_or_each(system, System, "system", batch),
        sensor=checks.one_or_each(sensor, Sensor, "sensor", batch),
        z=z,
        lengths=lengths,
        mean=checks.first_state(initial_mean, n, batch),
        cov=checks.first_cov(initial_cov, n, batch),
        q=checks.noise(process_noise, n, "process_noise", batch, steps),
        r=checks.noise(observation_noise, m, "observation_noise", batch, steps),
        inputs=inputs,
        dt=None if dt is None else checks.intervals(dt, steps, batch),
    )
    checks.same_dimensions(problem.system, problem.sensor)
    return problem, form


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
        several pieces may run at the same time (see `run_pieces`).
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
