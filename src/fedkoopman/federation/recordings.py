"""Measured trajectories in place of simulated ones: who sees which piece, and what is held out.

As with simulated sites, a segment is a function of the seed and an address (slot, whose).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.streams import generator

__all__ = ["Recordings"]


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
