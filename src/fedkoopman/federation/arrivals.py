"""Stochastic arrivals (Section IV-B): who observes in a slot, and which data that brings.

Where nothing is simulated, the data are measured trajectories of which clients see pieces
(`Recordings`), or segments that sites estimated from their own files (`Deliveries`), which arrive
in order. Which piece or segment comes depends only on the seed, the slot and the client.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.streams import generator

if TYPE_CHECKING:
    from fedkoopman.federation.experiment import Client, Experiment


def arrivals(seed: int, slot: int, clients: "Sequence[Client]") -> NDArray[np.bool_]:
    """Client n succeeds with probability p_n, independently of others and of other slots.

    The slot's stream of uniform numbers is read at the client's identity, so that neither the
    order nor the number of clients changes anyone's luck.
    """
    identities = np.array([client.identity for client in clients])
    luck = generator(seed, "arrival", slot).random(identities.max() + 1)[identities]
    mask: NDArray[np.bool_] = luck < np.array([client.probability for client in clients])
    return mask


def succeeded(seed: int, slot: int, identity: int, probability: float) -> bool:
    """Whether one client succeeds in a slot, as `arrivals` has it among others."""
    luck = generator(seed, "arrival", slot).random(identity + 1)[identity]
    return bool(luck < probability)


def drawn(
    succeeds: Callable[[int], bool], slots: range, successes: int, count: int, repeat: bool
) -> Iterator[tuple[int, int | None]]:
    """The slots in which a site's observation succeeds, each with the segment that it brings.

    A site's recorded segments arrive in order, one per success. After the last one the first
    follows again, or no more arrive (None).

    Arguments:
        succeeds: whether the observation succeeds in a slot.
        slots: which slots to look at.
        successes: how often it succeeded before.
        count: how many segments the site has.
        repeat: whether the first segment follows the last.
    """
    for slot in slots:
        if succeeds(slot):
            more = count and (repeat or successes < count)
            yield slot, successes % count if more else None
            successes += 1


@dataclass(frozen=True, eq=False)
class Deliveries:
    """What the sites hold.

    Attributes:
        train: for each client, by identity, states (T_i, d) of its segments, in order.
        held_out: for each client likewise, states (T_i, d) on which models are scored.
        repeat: whether the first segment follows the last; otherwise a site then has no more.
        every_slot: whether a segment arrives in every slot, whatever the clients' luck.
    """

    train: tuple[tuple[NDArray[np.float64], ...], ...]
    held_out: tuple[tuple[NDArray[np.float64], ...], ...]
    repeat: bool = True
    every_slot: bool = False


@lru_cache(maxsize=16)
def schedule(experiment: "Experiment") -> list[dict[int, int]]:
    """For every slot from 1 on (the first entry stands for 0): which segment each client gets."""
    given, slots = experiment.deliveries, experiment.slots
    assert given is not None
    found: list[dict[int, int]] = [{} for _ in range(slots + 1)]
    for n, client in enumerate(experiment.clients):

        def succeeds(slot: int, client: "Client" = client) -> bool:
            return given.every_slot or succeeded(
                experiment.seed, slot, client.identity, client.probability
            )

        count = len(given.train[client.identity])
        for slot, place in drawn(succeeds, range(1, slots + 1), 0, count, given.repeat):
            if place is not None:
                found[slot][n] = place
    return found


@dataclass(frozen=True, eq=False)
class Recordings:
    """True states of a system, sampled at its interval.

    Attributes:
        train: what clients observe, arrays (T_i, d), none shorter than a segment.
        test: what models are scored on, likewise.
        consecutive: whether slots walk through the recordings; otherwise a segment starts anywhere.
    """

    train: tuple[NDArray[np.float64], ...]
    test: tuple[NDArray[np.float64], ...]
    consecutive: bool = False

    def segment(self, seed: int, slot: int, who: int, steps: int) -> NDArray[np.float64]:
        """The states (ζ, d) that are the truth behind a slot.

        Either the recording and, in it, the start are drawn uniformly; or only the recording, and
        the slot says which of its whole pieces of ζ states it is, the first following the last.

        Arguments:
            slot: from 1.
            who: the client's identity, or what stands for all.
            steps: ζ.
        """
        random = generator(seed, "trajectory", slot, who)
        states = self.train[random.integers(len(self.train))]
        if self.consecutive:
            start = (slot - 1) % (len(states) // steps) * steps
        else:
            start = int(random.integers(len(states) - steps + 1))
        return states[start : start + steps]

    def test_count(self, steps: int) -> int:
        """How many trajectories x_0 … x_ζ the test recordings hold."""
        return sum((len(states) - 1) // steps for states in self.test)

    def test_trajectories(self, steps: int, count: int) -> NDArray[np.float64]:
        """The first of them, (count, ζ + 1, d): consecutive, the last state of one being the first
        of the next."""
        starts = [
            (states, piece * steps)
            for states in self.test
            for piece in range((len(states) - 1) // steps)
        ]
        return np.stack([states[first : first + steps + 1] for states, first in starts[:count]])
