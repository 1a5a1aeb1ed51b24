"""Streaming: one observation at a time, `(state, z) → state`."""

import warnings
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from fedkoopman.compilation import fused
from fedkoopman.errors import InputError
from fedkoopman.estimation import checks
from fedkoopman.estimation.estimator import Options
from fedkoopman.estimation.gaussian import Conditions, Info, Noise, State, model_of, step
from fedkoopman.estimation.gaussian_estimator import GaussianEstimator
from fedkoopman.estimation.methods import ESTIMATORS
from fedkoopman.estimation.transforms import Transform
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System


class OnlineState(NamedTuple):
    """Filtered mean (n,) and covariance (n, n) after the observations so far."""

    mean: np.ndarray
    cov: np.ndarray


class OnlineInfo(NamedTuple):
    """Innovation, its covariance, and log p(z_k | z_<k)."""

    innovation: np.ndarray
    innovation_cov: np.ndarray
    log_likelihood: float
    ok: bool


class OnlineFilter:
    """A filter for streaming use; it holds the model and no state.

    >>> online = fk.estimation.OnlineFilter(system, sensor, observation_noise=0.1)
    >>> state = online.start()
    >>> for z in stream:
    ...     state, info = online.step(state, z)
    """

    def __init__(
        self,
        system: System,
        sensor: Sensor,
        *,
        process_noise: Any = 1.0,
        observation_noise: Any = 1.0,
        method: str = "ukf",
        alpha: float = 0.1,
        beta: float = 2.0,
        kappa: float = -1.0,
    ) -> None:
        estimator = ESTIMATORS.find(method)
        if not isinstance(estimator, GaussianEstimator):
            raise InputError(
                f"method {method!r} has no online step: use 'ukf', 'ukf-resampled' or 'ekf'"
            )
        self._system = checks.only_one(system, System, "system")
        self._sensor = checks.only_one(sensor, Sensor, "sensor")
        checks.sensor_sees(sensor, system.dim)
        options = Options(alpha, beta, kappa)
        estimator.check(options, system.dim)
        self._transform = estimator.transform(options)
        if doubt := estimator.indefinite(options):
            warnings.warn(doubt, stacklevel=2)
        self._q = checks.noise(process_noise, system.dim, "process_noise", 1, 1)
        self._r = checks.noise(observation_noise, sensor.dim, "observation_noise", 1, 1)
        for cov, name in ((self._q, "process_noise"), (self._r, "observation_noise")):
            if cov.ndim != 2:
                raise InputError(f"{name} has shape {cov.shape}: an online filter takes one matrix")

    def start(self, mean: Any = None, cov: Any = None) -> OnlineState:
        """The state at time 0: zeros and the identity unless given."""
        n = self._system.dim
        return OnlineState(checks.first_state(mean, n, 1)[0], checks.first_cov(cov, n, 1)[0])

    def step(
        self, state: OnlineState, z: Any, *, inputs: Any = None, dt: float | None = None
    ) -> tuple[OnlineState, OnlineInfo]:
        """Predict over one interval, then correct with z (m,); NaN components are missing."""
        z = checks.one_row(z, self._sensor.dim)
        checks.check_inputs(self._system, inputs)
        if inputs is not None:
            inputs = checks.per_step(inputs, "inputs", (self._system.input_dim,), 1)
        interval: Any = None if dt is None else checks.intervals([dt], 1, 1)[0]
        before: Any = state
        with jax.enable_x64(True):
            new, info = _step(
                self._system,
                self._sensor,
                State(before.mean[:, None], before.cov[..., None]),
                z[:, None],
                self._q[..., None],
                self._r[..., None],
                Conditions(inputs=inputs, dt=interval),
                transform=self._transform,
            )
            mean, cov = (np.asarray(a)[..., 0] for a in new)
            innovation, s, log_likelihood = (np.asarray(a)[..., 0] for a in info)
        innovation = np.where(np.isnan(z), np.nan, innovation)
        ok = bool(np.isfinite(mean).all() and np.isfinite(cov).all())
        return OnlineState(mean, cov), OnlineInfo(innovation, s, float(log_likelihood), ok)


@partial(fused, static_argnames=("transform",))
def _step(
    system: System,
    sensor: Sensor,
    state: State,
    z: Array,
    q: Array,
    r: Array,
    now: Conditions,
    *,
    transform: Transform,
) -> tuple[State, Info]:
    model = model_of(system, sensor, now)
    new, info, _ = step(transform, model, state, z, Noise.of(q), Noise.of(r))
    return new, info
