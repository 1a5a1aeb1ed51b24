"""A batch of trajectories as arrays that a filter can scan, made of what a user passes.

What can be wrong with the input is found by `checks`, before anything is compiled.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedkoopman.errors import InputError, short
from fedkoopman.estimation import checks
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System


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
