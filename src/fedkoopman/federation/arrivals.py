"""Stochastic arrivals (Section IV-B): who succeeds in observing the system in a slot."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.streams import generator

if TYPE_CHECKING:
    from fedkoopman.federation.experiment import Client

__all__ = ["arrivals", "succeeded"]


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
