"""Solving ẋ = f(x) over one sampling interval: RK4 for filters, adaptive solvers for the truth."""

from collections.abc import Callable

import diffrax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

Number = float | Float[Array, ""]
State = Float[Array, " dim"]
Input = Float[Array, " input"] | None
Field = Callable[[State], State]

# Relative and absolute, per solver step: far below the smallest noise of the paper's studies.
TRUTH_TOLERANCE = 1e-9

# An interval that takes more solver steps has failed: a blow-up, or stiff and not said to be.
_MAX_STEPS = 4096

# Above this dimension unrolling components costs more compile time than it saves.
_UNROLLED = 8


def rk4(vector_field: Field, x: State, dt: Number, substeps: int = 1) -> State:
    """The classical fourth-order Runge–Kutta map over `dt`, in `substeps` equal steps.

    With f the field and h = dt / substeps: k₁ = f(x), k₂ = f(x + h k₁/2), k₃ = f(x + h k₂/2),
    k₄ = f(x + h k₃), x' = x + h (k₁ + 2 k₂ + 2 k₃ + k₄)/6.

    Arguments:
        vector_field: x ↦ ẋ.
        x: the state at the start.
        dt: the interval.
        substeps: how many steps to divide it into (static).
    """
    x = jnp.asarray(x)
    dtype = jnp.result_type(x, float)
    h = jnp.asarray(dt, dtype) / substeps
    one = _rk4_components if x.shape[0] <= _UNROLLED else _rk4_vector
    if substeps == 1:
        return one(vector_field, x.astype(dtype), h)
    end: Array = lax.fori_loop(0, substeps, lambda _, y: one(vector_field, y, h), x.astype(dtype))
    return end


def _rk4_components(vector_field: Field, x: State, h: Float[Array, ""]) -> State:
    # XLA:CPU's loop fusion recomputes a field's whole history through each concatenate of a vector;
    # slices of a fresh stack simplify away, so the combinations are made on unstacked components.
    dim = x.shape[0]

    def field(y: list[Array]) -> list[Array]:
        dy = vector_field(jnp.stack(y))
        return [dy[i] for i in range(dim)]

    def ahead(c: Array, k: list[Array]) -> list[Array]:
        return [a + c * b for a, b in zip(x0, k, strict=True)]

    x0 = [x[i] for i in range(dim)]
    k1 = field(x0)
    k2 = field(ahead(h / 2, k1))
    k3 = field(ahead(h / 2, k2))
    k4 = field(ahead(h, k3))
    slopes = [a + 2 * (b + c) + d for a, b, c, d in zip(k1, k2, k3, k4, strict=True)]
    return jnp.stack(ahead(h / 6, slopes)).astype(x.dtype)


def _rk4_vector(vector_field: Field, x: State, h: Float[Array, ""]) -> State:
    k1 = vector_field(x)
    k2 = vector_field(x + h / 2 * k1)
    k3 = vector_field(x + h / 2 * k2)
    k4 = vector_field(x + h * k3)
    return (x + h / 6 * (k1 + 2 * (k2 + k3) + k4)).astype(x.dtype)


def solve(
    vector_field: Field,
    x: State,
    dt: Number,
    *,
    stiff: bool,
    tolerance: float = TRUTH_TOLERANCE,
    adjoint: diffrax.AbstractAdjoint | None = None,
) -> State:
    """Solve over one interval with error control; a failure is a state of NaN, never an exception.

    Dopri5 (the pair known as RK45), or Kvaerno5 (implicit, L-stable) for stiff fields, with an I
    controller. Every interval is solved anew, so that samples do not depend on those after them.

    Arguments:
        vector_field: x ↦ ẋ.
        x: the state at the start.
        dt: the interval.
        stiff: choose the implicit solver.
        tolerance: relative and absolute tolerance of a solver step.
        adjoint: how diffrax differentiates; None takes its default, which has no forward mode.
    """
    x = jnp.asarray(x, jnp.result_type(x, float))
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: vector_field(y).astype(y.dtype)),
        diffrax.Kvaerno5() if stiff else diffrax.Dopri5(),
        t0=jnp.zeros((), x.dtype),
        t1=jnp.asarray(dt, x.dtype),
        dt0=None,
        y0=x,
        saveat=diffrax.SaveAt(t1=True),
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
        max_steps=_MAX_STEPS,
        adjoint=diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint,
        throw=False,
    )
    assert solution.ys is not None
    done = solution.result == diffrax.RESULTS.successful
    return jnp.where(done, solution.ys[-1], jnp.nan)
