"""Fig. 5a: FedAvg-M on three canonical systems, trained on the true states."""

import numpy as np

from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import Findings, Options
from fedkoopman.paper.judging import CONVERGES, converges, curves, shown
from fedkoopman.paper.verdicts import all_of, compared

SYSTEMS = {"Van der Pol": "van-der-pol", "pendulum": "pendulum", "Lorenz63": "lorenz63"}


def arms(options: Options) -> tuple[Arm, ...]:
    """One arm per system."""
    changes = {"scheme": "perfect-data", "clients.sensor": {"kind": "identity"}}
    return tuple(
        Arm(label, variant({"system.name": name, **changes})) for label, name in SYSTEMS.items()
    )


def judge(found: dict[str, Measured]) -> Findings:
    """Judge whether losses fall, and are ordered by dimension and by kind of nonlinearity."""
    loss = {label: arm.tail("loss") for label, arm in found.items()}
    lorenz = [(f"Lorenz63 to {n}", loss["Lorenz63"], loss[n]) for n in ("Van der Pol", "pendulum")]
    variance = {label: np.array(arm.table["variance"]) for label, arm in found.items()}
    relative = [
        (name, a / variance["Lorenz63"], b / variance[name.removeprefix("Lorenz63 to ")])
        for name, a, b in lorenz
    ]
    pendulum = [("pendulum to Van der Pol", loss["pendulum"], loss["Van der Pol"])]
    return shown(
        found.values(),
        claims=(
            all_of(
                "FedAvg-M effectively trains the networks of all three systems",
                [part for arm in found.values() for part in converges(arm)],
            ),
            all_of("the test loss grows with the number of states", compared(lorenz)),
            all_of(
                "it does so relative to the variance of the states, too",
                compared(relative),
                ours=True,
            ),
            all_of(
                "the pendulum's trigonometric nonlinearity is harder to linearise than Van der Pol",
                compared(pendulum),
            ),
        ),
        panels=(
            curves("test loss", found.values(), "loss"),
            curves("prediction error", found.values(), "E"),
        ),
        notes=(
            f"“Effectively trains” is read as: the test loss converges. {CONVERGES}",
            "The paper states no sampling interval; ours is 0.02 for all three. Losses are in the "
            "squared units of each system, so part of the order is the size of the states (the row "
            "of ours). A system of seven states is fig-yni.",
        ),
        shared=False,
    )


ITEM = Runs(arms, judge)
