"""A server step: momentum that looks ahead (Nesterov's).

m ← β₁ m + g, and the model moves by −η (β₁ m + g), where it would be after one more such change.
"""

import optax

from fedkoopman.federation.options import ServerOptions

__all__ = ["SERVER_STEP", "nesterov"]


def nesterov(options: ServerOptions) -> optax.GradientTransformation:
    """An optimizer of optax, of the aggregate's change.

    Arguments:
        options: the study's section `server`; `rate` gives its learning rate, or the usual one.
    """
    return optax.sgd(options.rate(1.0), momentum=options.momentum, nesterov=True)


SERVER_STEP = nesterov
