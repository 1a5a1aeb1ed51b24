"""Estimators that carry a Gaussian from step to step, over a batch or over a stream."""

import warnings
from abc import abstractmethod
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from fedkoopman.compilation import fused
from fedkoopman.covariance import one_covariance
from fedkoopman.errors import InputError
from fedkoopman.estimation import checks
from fedkoopman.estimation.estimator import Estimator, Options, Problem
from fedkoopman.estimation.gaussian import (
    Batched,
    Conditions,
    Info,
    Noise,
    State,
    Transform,
    model_of,
    step,
    track,
)
from fedkoopman.estimation.linalg import UNROLLED, cholesky
from fedkoopman.estimation.methods import ESTIMATORS
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System


class GaussianEstimator(Estimator):
    """Filter step and smoother step of `gaussian`, with a transform of one's own."""

    @abstractmethod
    def transform(self, options: Options) -> Transform:
        """How a Gaussian passes through f and h; a NamedTuple, as it decides what is compiled."""

    def widest(self, dim: int) -> int:
        """Trajectories per compiled piece.

        Wider pieces fall out of the second-level cache; from about a dozen states the matrices of a
        single trajectory are large enough to keep the processor busy.
        """
        return 128 if dim <= UNROLLED else 64 if dim <= 12 else 1

    def run(
        self, piece: Problem, rows: np.ndarray, options: Options, smooth: bool
    ) -> tuple[dict[str, Any], bool]:
        """Filter and smooth all trajectories of the piece together."""
        del rows
        system, system_batched = _stack(piece.system, "system")
        sensor, sensor_batched = _stack(piece.sensor, "sensor")
        steps = piece.z.shape[1]
        valid = None if piece.lengths is None else np.arange(steps)[:, None] < piece.lengths
        given = (
            system,
            sensor,
            State(_batch_last(piece.mean), _batch_last(piece.cov)),
            np.ascontiguousarray(_batch_last(piece.z)),
            Conditions(process_noise=_constant(piece.q), observation_noise=_constant(piece.r)),
            Conditions(
                inputs=_time_first(piece.inputs),
                dt=_time_first(piece.dt),
                process_noise=_changing(piece.q),
                observation_noise=_changing(piece.r),
            ),
            valid,
        )
        static = {
            "transform": self.transform(options),
            "batched": Batched(system_batched, sensor_batched),
            "smooth": smooth,
        }
        result = _track(*given, **static)
        result["log_likelihood"] = np.asarray(result["log_likelihood"]).sum(axis=0)
        return result, _track.is_one_kernel(*given, **static)


def _batch_last(array: np.ndarray) -> Any:
    return array.transpose(*range(1, array.ndim), 0)  # `moveaxis`, without its checks


def _time_first(value: np.ndarray | None) -> Any:
    return None if value is None else np.moveaxis(value, 0, 1)


def _constant(cov: np.ndarray) -> Any:
    if cov.ndim == 2:
        return cov[..., None]
    return _batch_last(cov[:, 0]) if cov.ndim == 4 and cov.shape[1] == 1 else None


def _changing(cov: np.ndarray) -> Any:
    if _constant(cov) is not None:
        return None
    return cov[..., None] if cov.ndim == 3 else np.moveaxis(cov, 0, -1)


def _stack(value: Any, name: str) -> tuple[Any, bool]:
    """One pytree of all systems (sensors) of a batch, leaves with a leading axis."""
    if not isinstance(value, list):
        return value, False
    shapes = {tuple(np.shape(leaf) for leaf in jax.tree.leaves(v)) for v in value}
    if len({jax.tree.structure(v) for v in value}) > 1 or len(shapes) > 1:
        raise InputError(
            f"the {name}s of a batch are of different kinds or dimensions: estimate each kind in "
            "its own call"
        )
    return jax.tree.map(lambda *leaves: np.stack(leaves), *value), True


@partial(fused, static_argnames=("transform", "batched", "smooth"))
def _track(
    system: System,
    sensor: Sensor,
    initial: State,
    z: Array,
    constant: Conditions,
    changing: Conditions,
    valid: Array | None,
    *,
    transform: Transform,
    batched: Batched,
    smooth: bool,
) -> dict[str, Array]:
    factored = jax.vmap(lambda cov: Noise(cov, cholesky(cov)))
    q: Any = constant.process_noise
    r: Any = constant.observation_noise
    changing = changing._replace(
        process_noise=None if q is not None else factored(changing.process_noise),
        observation_noise=None if r is not None else factored(changing.observation_noise),
    )
    q, r = (None if cov is None else Noise.of(cov) for cov in (q, r))
    result = track(
        transform,
        lambda now: model_of(system, sensor, now, batched),
        initial,
        z,
        changing,
        lambda now: (q or now.process_noise, r or now.observation_noise),
        valid,
        smooth,
    )
    return {
        "mean": result.states.mean,
        "cov": result.states.cov,
        "initial_mean": result.initial.mean,
        "initial_cov": result.initial.cov,
        "log_likelihood": result.info.log_likelihood,
        "innovations": result.info.innovation,
        "innovation_cov": result.info.innovation_cov,
    }


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
        self._q = one_covariance(process_noise, system.dim, "process_noise")
        self._r = one_covariance(observation_noise, sensor.dim, "observation_noise")

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
