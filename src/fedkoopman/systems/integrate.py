"""Trajectories: the truth by adaptive solvers, or the one-step map with process noise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import ArrayLike, NDArray

from fedkoopman.covariance import noise_roots
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.systems.base import System
from fedkoopman.systems.checks import check_count, check_seed, finite_array, real_array
from fedkoopman.systems.solvers import State
from fedkoopman.systems.user import MapSystem

LEAST_ROOM = 512
"""Steps for which the shortest trajectories are compiled as well."""
_INITIAL, _PROCESS = 0, 1


def simulate(
    system: System,
    steps: int,
    *,
    seed: int = 0,
    initial: ArrayLike | None = None,
    batch: int | None = None,
    inputs: ArrayLike | None = None,
    process_noise: ArrayLike | None = None,
    dt: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Simulate one trajectory (steps + 1, d), or a batch of them (B, steps + 1, d), in float64.

    The truth is solved by Dopri5, or Kvaerno5 for stiff systems, with relative and absolute
    tolerance 1e-9 per solver step. With `process_noise` Q the trajectory follows the filter's own
    model instead, x_{k+1} = step(x_k) + w_k with w_k ~ N(0, Q).

    Trajectory b is the same, bit for bit, in a batch of any size; `batch=None` gives trajectory 0.

    Arguments:
        system: what to simulate.
        steps: the number of sampling intervals.
        seed: the seed of initial states and process noise.
        initial: x_0, (d,) or one per trajectory (B, d); None draws from the initial-state law.
        batch: the number of trajectories; None gives one without the leading axis.
        inputs: u_0 …, (steps, input_dim) or (B, steps, input_dim), each held over its interval.
        process_noise: None for the truth; else Q as a variance, diagonal, matrix, or one per step.
        dt: the interval, a scalar or one per step (steps,); None takes the system's own.
    """
    if not isinstance(system, System):
        raise InputError(f"system is a {type(system).__name__}: give a fedkoopman System")
    steps = check_count(steps, "steps")
    check_seed(seed)
    starts, size, single = _starts(system, initial, batch)
    u = _inputs(system, inputs, steps, size)
    intervals = _intervals(system, dt, steps)
    roots = (
        None
        if process_noise is None
        else noise_roots(process_noise, system.dim, steps, size, "process_noise")
    )

    room = room_for(steps)
    u, roots = filled(u, 1, room), filled(roots, 1, room)
    intervals = filled(intervals, 0, room)
    out = np.empty((size, steps + 1, system.dim))
    with jax.enable_x64(True):
        for b in range(size):
            key = _trajectory_key(seed, b)
            x0 = np.asarray(_draw_initial(system, key)) if starts is None else starts[b]
            own_u = None if u is None else u[b if len(u) > 1 else 0]
            own_roots = None if roots is None else roots[b if len(roots) > 1 else 0]
            path = _run(system, x0, own_u, intervals, own_roots, key, steps, room)
            out[b, 0], out[b, 1:] = x0, np.asarray(path)[:steps]
    _check_finite(out)
    return out[0] if single else out


def trajectory_key(seed: int, index: int) -> PRNGKeyArray:
    """The key of one trajectory of a batch: it depends on nothing but the seed and the index."""
    # Named, so that a caller's default generator changes nothing.
    return jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), index)


_trajectory_key = jax.jit(trajectory_key)


@jax.jit
def _draw_initial(system: System, key: PRNGKeyArray) -> State:
    return jnp.asarray(system.initial_state(jax.random.fold_in(key, _INITIAL)), float)


