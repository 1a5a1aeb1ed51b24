"""Fig. 7b: prediction error against the probability of a successful observation."""

from fedkoopman.studies.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.studies.paper.judging import all_of, dips
from fedkoopman.studies.paper.result import Findings, Options
from fedkoopman.studies.paper.showing import against, csv_of, curves, seeds_note, sources_of, tails

PROBABILITIES = tuple(i / 10 for i in range(1, 11))


def arms(options: Options) -> tuple[Arm, ...]:
    """One per probability."""
    return tuple(Arm(f"p = {p:g}", variant({"clients.probability": p}), p) for p in PROBABILITIES)


def judge(found: dict[str, Measured]) -> Findings:
    """E falls, then rises."""
    every = list(found.values())
    return Findings(
        claims=(
            all_of(
                "the prediction error first falls and then rises with p",
                dips([arm.label for arm in every], [arm.tail("E") for arm in every]),
                "more data per slot keeps helping: data is used in one round and discarded, so "
                "that there is little to overfit",
            ),
        ),
        table=tails(every),
        numbers=csv_of(every),
        panels=(
            against("tail mean", "probability p", every, "E"),
            curves("over slots", every[::3], "E"),
        ),
        notes=(
            "The paper explains the rise by overfitting. But the data of a round is used once and "
            "discarded, and the table shows another reason: at p = 1 all clients reach the "
            "threshold in the same slots, so that the shared model is renewed in far fewer slots "
            "than at p = 0.9, with as many trainings.",
            "The lowest error between both ends is compared with each end; it is chosen by its "
            "mean, which favours the claim a little.",
            seeds_note(every),
        ),
        sources=sources_of(every),
    )


ITEM = Runs(arms, judge)
