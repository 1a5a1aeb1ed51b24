"""One step of a Gaussian filter, the scan over time, and the Rauch-Tung-Striebel smoother.

`ukf`, `ukf-resampled` and `ekf` are this file with another `Transform`. Arrays carry the batch on
the last axis (see `linalg`): mean (n, B), cov (n, n, B). Q and R are (n, n, B or 1).

A transform passes a Gaussian through a nonlinear function. It writes the result of y = g(x),
x ~ N(x̂, L Lᵀ), in one common form

    y ≈ ȳ + W ξ,   ξ ~ N(0, I),   with x = x̂ + [L 0] ξ,

so that Cov(y) = W Wᵀ and Cov(x, y) = L (first n columns of W)ᵀ. Every covariance downstream is then
a sum of Gram matrices, which cannot lose definiteness. Covariances are updated in the Joseph form
over the columns of W: with gain K and V the columns of the predicted observation,

    P⁺ = (W_x − K V)(W_x − K V)ᵀ + K R Kᵀ   [+ Q when the propagated points are used again],

and the smoother's residual covariance takes the same form, P̃_k = D_k + G_k P̃_{k+1} G_kᵀ: sums of
positive semi-definite terms. The smoother's gains come from the points of the forward pass, so the
backward pass calls neither f nor h.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from fedkoopman.estimation.linalg import (
    apply,
    cholesky,
    forward,
    materialise,
    outer,
    product,
    right_divide,
)
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System

Points = Float[Array, "q j b"]
"""What a transform makes of a Gaussian, one column each: images of points, or tangents."""


class Transform(Protocol):
    """A way of passing a Gaussian through a function; a NamedTuple, so that it can be compared."""

    @property
    def resample(self) -> bool:
        """Whether new points are drawn from the prediction, Q included, before correcting."""

    def propagate(
        self, g: Callable[..., Array], mean: Float[Array, "n b"], lower: Float[Array, "n n b"]
    ) -> Points:
        """What g (see `evaluate`) makes of N(mean, L Lᵀ)."""

    def moments(self, points: Points, angles: tuple[int, ...]) -> tuple[Array, Array]:
        """Mean (q, b) and column form W (q, j, b) of propagated points.

        The first n columns go with those of L. Components `angles` wrap at 2π.
        """

    def gram(self, a: Float[Array, "i k b"], b: Float[Array, "j k b"]) -> Float[Array, "i j b"]:
        """A Bᵀ over the columns of W."""


def evaluate(g: Callable[..., Array], points: Points) -> Points:
    """Apply `g`, batched over the two leading axes with components last, to every point.

    Components are stacked only to enter `g` and taken apart at once: XLA removes such pairs, while
    a transposed layout would put the batch out of the innermost (vectorised) axis.
    """
    y = g(jnp.stack([points[i] for i in range(points.shape[0])], axis=-1))
    return jnp.stack([y[..., i] for i in range(y.shape[-1])])


def wrap(difference: Array, angles: tuple[int, ...]) -> Array:
    """Bring the components `angles` of a difference into (−π, π]."""
    if not angles:
        return difference
    circular = np.zeros((difference.shape[0],) + (1,) * (difference.ndim - 1), bool)
    circular[list(angles)] = True
    return jnp.where(circular, np.pi - jnp.mod(np.pi - difference, 2 * np.pi), difference)


class State(NamedTuple):
    """What the next step needs: the filtered mean and covariance."""

    mean: Float[Array, "n b"]
    cov: Float[Array, "n n b"]


class Info(NamedTuple):
    """What a person wants to see of a step: the innovation, its covariance, log p(z_k | z_<k)."""

    innovation: Float[Array, "m b"]
    innovation_cov: Float[Array, "m m b"]
    log_likelihood: Float[Array, " b"]


class Link(NamedTuple):
    """What the smoother needs of the step k−1 → k: x̂_{k−1}, x⁻_k, G_{k−1}, D_{k−1}."""

    mean: Float[Array, "n b"]
    predicted: Float[Array, "n b"]
    gain: Float[Array, "n n b"]
    residual_cov: Float[Array, "n n b"]


class Noise(NamedTuple):
    """An additive noise: its covariance and the lower factor of it."""

    cov: Float[Array, "i i #b"]
    lower: Float[Array, "i i #b"]

    @classmethod
    def of(cls, cov: Float[Array, "i i #b"]) -> "Noise":
        """Factor a covariance; done once, outside the scan."""
        return cls(cov, cholesky(cov))


class Model(NamedTuple):
    """f and h over points of shape (points, batch, components), and which components are angles."""

    transition: Callable
    observation: Callable
    state_angles: tuple[int, ...] = ()
    observation_angles: tuple[int, ...] = ()


class Batched(NamedTuple):
    """Whether the leaves of the system and of the sensor differ per trajectory (leading axis)."""

    system: bool = False
    sensor: bool = False


class Conditions(NamedTuple):
    """What may change from step to step; `None` where it does not exist."""

    inputs: Float[Array, "b u"] | None = None
    dt: Float[Array, " b"] | None = None
    process_noise: Noise | None = None
    observation_noise: Noise | None = None


SHARED = Batched()
UNCHANGING = Conditions()


def model_of(
    system: System, sensor: Sensor, now: Conditions = UNCHANGING, batched: Batched = SHARED
) -> Model:
    """f and h over arrays of points (points, batch, components)."""
    axis = {True: 0, False: None}
    inputs = None if now.inputs is None else 0
    interval = None if now.dt is None else 0

    def over_points(function: Any, axes: tuple) -> Any:
        inner = jax.vmap(function, in_axes=axes)
        return jax.vmap(inner, in_axes=tuple(0 if i == 1 else None for i in range(len(axes))))

    transition = over_points(
        lambda s, x, u, dt: s.step(x, u, dt), (axis[batched.system], 0, inputs, interval)
    )
    observation = over_points(lambda s, x: s(x), (axis[batched.sensor], 0))
    return Model(
        lambda x: transition(system, x, now.inputs, now.dt),
        lambda x: observation(sensor, x),
        tuple(system.angles),
        tuple(sensor.angles),
    )


def step(
    transform: Transform, model: Model, state: State, z: Float[Array, "m b"], q: Noise, r: Noise
) -> tuple[State, Info, Link]:
    """Predict with f, then correct with z (NaN components are missing): Algorithm 1's loop body."""
    gram = transform.gram
    lower = materialise(cholesky(state.cov))
    points = materialise(transform.propagate(model.transition, state.mean, lower))
    mean, w = materialise(*transform.moments(points, model.state_angles))
    lower_pred = materialise(cholesky(materialise(gram(w, w) + q.cov)))

    # Smoother's gain, eq. (16): Cov(x_{k−1}, x_k) P⁻¹, from the points already at hand.
    gain = materialise(right_divide(outer(lower, w[:, : lower.shape[1]]), lower_pred))
    rest = materialise(_columns(lower, w) - product(gain, w))
    residual = gram(rest, rest) + _sandwich(gain, q.lower)

    if transform.resample:
        points = transform.propagate(model.observation, mean, lower_pred)
        w = _columns(lower_pred, w)
        extra = jnp.zeros((), mean.dtype)
    else:
        points = evaluate(model.observation, points)
        extra = q.cov
    z_mean, v = materialise(*transform.moments(materialise(points), model.observation_angles))
    innovation, v, r = _observed(wrap(z - z_mean, model.observation_angles), v, r)
    s = materialise(gram(v, v) + r.cov)
    lower_s = materialise(cholesky(s))
    k = materialise(right_divide(gram(w, v), lower_s))
    rest = materialise(w - product(k, v))
    cov = gram(rest, rest) + _sandwich(k, r.lower) + extra
    corrected = wrap(mean + apply(k, innovation), model.state_angles)
    info = Info(innovation, s, _log_density(innovation, lower_s, z))
    return State(corrected, cov), info, Link(state.mean, mean, gain, residual)


