"""A policy: in every slot, that half of the clients trains at which most data wait."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.policies import Situation

__all__ = ["POLICY", "fuller_half"]


def fuller_half(situation: Situation) -> NDArray[Any]:
    """The indices of the clients that train; one without data is left out by whoever asks.

    A policy keeps nothing from slot to slot, so that a run can go on from any slot. What is random
    in it would come from `situation.random`. Of clients with equally much the first are taken.

    Arguments:
        situation: the slot, the samples that wait at each client, and a few more things.
    """
    fullest_first = np.argsort(-situation.buffered, kind="stable")
    return fullest_first[: (len(fullest_first) + 1) // 2]


POLICY = fuller_half
