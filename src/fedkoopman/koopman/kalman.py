"""`KoopmanFilter`: states from new observations, with a learned model in place of the equations.

In lifted coordinates the dynamics are linear and the sensor is not:

    y_{k+1} = K y_k + B u_k + w,   z_k = h(φ⁻¹(y_k)) + v.

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
from functools import cached_property
from typing import Any, Self

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.covariance import one_covariance
from fedkoopman.errors import InputError
from fedkoopman.estimation import OnlineFilter, OnlineState, checks
from fedkoopman.estimation.estimates import Arrays, Estimates, estimate
from fedkoopman.koopman.fitted import Fitted
from fedkoopman.koopman.forecast import (
    Forecast,
    lifted_noise,
    lower_covariance,
    propagate,
)
from fedkoopman.koopman.inputs import steps_of
from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.koopman.learned import Learned
from fedkoopman.koopman.rollout import rollout
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

    One observation belongs to one application of K: with depth τ > 1, give every τ-th. The inputs
    of a driven system are given as to `fk.estimate`: row k is what was put in up to observation k.

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
        step = (_Relifted if relift else _Plain).of(self._learned)
        self._system = System.from_map(
            step, architecture.components, dt=self.dt, input_dim=architecture.inputs
        )
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
    def model(self) -> Fitted:
        """The model in place of the equations."""
        return self._model

    @cached_property
    def online(self) -> OnlineFilter:
        """The same filter for one observation at a time; its states are lifted ones."""
        noise = one_covariance(self.observation_noise, self._sensor.dim, "observation_noise")
        return OnlineFilter(
            self._system, self._seen, process_noise=self._noise(), observation_noise=noise,
            method="ekf",
        )  # fmt: skip

    def first(self) -> OnlineState:
        """Where `online` starts: before the first observation."""
        mean, cov = self._first(1)
        return OnlineState(mean[0], cov[0])

    @property
    def dt(self) -> float:
        """The interval between observations: depth · dt of the model."""
        return self._learned.architecture.depth * self._learned.dt

    def fit_noise(self, trajectories: Any, U: Any = None) -> Self:
        """Measure the process noise: how far off the model is on these trajectories of states.

        Arguments:
            U: the inputs of a driven system, as of `DeepKoopman.fit`.
        """
        self.process_noise = lifted_noise(
            self._learned, self._model._given(trajectories, U=U).parts
        )
        return self

    def filter(self, z: Any, inputs: Any = None) -> KoopmanEstimates:
        """States from the observations up to each; z (T, m), (B, T, m) or a list; NaN = missing."""
        return self._estimate(z, inputs, smooth=False)

    def smooth(self, z: Any, inputs: Any = None) -> KoopmanEstimates:
        """States from all observations (Rauch-Tung-Striebel); z and inputs as for `filter`."""
        return self._estimate(z, inputs, smooth=True)

    def forecast(
        self,
        z: Any,
        n_steps: int,
        *,
        relift: int | None = None,
        inputs: Any = None,
        future: Any = None,
    ) -> Forecast:
        """What follows the last observation of each trajectory; z and inputs as for `filter`."""
        found = self.filter(z, inputs)
        return self.forecast_from(found, n_steps, relift=relift, future=future)

    def forecast_from(
        self,
        found: KoopmanEstimates,
        n_steps: int,
        *,
        relift: int | None = None,
        future: Any = None,
    ) -> Forecast:
        """What follows the last state of each trajectory that `filter` or `smooth` gave.

        Arguments:
            relift: after how many applications of K to lift anew; None: the model's own way.
                The covariances are those of a forecast that is lifted once, which is the more
                cautious of the two.
            future: the inputs of a driven system in the steps to come, (n_steps, m), or one such
                for every trajectory.
        """
        way = self._model.relift_ if relift is None else check_count(relift, "relift", least=0)
        steps, learned, noise = check_count(n_steps, "n_steps"), self._learned, self._noise()
        single = np.ndim(found.ok) == 0
        means = [found.lifted_mean] if single else found.lifted_mean
        covs = [found.lifted_cov] if single else found.lifted_cov
        y, p = np.stack([m[-1] for m in means]), np.stack([c[-1] for c in covs])
        if self._relift:
            y, p = _relifted(learned, y, p)
        moves = self._future(future, len(y), steps)
        result = propagate(learned, y, p, steps, moves, noise=noise)
        if way:
            windows = learned.lower_window(y)
            states = rollout(learned, windows, range(1, steps + 1), way, moves)
            result = replace(result, mean=np.stack(list(states), axis=1))
        return result.first() if single else result

    def _future(self, future: Any, count: int, steps: int) -> NDArray[np.float64] | None:
        m = self._learned.architecture.inputs
        if not m:
            if future is not None:
                raise InputError("future is given, but the model has no inputs: leave it out")
            return None
        if future is None:
            raise InputError(
                f"the model has {m} inputs: give future, the inputs of the {steps} steps to come"
            )
        moves = steps_of(future, count, m, "future")
        if moves.shape[1] != steps:
            raise InputError(
                f"future has {moves.shape[1]} rows: give one for each of {steps} steps"
            )
        return moves

    def _estimate(self, z: Any, inputs: Any, *, smooth: bool) -> KoopmanEstimates:
        z, lengths, form = checks.observations(z, self._sensor.dim)
        mean, cov = self._first(len(z))
        if form == "list":
            ends = np.full(len(z), z.shape[1]) if lengths is None else lengths
            z = [row[:end] for row, end in zip(z, ends, strict=True)]
        found = estimate(
            self._system, self._seen, z[0] if form == "single" else z, process_noise=self._noise(),
            observation_noise=self.observation_noise, initial_mean=mean, initial_cov=cov,
            method="ekf", smooth=smooth, inputs=inputs,
        )  # fmt: skip
        return self._lowered(found)

    def _first(self, batch: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """φ(x̂_0) and J P_0 Jᵀ, (B, O) and (B, O, O)."""
        architecture = self._learned.architecture
        window, dim = architecture.window, architecture.state_dim
        past = self._learned.reference_window[:, : (window - 1) * architecture.inputs]
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
        states = np.broadcast_to(mean.reshape(-1, window * dim), (batch, window * dim))
        # Inputs before the first observation are not known, and taken to be the usual ones.
        rows = np.hstack([np.repeat(past, batch, axis=0), states])
        cov = checks.first_cov(self._cov, dim, batch)
        slope = self._learned.lift_slope(rows)[:, :, past.shape[1] :]
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
            names=self._learned.names or (),
            units=self._learned.units or (),
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
    slope = learned.lift_slope(learned.reference_window)[0, :, -dim:]
    return slope @ cov @ slope.T


def _relifted(learned: Learned, y: Any, p: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """φ(φ⁻¹(y)) with covariance, (B, O) and (B, O, O)."""
    windows = learned.lower_window(y)
    slope = learned.lift_slope(windows) @ learned.lower_window_slope(y)
    return learned.lift(windows), slope @ p @ slope.swapaxes(1, 2)


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


class _Plain(_Model):
    """y ↦ K y, or K y + B u + Σ u_i N_i y."""

    def __call__(self, y: Float[Array, " lifted"], u: Any = None) -> Float[Array, " lifted"]:
        drive = None if u is None else u[:, None]
        return self.architecture.advance(self.weights, self.lifted(y)[:, None], drive)[:, 0]

    def lifted(self, y: Float[Array, " lifted"]) -> Float[Array, " lifted"]:
        """What K is applied to."""
        return y


class _Relifted(_Plain):
    """y ↦ K φ(φ⁻¹(y)), which is K y where y is a lifted state; inputs as before."""

    def lifted(self, y: Float[Array, " lifted"]) -> Float[Array, " lifted"]:
        """φ(φ⁻¹(y))."""
        kind, weights = self.architecture, self.weights
        return kind.lift(weights, kind.decode(weights, y[:, None]))[:, 0]


class _Seen(_Model):
    """y ↦ h(φ⁻¹(y)), of a window the newest state."""

    sensor: Callable

    def __call__(self, y: Float[Array, " lifted"]) -> Float[Array, " observed"]:
        window = self.architecture.decode(self.weights, y[:, None])[:, 0]
        return self.sensor(window[-self.architecture.state_dim :])
