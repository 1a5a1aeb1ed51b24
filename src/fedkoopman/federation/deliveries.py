"""Sites with data of their own: segments of states that were recorded once, and arrive in order.

A site's segments are those that it estimated from its files. In a slot in which its observation
succeeds, the next of them arrives; which one that is depends on the seed and the slot alone.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.arrivals import arrivals

if TYPE_CHECKING:
    from fedkoopman.federation.experiment import Experiment

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
    given = experiment.deliveries
    assert given is not None
    succeeded = [0] * len(experiment.clients)
    found: list[dict[int, int]] = [{}]
    for slot in range(1, experiment.slots + 1):
        arriving = {}
        luck = arrivals(experiment.seed, slot, experiment.clients) | given.every_slot
        for n in np.flatnonzero(luck).tolist():
            count = len(given.train[experiment.clients[n].identity])
            if succeeded[n] < count or given.repeat:
                arriving[n] = succeeded[n] % count
            succeeded[n] += 1
        found.append(arriving)
    return found
