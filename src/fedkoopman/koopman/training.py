"""ClientUpdate (Algorithm 3): E epochs of Adam on one client's smoothed states.

One compiled function trains one client, on one core. All clients and seeds of a federation and
`DeepKoopman` call this same function, so that the same model, data and seed give the same
weights bit for bit, whoever else trains at the time; both cores are used by training two clients
at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from fedkoopman.compilation import one_core
from fedkoopman.errors import InputError, short, unknown_name
from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.systems.checks import check_count, check_positive, number

PRECISIONS = ("float32", "float64")


@dataclass(frozen=True)
class Training:
    """The options of local training; defaults are the paper's.

    Attributes:
        epochs: E.
        batch: B, samples per step; a last, shorter batch is kept.
        learning_rate: η.
        weight_decay: λ, an L2 term in the gradient.
        decay: γ, by which the learning rate is multiplied after every epoch.
        loss_weights: w₁, w₂, w₃.
        precision: "float32" or "float64".
        proximal: μ of FedProx, weight of the distance from the first weights; 0 leaves it out.
        huber: error beyond which losses grow linearly; 0: they are squares everywhere.
    """

    epochs: int = 10
    batch: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 1e-7
    decay: float = 0.995
    loss_weights: tuple[float, float, float] = (1 / 3, 1 / 3, 1 / 3)
    precision: str = "float32"
    proximal: float = 0.0
    huber: float = 0.0


def check_training(training: Training) -> Training:
    """The options with their types settled, or a refusal that names the estimator's argument."""
    if training.precision not in PRECISIONS:
        raise unknown_name("precision", training.precision, PRECISIONS)
    rate = number(training.learning_rate, "learning_rate")
    check_positive(rate, "learning_rate")
    weight_decay = number(training.weight_decay, "weight_decay")
    if weight_decay < 0:
        raise InputError(f"weight_decay is {weight_decay:g}: it must be at least 0")
    decay = number(training.decay, "decay")
    if not 0 < decay <= 1:
        raise InputError(
            f"decay is {decay:g}: give a number above 0 and up to 1, by which the learning rate "
            "is multiplied after every epoch"
        )
    shares = training.loss_weights
    if not isinstance(shares, tuple | list | np.ndarray) or len(shares) != 3:
        raise InputError(f"loss_weights is {short(shares)}: give three numbers, for l1, l2 and l3")
    w1, w2, w3 = (float(number(share, "an entry of loss_weights")) for share in shares)
    if min(w1, w2, w3) < 0 or max(w1, w2, w3) == 0:
        raise InputError(f"loss_weights is {short(shares)}: give numbers >= 0, not all 0")
    return Training(
        epochs=check_count(training.epochs, "epochs"),
        batch=check_count(training.batch, "batch_size"),
        learning_rate=float(rate),
        weight_decay=float(weight_decay),
        decay=float(decay),
        loss_weights=(w1, w2, w3),
        precision=training.precision,
        huber=check_huber(training.huber),
    )


def check_huber(value: Any, kind: Kind | None = None, key: str = "huber") -> float:
    """The δ of Huber's loss; refused if it is below 0, or if a model kind has no use for it.

    Arguments:
        key: what the user calls it.
    """
    huber = float(number(value, key))
    if huber < 0:
        raise InputError(
            f"{key} is {huber:g}: give an error beyond which losses grow linearly, or 0 for squares"
        )
    if huber and kind is not None and not kind.takes_huber:
        raise InputError(
            f"{key} is {huber:g} but the model kind {kind.name}, as it is set, is not trained on a "
            f"loss that it could change: leave {key} at 0, or choose a kind that is trained by "
            "gradients"
        )
    return huber


def client_update(
    architecture: Kind,
    training: Training,
    weights: Weights,
    segments: Sequence[NDArray],
    *,
    seed: int,
    learning_rate: float | None = None,
    fixed: Mapping[str, NDArray] | None = None,
) -> Weights:
    """Train `weights` on `segments`, each (T, d), and return the new weights as NumPy arrays.

    Arguments:
        weights: what training changes, of the form of `architecture.trainee`.
        segments: with inputs after the states, where the model has some, (T, d + m).
        seed: of the order in which samples come.
        learning_rate: η of this client, where it is not the common one.
        fixed: what the kind's loss needs beside them.
    """
    lengths, ahead = [len(s) for s in segments], max(architecture.leads)
    starts = window_starts(lengths, architecture.window, ahead)
    order = shuffled(starts, training.epochs, seed)
    states = np.concatenate(list(segments))
    return train(architecture, training, weights, states, order, learning_rate, fixed)


def window_starts(lengths: Sequence[int], window: int, depth: int) -> NDArray[np.int32]:
    """Where windows start in the joined segments; no window and no target crosses a boundary.

    Arguments:
        depth: how many samples ahead the farthest target lies.
    """
    ends = np.cumsum(lengths)
    starts = [
        np.arange(end - length, end - window - depth + 1, dtype=np.int32)
        for end, length in zip(ends, lengths, strict=True)
    ]
    found = np.concatenate([np.zeros(0, np.int32), *starts])
    if not len(found):
        raise InputError(
            f"no segment has {window + depth} samples (lengths {list(lengths)[:5]}), which a "
            f"window of {window} and a prediction depth of {depth} need: give longer segments"
        )
    return found


def shuffled(starts: NDArray[np.int32], epochs: int, seed: int) -> NDArray[np.int32]:
    """One random order of the samples per epoch, (E, n)."""
    random = np.random.default_rng(seed)
    return np.stack([random.permutation(starts) for _ in range(epochs)])


