"""A server step: every number moves by the same amount, in the direction of its change (signSGD).

One aggregate, however far off, then moves no number by more than the learning rate.
"""

import optax

from fedkoopman.federation.options import ServerOptions

__all__ = ["SERVER_STEP", "signs"]


def signs(options: ServerOptions) -> optax.GradientTransformation:
    """An optimizer of optax, of the aggregate's change.

    Arguments:
        options: the study's section `server`; `rate` gives its learning rate, or the usual one.
    """
    return optax.sign_sgd(options.rate(0.01))


SERVER_STEP = signs
