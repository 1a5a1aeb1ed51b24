"""What compiling costs the tests, and how they share it."""

import os

import jax

QUICKLY = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def quick(function):
    """`jax.jit` for what only a test runs, and once: compiling takes longer than running it."""
    return jax.jit(function, compiler_options=QUICKLY)


def reading() -> dict[str, str]:
    """The environment of a process that will be killed.

    It finds what others compiled, but keeps nothing: a file that it wrote half would stay among
    those of all tests.
    """
    return {**os.environ, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1e9"}
