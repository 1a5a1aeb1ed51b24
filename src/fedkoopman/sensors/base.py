"""Sensors, z = h(x), and noisy observations by them, z = h(x) + v."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike, NDArray

from fedkoopman.covariance import noise_roots
from fedkoopman.errors import InputError, short
from fedkoopman.systems.checks import check_dim, check_indices, check_seed, finite_array, real_array
from fedkoopman.systems.integrate import filled, room_for, trajectory_key
from fedkoopman.systems.user import Closure, check_function

_UNROLLED, _OBSERVATION = 32, 2


class Sensor(eqx.Module):
    """An observation function h of one state (d,), giving one observation (dim,)."""

    if TYPE_CHECKING:
        # mypy takes AbstractVar for a field of the base class, which would come first in __init__.
        @property
        def dim(self) -> int: ...
        @property
        def angles(self) -> tuple[int, ...]: ...
    else:
        dim: eqx.AbstractVar[int]
        """The number of observed components m."""
        angles: eqx.AbstractVar[tuple[int, ...]]
        """Indices of the observed components that wrap at 2π."""

    @abstractmethod
    def __call__(self, x: Float[Array, " state"]) -> Float[Array, " observed"]:
        """The noise-free observation of the state `x`."""

    def check_state(self, state_dim: int) -> None:
        """Raise `InputError` unless the sensor makes observations of such states."""
        x = jax.ShapeDtypeStruct((state_dim,), jnp.result_type(float))
        check_function(self, "the sensor", (self.dim,), x)


class LinearSensor(Sensor):
    """z = (x − o) Bᵀ, the paper's sensor.

    Arguments:
        matrix: B, (m, d).
        offset: o, (d,); None for zeros.
        angles: indices of the observed components that wrap at 2π.
    """

    matrix: Any
    offset: Any
    angles: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self, matrix: Any, offset: Any | None = None, *, angles: Sequence[int] = ()
    ) -> None:
        self.matrix = _values(matrix, "matrix")
        if self.matrix.ndim != 2 or 0 in self.matrix.shape:
            raise InputError(
                f"matrix has shape {self.matrix.shape}: give (m, d), one row per observed component"
            )
        d = self.matrix.shape[1]
        self.offset = np.zeros(d) if offset is None else _values(offset, "offset")
        if self.offset.shape != (d,):
            raise InputError(
                f"offset has shape {self.offset.shape} but the matrix has {d} columns: give ({d},)"
            )
        self.angles = check_indices(angles, self.matrix.shape[0], "angles", "observation")

    @property
    def dim(self) -> int:
        """The number of observed components: the rows of the matrix."""
        return int(self.matrix.shape[0])

    @property
    def state_dim(self) -> int:
        """The number of state components: the columns of the matrix."""
        return int(self.matrix.shape[1])

    def __call__(self, x: Float[Array, " state"]) -> Float[Array, " observed"]:
        """(x − o) Bᵀ."""
        x = jnp.asarray(x)
        dtype = jnp.result_type(x, float)
        matrix, offset = jnp.asarray(self.matrix, dtype), jnp.asarray(self.offset, dtype)
        centred = x.astype(dtype) - offset
        # Not a dot: XLA:CPU cannot fuse small ones with what is around them.
        if self.state_dim > _UNROLLED:
            return jnp.sum(matrix * centred, axis=-1)
        return sum(
            (matrix[:, k] * centred[k] for k in range(1, self.state_dim)), matrix[:, 0] * centred[0]
        )

    def check_state(self, state_dim: int) -> None:
        """Raise `InputError` unless the matrix has that many columns."""
        if state_dim != self.state_dim:
            raise InputError(
                f"the sensor's matrix has {self.state_dim} columns but the state has {state_dim} "
                f"components: give a matrix of shape ({self.dim}, {state_dim})"
            )

    @classmethod
    def identity(cls, dim: int, *, angles: Sequence[int] = ()) -> "LinearSensor":
        """Every state component as it is."""
        return cls(np.eye(check_dim(dim, "dim")), angles=angles)

    @classmethod
    def random_frame(
        cls, dim: int = 3, observed: int | None = None, *, seed: int
    ) -> "LinearSensor":
        """The paper's client: rows b₁ … b_m and offset o from one random orthonormal frame.

        The frame is uniform over rotations and reflections. As o is orthogonal to every row, it
        shifts nothing: z = x Bᵀ. The paper asks for it nevertheless, and so it is kept.

        Arguments:
            dim: the number of state components.
            observed: the number of rows, at most dim − 1; None takes dim − 1.
            seed: of the frame.
        """
        dim = check_dim(dim, "dim", least=2)
        rows = dim - 1 if observed is None else check_dim(observed, "observed")
        if rows >= dim:
            raise InputError(
                f"observed is {rows} but a frame of {dim} vectors leaves {dim - 1} for the rows, "
                f"one being the offset: give at most {dim - 1}"
            )
        q, r = np.linalg.qr(np.random.default_rng(check_seed(seed)).normal(size=(dim, dim)))
        # QR alone fixes signs by convention, which is not uniform.
        frame = (q * np.sign(np.diag(r))).T
        return cls(frame[:rows], frame[rows])

    @classmethod
    def perturbed_identity(cls, dim: int = 4, spread: float = 0.5, *, seed: int) -> "LinearSensor":
        """The double pendulum's client: I + Ξ with entries of Ξ uniform on [0, spread].

        Arguments:
            dim: the number of state components.
            spread: the largest entry of Ξ.
            seed: of Ξ.
        """
        dim = check_dim(dim, "dim")
        if not np.isfinite(spread) or spread < 0:
            raise InputError(f"spread is {short(spread)}: give a number of at least 0")
        rng = np.random.default_rng(check_seed(seed))
        return cls(np.eye(dim) + rng.uniform(0.0, spread, size=(dim, dim)))


class FunctionSensor(Sensor):
    """z = h(x) for any h written with `jax.numpy`.

    Arguments:
        h: from one state (d,) to one observation (dim,).
        dim: the number of observed components.
        angles: indices of the observed components that wrap at 2π.
    """

    h: Closure
    dim: int = eqx.field(static=True)
    angles: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, h: Callable[..., Any], dim: int, *, angles: Sequence[int] = ()) -> None:
        self.h = Closure(h, "h")
        self.dim = check_dim(dim, "dim")
        self.angles = check_indices(angles, self.dim, "angles", "observation")

    def __call__(self, x: Float[Array, " state"]) -> Float[Array, " observed"]:
        """The user's function."""
        z: Array = self.h(x)
        return z


