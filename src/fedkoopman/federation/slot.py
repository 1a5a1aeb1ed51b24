"""One time slot of FedAvg-M (Algorithm 3): arrivals, then the policy, then training, then the mean.

Everything here is a pure function; who computes an update, and where, is the engine's business.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.aggregation import aggregate, is_finite
from fedkoopman.federation.experiment import Experiment
from fedkoopman.federation.policies import Policy, Situation, activate
from fedkoopman.federation.schemes import Scheme
from fedkoopman.federation.sites import Address, samples
from fedkoopman.federation.streams import generator, subseed
from fedkoopman.koopman.kind import Weights

__all__ = ["Decision", "State", "Task", "conclude", "decide", "select", "tasks"]


@dataclass(frozen=True)
class State:
    """What the next slot needs.

    Attributes:
        slot: the last finished slot.
        weights: ω_m.
        buffers: for each client, the slots whose segments wait to be trained on.
    """

    slot: int
    weights: Weights
    buffers: tuple[tuple[int, ...], ...]


class Decision(NamedTuple):
    """What happens in a slot, before any training."""

    slot: int
    buffers: tuple[tuple[int, ...], ...]
    """With the new arrivals."""
    buffered: NDArray[np.int64]
    """|D_n| in samples."""
    active: tuple[int, ...]
    """I_m."""


class Task(NamedTuple):
    """One training job: which segments, with which randomness and learning rate."""

    segments: tuple[tuple[int, int], ...]
    """(slot, client) of each."""
    seed: int
    learning_rate: float
    clients: tuple[int, ...]
    samples: int
    """|D_n|, the weight of the update."""


def decide(experiment: Experiment, state: State, arrived: Sequence[int]) -> Decision:
    """Add the segments of the clients that arrived, and let the policy choose.

    Arguments:
        arrived: clients with a new usable segment.
    """
    slot = state.slot + 1
    new = set(arrived)
    buffers = tuple(
        (*waiting, slot) if n in new else waiting for n, waiting in enumerate(state.buffers)
    )
    sizes = [
        sum(samples(experiment, Address(m, n)) for m in waiting)
        for n, waiting in enumerate(buffers)
    ]
    buffered = np.array(sizes, np.int64)
    active = select(experiment.policy, experiment.seed, slot, buffered, experiment.steps)
    return Decision(slot, buffers, buffered, active)


def select(
    policy: Policy, seed: int, slot: int, buffered: NDArray[np.int64], steps: int
) -> tuple[int, ...]:
    """The clients that train in a slot, of those that have data.

    Arguments:
        buffered: |D_n| of every client.
        steps: ζ, samples per segment.
    """
    situation = Situation(slot, buffered, steps, generator(seed, "policy", slot))
    return tuple(activate(policy, situation).tolist())


def tasks(experiment: Experiment, scheme: Scheme, decision: Decision) -> list[Task]:
    """The training jobs of a slot: one per active client, or one for the server."""
    slot = decision.slot
    held = {n: tuple((m, n) for m in decision.buffers[n]) for n in decision.active}
    if not held:
        return []
    if scheme.central:
        joined = tuple(address for segments in held.values() for address in segments)
        seed = subseed(experiment.seed, "server", slot)
        total = sum(int(decision.buffered[n]) for n in held)
        return [Task(joined, seed, experiment.training.learning_rate, decision.active, total)]
    return [
        Task(
            segments,
            subseed(experiment.seed, "training", slot, experiment.clients[n].identity),
            experiment.clients[n].learning_rate,
            (n,),
            int(decision.buffered[n]),
        )
        for n, segments in held.items()
    ]


def conclude(
    state: State, decision: Decision, jobs: Sequence[Task], models: Sequence[Weights]
) -> tuple[State, tuple[int, ...]]:
    """The state after a slot, and the clients whose update was refused as not finite.

    Active clients' data is spent either way; without a usable update the model stays.
    """
    good = [is_finite(model) for model in models]
    refused = tuple(
        n for job, fine in zip(jobs, good, strict=True) if not fine for n in job.clients
    )
    weights = state.weights
    if any(good):
        kept = [(job, model) for job, model, fine in zip(jobs, models, good, strict=True) if fine]
        weights = aggregate([model for _, model in kept], [job.samples for job, _ in kept])
    spent = set(decision.active)
    buffers = tuple(() if n in spent else b for n, b in enumerate(decision.buffers))
    return State(decision.slot, weights, buffers), refused
