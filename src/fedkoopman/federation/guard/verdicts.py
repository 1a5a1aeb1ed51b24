"""Which updates count, who is set aside and who comes back: the rules, and what they remember.

1. An exact repetition of what the site sent before, or a claim of far more samples than the others
   have, is refused, and the site is set aside at once.
2. An update that doubles the other sites' loss is refused; one that makes it 20 times as large
   sets its site aside at once.
3. Two counters per site gather smaller things: harm, and a sense that leads up. A site is set aside
   when one of them is full. The second counts only where honest updates are known to lead down.
4. A site that is set aside goes on training and judging. It comes back after three good updates in
   a row with half-empty counters. At most half of the sites, rounded down and without the judge,
   are set aside at a time.

The numbers were chosen on honest federations and on lying ones; `docs/trust.md` has both.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.guard.evidence import Evidence
from fedkoopman.federation.messages import Arrays

__all__ = ["Verdict", "capped", "decided", "first_standings", "usual"]

REFUSED, RUINOUS = 0.7, 3.0
"""Harm from which on an update is refused (twice the loss), and its site set aside (20 times)."""
HARMLESS, HARM_FULL, MOST_HARM = 0.3, 1.5, 1.0
"""Harm that does not count, where its counter is full, and what one update adds at most."""
UPHILL, SENSE_FULL, MOST_SENSE, LEAN = 0.1, 0.35, 0.15, 0.02
"""Sense from which on an update is refused; likewise; what is added in any case."""
DOWNHILL, SENSES, UNKNOWN = -0.05, 5, 9.0
"""The others' last five senses must have medians below this for the sense to count; and what stands
for a sense that is not known yet."""
FAR_TOO_MANY, SHARE = 100.0, 2.0
"""Samples over the others' median: what no site has, and what counts at most."""
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
    per_client = ("harm", "sense", "set_aside", "good")
    return {
        **{name: np.zeros(clients) for name in per_client},
        "lengths": np.zeros((clients, history)),
        "sizes": np.zeros((clients, history)),
        "senses": np.full((clients, SENSES), UNKNOWN),
    }


def usual(rows: NDArray[np.float64], without: int | None = None) -> float:
    """The median over sites of each one's median; 0 where nobody has any.

    Arguments:
        rows: recent values of each site; 0 stands for none.
        without: a site that does not count.
    """
    found = [
        float(np.median(row[row > 0]))
        for n, row in enumerate(rows)
        if n != without and (row > 0).any()
    ]
    return float(np.median(found)) if found else 0.0


def capped(standings: Arrays, client: int, samples: int) -> int:
    """How many samples count: a claim buys no more than twice what the others usually have."""
    others = usual(standings["sizes"], client)
    return samples if not others else min(samples, math.ceil(SHARE * others))


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
        reason, at_once = _fault(standings, n, one)
        heard = not math.isnan(one.harm)
        if heard:
            step = min(one.harm, MOST_HARM) - HARMLESS
            after["harm"][n] = max(0.0, standings["harm"][n] + step)
        # Also of refused updates: a liar's own sense says nothing of the others'.
        leads_down = _leads_down(standings["senses"], n)
        if heard and math.isfinite(one.sense):
            after["senses"][n] = [*standings["senses"][n][1:], np.clip(one.sense, -3, 3)]
            if leads_down:
                step = float(np.clip(one.sense, -MOST_SENSE, MOST_SENSE)) + LEAN
                after["sense"][n] = max(0.0, standings["sense"][n] + step)
        full = after["harm"][n] >= HARM_FULL or after["sense"][n] >= SENSE_FULL
        if full and not reason:
            reason = "did harm to the other sites' scores again and again"
        aside = bool(standings["set_aside"][n])
        good = heard and not reason and one.harm <= HARMLESS
        after["good"][n] = standings["good"][n] + 1 if good else 0
        calm = after["harm"][n] < HARM_FULL / 2 and after["sense"][n] < SENSE_FULL / 2
        back = aside and bool(after["good"][n] >= GOOD and calm)
        room = np.count_nonzero(after["set_aside"]) < (len(after["set_aside"]) - 1) // 2
        named = not aside and bool(room) and (at_once or bool(full))
        if named or back:
            after["set_aside"][n] = slot if named else 0
            after["good"][n] = 0
        if aside and not back:
            reason = reason or "is set aside until its updates have been good for a while"
        found[n] = Verdict(not reason and not named, reason, named, back)
        if found[n].counts:
            for name, value in (("lengths", one.length), ("sizes", float(one.samples))):
                after[name][n] = [*standings[name][n][1:], value]
    return after, found


def _fault(standings: Arrays, n: int, one: Evidence) -> tuple[str, bool]:
    """Why an update is refused, and whether that alone sets its site aside."""
    others = usual(standings["sizes"], n)
    if one.copy:
        return "sends again what it sent before", True
    if others and one.samples > FAR_TOO_MANY * others:
        times = one.samples / others
        return f"claims {one.samples:,} samples, {times:,.0f} times what the others have", True
    if one.harm > REFUSED:
        times = math.exp(min(one.harm, 200.0))
        return f"makes the loss of the other sites {times:.3g} times as large", one.harm > RUINOUS
    if one.sense > UPHILL and _leads_down(standings["senses"], n):
        return "leads away from what helps the other sites", False
    return "", False


def _leads_down(senses: NDArray[Any], n: int) -> bool:
    """Whether the others' updates are known to lead down, by two sites with five each at least.

    A quarter of them may look otherwise: there may be other liars among them.
    """
    known = [
        float(np.median(row)) for m, row in enumerate(senses) if m != n and (row != UNKNOWN).all()
    ]
    down = sum(one < DOWNHILL for one in known)
    return len(known) >= 2 and 4 * down >= 3 * len(known)
