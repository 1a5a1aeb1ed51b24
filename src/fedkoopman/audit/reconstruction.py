"""Attack (c), reconstruction: which states does an update come from?

The attacker looks for states with which a site would have sent what it sent (gradient inversion:
Zhu et al. 2019, Geiping et al. 2020): from one gradient (`gradient_inversion`), and from a real
update (`update_inversion`). Here is what both share: what the attacker knows before, and how its
guess is judged. An error is compared with that of guessing the mean of all other sites' states. A
ratio below 1 leaks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from fedkoopman.audit.statistics import Measured, measured
from fedkoopman.audit.watching import Update

__all__ = ["DOUBT", "Prior", "Reconstruction", "judged", "ratios"]

SMALL = 0.9
"""Ratio down to which a leak is too small to be of use."""
DOUBT = 1e-4
"""Weight of the prior where nothing is noised."""


@dataclass(frozen=True)
class Reconstruction:
    """What the attack reached.

    Attributes:
        ratio: median over victims of the error of the reconstructed states, divided by the error
            of guessing the mean.
        sampling: the same for states drawn at random from other sites.
        victims: updates attacked.
        samples: states behind each.
        together: sites in one sum; 1 where updates are seen alone.
    """

    ratio: Measured
    sampling: float
    victims: int
    samples: int
    together: int


@dataclass(frozen=True, eq=False)
class Prior:
    """What an attacker knows of states in general: other sites' segments."""

    segments: list[NDArray[np.float64]]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]

    @classmethod
    def besides(cls, updates: Sequence[Update], clients: set[int]) -> "Prior":
        """From all sites but some; from all, where there are no others."""
        others = [s for u in updates if u.client not in clients for s in u.segments]
        found = [np.asarray(s, float) for s in others or [s for u in updates for s in u.segments]]
        every = np.concatenate(found)
        return cls(found, every.mean(axis=0), np.maximum(every.std(axis=0), 1e-12))

    def draw(self, length: int, random: np.random.Generator) -> NDArray[np.float64]:
        """A piece of a segment, standardised."""
        long = [one for one in self.segments if len(one) >= length] or self.segments
        one = long[random.integers(len(long))]
        first = random.integers(max(1, len(one) - length + 1))
        piece = np.resize(one[first : first + length], (length, one.shape[1]))
        return np.asarray((piece - self.mean) / self.spread)


def ratios(
    guess: NDArray[np.float64],
    truth: NDArray[np.float64],
    draws: NDArray[np.float64],
    prior: Prior,
) -> tuple[float, float]:
    """Errors over that of the mean: of the guess, and of draws from the prior.

    Arguments:
        guess: standardised states of each site, (sites, time, state); which is whose is not asked.
        truth: the same in units.
        draws: (draws, sites, time, state).
    """
    aim = (truth - prior.mean) / prior.spread
    usual = np.sqrt((aim**2).mean())
    error = min(np.sqrt(((guess[list(p)] - aim) ** 2).mean()) for p in _orders(len(aim)))
    sampling = np.sqrt(((draws - aim) ** 2).mean(axis=(1, 2, 3))).mean()
    return float(error / usual), float(sampling / usual)


def _orders(sites: int) -> list[tuple[int, ...]]:
    return list(permutations(range(sites))) if sites <= 5 else [tuple(range(sites))]


def judged(
    found: Sequence[tuple[float, float]], *, samples: int, together: int, seed: int
) -> Reconstruction:
    """All victims together, of each its ratio and that of draws from the prior."""
    errors = np.array([ratio for ratio, _ in found])
    return Reconstruction(
        ratio=measured(
            lambda cases: float(np.median(errors[cases])), range(len(errors)),
            chance=1.0, small=SMALL, seed=seed,
        ),
        sampling=float(np.median([one for _, one in found])),
        victims=len(errors), samples=samples, together=together,
    )  # fmt: skip
