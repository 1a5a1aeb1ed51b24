"""A policy: in every slot the client with the most data trains, and nobody else."""

import numpy as np

from fedkoopman.federation.policies import Situation

__all__ = ["POLICY", "fullest"]


def fullest(situation: Situation) -> list[int]:
    """The client at which most samples wait; the first of several.

    A policy keeps nothing from slot to slot, so that a run can go on from any slot. What is random
    in it comes from `situation.random`.
    """
    return [int(np.argmax(situation.buffered))]


POLICY = fullest