# One trajectory per call: compiled once for every batch size and bit for bit the same in each. A
# batch in lockstep, whose every interval waits for its slowest member, is no faster on a CPU for
# the small systems (Lorenz63: 1 ms per 300 steps either way), and 2–4× faster for YNI and Lorenz96.
# The number of steps is no constant of what is compiled, only the room for them: compiling takes
# seconds (YNI: 13), and most calls differ in their length alone.
@jax.jit(static_argnames="room")
def _run(
    system: System,
    x0: State,
    inputs: Float[Array, "room input"] | None,
    intervals: Float[Array, " room"] | None,
    roots: Float[Array, "room_or_one dim dim"] | None,
    key: PRNGKeyArray,
    steps: Int[Array, ""],
    room: int,
) -> Float[Array, "room dim"]:
    noise_key = jax.random.fold_in(key, _PROCESS)

    def advance(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        x, path = state
        u = None if inputs is None else inputs[k]
        dt = None if intervals is None else intervals[k]
        if roots is None:
            new = system.flow(x, u, dt)
        else:
            w = jax.random.normal(jax.random.fold_in(noise_key, k), x.shape, x.dtype)
            new = system.step(x, u, dt) + (roots[k] if len(roots) > 1 else roots[0]) @ w
        new = new.astype(x.dtype)
        return new, path.at[k].set(new)

    path: Array = jax.lax.fori_loop(0, steps, advance, (x0, jnp.zeros((room, *x0.shape))))[1]
    return path


def _starts(
    system: System, initial: ArrayLike | None, batch: int | None
) -> tuple[NDArray[np.float64] | None, int, bool]:
    """Initial states (B, d) or None to draw them, how many, and whether one was asked for."""
    size = 1 if batch is None else check_count(batch, "batch")
    if initial is None:
        return None, size, batch is None
    d = system.dim
    x0 = finite_array(initial, "initial")
    if x0.ndim not in (1, 2) or x0.shape[-1] != d or 0 in x0.shape:
        raise InputError(
            f"initial has shape {x0.shape} but the system has {d} states: give ({d},) or (B, {d})"
        )
    if x0.ndim == 1:
        return np.broadcast_to(x0, (size, d)), size, batch is None
    if batch is not None and len(x0) != size:
        raise InputError(
            f"initial has {len(x0)} states but batch is {size}: leave batch out or make them equal"
        )
    return x0, len(x0), False


def _inputs(
    system: System, inputs: ArrayLike | None, steps: int, size: int
) -> NDArray[np.float64] | None:
    m = system.input_dim
    if inputs is None:
        if m:
            raise InputError(f"inputs is missing but the system takes {m}: give ({steps}, {m})")
        return None
    u = finite_array(inputs, "inputs")
    if m == 0:
        raise InputError(f"inputs of shape {u.shape} given but the system takes none: leave it out")
    if u.shape not in ((steps, m), (size, steps, m)):
        raise InputError(
            f"inputs has shape {u.shape} but {steps} steps of {m} inputs need ({steps}, {m})"
            f" or ({size}, {steps}, {m}): reshape it"
        )
    return u if u.ndim == 3 else u[None]


def _intervals(system: System, dt: ArrayLike | None, steps: int) -> NDArray[np.float64] | None:
    if dt is None:
        return None
    if isinstance(system, MapSystem):
        raise InputError("dt was given but a system made by from_map has fixed steps: leave it out")
    intervals = real_array(dt, "dt")
    if intervals.shape not in ((), (steps,)):
        raise InputError(
            f"dt has shape {intervals.shape} but there are {steps} steps: "
            f"give a scalar or ({steps},)"
        )
    bad = ~(np.isfinite(intervals) & (intervals > 0))
    if bad.any():
        raise InputError(f"dt contains {intervals[bad][0]:g}: every interval must be above 0")
    return np.broadcast_to(intervals, (steps,))


def _check_finite(paths: NDArray[np.float64]) -> None:
    lost = np.argwhere(~np.isfinite(paths).all(axis=-1))
    if not len(lost):
        return
    b, k = (int(i) for i in lost[0])
    if k == 0:
        raise ComputationError(
            f"the initial state drawn for trajectory {b} is not finite: "
            "check the system's initial-state law"
        )
    count = len(np.unique(lost[:, 0]))
    last = ", ".join(f"{value:.4g}" for value in paths[b, k - 1])
    raise ComputationError(
        f"{count} of {len(paths)} trajectories could not be solved: trajectory {b} failed at step "
        f"{k} from state ({last}): the system may blow up there, or be stiff (stiff=True)"
    )


def room_for(steps: int) -> int:
    """The length to compile for, at least `steps`: a power of two.

    Calls that differ in their length alone then share what is compiled. Compiling a solver takes
    seconds, and a trajectory's first steps do not depend on those after them.
    """
    return max(LEAST_ROOM, 1 << (steps - 1).bit_length())


def filled(values: NDArray[np.float64] | None, axis: int, room: int) -> Any:
    """Values per step, with zeros for the steps that are not asked for.

    Arguments:
        values: None, or an array with steps, or one value for all of them, along `axis`.
    """
    if values is None or values.shape[axis] == 1:
        return values
    wider = [(0, room - size if i == axis else 0) for i, size in enumerate(values.shape)]
    return np.pad(values, wider)
