"""Which sites' sums may count, where sites may be broken or lie (`koopman.staged`).

Three questions, in this order, of the replies of a slot:

    possible   could any data give these sums? If not, they are refused, whoever the others are.
    shared     do they tell of the dynamics that the other sites tell of (`koopman.agreement`)? What
               is usual is what the others' own sums say: far more than that is refused.
    claimed    for how many samples do they count? At most for twice the median of the others.

The first sums are judged among each other: compared two by two, more than half of the sites agree
best; what these say of each other is the usual, and every other site is judged by their sums. So
nobody is blamed for a liar in the model that judges it. Later sums are
judged by those that count already, and the usual is remembered in the server's state. Two sites
can contradict each other, but not say who is wrong: then only the first question is asked.

A refusal is for one slot. What is remembered stands in a reply's numbers until the algorithm keeps
it (`remembered`); an algorithm whose replies are not screened has no such memory.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.algorithm import Answered
from fedkoopman.federation.messages import Arrays
from fedkoopman.koopman.staged import BINS, EDGES, Staged

__all__ = ["MEMORY", "Finding", "remembered", "screened"]

MEMORY = "screen."
"""Before the names of what is remembered."""
CLAIM = 2.0
"""A site counts for at most so many times the median of the others' samples."""
SPOILS = 10.0
"""A site whose states are so many times as far out as the others' would spoil the common scale."""
NEAR = 4.0
"""Standard deviations up to which a range is narrow, whatever the others' are."""
BOUND, FEW = 25.0, 40.0
"""An error so many times the usual one is no chance; the second where the usual is known from two
sites only. Honest sites reached 15 and 29, with a federation of five and the recommended kind 2.5
(`benchmarks/lying_sums.py`)."""
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


def screened(
    kind: Staged,
    state: Arrays,
    fixed: Sums,
    sums: Sums,
    replies: Mapping[int, Answered],
    *,
    slack: int,
) -> tuple[dict[int, Answered], dict[int, Finding]]:
    """The replies that may count, claims capped; and, by client, why the others may not.

    Arguments:
        state: of the algorithm, in which the memory is.
        fixed, sums: parts of it: what the scale says, and what counts already.
        replies: all of one kind, by client in ascending order.
        slack: samples that one site may have more than another by chance.
    """
    what = next(iter(replies.values())).message.kind
    if what not in ("scale", "seen", "sums"):
        return dict(replies), {}
    found: dict[int, Finding] = {}
    for n, reply in replies.items():
        given = reply.message.arrays
        if what == "scale":
            fault = kind.scale_fault(given, reply.samples)
        else:
            fault = kind.sums_fault(fixed, given, reply.samples)
        if fault:
            found[n] = Finding(f"sends {fault}", IMPOSSIBLE)
    fine = {n: reply for n, reply in replies.items() if n not in found}
    if what == "scale":
        found |= _far_out(kind, {n: reply.message.arrays for n, reply in fine.items()})
        fine = {n: reply for n, reply in fine.items() if n not in found}
        return _capped(fine, np.zeros(0), slack), found
    memory = _memory(state) if what == "sums" else {}
    before = sums if what == "sums" and sums["pairs"][0] else None
    found |= _wide(fine, before)
    fine = {n: reply for n, reply in fine.items() if n not in found}
    misfits, more = _judged(kind, before, memory, fine)
    found |= more
    fine = {n: reply for n, reply in fine.items() if n not in found}
    fine = _capped(fine, memory.get("counted", np.zeros(0)), slack)
    if what == "seen":
        return fine, dict(sorted(found.items()))
    noted = {n: _noted(reply, misfits.get(n)) for n, reply in fine.items()}
    return noted, dict(sorted(found.items()))


# The scale, and the range


def _far_out(kind: Staged, given: Mapping[int, Sums]) -> dict[int, Finding]:
    """Sites whose states, or moves, are so large that the common scale would be theirs alone."""
    some = {n: one for n, one in given.items() if one["count"][0]}
    if len(some) < FEWEST:
        return {}
    centre = np.median([one["total"] / one["count"] for one in some.values()], axis=0)
    sizes = {n: kind.scale_sizes(one, centre) for n, one in some.items()}
    found = {}
    for n, own in sizes.items():
        usual = np.median([other for m, other in sizes.items() if m != n], axis=0)
        times = float((own[usual > 0] / usual[usual > 0]).max(initial=0.0))
        if times > SPOILS:
            reason = f"sends states that are {times:,.3g} times as far out as the other sites'"
            found[n] = Finding(reason, min(times, IMPOSSIBLE))
    return found


def _reach(counts: NDArray[Any]) -> float:
    """How far out the furthest state is, in standard deviations."""
    far = np.maximum(np.abs(EDGES[:-1]), np.abs(EDGES[1:]))
    near = np.minimum(np.abs(EDGES[:-1]), np.abs(EDGES[1:]))
    far = np.where(far > 8, near, far)  # of a wide bin, the end that is sure
    return float(np.where(counts.reshape(-1, BINS).any(axis=0), far, 0.0).max())


def _wide(replies: Mapping[int, Answered], before: Sums | None) -> dict[int, Finding]:
    """Sites that claim states so far out that forecasts would be held by no range."""
    own = {n: _reach(r.message.arrays["range"]) for n, r in replies.items() if r.samples}
    found = {}
    for n, reach in own.items():
        others = [one for m, one in own.items() if m != n]
        if before is None and len(own) < FEWEST:
            continue
        usual = float(np.median(others)) if before is None else _reach(before["range"])
        if reach > SPOILS * max(usual, NEAR):
            reason = f"counts states {reach:,.3g} standard deviations out, the others {usual:,.3g}"
            found[n] = Finding(reason, min(reach / max(usual, NEAR), IMPOSSIBLE))
    return found


