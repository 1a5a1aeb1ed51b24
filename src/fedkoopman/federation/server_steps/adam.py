"""FedAdam: every number moves by its usual change over the usual size of its changes.

    m ← β₁ m + (1 − β₁) g,    v ← β₂ v + (1 − β₂) g²,    u = −η_s m̂ / (√v̂ + τ)

m̂ and v̂ are free of the bias of their start at 0, as in Adam; Algorithm 2 of Reddi et al. leaves
that correction out and starts v at τ². Every number moves by about η_s where its changes agree,
however large they are.

Reference: S. Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
"""

import optax

from fedkoopman.federation.options import ServerOptions


def adam(options: ServerOptions) -> optax.GradientTransformation:
    """Adam, with τ outside the root."""
    return optax.adam(
        options.rate(0.03), b1=options.momentum, b2=options.second_momentum, eps=options.epsilon
    )


SERVER_STEP = adam
