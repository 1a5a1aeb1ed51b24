"""Fig. 7f: how seldom the system starts anew, and so how alike the data is."""

from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import FEW, Findings, Options
from fedkoopman.paper.judging import CONVERGES, against, converges, curves, shown
from fedkoopman.paper.verdicts import all_of, trend

INTERVALS = (1, 2, 5, 10, 20, 50)


def arms(options: Options) -> tuple[Arm, ...]:
    """One arm per restart interval."""
    return tuple(Arm(f"ξ = {k}", variant({"segments.restart": k}), k) for k in INTERVALS)


def judge(found: dict[str, Measured]) -> Findings:
    """Judge whether the loss is small for all intervals, and grows with them."""
    every = list(found.values())
    tenfold = trend(INTERVALS, [arm.tail("loss") for arm in every])
    return shown(
        every,
        claims=(
            all_of(
                "the test loss converges to a small value for every restart interval",
                [part for arm in every for part in converges(arm)],
            ),
            all_of(
                "the test loss grows as the data becomes less diverse",
                [tenfold.above(1.0, "per tenfold ξ")],
            ),
        ),
        panels=(
            against("tail mean", "restart interval ξ", every, "loss", log_x=True),
            curves("over slots", every, "loss"),
        ),
        notes=(
            CONVERGES,
            "Between restarts the trajectory goes on across slots, also through those in which a "
            "client fails to observe; the test set is the same for all ξ: trajectories from "
            "random initial states.",
        ),
        shared=False,
    )


ITEM = Runs(arms, judge, seeds=FEW)
