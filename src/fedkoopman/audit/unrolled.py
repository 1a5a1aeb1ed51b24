"""A site's training written out, so that an attacker can ask how the states changed its outcome.

The same steps as `koopman.training`, whose compiled loop cannot be differentiated backwards; a test
holds the two together. The server knows the study and its seed, and so the order of the samples.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from fedkoopman.audit.local_loss import LocalLoss, windows
from fedkoopman.koopman.training import Training, shuffled, window_starts

__all__ = ["batches_of", "trained"]


def batches_of(
    loss: LocalLoss, training: Training, lengths: Sequence[int], seed: int
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """Starts of the windows of every step, each window's share in it, and the step's rate relative
    to the first: (steps, batch), (steps, batch), (steps,).

    Arguments:
        lengths: of the segments, which stand joined.
        seed: of the site's training.
    """
    starts = window_starts(lengths, loss.kind.window, max(loss.kind.leads))
    order = shuffled(starts, training.epochs, seed)
    n, batch = order.shape[1], training.batch
    each = -(-n // batch)
    padded = np.pad(order, ((0, 0), (0, each * batch - n)))
    sizes = np.minimum(n - batch * np.arange(each), batch)
    share = (np.arange(batch) < sizes[:, None]) / sizes[:, None]
    rates = np.repeat(training.decay ** np.arange(training.epochs), each)
    return (
        padded.reshape(-1, batch),
        np.tile(share, (training.epochs, 1)).astype(np.float32),
        rates.astype(np.float32),
    )


@partial(jax.jit, static_argnames=("loss", "weight_decay"))
def trained(
    start: Float[Array, " parameters"],
    fixed: dict[str, Array],
    states: Float[Array, "time state"],
    starts: Int[Array, "steps batch"],
    shares: Float[Array, "steps batch"],
    rates: Float[Array, " steps"],
    *,
    loss: LocalLoss,
    weight_decay: float,
) -> Float[Array, " parameters"]:
    """The weights after all steps of Adam.

    Arguments:
        rates: of every step.
    """
    adam = optax.chain(optax.add_decayed_weights(weight_decay), optax.scale_by_adam())

    def step(carry: tuple[Array, Any], now: tuple[Array, Array, Array]) -> tuple[Any, None]:
        vector, memory = carry
        first, share, rate = now
        x, ahead = windows(loss.kind, states, first)

        def value(w: Float[Array, " parameters"]) -> Float[Array, ""]:
            return loss.kind.loss(loss.weights(w), fixed, x, ahead, share, loss.shares)

        direction, memory = adam.update(jax.grad(value)(vector), memory, vector)
        return (vector - rate * direction, memory), None

    carry = (start, adam.init(start))
    plan = (starts, shares.astype(start.dtype), rates.astype(start.dtype))
    (found, _), _ = jax.lax.scan(step, carry, plan)
    return found
