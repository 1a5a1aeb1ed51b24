"""What a policy is: from what the server knows to who trains in a slot.

A policy is a function of the slot and of how much data waits at each client. It keeps no state of
its own, so that a run can go on from any slot.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError, short
from fedkoopman.user_code import calling, finished, place_of


class Situation(NamedTuple):
    """What the server knows when it chooses."""

    slot: int
    """m, from 1."""
    buffered: NDArray[np.int64]
    """|D_n|, samples that wait at each client."""
    steps: int
    """ζ, samples per segment."""
    random: np.random.Generator
    """Fresh for every slot, and the same whenever the slot is run again."""
    segments: NDArray[np.float64]
    """ρ_n, `policy.segments` of each client."""


class Policy(Protocol):
    """From the situation to the active clients: a mask of N, or their indices."""

    def __call__(self, situation: Situation) -> Any: ...


def activate(policy: Policy, situation: Situation) -> NDArray[np.int64]:
    """The clients that train: those chosen that have data, in ascending order.

    A user's policy is held to its form; a chosen client without data is a no-op.
    """
    count = len(situation.buffered)
    mine = situation._replace(buffered=situation.buffered.copy())  # it may write to what it gets
    with calling(policy, f"the policy failed in slot {situation.slot}"):
        chosen = np.asarray(finished(policy(mine)))
    if chosen.dtype == bool and chosen.shape == (count,):
        chosen = np.flatnonzero(chosen)
    elif chosen.size == 0:
        chosen = np.zeros(0, np.int64)
    if (
        chosen.ndim != 1
        or chosen.dtype.kind not in "iu"
        or (chosen < 0).any()
        or (chosen >= count).any()
    ):
        raise InputError(
            f"the policy gave {short(chosen.tolist())} in slot {situation.slot}: give a mask of "
            f"{count} booleans or a list of client indices from 0 to {count - 1}"
            + (f" ({place})" if (place := place_of(policy)) else "")
        )
    active = np.unique(chosen)
    return active[situation.buffered[active] > 0]
