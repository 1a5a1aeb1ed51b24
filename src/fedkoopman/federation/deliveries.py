"""Sites with data of their own: segments of states that were recorded once, and arrive in order.

A site's segments are those that it estimated from its files. In a slot in which its observation
succeeds, the next of them arrives; which one that is depends on the seed and the slot alone.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.arrivals import drawn, succeeded

if TYPE_CHECKING:
    from fedkoopman.federation.experiment import Client, Experiment

__all__ = ["Deliveries", "schedule"]


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
