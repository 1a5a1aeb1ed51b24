"""Training in portions, with the loss after every epoch: `client_update` for one who watches.

The steps are those of `training`, in a loop of their own, so that the weights are the same bit for
bit (a test says so): with the loss taken along from each step, XLA would round some kinds' steps
otherwise. A portion is about a tenth of the epochs: after each there is something to report, and
Ctrl-C is heard.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from fedkoopman.compilation import one_core
from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.koopman.training import (
    Training,
    _weights,
    batch_loss,
    shuffled,
    window_starts,
    windows_at,
)

PORTIONS = 10
FEW = 8
"""The loss after an epoch is that of an eighth of its batches, which come in random order; of eight
batches at least, if there are so many."""


class Watch:
    """Trains as `client_update` does, and remembers the loss after every epoch."""

    def __init__(self, epochs: int, tell: Callable[[str], None] | None = None) -> None:
        """Begin to watch.

        Arguments:
            epochs: how many there will be, in one update or in several.
            tell: is given a line after every portion.
        """
        self.epochs, self.tell = epochs, tell
        self.losses: NDArray[np.float64] = np.zeros(0)
        self._start = time.monotonic()

    def update(
        self,
        architecture: Kind,
        training: Training,
        weights: Weights,
        segments: Sequence[NDArray],
        *,
        seed: int,
        learning_rate: float | None = None,
        fixed: Mapping[str, NDArray] | None = None,
    ) -> Weights:
        """As of `training.client_update`."""
        dtype, batch = np.dtype(training.precision), training.batch
        lengths, ahead = [len(s) for s in segments], max(architecture.leads)
        starts = window_starts(lengths, architecture.window, ahead)
        order, states = shuffled(starts, training.epochs, seed), np.concatenate(list(segments))
        epochs, n = order.shape
        room = max(batch, 1 << (max(len(states), n) - 1).bit_length())  # as in `training.train`
        padded = np.zeros((architecture.row_dim, room), dtype)
        padded[:, : len(states)] = states.T
        slots = np.zeros((epochs, -(-room // batch) * batch), np.int32)
        slots[:, :n] = order
        eta = training.learning_rate if learning_rate is None else learning_rate
        leaves, structure = jax.tree.flatten(weights)
        before = self.losses
        with jax.enable_x64(dtype == np.float64):
            vector = jnp.concatenate([jnp.ravel(jnp.asarray(leaf, dtype)) for leaf in leaves])
            carry = (vector, _adam(training).init(vector), jnp.zeros(epochs, dtype))
            data = (
                {name: jnp.asarray(leaf, dtype) for name, leaf in (fixed or {}).items()},
                jnp.asarray(padded),
                jnp.asarray(slots),
                np.int32(n),
                np.asarray(eta, dtype),
            )
            portion = -(-self.epochs // PORTIONS)
            for first, last in pairwise([*range(0, epochs, portion), epochs]):
                carry = _epochs(
                    carry,
                    *data,
                    np.int32(first),
                    np.int32(last),
                    architecture=architecture,
                    training=replace(training, learning_rate=0.0),  # not to be compiled in
                )
                losses = np.asarray(carry[2][:last], np.float64)
                self._tell(np.append(before, losses))
            result = np.asarray(carry[0])
        cuts = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]
        parts = [
            part.reshape(np.shape(leaf))
            for part, leaf in zip(np.split(result, cuts), leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, parts)

    def _tell(self, losses: NDArray[np.float64]) -> None:
        self.losses = losses
        if self.tell is not None:
            spent = time.monotonic() - self._start
            self.tell(f"epoch {len(losses)}/{self.epochs}: loss {losses[-1]:.4g} ({spent:.1f} s)")


def print_line(line: str) -> None:
    """Tell one who watches; results go to stdout."""
    print(line, file=sys.stderr, flush=True)


def _adam(training: Training) -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(training.weight_decay), optax.scale_by_adam())


@one_core("architecture", "training")
def _epochs(
    carry: tuple[Array, Any, Float[Array, " epochs"]],
    fixed: dict[str, Array],
    states: Float[Array, "state room"],
    order: Int[Array, "epochs room"],
    n: Int[Array, ""],
    eta: Float[Array, ""],
    first: Int[Array, ""],
    last: Int[Array, ""],
    *,
    architecture: Kind,
    training: Training,
) -> tuple[Array, Any, Float[Array, " epochs"]]:
    """Epochs `first` to `last`; parameters as one vector, Adam's memory and losses carried on."""
    dtype, batch = carry[0].dtype, training.batch
    batches = (n + batch - 1) // batch
    judged = jnp.minimum(batches, jnp.maximum(FEW, batches // FEW))

    def loss_of(w: Weights, i: Array) -> tuple[Array, Array]:
        """The loss of batch i, and how many samples it has."""
        epoch, begin = i // batches, (i % batches) * batch
        starts = jax.lax.dynamic_slice(order, (epoch, begin), (1, batch))[0]
        x, *ahead = windows_at(states, starts, architecture)
        count = jnp.minimum(n - begin, batch).astype(dtype)
        share = (begin + jnp.arange(batch) < n) / count
        return batch_loss(architecture, training, w, fixed, x, tuple(ahead), share), count

    def step(i: Array, carry: tuple[Array, Any]) -> tuple[Array, Any]:
        vector, memory = carry
        gradient = jax.grad(lambda w: loss_of(w, i)[0])(_weights(vector, architecture))
        flat = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
        direction, memory = _adam(training).update(flat, memory, vector)
        eta_now = eta * training.decay ** (i // batches).astype(dtype)
        return vector - eta_now * direction, memory

    def epoch(e: Array, carry: tuple[Array, Any, Array]) -> tuple[Array, Any, Array]:
        vector, memory, losses = carry
        first = e * batches
        vector, memory = jax.lax.fori_loop(first, first + batches, step, (vector, memory))

        def add(i: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            loss, count = loss_of(_weights(vector, architecture), i)
            return sums[0] + loss * count, sums[1] + count

        nothing = (jnp.zeros((), dtype), jnp.zeros((), dtype))
        total, count = jax.lax.fori_loop(first, first + judged, add, nothing)
        return vector, memory, losses.at[e].set(total / count)

    return jax.lax.fori_loop(first, last, epoch, carry)
