"""Compile a function of very many tiny operations in half the time.

XLA:CPU has two ways to emit fused operations. Its newer one, the default, takes twice as long to
compile the slopes of a filter's likelihood (Lorenz63, four parameters, unscented: 7 s against 4)
and gains nothing there, as the matrices are tiny. A version of XLA that no longer has the choice
takes its only way.
"""

from collections.abc import Callable
from typing import Any

import jax

__all__ = ["compiled_soon"]

_OPTIONS = {"xla_cpu_use_fusion_emitters": False}


class compiled_soon:
    """`jax.jit`, with what compiles soonest on the CPU."""

    def __init__(self, function: Callable, static_argnames: tuple[str, ...] = ()) -> None:
        self._plain = jax.jit(function, static_argnames=static_argnames)
        self._soon = jax.jit(function, static_argnames=static_argnames, compiler_options=_OPTIONS)
        self._known = True

    def __call__(self, *args: Any, **static: Any) -> Any:
        """Call the function; static arguments by keyword."""
        if self._known and jax.default_backend() == "cpu":
            try:
                return self._soon(*args, **static)
            except jax.errors.JaxRuntimeError:
                # If the cause was not the option, the ordinary way will show it.
                self._known = False
        return self._plain(*args, **static)