# The dynamics


def _judged(
    kind: Staged, before: Sums | None, memory: Sums, replies: Mapping[int, Answered]
) -> tuple[dict[int, Misfit], dict[int, Finding]]:
    """What is to be remembered of each site, and those whose sums do not fit."""
    given = {n: r.message.arrays for n, r in replies.items() if r.message.arrays["pairs"][0]}
    if before is not None:
        misfits = {n: _misfit(kind, one, before, before) for n, one in given.items()}
        known = _known(memory)
        found: dict[int, Finding] = {}
        for n, misfit in misfits.items():
            usual = [one for m, one in known.items() if m != n]
            if len(usual) >= FEWEST - 1:
                found |= _beyond(n, misfit, usual)
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
    core = _core(list(given), among)
    inside = {n: among(n, core) for n in core}
    outside = {n: among(n, core) for n in given if n not in inside}
    found = {}
    for n, one in outside.items():
        found |= _beyond(n, one, list(inside.values()))
    return inside | outside, found


def _core(sites: Sequence[int], among: Callable[[int, Collection[int]], Misfit]) -> list[int]:
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


def _times(misfit: Misfit, others: Sequence[Misfit]) -> float:
    """How many times the usual error a misfit is; errors, so roots of squares."""
    worst = 0.0
    for name, value in misfit.squares.items():
        # More samples: by chance as many squares, by a lasting difference in proportion. Between
        # the two, so that a liar who is asked for all its data gains little by their number.
        like = [one.squares[name] * max(1.0, misfit.size / one.size) ** 0.5 for one in others]
        usual = float(np.median(like)) + HARMLESS * misfit.size
        worst = max(worst, math.sqrt(value / usual))
    return min(worst, IMPOSSIBLE)


def _beyond(n: int, misfit: Misfit, usual: Sequence[Misfit]) -> dict[int, Finding]:
    """A site's finding, if its error is too large to be chance."""
    times = _times(misfit, usual)
    if times <= (FEW if len(usual) < FEWEST else BOUND):
        return {}
    reason = "sends sums that the other sites' model does not explain"
    return {n: Finding(f"{reason} (error {times:,.3g} times the usual)", times)}


# Claims


def _capped(
    replies: Mapping[int, Answered], before: NDArray[Any], slack: int
) -> dict[int, Answered]:
    """Sums scaled down so that no site counts for more than its share.

    Arguments:
        before: samples that count already, by client.
        slack: samples that a site may have more than that by chance.
    """
    counted = {n: float(one) for n, one in enumerate(before) if one}
    after = counted | {n: counted.get(n, 0.0) + one.samples for n, one in replies.items()}
    found = dict(replies)
    for n, reply in replies.items():
        others = [one for m, one in after.items() if m != n and one]
        if len(others) < FEWEST - 1:
            continue
        room = max(0.0, CLAIM * float(np.median(others)) + slack - counted.get(n, 0.0))
        if reply.samples > room:
            share = room / reply.samples
            arrays = {name: leaf * share for name, leaf in reply.message.arrays.items()}
            found[n] = reply._replace(
                samples=math.floor(room), message=replace(reply.message, arrays=arrays)
            )
    return found


# Memory


def _noted(reply: Answered, misfit: Misfit | None) -> Answered:
    """A reply with what is to be remembered of it."""
    numbers = {"counted": float(reply.samples)}
    if misfit is not None:
        numbers |= {"size": misfit.size}
        numbers |= {f"misfit.{name}": value for name, value in misfit.squares.items()}
    return reply._replace(message=replace(reply.message, numbers=numbers))


def remembered(state: Arrays, replies: Mapping[int, Answered], clients: int) -> dict[str, Any]:
    """The memory after replies that count; none for replies that were not screened.

    Of each site's misfits the one from most samples is kept: it says most.
    """
    after = {name: _padded(one, clients) for name, one in _memory(state).items()}
    for reply in replies.values():
        told = dict(reply.message.numbers)
        for n in reply.clients:
            if "counted" in told:
                after.setdefault("counted", np.zeros(clients))[n] += told["counted"]
            if told.get("size", 0.0) >= after.setdefault("size", np.zeros(clients))[n]:
                for name, value in told.items():
                    if name != "counted":
                        after.setdefault(name, np.zeros(clients))[n] = value
    return {f"{MEMORY}{name}": one for name, one in after.items() if one.any()}


def _known(memory: Sums) -> dict[int, Misfit]:
    """The last misfit of each site of which one is known."""
    squares = {n.removeprefix("misfit."): one for n, one in memory.items() if "misfit." in n}
    sizes = memory.get("size", np.zeros(0))
    return {
        n: Misfit({name: float(one[n]) for name, one in squares.items()}, float(size))
        for n, size in enumerate(sizes)
        if size
    }


def _memory(state: Arrays) -> dict[str, NDArray[Any]]:
    return {n.removeprefix(MEMORY): one for n, one in state.items() if n.startswith(MEMORY)}


def _padded(one: NDArray[Any], clients: int) -> NDArray[Any]:
    return np.concatenate([one, np.zeros(max(0, clients - len(one)))])


def _added(parts: Sequence[Sums]) -> dict[str, NDArray[Any]]:
    return {name: sum((one[name] for one in parts[1:]), parts[0][name]) for name in parts[0]}
