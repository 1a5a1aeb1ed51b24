"""Training in portions, with the loss of every epoch: `client_update` for one who watches.

The step is that of `training`, with the loss taken along, so that the weights are the same bit for
bit (a test says so). A portion is about a tenth of the epochs: after each there is something to
report, and Ctrl-C is heard.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from fedkoopman.compilation import one_core
from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.koopman.training import Training, _weights, _windows, shuffled, window_starts

PORTIONS = 10


class Watched(NamedTuple):
    """What training gives."""

    weights: Weights
    """As NumPy arrays."""
    losses: NDArray[np.float64]
    """The mean loss of each epoch, while its steps were taken, (E,)."""


def watched_update(
    architecture: Kind,
    training: Training,
    weights: Weights,
    segments: Sequence[NDArray],
    *,
    seed: int,
    report: Callable[[NDArray[np.float64]], None] | None = None,
) -> Watched:
    """Train `weights` on `segments`, each (T, d), as `training.client_update` does.

    Arguments:
        seed: of the order in which samples come.
        report: called after every portion, with the losses of the epochs so far.
    """
    dtype, batch = np.dtype(training.precision), training.batch
    starts = window_starts([len(s) for s in segments], architecture.window, architecture.depth)
    order, states = shuffled(starts, training.epochs, seed), np.concatenate(list(segments))
    epochs, n = order.shape
    room = max(batch, 1 << (max(len(states), n) - 1).bit_length())  # as `training.train` has it
    padded = np.zeros((architecture.state_dim, room), dtype)
    padded[:, : len(states)] = states.T
    slots = np.zeros((epochs, -(-room // batch) * batch), np.int32)
    slots[:, :n] = order
    leaves, structure = jax.tree.flatten(weights)
    with jax.enable_x64(dtype == np.float64):
        vector = jnp.concatenate([jnp.ravel(jnp.asarray(leaf, dtype)) for leaf in leaves])
        carry = (vector, _adam(training).init(vector), jnp.zeros(epochs, dtype))
        data = (jnp.asarray(padded), jnp.asarray(slots), np.int32(n))
        eta = np.asarray(training.learning_rate, dtype)
        bounds = np.linspace(0, epochs, min(PORTIONS, epochs) + 1).astype(np.int32)
        for first, last in pairwise(bounds):
            carry = _epochs(
                carry,
                *data,
                eta,
                first,
                last,
                architecture=architecture,
                training=replace(training, learning_rate=0.0),  # a value, not to be compiled in
            )
            losses = np.asarray(carry[2], np.float64)
            if report is not None:
                report(losses[:last])
        result = np.asarray(carry[0])
    cuts = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]
    parts = [
        part.reshape(np.shape(leaf))
        for part, leaf in zip(np.split(result, cuts), leaves, strict=True)
    ]
    return Watched(jax.tree.unflatten(structure, parts), losses)


def print_losses(epochs: int) -> Callable[[NDArray[np.float64]], None]:
    """A `report` that prints one line to stderr."""
    start = time.monotonic()

    def report(losses: NDArray[np.float64]) -> None:
        spent = time.monotonic() - start
        print_line(f"epoch {len(losses)}/{epochs}: loss {losses[-1]:.4g} ({spent:.1f} s)")

    return report


def print_line(line: str) -> None:
    """Tell one who watches; results go to stdout."""
    print(line, file=sys.stderr, flush=True)


def _adam(training: Training) -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(training.weight_decay), optax.scale_by_adam())


@one_core("architecture", "training")
def _epochs(
    carry: tuple[Array, Any, Float[Array, " epochs"]],
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

    def step(i: Array, carry: tuple[Array, Any, Array]) -> tuple[Array, Any, Array]:
        vector, memory, losses = carry
        epoch, begin = i // batches, (i % batches) * batch
        starts = jax.lax.dynamic_slice(order, (epoch, begin), (1, batch))[0]
        x, target = _windows(states, starts, architecture)
        count = jnp.minimum(n - begin, batch).astype(dtype)
        share = (begin + jnp.arange(batch) < n) / count
        loss, gradient = jax.value_and_grad(
            lambda w: architecture.losses(w, x, target, share).weighted(training.loss_weights)
        )(_weights(vector, architecture))
        flat = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
        direction, memory = _adam(training).update(flat, memory, vector)
        losses = losses.at[epoch].add(loss * count / n.astype(dtype))
        return vector - eta * training.decay ** epoch.astype(dtype) * direction, memory, losses

    return jax.lax.fori_loop(first * batches, last * batches, step, carry)
