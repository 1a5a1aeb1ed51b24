"""Which sites' sums may count, where sites may be broken or lie (`koopman.staged`).

Three questions, in this order, of the replies of a slot:

    possible   could any data give these sums? If not, they are refused, whoever the others are.
    shared     do they tell of the dynamics that the other sites tell of (`koopman.agreement`)? What
               is usual is what the others' own sums say: far more than that is refused.
    claimed    for how many samples do they count? At most for twice the median of the others.

Of two sites only the first question is asked (`federation.misfits` says why).

A refusal is for one slot. What is remembered stands in a reply's numbers until the algorithm keeps
it (`remembered`); an algorithm whose replies are not screened has no such memory.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.algorithm import Answered
from fedkoopman.federation.messages import Arrays
from fedkoopman.federation.misfits import FEWEST, IMPOSSIBLE, Finding, Misfit, Sums, judged
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
    if what != "scale" and not {"pairs", "range"} <= kind.sum_shapes().keys():
        return dict(replies), {}  # another package's kind, whose sums we cannot read
    found: dict[int, Finding] = {}
    for n, reply in replies.items():
        arrays = reply.message.arrays
        if what == "scale":
            fault = kind.scale_fault(arrays, reply.samples)
        else:
            fault = kind.sums_fault(fixed, arrays, reply.samples)
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
    given = {n: r.message.arrays for n, r in fine.items() if r.message.arrays["pairs"][0]}
    misfits, more = judged(kind, given, before, _known(memory))
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
