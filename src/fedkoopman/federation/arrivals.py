"""Stochastic arrivals (Section IV-B): who succeeds in observing the system in a slot."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.streams import generator

if TYPE_CHECKING:
    from fedkoopman.federation.experiment import Client

__all__ = ["arrivals", "drawn", "succeeded"]


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