def _columns(lower: Array, w: Array) -> Array:
    """[L 0], as wide as W."""
    return jnp.pad(lower, ((0, 0), (0, w.shape[1] - lower.shape[1]), (0, 0)))


def _sandwich(gain: Array, lower: Array) -> Array:
    """G C Gᵀ for C = L Lᵀ: symmetric to the last bit."""
    spread = materialise(product(gain, lower))
    return outer(spread, spread)


def _observed(innovation: Array, v: Array, r: Noise) -> tuple[Array, Array, Noise]:
    """Take missing components out: no innovation, no sensitivity, unit variance (log 1 = 0).

    What is left is exactly the correction with the observed components alone.
    """
    seen = ~jnp.isnan(innovation)
    both = seen[:, None] & seen[None]
    cov = jnp.where(both, r.cov, jnp.eye(r.cov.shape[0], dtype=r.cov.dtype)[..., None])
    # K has zero columns for missing components, so K R Kᵀ needs no masking of R's own factor.
    return jnp.where(seen, innovation, 0), jnp.where(seen[:, None], v, 0), Noise(cov, r.lower)


def _log_density(innovation: Array, lower: Array, z: Array) -> Array:
    """log N(innovation; 0, L Lᵀ) over the observed components."""
    white = forward(lower, innovation[None])[0]
    total = jnp.zeros_like(white[0])
    for i in range(len(white)):  # written out: XLA:CPU hands larger reductions to a library
        pivot = jnp.where(lower[i, i] > 0, lower[i, i], 1)
        seen = jnp.where(jnp.isnan(z[i]), 0, math.log(2 * math.pi))
        total -= 0.5 * (white[i] ** 2 + seen) + jnp.log(pivot)
    return total


