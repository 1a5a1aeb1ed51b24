"""Fig. 7f: how seldom the system starts anew, and so how alike the data is.

Every segment is filtered from x̂₀ = 0, P̂₀ = I, also where the trajectory has gone on from the slot
before and lies far from 0 by then. How much worse the estimates are there is measured beside the
runs, as it is a second reason for a higher loss.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import FEW, Findings, Options, Tell
from fedkoopman.paper.judging import CONVERGES, against, converges, curves, shown
from fedkoopman.paper.verdicts import all_of, trend

INTERVALS = (1, 2, 5, 10, 20, 50)
SEGMENTS, TRAJECTORIES, FAST_TRAJECTORIES = 4, 50, 4
"""Of the measurement of starts: consecutive segments, and trajectories of that many."""
STRETCHES = {"1 to 10": slice(0, 10), "11 to 50": slice(10, 50), "51 to 300": slice(50, 300)}
"""Samples of a segment over which errors are averaged."""


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


@dataclass(frozen=True)
class Restarts(Runs):
    """The runs, and the errors of estimates after a restart and without one."""

    def settings(self, options: Options) -> dict[str, Any]:
        """Those of the runs, and how many trajectories starts are measured on."""
        count = FAST_TRAJECTORIES if options.fast else TRAJECTORIES
        return {**super().settings(options), "start_trajectories": count}

    def compute(self, options: Options, tell: Tell) -> dict[str, Any]:
        """The starts first, then the runs."""
        tell("errors of estimates after a restart and without one")
        count = self.settings(options)["start_trajectories"]
        starts = start_errors(count, options.seed)
        return {**super().compute(options, tell), "starts": starts}

    def findings(self, numbers: dict[str, Any]) -> Findings:
        """What both say."""
        found = super().findings(numbers)
        starts = numbers.get("starts")
        return found if not starts else replace(found, notes=(*found.notes, start_note(starts)))


def start_errors(trajectories: int, seed: int) -> dict[str, Any]:
    """Mean ‖x − x̃‖₁ / d of smoothed states in stretches of a segment, with the default's filter.

    Returns:
        by stretch, `restarted` in segments that begin at a random initial state, and `continued` in
        those that follow.
    """
    from fedkoopman.estimation import estimate
    from fedkoopman.sensors import LinearSensor, Sensor, observe
    from fedkoopman.systems import Lorenz63, simulate

    system, steps = Lorenz63(), 300
    x = simulate(system, steps=SEGMENTS * steps, seed=seed, batch=trajectories)
    sensors: list[Sensor] = [
        LinearSensor.random_frame(3, seed=seed * 100_003 + b) for b in range(trajectories)
    ]
    errors = []
    for place in range(SEGMENTS):
        states = x[:, place * steps + 1 : (place + 1) * steps + 1]
        seeds = [(seed * 100_003 + b) * SEGMENTS + place for b in range(trajectories)]
        z = [
            observe(sensor, states[b : b + 1], noise=1.0, seed=seeds[b])[0]
            for b, sensor in enumerate(sensors)
        ]
        found = estimate(
            system, sensors, np.stack(z), process_noise=1.0, observation_noise=1.0,
            method="ukf", smooth=True,
        )  # fmt: skip
        errors.append(np.abs(states - np.asarray(found.mean)).mean(axis=(0, 2)))
    later = np.mean(errors[1:], axis=0)
    return {
        "trajectories": trajectories,
        "restarted": {name: float(errors[0][part].mean()) for name, part in STRETCHES.items()},
        "continued": {name: float(later[part].mean()) for name, part in STRETCHES.items()},
    }


def start_note(starts: Mapping[str, Any]) -> str:
    """The filter's start, and what it does to the estimates."""
    parts = "; ".join(
        f"samples {name}: {starts['restarted'][name]:.2f} and {starts['continued'][name]:.2f}"
        for name in STRETCHES
    )
    return (
        "The filter starts from x̂₀ = 0, P̂₀ = I in every segment. That fits a restart (random "
        "states in [−10, 10]³) better than a trajectory that has gone on: for ξ ≥ 10 nine of ten "
        "segments or more begin on the attractor, far from 0. Error ‖x − x̃‖₁/d of the states that "
        f"train, after a restart and without one ({starts['trajectories']} trajectories): {parts}. "
        "So the loss can grow with ξ for two reasons, less diverse data and worse estimates; "
        "these arms do not tell them apart."
    )


ITEM = Restarts(arms, judge, seeds=FEW)
