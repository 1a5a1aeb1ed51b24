"""Which updates count, who is set aside and who comes back: the rules, and what they remember.

1. A repetition of what the site sent before, or a claim of far more samples than the others have,
   is refused, and the site is set aside at once.
2. An update that doubles the other sites' loss is refused; one that makes it 20 times as large sets
   its site aside at once.
3. A counter per site gathers smaller harm, in units of what the other sites' updates usually do. A
   site is set aside when its counter is full: a single bad update of an honest site is forgotten,
   the same small harm again and again is not.
4. A site that is set aside goes on training and judging. It comes back after three good updates in
   a row with a half-empty counter. Less than half of the sites are set aside at a time.

The numbers were chosen on honest federations and on lying ones; `docs/trust.md` has both.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.aggregators.history import CAP, noted, usual_length
from fedkoopman.federation.guard.evidence import Evidence
from fedkoopman.federation.messages import Arrays

__all__ = ["Verdict", "capped", "decided", "first_standings"]

REFUSED, RUINOUS = 0.7, 3.0
"""Harm from which on an update is refused (twice the loss), and its site set aside (20 times)."""
EXPECTED, MOST, FULL = 0.75, 2.0, 6.0
"""Of the counter, in usual harms: what does not count, what one update adds at most, where it is
full."""
HARMS, ENOUGH, LEAST, AT_FIRST, UNKNOWN = 8, 3, 0.08, 0.4, 99.0
"""The usual harm is known by the last eight updates of sites with three or more, is not taken for
less, is so much while nobody knows; and what stands for a harm that is not known yet."""
HARMLESS = 0.3
"""A good update does no more harm."""
FAR_TOO_MANY = 100.0
"""Samples over the others' median that no site has, unless it was away for more slots than that."""
GOOD = 3
"""Good updates in a row after which a site comes back."""


@dataclass(frozen=True)
class Verdict:
    """What becomes of an update.

    Attributes:
        counts: whether it becomes part of the model.
        reason: why not, after "site lab-a …"; empty if it does.
        named: whether its site is set aside from this slot on.
        back: whether its site is back from this slot on.
    """

    counts: bool
    reason: str = ""
    named: bool = False
    back: bool = False


def first_standings(clients: int, history: int) -> dict[str, NDArray[np.float64]]:
    """Nothing is known of anybody."""
    per_client = ("counter", "set_aside", "good", "last")
    return {
        **{name: np.zeros(clients) for name in per_client},
        "lengths": np.zeros((clients, history)),
        "sizes": np.zeros((clients, history)),
        "harms": np.full((clients, HARMS), UNKNOWN),
    }


def usual_harm(harms: NDArray[np.float64], client: int) -> float:
    """How much the other sites' updates change each other's loss, up or down.

    That is what three quarters of them stay below: honest sites differ, and with many of them some
    do twice as much as others.
    """
    known = [np.abs(row[row != UNKNOWN]) for n, row in enumerate(harms) if n != client]
    found = [float(np.median(row)) for row in known if len(row) >= ENOUGH]
    if not found:
        return AT_FIRST
    upper = float(np.quantile(found, 0.75, method="lower"))
    return max(LEAST, float(np.median(found)), upper)


def capped(standings: Arrays, client: int, samples: int) -> int:
    """How many samples count: a claim buys no more than twice what the others usually have."""
    most = CAP * usual_length(standings["sizes"], client)
    return samples if samples <= most else math.ceil(most)


def decided(
    standings: Arrays, slot: int, evidence: Mapping[int, Evidence]
) -> tuple[dict[str, NDArray[np.float64]], dict[int, Verdict]]:
    """The standings after a slot, and what becomes of each of its updates.

    Arguments:
        evidence: by client.
    """
    after = {name: np.array(leaf) for name, leaf in standings.items()}
    found = {}
    for n, one in evidence.items():
        reason, at_once = _fault(standings, slot, n, one)
        heard = not math.isnan(one.harm)
        if heard:
            harm = float(np.clip(one.harm, -MOST, MOST))
            step = np.clip(harm / usual_harm(standings["harms"], n), -MOST, MOST) - EXPECTED
            after["counter"][n] = np.clip(standings["counter"][n] + step, 0.0, FULL)
            after["harms"][n] = [*standings["harms"][n][1:], harm]
        aside = bool(standings["set_aside"][n])
        room = np.count_nonzero(after["set_aside"]) < (len(after["set_aside"]) - 1) // 2
        full = bool(after["counter"][n] >= FULL)
        named = not aside and bool(room) and (at_once or full)
        if full and (named or aside) and not reason:
            reason = "does harm to the other sites' scores again and again"
        good = heard and not reason and one.harm <= HARMLESS
        after["good"][n] = standings["good"][n] + 1 if good else 0
        back = aside and bool(after["good"][n] >= GOOD and after["counter"][n] < FULL / 2)
        if named or back:
            after["set_aside"][n] = slot if named else 0
            after["good"][n] = 0
        if aside and not back:
            reason = reason or "is set aside until its updates have been good for a while"
        found[n] = Verdict(not reason, reason, named, back)
        if found[n].counts:
            size = float(capped(standings, n, one.samples))
            after["lengths"] = noted(after["lengths"], {n: one.length})
            after["sizes"] = noted(after["sizes"], {n: size})
            after["last"][n] = slot
    return after, found


def _fault(standings: Arrays, slot: int, n: int, one: Evidence) -> tuple[str, bool]:
    """Why an update is refused, and whether that alone sets its site aside."""
    others = usual_length(standings["sizes"], n)
    # A site that comes back has gathered data for as long as it was away; what counts is capped.
    most = max(FAR_TOO_MANY, slot - standings["last"][n]) * others
    if one.copy:
        return "sends again what it sent before", True
    if one.samples > most:
        times = one.samples / others
        return f"claims {one.samples:,} samples, {times:,.0f} times what the others have", True
    if one.harm > REFUSED:
        times = math.exp(min(one.harm, 200.0))
        return f"makes the loss of the other sites {times:.3g} times as large", one.harm > RUINOUS
    return "", False
