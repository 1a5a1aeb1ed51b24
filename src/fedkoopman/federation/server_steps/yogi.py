"""FedYogi: as FedAdam, but the usual size of changes moves by steps that do not depend on it.

    m ← β₁ m + (1 − β₁) g,    v ← v − (1 − β₂) g² sign(v − g²),    u = −η_s m̂ / (√v̂ + τ)

After large changes v shrinks slowly, so that steps do not grow at once. Both memories start at 0
and are corrected for it, as those of FedAdam; optax's own default for them is 1e-6, which moves a
model that nobody changes.

Reference: S. Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
"""

import optax

from fedkoopman.federation.options import ServerOptions


def yogi(options: ServerOptions) -> optax.GradientTransformation:
    """Yogi, from empty memories."""
    scaled = optax.scale_by_yogi(
        b1=options.momentum,
        b2=options.second_momentum,
        eps=options.epsilon,
        initial_accumulator_value=0.0,
    )
    return optax.chain(scaled, optax.scale(-options.rate(0.03)))


SERVER_STEP = yogi
