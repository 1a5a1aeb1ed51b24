"""Ways to compile a function for the CPU: `fused`, `compiled_soon` and `one_core`.

Each is `jax.jit` with other options of XLA. The numbers are the same to rounding.

`fused` compiles a whole function into one kernel. XLA:CPU runs a compiled function as a list of
small kernels. In a scan over tiny matrices the hand-over between kernels costs several times the
arithmetic. XLA can also emit a call as a single kernel; it does so by itself for loops that touch
under 1 kB, and for any call that carries the attribute below (`benchmarks/estimation.py` measures
what that gains). The single-kernel emitter does not know every operation (no LAPACK, sort or
scatter, for example). A function is tried if all its primitives are in a list that is known to
work. Any other function, one that a future XLA refuses after all, and any other platform take
XLA's ordinary path.

`compiled_soon` halves the time to compile very many tiny operations. XLA:CPU has two ways to emit
fused operations. The newer one, its default, takes twice as long to compile the slopes of a
filter's likelihood (Lorenz63, four parameters, unscented: 7 s against 4) and gains nothing there,
as the matrices are tiny. A version of XLA without the choice takes its only way.

`one_core` compiles for one core, so that several calls may run side by side.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

_ATTRIBUTES = {"inlineable": "false", "xla_cpu_small_call": "true"}

_ONE_KERNEL = {
    # Neither libraries nor the thread pool can be called from inside a kernel.
    "xla_cpu_experimental_ynn_fusion_type": "",
    "xla_disable_hlo_passes": "cpu-parallel-task-assigner",
}

_SOON = {"xla_cpu_use_fusion_emitters": False}

_ONE_CORE = {
    "xla_cpu_multi_thread_eigen": False,
    "xla_disable_hlo_passes": "cpu-parallel-task-assigner",
}

_SUPPORTED = frozenset(
    """
    abs acos acosh add add_any and argmax asin asinh atan atan2 atanh bitcast_convert_type
    broadcast_in_dim cbrt ceil clamp concatenate cond convert_element_type copy copy_p cos cosh
    custom_jvp_call custom_vjp_call div dot_general dynamic_slice dynamic_update_slice eq erf
    erf_inv exp exp2 expand_dims expm1 floor gather ge gt integer_pow iota is_finite jit le le_to
    log log1p logistic lt lt_to max min mul ne neg nextafter not optimization_barrier or pad pjit
    pow random_bits random_fold_in random_split random_unwrap random_wrap real reduce_and
    reduce_max reduce_min reduce_or reduce_prod reduce_sum rem reshape rev round rsqrt scan
    select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh slice split sqrt
    square squeeze stack stop_gradient sub tan tanh threefry2x32 transpose while xor
    """.split()  # noqa: SIM905 - a list of ninety strings is harder to read
)


def _primitives(jaxpr: Jaxpr) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda v: isinstance(v, Jaxpr | ClosedJaxpr)
        ):
            if isinstance(value, ClosedJaxpr):
                yield from _primitives(value.jaxpr)
            elif isinstance(value, Jaxpr):
                yield from _primitives(value)


def qualifies(jaxpr: Jaxpr) -> bool:
    """Whether the single-kernel emitter is known to handle every primitive of `jaxpr`."""
    return all(name in _SUPPORTED for name in _primitives(jaxpr))


class Refused(Exception):
    """A function has a primitive that is not in the list."""


class fused:
    """`jax.jit`, as one kernel on the CPU where that is possible."""

    def __init__(self, function: Callable, static_argnames: tuple[str, ...] = ()) -> None:
        def one_kernel(*args: Any, **static: Any) -> Any:
            closed, shape = jax.make_jaxpr(partial(function, **static), return_shape=True)(*args)
            if not qualifies(closed.jaxpr):
                raise Refused
            with set_xla_metadata(**_ATTRIBUTES):
                leaves = jax.jit(jaxpr_as_fun(closed))(*jax.tree.leaves(args))
            return jax.tree.unflatten(jax.tree.structure(shape), leaves)

        self._plain = jax.jit(function, static_argnames=static_argnames)
        self._fast = jax.jit(
            one_kernel, static_argnames=static_argnames, compiler_options=_ONE_KERNEL
        )
        self._refused: set[tuple] = set()

    def __call__(self, *args: Any, **static: Any) -> Any:
        """Call the function; static arguments by keyword."""
        if not self.is_one_kernel(*args, **static):
            return self._plain(*args, **static)
        try:
            return self._fast(*args, **static)
        except (Refused, jax.errors.JaxRuntimeError):
            # If the cause was not the emitter, the ordinary path will show it.
            self._refused.add(_signature(args, static))
            return self._plain(*args, **static)

    def is_one_kernel(self, *args: Any, **static: Any) -> bool:
        """Whether a call with such arguments runs as one kernel, as far as is known."""
        if jax.default_backend() != "cpu":
            return False
        return not self._refused or _signature(args, static) not in self._refused


def _signature(args: tuple, static: dict) -> tuple:
    leaves, structure = jax.tree.flatten(args)
    shapes = tuple((np.shape(leaf), str(jax.dtypes.result_type(leaf))) for leaf in leaves)
    # Named tuples of two classes are equal if their values are.
    chosen = tuple((name, type(value), value) for name, value in static.items())
    return structure, shapes, chosen


class compiled_soon:
    """`jax.jit`, with what compiles soonest on the CPU."""

    def __init__(self, function: Callable, static_argnames: tuple[str, ...] = ()) -> None:
        self._plain = jax.jit(function, static_argnames=static_argnames)
        self._soon = jax.jit(function, static_argnames=static_argnames, compiler_options=_SOON)
        self._available = True

    def __call__(self, *args: Any, **static: Any) -> Any:
        """Call the function; static arguments by keyword."""
        if self._available and jax.default_backend() == "cpu":
            try:
                return self._soon(*args, **static)
            except jax.errors.JaxRuntimeError:
                # If the cause was not the option, the ordinary way will show it.
                self._available = False
        return self._plain(*args, **static)


def one_core(*static: str) -> Callable[[Callable], Callable]:
    """`jax.jit` for functions whose products are too small to share between cores.

    With XLA's thread pool in play, two clients that train at once would wait for each other.

    Arguments:
        static: names of the arguments that choose what is compiled.
    """

    def decorate(function: Callable) -> Callable:
        @cache
        def compiled(backend: str) -> Any:
            return jax.jit(
                function,
                static_argnames=static,
                compiler_options=_ONE_CORE if backend == "cpu" else None,
            )

        # The backend is known only when a function is called, and may differ from call to call.
        return lambda *given, **chosen: compiled(jax.default_backend())(*given, **chosen)

    return decorate
