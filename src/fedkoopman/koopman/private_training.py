"""DP-SGD at a site: ClientUpdate with clipped, noised gradients and Poisson-sampled batches.

    g = Σ_{i in batch} g_i · min(1, C / ‖g_i‖) + N(0, σ² C²),    then Adam steps along g / (q n)

g_i is the gradient of one record. Every one of the n records is in a batch with probability q,
independently of all others and of other batches; what Adam makes of g uses no data, and so costs no
privacy. What one record is the study says:

    sample    one training example: a window with the windows that it predicts
    segment   all examples of one segment together; g_i is the mean of their gradients

A state occurs in several examples, `occurrences` of them, and a smoothed state depends on all
observations of its segment: "segment" protects an observation, "sample" one example of many.

A batch has as many records as the draw says. It is worked through in chunks of one size, so that no
record is ever dropped for lack of room. Segments that came twice count once: a record that is in a
batch twice would weigh twice its share.

q is rounded up to one of sixteen values per doubling, so that the long life of a site's data has
few different events to account for. An epoch is 1/q steps, in which a record comes once on average.

Sampling and noise come from a secret of 128 bits (Philox), never from the study's seed where a site
is real: the server knows that seed, and could take the noise away.

Reference: M. Abadi et al., "Deep learning with differential privacy", CCS (2016).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from fedkoopman.compilation import one_core
from fedkoopman.koopman.example_gradients import clip_factors, clipped_sum, written_down
from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.koopman.training import (
    Training,
    _weights,
    client_update,
    window_starts,
    windows_at,
)

__all__ = [
    "Plan",
    "Private",
    "distinct",
    "occurrences",
    "plan_of",
    "private_update",
    "sampled",
    "site_update",
]

PER_DOUBLING = 16
PORTION = 256
"""Steps whose noise is drawn at once, so that memory does not grow with the data."""


@dataclass(frozen=True)
class Private:
    """How a training is private.

    Attributes:
        record: "sample" or "segment".
        clip: C, the longest gradient of one record.
        noise: σ, the standard deviation of the noise in units of C.
        secret: of sampling and noise, a whole number of up to 128 bits.
    """

    record: str
    clip: float
    noise: float
    secret: int = 0


class Plan(NamedTuple):
    """What one training does to its records; this is all that an accountant needs to know."""

    records: int
    """n."""
    rate: float
    """q, the probability with which a record is in a batch."""
    steps: int
    """How many batches there are."""


def occurrences(architecture: Kind) -> int:
    """In how many training examples one state occurs, at most."""
    starts = (0, *architecture.leads)
    return len({first + i for first in starts for i in range(architecture.window)})


def distinct(segments: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Segments without those that came before with the same content."""
    return list({(one.shape, one.tobytes()): one for one in segments}.values())


def plan_of(architecture: Kind, training: Training, record: str, lengths: Sequence[int]) -> Plan:
    """The plan for segments of such lengths, each of which is there once."""
    ahead = max(architecture.leads)
    windows = [max(0, length - architecture.window - ahead + 1) for length in lengths]
    examples = sum(windows)
    records = sum(count > 0 for count in windows) if record == "segment" else examples
    if not records:
        return Plan(0, 0.0, 0)
    # Of segments, one per step at least: a batch that is empty most of the time is only noise.
    wanted = max(training.batch / examples, 1 / records)
    places = math.ceil(PER_DOUBLING * math.log2(wanted) - 1e-9)
    rate = min(1.0, 2.0 ** (places / PER_DOUBLING))
    return Plan(records, rate, training.epochs * math.ceil(1 / rate))


def sampled(random: np.random.Generator, plan: Plan, steps: int) -> list[NDArray[np.int32]]:
    """The records of each of so many batches, in rising order.

    All draws in a row, batch after batch, are independent with probability q. The gaps between
    successes are geometric, and are drawn instead: that takes no more memory than the batches.
    """
    total, found, last = steps * plan.records, list[NDArray[np.int64]](), -1
    while last < total:
        count = max(16, int(1.1 * plan.rate * (total - last)))
        places = last + np.cumsum(random.geometric(plan.rate, count))
        found.append(places)
        last = int(places[-1])
    every = np.concatenate(found)
    every = every[every < total]
    cuts = np.searchsorted(every, plan.records * np.arange(1, steps))
    return [(part % plan.records).astype(np.int32) for part in np.split(every, cuts)]


