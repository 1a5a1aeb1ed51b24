"""Fig. 7d: which clients train in a slot."""

from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import Findings, Options
from fedkoopman.paper.judging import (
    against,
    all_of,
    compared,
    curves,
    grows,
    or_infinity,
    ratio,
    shown,
    within,
)

THRESHOLDS = (1, 3, 5, 7, 9)
BEST = "Threshold ρ = 7"
LITTLE = 1.5
"""Errors within this factor of each other differ little."""


def arms(options: Options) -> tuple[Arm, ...]:
    """Arms of Random, Round-Robin and five thresholds."""
    return (
        Arm("Random", variant({"policy.name": "random"})),
        Arm("Round-Robin", variant({"policy.name": "round-robin"})),
        *(Arm(f"Threshold ρ = {r}", variant({"policy.segments": r})) for r in THRESHOLDS),
    )


def judge(found: dict[str, Measured]) -> Findings:
    """Judge whether policies differ little, and whether ρ = 7 is best."""
    every = list(found.values())
    error = {arm.label: arm.tail("E") for arm in every}
    low, *_, second, high = sorted(every, key=lambda arm: or_infinity(arm.tail("E").mean()))
    rest = ratio(error[second.label], error[low.label])
    others = [arm for arm in every if arm.label != BEST]
    return shown(
        every,
        claims=(
            all_of(
                "the policies differ little",
                [within(f"worst ({high.label}) to best ({low.label})",
                        ratio(error[high.label], error[low.label]), LITTLE)],
                f"the others are closer: {second.label} to {low.label} {rest.words}",
            ),
            all_of(
                "a higher threshold leaves more slots in which no client is activated",
                [
                    grows(
                        "slots without training",
                        [found[f"Threshold ρ = {r}"] for r in THRESHOLDS],
                        lambda arm: arm.slots - arm.table["renewals"],
                    )
                ],
            ),
            all_of(
                "the threshold policy with ρ = 7 is the best",
                compared([(f"{a.label} to ρ = 7", error[a.label], error[BEST]) for a in others]),
                "another policy has a lower error (the ratios below 1)",
            ),
            all_of(
                "a higher or lower threshold than 7 is worse",
                compared(
                    [
                        (f"ρ = {r} to ρ = 7", error[f"Threshold ρ = {r}"], error[BEST])
                        for r in THRESHOLDS if r != 7
                    ]
                ),
                "another threshold has a lower error (the ratios below 1)",
            ),
        ),
        panels=(
            against("tail mean", "", every, "E"),
            curves("over slots", every, "E"),
        ),
        notes=(
            f"“Little” is read as: worst and best, chosen by their means, are within a factor of "
            f"{LITTLE:g}.",
            "ρ counts segments: ρ = 5 activates a client that holds 5 ζ samples.",
        ),
    )  # fmt: skip


ITEM = Runs(arms, judge)