def _values(value: Any, name: str) -> Any:
    """A float64 array of finite numbers; a traced array passes as it is."""
    return value if isinstance(value, jax.core.Tracer) else finite_array(value, name)


def observe(
    sensor: Sensor, x: ArrayLike, noise: ArrayLike = 0.0, seed: int = 0
) -> NDArray[np.float64]:
    """Observe states: z_k = h(x_k) + v_k, v_k ~ N(0, R), in float64.

    A trajectory's noise does not depend on the size of the batch it is in, nor on what comes after.

    Arguments:
        sensor: h.
        x: states (T, d), or (B, T, d); NaN stays NaN.
        noise: R as a variance, a diagonal, a matrix, or one per step (T, m, m).
        seed: of the noise.

    Returns observations (T, m), or (B, T, m).
    """
    if not isinstance(sensor, Sensor):
        raise InputError(
            f"sensor is a {type(sensor).__name__}: give a LinearSensor or a FunctionSensor"
        )
    states = real_array(x, "x")
    if states.ndim not in (2, 3) or 0 in states.shape:
        raise InputError(f"x has shape {states.shape}: give states (T, d) or (B, T, d)")
    check_seed(seed)
    sensor.check_state(states.shape[-1])
    paths = states if states.ndim == 3 else states[None]
    size, steps = paths.shape[:2]
    room = room_for(steps)
    roots = filled(noise_roots(noise, sensor.dim, steps, size, "noise"), 1, room)
    out = np.empty((size, steps, sensor.dim))
    with jax.enable_x64(True):
        # One trajectory per call, as in `simulate`: bit for bit the same in a batch of any size.
        for b in range(size):
            key = trajectory_key(seed, b)
            longer = np.pad(paths[b], [(0, room - steps), (0, 0)])
            z = _observe(sensor, longer, roots[b if len(roots) > 1 else 0], key)
            out[b] = np.asarray(z)[:steps]
    return out if states.ndim == 3 else out[0]


@jax.jit
def _observe(
    sensor: Sensor,
    x: Float[Array, "room state"],
    roots: Float[Array, "room_or_one observed observed"],
    key: PRNGKeyArray,
) -> Float[Array, "room observed"]:
    key = jax.random.fold_in(key, _OBSERVATION)

    def draw(k: Array) -> Float[Array, " observed"]:
        return jax.random.normal(jax.random.fold_in(key, k), (sensor.dim,))

    v = jax.vmap(draw)(jnp.arange(x.shape[0]))
    return jax.vmap(sensor)(x) + jnp.sum(roots * v[:, None, :], axis=-1)
