"""All tests run in float64, with strict shapes."""

import jax

jax.config.update("jax_enable_x64", True)
