"""Fig. 7b: prediction error against the probability of a successful observation."""

from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import Findings, Options
from fedkoopman.paper.judging import against, all_of, curves, dips, grows, shown

PROBABILITIES = tuple(i / 10 for i in range(1, 11))


def arms(options: Options) -> tuple[Arm, ...]:
    """One arm per probability."""
    return tuple(Arm(f"p = {p:g}", variant({"clients.probability": p}), p) for p in PROBABILITIES)


def judge(found: dict[str, Measured]) -> Findings:
    """Judge whether E falls and then rises."""
    every = list(found.values())
    return shown(
        every,
        claims=(
            all_of(
                "the prediction error first falls and then rises with p",
                dips([arm.label for arm in every], [arm.tail("E") for arm in every]),
            ),
            all_of(
                "clients take part in the training more often as p grows",
                [grows("trainings per seed", every, lambda arm: arm.table["rounds"])],
            ),
        ),
        panels=(
            against("tail mean", "probability p", every, "E"),
            curves("over slots", every[::3], "E"),
        ),
        notes=(
            "The paper explains the rise by overfitting. The counts suggest another reason: with "
            f"{every[-1].label} the clients reach the threshold together, and the shared model is "
            f"renewed in {every[-1].table['renewals']:.0f} slots; with {every[-2].label} in "
            f"{every[-2].table['renewals']:.0f}, by {every[-2].table['rounds']:.0f} trainings "
            f"instead of {every[-1].table['rounds']:.0f}.",
            "The lowest error between both ends is compared with each end; it is chosen by its "
            "mean, which favours the claim a little.",
        ),
    )


ITEM = Runs(arms, judge)