def train(
    architecture: Kind,
    training: Training,
    weights: Weights,
    states: NDArray,
    order: NDArray[np.int32],
    learning_rate: float | None = None,
    fixed: Mapping[str, NDArray] | None = None,
) -> Weights:
    """Train on samples in a given order.

    Arguments:
        states: all segments joined, (T, d).
        order: (E, n), starts of windows.
        fixed: what the kind's loss needs beside the weights.
    """
    dtype = np.dtype(training.precision)
    n, batch = order.shape[1], training.batch
    # Room in powers of two: a client's amount of data differs from round to round, and each
    # shape is compiled once. How many steps are taken is a value, not a shape.
    room = max(batch, 1 << (max(len(states), n) - 1).bit_length())
    padded = np.zeros((architecture.row_dim, room), dtype)
    padded[:, : len(states)] = states.T
    slots = np.zeros((len(order), -(-room // batch) * batch), np.int32)
    slots[:, :n] = order
    eta = training.learning_rate if learning_rate is None else learning_rate
    leaves, structure = jax.tree.flatten(weights)
    vector = np.concatenate([np.ravel(leaf) for leaf in leaves]).astype(dtype, copy=False)
    with jax.enable_x64(dtype == np.float64):
        trained = _train(
            vector,
            {name: np.asarray(leaf, dtype) for name, leaf in (fixed or {}).items()},
            padded,
            slots,
            np.int32(n),
            np.asarray(eta, dtype),
            architecture=architecture,
            training=replace(training, learning_rate=0.0),  # a value, not to be compiled in
        )
        result = np.asarray(trained)
    bounds = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]
    parts = [
        part.reshape(np.shape(leaf))
        for part, leaf in zip(np.split(result, bounds), leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, parts)


@one_core("architecture", "training")
def _train(
    vector: Float[Array, " parameters"],
    fixed: dict[str, Array],
    states: Float[Array, "state room"],
    order: Int[Array, "epochs room"],
    n: Int[Array, ""],
    eta: Float[Array, ""],
    *,
    architecture: Kind,
    training: Training,
) -> Float[Array, " parameters"]:
    """All epochs; parameters as one vector, which Adam updates in one sweep."""
    dtype, batch = vector.dtype, training.batch
    batches = (n + batch - 1) // batch
    adam = optax.chain(optax.add_decayed_weights(training.weight_decay), optax.scale_by_adam())
    received = vector

    def step(i: Array, carry: tuple[Array, Any]) -> tuple[Array, Any]:
        vector, memory = carry
        epoch, first = i // batches, (i % batches) * batch
        starts = jax.lax.dynamic_slice(order, (epoch, first), (1, batch))[0]
        # Both halves in one gather; padding of a short batch has no share in the mean.
        x, *ahead = windows_at(states, starts, architecture)
        share = (first + jnp.arange(batch) < n) / jnp.minimum(n - first, batch).astype(dtype)
        gradient = jax.grad(
            lambda w: batch_loss(architecture, training, w, fixed, x, tuple(ahead), share)
        )(_weights(vector, architecture))
        flat = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
        if training.proximal:  # FedProx: the slope of μ/2 ‖ω − ω_m‖²
            flat = flat + training.proximal * (vector - received)
        direction, memory = adam.update(flat, memory, vector)
        return vector - eta * training.decay ** epoch.astype(dtype) * direction, memory

    start = (vector, adam.init(vector))
    return jax.lax.fori_loop(0, training.epochs * batches, step, start)[0]


def batch_loss(
    architecture: Kind,
    training: Training,
    weights: Weights,
    fixed: Mapping[str, Array],
    x: Float[Array, "input n"],
    ahead: tuple[Float[Array, "input n"], ...],
    share: Float[Array, " n"],
) -> Float[Array, ""]:
    """The loss of a batch, as `Kind.loss` has it with the options of training."""
    # A kind of the user's own need not know of what it is not asked for.
    more = {"huber": training.huber} if training.huber else {}
    return architecture.loss(weights, fixed, x, ahead, share, training.loss_weights, **more)


def windows_at(states: Any, starts: Any, architecture: Kind, xp: Any = jnp) -> list[Any]:
    """X = [x_{k−μ+1} … x_k] and the windows that follow it by each of the leads, in columns; then,
    where there are inputs, those up to the farthest lead.

    Arguments:
        states: all segments joined, (d + m, T).
        starts: where windows start, (n,).
        xp: `jax.numpy`, or `numpy` where nothing is compiled.
    """
    n, leads, window = len(starts), architecture.leads, architecture.window
    d, driven = architecture.state_dim, architecture.inputs > 0
    every = xp.concatenate([starts, *(starts + lead for lead in leads)])
    past = [states[d:, every + i] for i in range(window - 1)] if driven else []
    parts = past + [states[:d, every + i] for i in range(window)]
    joined = parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=0)
    found = [joined[:, i * n : (i + 1) * n] for i in range(1 + len(leads))]
    if driven:
        newest = starts + (window - 1)
        found.append(xp.concatenate([states[d:, newest + i] for i in range(max(leads))]))
    return found


def _weights(vector: Float[Array, " parameters"], architecture: Kind) -> Weights:
    leaves, structure = jax.tree.flatten(architecture.trainee)
    bounds = np.cumsum([leaf.size for leaf in leaves])[:-1].tolist()
    parts = jnp.split(vector, bounds)
    return jax.tree.unflatten(
        structure, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    )
