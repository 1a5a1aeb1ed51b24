"""No step of the server's own: the aggregate is the next model (FedAvg)."""

import optax

from fedkoopman.federation.options import ServerOptions


def none(options: ServerOptions) -> optax.GradientTransformation:
    """u(g) = −η_s g; with η_s = 1 the aggregate is taken as it is, bit for bit."""
    return optax.sgd(options.rate(1.0))


SERVER_STEP = none
