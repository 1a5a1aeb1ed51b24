"""What an audit's numbers mean, in words that need no statistics, and the paper's claim judged by
them.

The claim: "the estimates contain minimal individual information compared to the raw observation
data" (Chen and Chen, Section I). It holds in an attack that works on raw observations and finds
nothing of use in the states made of them. It does not where the attack gains at least half as much
beyond chance from these states. Where intervals do not allow either, it is undecided.
"""

from dataclasses import dataclass
from typing import Any

from fedkoopman.audit.arms import RAW, SMOOTHED
from fedkoopman.audit.audit import ATTACKS, Audit, Result
from fedkoopman.audit.membership import Membership
from fedkoopman.audit.noise_level import NoiseLevel
from fedkoopman.audit.reconstruction import Reconstruction
from fedkoopman.audit.source import Source
from fedkoopman.audit.statistics import Measured

__all__ = ["QUESTIONS", "Claim", "claims_of", "sentence", "whole_claim"]

QUESTIONS = {
    "source": "Which site did an update come from?",
    "membership": "Was this segment trained on?",
    "gradient": "Which states are behind the gradient of a few samples?",
    "update": "Which states are behind a real update?",
    "noise": "Whose sensor is noisier?",
}
HALF = 0.5
"""Share of what raw observations reveal, from which on the claim does not hold."""


@dataclass(frozen=True)
class Claim:
    """The paper's claim in one attack: "holds", "does not hold" or "undecided", and why."""

    attack: str
    verdict: str
    why: str


def claims_of(audit: Audit) -> list[Claim]:
    """The claim's verdict in every attack."""
    return [_claim(audit, attack) for attack in ATTACKS]


def whole_claim(claims: list[Claim]) -> Claim:
    """One verdict: the claim is about all information, so one attack is enough against it."""
    verdicts = [claim.verdict for claim in claims]
    against = [claim.attack for claim in claims if claim.verdict == "does not hold"]
    if against:
        return Claim("all", "does not hold", f"it fails in {_and(against)}")
    if all(verdict == "holds" for verdict in verdicts):
        return Claim("all", "holds", "it holds in every attack")
    return Claim("all", "undecided", "no attack speaks clearly against it, and not all are for it")


def _claim(audit: Audit, attack: str) -> Claim:
    raw, own = (audit.arm(name).main(attack) for name in (RAW, SMOOTHED))
    if raw is None or own is None:
        return Claim(attack, "undecided", "the attack was not made")
    if own.verdict == "hidden":
        if raw.verdict == "leaks":
            return Claim(
                attack, "holds", "raw observations leak, and the states made of them do not"
            )
        return Claim(attack, "undecided", "raw observations do not clearly leak either")
    if own.verdict == "leaks" and own.excess >= HALF * max(raw.excess, 0.0):
        how = "about as much as" if own.excess < 1.25 * raw.excess else "no less than"
        return Claim(attack, "does not hold", f"the states leak {how} raw observations")
    if own.verdict == "leaks":
        return Claim(attack, "undecided", "the states leak, but much less than raw observations")
    return Claim(attack, "undecided", "the interval is too wide: more slots would narrow it")


def sentence(result: Result, attack: str) -> str:
    """What an attack reached in an arm; or why it was not made."""
    found: Any = getattr(result, attack)
    if isinstance(found, str):
        return f"Not measured: {found}."
    if isinstance(found, Source):
        what, known = "updates", ""
        if found.summed:
            what, known = "parts of sums", ", knowing who took part"
        return (
            f"Of 100 {what}, the server can tell the site of {_of_100(found.accuracy)}{known} "
            f"({100 * found.accuracy.chance:.0f} would be chance)."
        )
    if isinstance(found, Membership):
        return (
            f"Of a segment that was used and one that was not, it picks the used one in "
            f"{_of_100(found.area)} of 100 cases (50 would be chance). Allowed 5 false alarms in "
            f"100, it finds {100 * found.found.value:.0f} of 100 used segments."
        )
    if isinstance(found, NoiseLevel):
        of = "sums" if found.cases != found.sites else "sites"
        return (
            f"Of 100 pairs of {of}, it says which is noisier for {_of_100(found.pairs)} (50 would "
            "be chance)."
        )
    assert isinstance(found, Reconstruction)
    return (
        f"Its guess of {found.samples} states is off by {_of_100(found.ratio)} % of the error of "
        "guessing their mean (100 % tells nothing)."
    )


def _of_100(found: Measured) -> str:
    if found.low != found.low:  # without an interval
        return f"{100 * found.value:.0f}"
    return f"{100 * found.value:.0f} [{100 * found.low:.0f} to {100 * found.high:.0f}]"


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
