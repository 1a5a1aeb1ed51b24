"""Fig. 7c: prediction error against the number of clients."""

from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import Findings, Options
from fedkoopman.paper.judging import against, curves, grows, higher, shown
from fedkoopman.paper.verdicts import all_of, dips, trend

COUNTS = (1, 2, 3, 5, 10, 15, 20, 25)
MANY_CLIENTS = COUNTS[-4:]
"""Where the paper sees its rise, and overfitting behind it."""


def arms(options: Options) -> tuple[Arm, ...]:
    """One arm per number of clients."""
    return tuple(Arm(f"N = {n}", variant({"clients.count": n}), n) for n in COUNTS)


def judge(found: dict[str, Measured]) -> Findings:
    """Judge whether E falls and then rises, whether it has risen at N = 25, and why."""
    every = list(found.values())
    late = trend(MANY_CLIENTS, [found[f"N = {n}"].tail("E") for n in MANY_CLIENTS])
    return shown(
        every,
        claims=(
            all_of(
                "the prediction error first falls and then rises with the number of clients",
                [dips([arm.label for arm in every], [arm.tail("E") for arm in every])],
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
            all_of(
                "at N = 25 the prediction error rises",
                higher("E", [(found["N = 25"], found["N = 20"])]),
            ),
            all_of(
                "the more clients train, the more the network overfits the estimated states",
                [late.above(1.0, f"E per tenfold N, from N = {MANY_CLIENTS[0]} on")],
                "the error on true states goes on falling where most clients train",
            ),
        ),
        panels=(
            against("tail mean", "clients N", every, "E"),
            curves("over slots", [every[0], *every[3::2]], "E"),
        ),
        notes=(
            "“Falls and then rises” is read as: some number of clients between both ends has a "
            "lower error than either end, with Holm's correction for the choice among them; it "
            "does not hold if one end is lower than all between.",
            "The paper explains the rise by overfitting to estimated states. That would show as an "
            f"error on true states that grows with N where most clients train (N ≥ "
            f"{MANY_CLIENTS[0]}).",
            "All clients watch the same trajectory in a slot (the paper's “common nonlinear "
            "system”), through different sensors and noise.",
        ),
    )


ITEM = Runs(arms, judge)
