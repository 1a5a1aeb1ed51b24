"""Compile what only a test runs, and once: that takes longer than running it."""

import jax

QUICKLY = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def quick(function):
    """`jax.jit` for what only a test runs, and once: compiling takes longer than running it."""
    return jax.jit(function, compiler_options=QUICKLY)