def site_update(
    architecture: Kind,
    training: Training,
    weights: Weights,
    segments: Sequence[NDArray],
    *,
    seed: int,
    private: Private | None,
    learning_rate: float | None = None,
    fixed: Mapping[str, NDArray] | None = None,
) -> Weights:
    """What a site makes of weights: `client_update`, or `private_update` where that is asked for.

    Arguments:
        seed: of the order of samples without privacy; with it, all draws come from its secret.
    """
    more: dict[str, Any] = {"learning_rate": learning_rate, "fixed": fixed}
    if private is None:
        return client_update(architecture, training, weights, segments, seed=seed, **more)
    return private_update(architecture, training, private, weights, segments, **more)


def private_update(
    architecture: Kind,
    training: Training,
    private: Private,
    weights: Weights,
    segments: Sequence[NDArray],
    *,
    learning_rate: float | None = None,
    fixed: Mapping[str, NDArray] | None = None,
) -> Weights:
    """`training.client_update`, privately; what comes out may be shown to anybody.

    Arguments:
        weights: what training changes, of the form of `architecture.trainee`.
        learning_rate: η of this client, where it is not the common one.
        fixed: what the kind's loss needs beside them.
    """
    dtype, own = np.dtype(training.precision), distinct(segments)
    lengths, ahead = [len(one) for one in own], max(architecture.leads)
    plan = plan_of(architecture, training, private.record, lengths)
    starts = window_starts(lengths, architecture.window, ahead)
    layout = _layout(private.record, architecture, lengths, starts, plan)
    states = np.concatenate(own)
    padded = np.zeros((architecture.row_dim, _power(len(states) + layout.longest)), dtype)
    padded[:, : len(states)] = states.T
    eta = training.learning_rate if learning_rate is None else learning_rate
    leaves, structure = jax.tree.flatten(weights)
    first = np.concatenate([np.ravel(leaf) for leaf in leaves]).astype(dtype, copy=False)
    random = np.random.Generator(np.random.Philox(key=private.secret))
    held = {name: np.asarray(leaf, dtype) for name, leaf in (fixed or {}).items()}
    with jax.enable_x64(dtype == np.float64):
        nothing = np.zeros_like(first)
        carry: Any = (first, optax.ScaleByAdamState(np.zeros((), np.int32), nothing, nothing))
        for begin in range(0, plan.steps, PORTION):
            steps = min(PORTION, plan.steps - begin)
            batches = sampled(random, plan, steps)
            noise = np.zeros((PORTION, first.size), dtype)  # anew, as JAX may still read the last
            random.standard_normal(out=noise[:steps], dtype=dtype.type)
            carry = _portion(
                carry,
                first,
                held,
                padded,
                *_packed(batches, layout),
                noise,
                np.int32(begin),
                np.int32(steps),
                np.asarray([eta, 1 / math.ceil(1 / plan.rate), plan.rate * plan.records], dtype),
                architecture=architecture,
                training=replace(training, learning_rate=0.0, epochs=0),
                private=replace(private, secret=0),
                room=layout.room,
                longest=layout.longest,
            )
        result = np.asarray(carry[0])
    bounds = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]
    parts = [
        part.reshape(np.shape(leaf))
        for part, leaf in zip(np.split(result, bounds), leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, parts)


class _Layout(NamedTuple):
    """Where the records are in the joined states."""

    first: NDArray[np.int32]
    """By record, the start of its first window."""
    windows: NDArray[np.int32]
    """By record, how many windows it has, one after the other."""
    room: int
    """Records that are worked on at once."""
    longest: int
    """Windows of a record for which there is room."""


def _layout(
    record: str, architecture: Kind, lengths: Sequence[int], starts: NDArray[np.int32], plan: Plan
) -> _Layout:
    if record == "sample":
        usual = plan.rate * plan.records
        room = 4 * math.ceil((usual + math.sqrt(usual)) / 4)
        return _Layout(starts, np.ones_like(starts), min(room, _power(plan.records)), 1)
    ends = np.cumsum(lengths)
    windows = np.asarray(lengths) - architecture.window - max(architecture.leads) + 1
    enough = windows > 0
    first, count = (ends - lengths)[enough].astype(np.int32), windows[enough].astype(np.int32)
    return _Layout(first, count, 1, _power(int(count.max())))


def _activation(architecture: Kind) -> Any:
    """A kind's activation; a user's own function may mix columns."""
    return getattr(architecture, "activation", None)


def _power(size: int) -> int:
    """The next power of two: few sizes are compiled."""
    return 1 << (max(size, 1) - 1).bit_length()


def _packed(
    batches: Sequence[NDArray[np.int32]], layout: _Layout
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """First windows and counts of all records in all batches, and where batches begin and end."""
    every = np.concatenate(batches)
    room = _power(len(every) + layout.room)
    first, count = np.zeros(room, np.int32), np.zeros(room, np.int32)
    first[: len(every)], count[: len(every)] = layout.first[every], layout.windows[every]
    bounds = np.full(PORTION + 1, len(every), np.int32)
    bounds[: len(batches) + 1] = np.cumsum([0, *map(len, batches)])
    return first, count, bounds


@one_core("architecture", "training", "private", "room", "longest")
def _portion(
    carry: tuple[Array, Any],
    start: Float[Array, " parameters"],
    fixed: dict[str, Array],
    states: Float[Array, "state room"],
    first: Int[Array, " picks"],
    count: Int[Array, " picks"],
    bounds: Int[Array, " batches"],
    noise: Float[Array, "portion parameters"],
    begin: Int[Array, ""],
    steps: Int[Array, ""],
    numbers: Float[Array, "3"],
    *,
    architecture: Kind,
    training: Training,
    private: Private,
    room: int,
    longest: int,
) -> tuple[Array, Any]:
    """Some steps; parameters as one vector."""
    eta, per_epoch, usual = numbers
    adam = optax.scale_by_adam()

    def loss(vector: Array, windows: tuple[Array, ...], share: Array) -> Array:
        x, *ahead = windows
        trained = _weights(vector, architecture)
        return architecture.loss(trained, fixed, x, tuple(ahead), share, training.loss_weights)

    def summed(vector: Array, windows: tuple[Array, ...]) -> Array:
        return loss(vector, windows, jnp.ones(windows[0].shape[-1], vector.dtype))

    def samples(vector: Array, place: Array, left: Array) -> Array:
        windows = tuple(
            windows_at(states, jax.lax.dynamic_slice(first, (place,), (room,)), architecture)
        )
        taken = (jnp.arange(room) < left).astype(vector.dtype)
        # How a loss lays out its columns is known of our own kinds, and tested for each. Norms that
        # are wrong would make ε wrong without a word, so others take the plain way.
        ours = type(architecture).__module__.startswith("fedkoopman.koopman.kinds.")
        way = clipped_sum if ours and not callable(_activation(architecture)) else written_down
        return way(summed, vector, windows, taken, private.clip)

    def segment(vector: Array, place: Array, left: Array) -> Array:
        every = jnp.arange(longest)
        windows = tuple(windows_at(states, first[place] + every, architecture))
        share = (every < count[place]) / count[place].astype(vector.dtype)
        gradient = jax.grad(loss)(vector, windows, share)
        factor = clip_factors(jnp.sum(gradient**2)[None], private.clip, jnp.ones(1, vector.dtype))
        return jnp.where(factor > 0, gradient * factor, 0.0)

    chunk = samples if private.record == "sample" else segment

    def step(i: Array, carry: tuple[Array, Any]) -> tuple[Array, Any]:
        vector, memory = carry
        place, end = bounds[i], bounds[i + 1]

        def add(j: Array, total: Array) -> Array:
            return total + chunk(vector, place + j * room, end - place - j * room)

        total = jax.lax.fori_loop(0, (end - place + room - 1) // room, add, jnp.zeros_like(vector))
        noised = (total + private.noise * private.clip * noise[i]) / usual
        # What follows uses no data: decay of weights, FedProx's pull, and Adam.
        noised = noised + training.weight_decay * vector
        if training.proximal:
            noised = noised + training.proximal * (vector - start)
        direction, memory = adam.update(noised, memory)
        epoch = jnp.floor((begin + i) * per_epoch + 1e-3)
        return vector - eta * training.decay**epoch * direction, memory

    return jax.lax.fori_loop(0, steps, step, carry)
