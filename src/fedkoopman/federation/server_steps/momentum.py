"""Server momentum (FedAvgM of Hsu et al.): earlier changes count on, fading by β₁ per step.

    m ← β₁ m + g,    u = −η_s m

A change that comes again and again is so enlarged to 1 / (1 − β₁) times its size, twice with the
default β₁ = 0.5. The 0.9 of the literature is for many clients per step: where one or two train in
a slot, it overshoots (docs/federation.md has the figures). The paper's FedAvg-M has no momentum at
the server, in spite of its name.

Reference: T.-M. H. Hsu, H. Qi, M. Brown, "Measuring the effects of non-identical data distribution
for federated visual classification", arXiv:1909.06335 (2019).
"""

import optax

from fedkoopman.federation.options import ServerOptions


def momentum(options: ServerOptions) -> optax.GradientTransformation:
    """Gradient descent with momentum."""
    return optax.sgd(options.rate(1.0), momentum=options.momentum)


SERVER_STEP = momentum
