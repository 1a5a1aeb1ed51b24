"""Whose sums fit the other sites', in times of what is usual between them.

The first sums are judged among each other: compared two by two, more than half of the sites agree
best; what these say of each other is the usual, and every other site is judged by their sums. So
nobody is blamed for a liar in the model that judges it. Later sums are judged by those that count
already, and the usual is what was remembered of the other sites. Two sites can contradict each
other, but not say who is wrong: nobody is judged then.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.koopman.staged import Staged

__all__ = ["FEWEST", "IMPOSSIBLE", "Finding", "Misfit", "Sums", "judged"]

BOUND, FEW = 25.0, 40.0
"""An error so many times the usual one is taken for a lie; the second where the usual is known from
two sites only. Chosen on seeds 0 to 2 and one example, with little room: on other seeds, in 1 of 30
honest federations sites were refused (`benchmarks/lying_sums.py CASE --honest --first 3`)."""
HARMLESS = 1e-7
"""Mean squares per sample that are too small to matter, as a share of the states' own."""
IMPOSSIBLE = 1e9
"""The measure of what no data could give."""
FEWEST = 3
"""Sites among which one can be told from the others."""
PARTNERS = 8
"""With at most twice as many others a site is compared one by one: each takes 15 ms or less."""

Sums = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Finding:
    """Why a site's reply is refused.

    Attributes:
        reason: the end of a sentence that begins with "site lab-a …".
        measure: how many times further off it is than is usual, at most `IMPOSSIBLE`.
    """

    reason: str
    measure: float


@dataclass(frozen=True)
class Misfit:
    """How badly a site's sums and others' are explained together.

    Attributes:
        squares: by name, as `Staged.misfit` gives them.
        size: of how many samples both sides are, as n m / (n + m): by chance alone squares do not
            depend on it, by a lasting difference they grow with it.
    """

    squares: Mapping[str, float]
    size: float


def judged(
    kind: Staged, given: Mapping[int, Sums], before: Sums | None, known: Mapping[int, Misfit]
) -> tuple[dict[int, Misfit], dict[int, Finding]]:
    """Every site's misfit, and those whose sums do not fit.

    Arguments:
        given: sums by client, each of some windows.
        before: sums that count already; None if there are none.
        known: what earlier sums of sites were like, by client.
    """
    if before is not None:
        misfits = {n: _misfit(kind, one, before, before) for n, one in given.items()}
        found: dict[int, Finding] = {}
        for n, misfit in misfits.items():
            usual = [one for m, one in known.items() if m != n]
            if len(usual) >= FEWEST - 1:
                found |= beyond(n, misfit, usual)
        return misfits, found
    if len(given) < 2:
        return {}, {}
    common = {
        "gram": np.median([one["gram"] / one["pairs"] for one in given.values()], axis=0),
        "pairs": np.ones(1),
    }

    def among(n: int, others: Collection[int]) -> Misfit:
        return _misfit(kind, given[n], _added([given[m] for m in others if m != n]), common)

    if len(given) < FEWEST:
        return {n: among(n, given) for n in given}, {}
    agreed = core(list(given), among)
    inside = {n: among(n, agreed) for n in agreed}
    outside = {n: among(n, agreed) for n in given if n not in inside}
    found = {}
    for n, one in outside.items():
        found |= beyond(n, one, list(inside.values()))
    return inside | outside, found


def core(sites: Sequence[int], among: Callable[[int, Collection[int]], Misfit]) -> list[int]:
    """More than half of the sites: those that agree best with the nearer half of the others.

    Two by two, as liars in a larger set would hide each other, and honest sites with them.
    """
    near: dict[int, list[float]] = {n: [] for n in sites}
    for i, n in enumerate(sites):
        for step in range(1, min(PARTNERS, len(sites) // 2) + 1):
            m = sites[(i + step) % len(sites)]
            if 2 * step == len(sites) and i >= step:
                continue  # these two have met
            both = among(n, [m])
            apart = sum(math.log(v + HARMLESS * both.size) for v in both.squares.values())
            near[n].append(apart)
            near[m].append(apart)
    score = {n: float(np.mean(sorted(one)[: math.ceil(len(one) / 2)])) for n, one in near.items()}
    kept = sorted(sites, key=lambda n: score[n])[: len(sites) - (len(sites) - 1) // 2]
    return sorted(kept)


def _misfit(kind: Staged, one: Sums, others: Sums, common: Sums) -> Misfit:
    n, m = float(one["pairs"][0]), float(others["pairs"][0])
    return Misfit(kind.misfit(one, others, common), n * m / (n + m))


def times(misfit: Misfit, others: Sequence[Misfit]) -> float:
    """How many times the usual error a misfit is; errors, so roots of squares."""
    worst = 0.0
    for name, value in misfit.squares.items():
        # More samples: by chance as many squares, by a lasting difference in proportion. Between
        # the two, so that a liar who is asked for all its data gains little by their number.
        like = [one.squares[name] * max(1.0, misfit.size / one.size) ** 0.5 for one in others]
        usual = float(np.median(like)) + HARMLESS * misfit.size
        worst = max(worst, math.sqrt(value / usual))
    return min(worst, IMPOSSIBLE)


def beyond(n: int, misfit: Misfit, usual: Sequence[Misfit]) -> dict[int, Finding]:
    """A site's finding, if its error is too large to be chance."""
    found = times(misfit, usual)
    if found <= (FEW if len(usual) < FEWEST else BOUND):
        return {}
    reason = "sends sums that the other sites' model does not explain"
    return {n: Finding(f"{reason} (error {found:,.3g} times the usual)", found)}


def _added(parts: Sequence[Sums]) -> dict[str, NDArray[Any]]:
    return {name: sum((one[name] for one in parts[1:]), parts[0][name]) for name in parts[0]}
