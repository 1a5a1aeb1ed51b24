"""`KoopmanFilter`: states from new observations, with a learned model in place of the equations.

In lifted coordinates the dynamics are linear and the sensor is not:

    y_{k+1} = K y_k + w,   z_k = h(φ⁻¹(y_k)) + v.

So prediction is that of the Kalman filter. The correction replaces h ∘ φ⁻¹ by its tangent at the
prediction, from exact Jacobians. It does not use sigma points: P has directions in which no state
was ever lifted, sigma points lie √O standard deviations out along them, and a decoder's values
there mean nothing. The tangent evaluates the decoder only where it was trained.

Linear dynamics hold for lifted states, y = φ(x). A correction may leave these, and K would then
carry along a part that means nothing. So before each prediction the mean is lifted anew from its
state, K φ(φ⁻¹(y)), and P follows through the Jacobian. Where φ and φ⁻¹ are linear and inverse to
each other this changes nothing. `relift=False` leaves it out: the plain linear filter.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.covariance import one_covariance
from fedkoopman.errors import InputError
from fedkoopman.estimation import checks
from fedkoopman.estimation.estimates import Arrays, Estimates, estimate
from fedkoopman.koopman.fitted import Fitted
from fedkoopman.koopman.forecast import (
    Forecast,
    accumulated,
    lifted_noise,
    lower_covariance,
    propagate,
)
from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.koopman.learned import Learned
from fedkoopman.koopman.rollout import rollout
from fedkoopman.koopman.trajectories import as_trajectories
from fedkoopman.sensors import FunctionSensor, Sensor
from fedkoopman.systems import System
from fedkoopman.systems.checks import check_count, finite_array


@dataclass(frozen=True, kw_only=True)
class KoopmanEstimates(Estimates):
    """States as in `Estimates`, and the lifted states they were decoded from."""

    lifted_mean: Arrays
    lifted_cov: Arrays


class KoopmanFilter:
    """A Kalman filter and smoother in a model's lifted space.

    One observation belongs to one application of K: with depth τ > 1, give every τ-th.

    Arguments:
        model: a fitted `DeepKoopman`, or one from `load_model`.
        sensor: how the state is seen; a model with delays is seen by its newest state.
        observation_noise: covariance of v, in any form that `fk.estimate` takes.
        process_noise: covariance of w, in lifted coordinates (O, O); None takes the model's own,
            `noise_`, where it has one. `fit_noise` measures it, `lift_noise` makes it from
            the states'.
        initial_mean: the state one step before the first observation, (d,), or one per
            trajectory, (B, d); None takes the mean of the training, `reference_`. With delays
            also the window itself, (μ, d) or (B, μ, d); a single state stands for all of it.
        initial_cov: of that state, in any form; a window is off by the same amount throughout.
        relift: lift the state anew before each prediction, as this module says.
    """

    def __init__(
        self,
        model: Fitted,
        sensor: Sensor,
        *,
        observation_noise: Any = 1.0,
        process_noise: Any = None,
        initial_mean: Any = None,
        initial_cov: Any = 1.0,
        relift: bool = True,
    ) -> None:
        if not isinstance(model, Fitted):
            raise InputError(
                f"model is a {type(model).__name__}: give a fitted DeepKoopman, or load_model(file)"
            )
        self._model, self._learned = model, model.learned_
        architecture = self._learned.architecture
        self._sensor = checks.only_one(sensor, Sensor, "sensor")
        checks.sensor_sees(sensor, architecture.state_dim)
        step = _Relifted.of(self._learned) if relift else _Linear(self._learned.operator)
        self._system = System.from_map(step, architecture.components, dt=self.dt)
        seen = _Seen.of(self._learned, sensor)
        self._seen = FunctionSensor(seen, sensor.dim, angles=sensor.angles)
        self._relift = relift
        self.observation_noise = observation_noise
        given = model.noise_ if process_noise is None else process_noise
        self.process_noise: NDArray[np.float64] | None = None
        if given is not None:
            self.process_noise = one_covariance(given, architecture.components, "process_noise")
        self._mean, self._cov = initial_mean, initial_cov

    @property
    def dt(self) -> float:
        """The interval between observations: depth · dt of the model."""
        return self._learned.architecture.depth * self._learned.dt

    def fit_noise(self, trajectories: Any) -> Self:
        """Measure the process noise: how far off the model is on these trajectories of states."""
        given = as_trajectories(trajectories)
        given.check_names(self._learned.names)
        given.check_features(self._learned.architecture.state_dim, type(self).__name__)
        self.process_noise = lifted_noise(self._learned, given.parts)
        return self

    def filter(self, z: Any) -> KoopmanEstimates:
        """States from the observations up to each; z (T, m), (B, T, m) or a list; NaN = missing."""
        return self._estimate(z, smooth=False)

    def smooth(self, z: Any) -> KoopmanEstimates:
        """States from all observations (Rauch-Tung-Striebel); z as for `filter`."""
        return self._estimate(z, smooth=True)

    def forecast(self, z: Any, n_steps: int, *, relift: int | None = None) -> Forecast:
        """What follows the last observation of each trajectory; z as for `filter`."""
        return self.forecast_from(self.filter(z), n_steps, relift=relift)

    def forecast_from(
        self, found: KoopmanEstimates, n_steps: int, *, relift: int | None = None
    ) -> Forecast:
        """What follows the last state of each trajectory that `filter` or `smooth` gave.

        Arguments:
            relift: after how many applications of K to lift anew; None: the model's own way.
                The covariances are those of a forecast that is lifted once, which is the more
                cautious of the two.
        """
        way = self._model.relift_ if relift is None else check_count(relift, "relift", least=0)
        steps, learned, noise = check_count(n_steps, "n_steps"), self._learned, self._noise()
        single = np.ndim(found.ok) == 0
        means = [found.lifted_mean] if single else found.lifted_mean
        covs = [found.lifted_cov] if single else found.lifted_cov
        y, p = np.stack([m[-1] for m in means]), np.stack([c[-1] for c in covs])
        if self._relift:
            y, p = _relifted(learned, y, p)
        result = propagate(learned, y, p, accumulated(learned, noise, steps))
        if way:
            windows = learned.lower_window(y)
            states = rollout(learned, windows, range(1, steps + 1), way)
            result = replace(result, mean=np.stack(list(states), axis=1))
        return result.first() if single else result

    def _estimate(self, z: Any, *, smooth: bool) -> KoopmanEstimates:
        z, lengths, form = checks.observations(z, self._sensor.dim)
        mean, cov = self._first(len(z))
        if form == "list":
            ends = np.full(len(z), z.shape[1]) if lengths is None else lengths
            z = [row[:end] for row, end in zip(z, ends, strict=True)]
        found = estimate(
            self._system, self._seen, z[0] if form == "single" else z, process_noise=self._noise(),
            observation_noise=self.observation_noise, initial_mean=mean, initial_cov=cov,
            method="ekf", smooth=smooth,
        )  # fmt: skip
        return self._lowered(found)

    def _first(self, batch: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """φ(x̂_0) and J P_0 Jᵀ, (B, O) and (B, O, O)."""
        architecture = self._learned.architecture
        window, dim = architecture.window, architecture.state_dim
        given = self._learned.reference if self._mean is None else self._mean
        mean = finite_array(given, "initial_mean")
        shapes = {(window, dim), (batch, window, dim)} if window > 1 else {(1, dim), (batch, dim)}
        if mean.shape == (dim,) or (window > 1 and mean.shape == (batch, dim) != (window, dim)):
            mean = np.repeat(mean[..., None, :], window, axis=-2)  # as if it had stood still
        elif mean.shape not in shapes:
            raise InputError(
                f"initial_mean has shape {mean.shape}: give ({dim},) or one row per trajectory, "
                f"({batch}, {dim})"
            )
        rows = np.broadcast_to(mean.reshape(-1, window * dim), (batch, window * dim))
        cov = checks.first_cov(self._cov, dim, batch)
        slope = self._learned.lift_slope(rows)
        slope = slope.reshape(batch, -1, window, dim).sum(axis=2)
        return self._learned.lift(rows), slope @ cov @ slope.swapaxes(1, 2)

    def _noise(self) -> NDArray[np.float64]:
        if self.process_noise is None:
            raise InputError(
                "the model does not say how far off it is: give process_noise, or call fit_noise "
                "with trajectories of states"
            )
        return self.process_noise

    def _lowered(self, found: Estimates) -> KoopmanEstimates:
        def lower(mean: Any, cov: Any) -> tuple[Any, Any]:
            with np.errstate(over="ignore", invalid="ignore"):  # `ok` tells what diverged
                return lower_covariance(self._learned, mean, cov)

        if isinstance(found.mean, list):
            pairs = [lower(m, c) for m, c in zip(found.mean, found.cov, strict=True)]
            mean, cov = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        else:
            mean, cov = lower(found.mean, found.cov)
        initial_mean, initial_cov = lower(found.initial_mean, found.initial_cov)
        values = {name: getattr(found, name) for name in Estimates.__dataclass_fields__}
        return replace(
            KoopmanEstimates(**values, lifted_mean=found.mean, lifted_cov=found.cov),
            mean=mean,
            cov=cov,
            initial_mean=initial_mean,
            initial_cov=initial_cov,
            method="koopman",
        )


def lift_noise(model: Fitted, process_noise: Any) -> NDArray[np.float64]:
    """A process noise of the states, lifted: J Q Jᵀ with the encoder's Jacobian at `reference_`.

    With delays, the newest state alone is disturbed.

    Arguments:
        process_noise: covariance of the states' noise per application of K, in any form.
    """
    learned = model.learned_
    dim = learned.architecture.state_dim
    cov = one_covariance(process_noise, dim, "process_noise")
    slope = learned.lift_slope(learned.reference.reshape(1, -1))[0, :, -dim:]
    return slope @ cov @ slope.T


def _relifted(learned: Learned, y: Any, p: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """φ(φ⁻¹(y)) with covariance, (B, O) and (B, O, O)."""
    windows = learned.lower_window(y)
    slope = learned.lift_slope(windows) @ learned.lower_window_slope(y)
    return learned.lift(windows), slope @ p @ slope.swapaxes(1, 2)


class _Linear(eqx.Module):
    """y ↦ K y."""

    operator: Any

    def __call__(self, y: Float[Array, " lifted"]) -> Float[Array, " lifted"]:
        return self.operator @ y


class _Model(eqx.Module):
    """A model whose weights are leaves: models of one shape share what is compiled."""

    leaves: tuple[Any, ...]
    architecture: Kind = eqx.field(static=True)

    @classmethod
    def of(cls, learned: Learned, *more: Any) -> Self:
        return cls(tuple(jax.tree.leaves(learned.wide)), learned.architecture, *more)

    @property
    def weights(self) -> Weights:
        """The tree, which may be one that cannot be hashed, as a dict."""
        return jax.tree.unflatten(jax.tree.structure(self.architecture.template), self.leaves)


class _Relifted(_Model):
    """y ↦ K φ(φ⁻¹(y)), which is K y where y is a lifted state."""

    def __call__(self, y: Float[Array, " lifted"]) -> Float[Array, " lifted"]:
        kind, weights = self.architecture, self.weights
        window = kind.decode(weights, y[:, None])
        return (kind.operator(weights) @ kind.lift(weights, window))[:, 0]


class _Seen(_Model):
    """y ↦ h(φ⁻¹(y)), of a window the newest state."""

    sensor: Callable

    def __call__(self, y: Float[Array, " lifted"]) -> Float[Array, " observed"]:
        window = self.architecture.decode(self.weights, y[:, None])[:, 0]
        return self.sensor(window[-self.architecture.state_dim :])