def smooth_step(smoothed: State, link: Link, state_angles: tuple[int, ...] = ()) -> State:
    """x̃_{k−1}, P̃_{k−1} from x̃_k, P̃_k: eq. (17) in Joseph form."""
    ahead = wrap(smoothed.mean - link.predicted, state_angles)
    mean = wrap(link.mean + apply(link.gain, ahead), state_angles)
    cov = link.residual_cov + _sandwich(link.gain, materialise(cholesky(smoothed.cov)))
    return State(mean, cov)


class Track(NamedTuple):
    """A filtered or smoothed trajectory, time first and batch last, and the state at time 0."""

    states: State
    initial: State
    info: Info


def track(
    transform: Transform,
    model: Callable[..., Model],
    initial: State,
    z: Float[Array, "t m b"],
    per_step: tuple,
    noise: Callable[..., tuple],
    valid: Bool[Array, "t b"] | None,
    smooth: bool,
) -> Track:
    """Filter z_1 … z_T from the state at time 0, then smooth: Algorithms 1 and 2.

    `per_step` is a tuple of arrays with time first (inputs, intervals, covariances); `model` and
    `noise` turn one time's slice of it into f, h and (Q, R). Where `valid` is False a trajectory
    of a ragged batch has ended: its state is held and nothing flows back from there.
    """

    def forward_step(state: State, now: Any) -> tuple[State, Any]:
        z_k, slices, alive = now
        new, info, link = step(transform, model(slices), state, z_k, *noise(slices))
        if alive is not None:
            new = jax.tree.map(lambda a, b: jnp.where(alive, a, b), new, state)
            link = Link(
                link.mean,
                jnp.where(alive, link.predicted, 0),
                jnp.where(alive, link.gain, 0),
                jnp.where(alive, link.residual_cov, state.cov),
            )
            info = info._replace(log_likelihood=jnp.where(alive, info.log_likelihood, 0))
        return new, (new, info, link) if smooth else (new, info, None)

    last, (states, info, links) = jax.lax.scan(forward_step, initial, (z, per_step, valid))
    if not smooth:
        return Track(states, initial, info)

    angles = model(jax.tree.map(lambda a: a[0], per_step)).state_angles

    def backward_step(state: State, link: Link) -> tuple[State, State]:
        return smooth_step(state, link, angles), state

    first, states = jax.lax.scan(backward_step, last, links, reverse=True)
    return Track(states, first, info)
