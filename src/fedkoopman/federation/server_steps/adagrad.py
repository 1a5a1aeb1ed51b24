"""FedAdagrad: every number moves by its change over the root of the sum of all squared changes.

    v ← v + g²,    u = −η_s g / √v,    v = τ² before the first step

Steps become shorter with every step, as 1 / √steps. There is no momentum, as in the experiments of
Reddi et al.; their τ beside the root is left out, as τ² is in the sum.

Reference: S. Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
"""

import optax

from fedkoopman.federation.options import ServerOptions


def adagrad(options: ServerOptions) -> optax.GradientTransformation:
    """AdaGrad, from a sum of τ²."""
    scaled = optax.scale_by_rss(initial_accumulator_value=options.epsilon**2, eps=0.0)
    return optax.chain(scaled, optax.scale(-options.rate(0.1)))


SERVER_STEP = adagrad
