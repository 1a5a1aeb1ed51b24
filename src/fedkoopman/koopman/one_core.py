"""Compile a function for one core, so that several calls may run side by side."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax

__all__ = ["one_core"]


def one_core(*static: str) -> Callable[[Callable], Callable]:
    """`jax.jit` for functions whose products are too small to share between cores.

    With XLA's thread pool in play, two clients that train at once would wait for each other.

    Arguments:
        static: names of the arguments that choose what is compiled.
    """

    def decorate(function: Callable) -> Callable:
        @cache
        def compiled(backend: str) -> Any:
            options = {
                "xla_cpu_multi_thread_eigen": False,
                "xla_disable_hlo_passes": "cpu-parallel-task-assigner",
            }
            return jax.jit(
                function,
                static_argnames=static,
                compiler_options=options if backend == "cpu" else None,
            )

        # The backend is known only when a function is called, and may differ from call to call.
        return lambda *given, **chosen: compiled(jax.default_backend())(*given, **chosen)

    return decorate
