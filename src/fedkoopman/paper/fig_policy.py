"""Fig. 7d: which clients train in a slot."""

import itertools
from collections.abc import Callable

from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import Claim, Findings, Options
from fedkoopman.paper.judging import against, curves, grows, shown
from fedkoopman.paper.verdicts import (
    Values,
    all_of,
    by_reading,
    compared,
    every,
    or_infinity,
    ratio,
)

THRESHOLDS = (1, 3, 5, 7, 9)
UNTOLD = "Threshold ρ = 1"
"""A setting of ours: the paper's text does not name it."""
BEST = "Threshold ρ = 7"
LITTLE = 1.5
"""Errors within this factor of each other differ little."""
EARLY = 0.25
"""Share of the slots over which the speed of improvement is judged."""


def arms(options: Options) -> tuple[Arm, ...]:
    """Arms of Random, Round-Robin and five thresholds."""
    return (
        Arm("Random", variant({"policy.name": "random"})),
        Arm("Round-Robin", variant({"policy.name": "round-robin"})),
        *(Arm(f"Threshold ρ = {r}", variant({"policy.segments": r})) for r in THRESHOLDS),
    )


def judge(found: dict[str, Measured]) -> Findings:
    """Judge whether policies differ little, and whether ρ = 7 is best."""
    all_arms = list(found.values())
    thresholds = [found[f"Threshold ρ = {r}"] for r in THRESHOLDS]
    told = [arm for arm in all_arms if arm.label != UNTOLD]

    def readings(text: str, claim: Callable[[list[Measured]], Claim]) -> Claim:
        return by_reading(text, {"with ρ = 1": claim(all_arms), "without": claim(told)})

    def best(arms: list[Measured]) -> Claim:
        others = [arm for arm in arms if arm.label != BEST]
        error = found[BEST].tail("E")
        return all_of(
            "",
            compared([(f"{arm.label} to ρ = 7", arm.tail("E"), error) for arm in others]),
            "another policy has a lower error (the ratios below 1)",
        )

    return shown(
        all_arms,
        claims=(
            readings("the policies differ little", _alike),
            all_of(
                "a higher threshold leaves more slots in which no client is activated",
                [
                    grows(
                        "slots without training",
                        thresholds,
                        lambda arm: arm.slots - arm.table["renewals"],
                    )
                ],
            ),
            all_of(
                "which slows down the improvement",
                compared(
                    [
                        (f"{b.label} to {a.label}", _early(b), _early(a))
                        for a, b in itertools.pairwise(thresholds[2:])
                    ]
                ),
                lead=f"mean E over the first {EARLY:.0%} of the slots: ",
            ),
            readings("the threshold policy with ρ = 7 is the best", best),
            readings(
                "a higher or lower threshold than 7 is worse",
                lambda arms: best([arm for arm in arms if arm in thresholds]),
            ),
            all_of(
                "a lower threshold trains on less data in each round",
                [
                    grows(
                        "samples in a training",
                        thresholds,
                        lambda arm: arm.table["samples"] / max(arm.table["rounds"], 1),
                    )
                ],
            ),
        ),
        panels=(
            against("tail mean", "", all_arms, "E"),
            curves("over slots", all_arms, "E"),
        ),
        notes=(
            f"“Little” is read as: any two policies are within a factor of {LITTLE:g}; worst and "
            "best by their means are shown. ρ = 1 is a setting of ours that the paper's text does "
            "not name: claims on all policies are judged with and without it.",
            f"“Slows down” is read as: the mean error over the first {EARLY:.0%} of the slots is "
            "higher with ρ = 7 than with 5, and with 9 than with 7.",
            "ρ counts segments: ρ = 5 activates a client that holds 5 ζ samples.",
        ),
    )


def _alike(arms: list[Measured]) -> Claim:
    """Whether any two arms are within `LITTLE`."""
    low, *_, second, high = sorted(arms, key=lambda arm: or_infinity(arm.tail("E").mean()))
    pairs = [
        ratio(a.tail("E"), b.tail("E")).within(LITTLE) for a, b in itertools.combinations(arms, 2)
    ]
    words = ratio(high.tail("E"), low.tail("E")).words
    rest = ratio(second.tail("E"), low.tail("E")).words
    return all_of(
        "",
        [every(pairs, f"worst ({high.label}) to best ({low.label}) {words}")],
        f"the others are closer: {second.label} to {low.label} {rest}",
    )


def _early(arm: Measured) -> Values:
    return arm.curves("E")[:, : max(1, int(EARLY * arm.slots))].mean(axis=1)


ITEM = Runs(arms, judge)
