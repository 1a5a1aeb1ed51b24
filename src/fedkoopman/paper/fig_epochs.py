"""Fig. 7e: epochs of local training per round."""

import itertools

from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import FEW, Findings, Options
from fedkoopman.paper.judging import against, curves, grows, higher, shown
from fedkoopman.paper.verdicts import all_of, number, trend

EPOCHS = (1, 5, 10, 20, 30, 50)


def arms(options: Options) -> tuple[Arm, ...]:
    """One arm per number of epochs."""
    return tuple(Arm(f"{e} epochs" if e > 1 else "1 epoch", variant({"training.epochs": e}), e)
                 for e in EPOCHS)  # fmt: skip


def judge(found: dict[str, Measured]) -> Findings:
    """Judge whether more epochs lower the error and take more time."""
    every = list(found.values())
    error = [arm.tail("E") for arm in every]
    tenfold = trend(EPOCHS, [1 / e for e in error])
    seconds = [arm.table["seconds"] for arm in every]
    words = ", ".join(f"{a.label} {number(s)} s" for a, s in zip(every, seconds, strict=True))
    longer = grows("passes over data per seed", every, lambda a: a.table["rounds"] * (a.value or 0))
    return shown(
        every,
        claims=(
            all_of(
                "more epochs of local training improve the prediction error",
                [tenfold.above(1.0, "E shrinks per tenfold epochs")],
            ),
            all_of(
                "every further step in the number of epochs improves it",
                higher("E", itertools.pairwise(every)),
                ours=True,
            ),
            all_of("this costs training time", [longer]),
        ),
        panels=(
            against("tail mean", "epochs per round", every, "E", log_x=True),
            curves("over slots", every, "E"),
        ),
        notes=(
            "The paper claims the trend; the step by step reading is ours, to see where it ends.",
            "Seconds of all seeds together when the runs were made, with whatever else the "
            f"machine did: {words}.",
        ),
    )  # fmt: skip


ITEM = Runs(arms, judge, seeds=FEW)
