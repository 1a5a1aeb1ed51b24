"""Fig. 7c: prediction error against the number of clients."""

import numpy as np

from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import HOLDS, Claim, Findings, Options
from fedkoopman.paper.judging import UNDECIDED, against, all_of, curves, dips, grows, ratio, shown

COUNTS = (1, 2, 3, 5, 10, 15, 20, 25)


def arms(options: Options) -> tuple[Arm, ...]:
    """One arm per number of clients."""
    return tuple(Arm(f"N = {n}", variant({"clients.count": n}), n) for n in COUNTS)


def judge(found: dict[str, Measured]) -> Findings:
    """Judge whether E falls and then rises, and whether it has risen at N = 25."""
    every = list(found.values())
    last = ratio(found["N = 25"].tail("E"), found["N = 20"].tail("E"))
    risen = last.above(1.0)
    excluded = UNDECIDED
    if np.isfinite(last.high):
        excluded = f"a rise of more than {max(last.high - 1, 0):.0%} is excluded"
    return shown(
        every,
        claims=(
            all_of(
                "the prediction error first falls and then rises with the number of clients",
                dips([arm.label for arm in every], [arm.tail("E") for arm in every]),
            ),
            all_of(
                "more clients take part in each round of training as their number grows",
                [
                    grows(
                        "trainings per slot with training",
                        every,
                        lambda arm: arm.table["rounds"] / max(arm.table["renewals"], 1),
                    )
                ],
            ),
            Claim(
                "at N = 25 the prediction error rises",
                risen,
                f"N = 25 to N = 20 {last.words}",
                "" if risen == HOLDS else excluded,
            ),
        ),
        panels=(
            against("tail mean", "clients N", every, "E"),
            curves("over slots", [every[0], *every[3::2]], "E"),
        ),
        notes=(
            "The lowest error between both ends is compared with each end; it is chosen by its "
            "mean, which favours the claim a little.",
            "All clients watch the same trajectory in a slot (the paper's “common nonlinear "
            "system”), through different sensors and noise.",
        ),
    )


ITEM = Runs(arms, judge)
