"""Fig. 5b: the YNI model of a heart's pacemaker cell, seven states, all observed."""

from dataclasses import replace

import numpy as np

from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import FEW, Findings, Options, Series
from fedkoopman.paper.judging import CONVERGES, STAYS, converges, curves, settled, shown
from fedkoopman.paper.verdicts import all_of, by_reading, compared, fact, number, ratio

LABEL = "YNI"
QUICK, FALL = 0.25, 100.0
"""Convergence is quick if within this share of the slots the loss falls by this factor."""
LOW = 0.01
"""Share of the states' variance below which a prediction error counts as low."""


def arms(options: Options) -> tuple[Arm, ...]:
    """One arm: identity sensors, Σ_f = Σ_h = 0.0025 I."""
    changes = {
        "system.name": "yni",
        "clients.sensor": {"kind": "identity"},
        "clients.observation_noise": 0.0025,
        "clients.process_noise": 0.0025,
    }
    return (Arm(LABEL, variant(changes)),)


def judge(found: dict[str, Measured]) -> Findings:
    """Judge whether the loss falls early, and the error is small beside the states' variance."""
    arm = found[LABEL]
    fallen, end = _fallen(arm), settled(arm)
    variance = np.array(arm.table["variance"])
    [low] = compared([("variance to E₁", variance, arm.tail("E1"))], 1 / LOW)
    early = QUICK * arm.slots
    held = ratio(arm.persistence("E"), arm.tail("E1"))
    return shown(
        found.values(),
        claims=(
            all_of("the training converges", converges(arm)),
            by_reading(
                "it converges quickly",
                {
                    "most of the fall": all_of(
                        "",
                        [fact(fallen <= early, f"{FALL:g}-fold lower {_from(fallen, arm)}")],
                    ),
                    "all of it": all_of(
                        "",
                        [fact(end <= early, f"within {STAYS:g} times its end {_from(end, arm)}")],
                        "the loss goes on falling slowly after its first fall",
                    ),
                },
            ),
            all_of(
                "it yields a low prediction error",
                [replace(low, evidence=f"{low.evidence}; persistence to E₁ {held.words}")],
                "the error is not small beside the variance of the states",
            ),
        ),
        panels=(
            curves("test loss", found.values(), "loss"),
            curves(
                "prediction error",
                found.values(),
                "E",
                (
                    Series(
                        "persistence",
                        [1, arm.slots],
                        [float(arm.persistence("E").mean())] * 2,
                        style="dashed",
                        muted=True,
                    ),
                ),
            ),
        ),
        notes=(
            f"{CONVERGES} “Quickly” is read as: within the first {QUICK:.0%} of the slots, by both "
            "measures of how far it is.",
            f"“Low” is read as: E₁ (the part of E in units of the states) below {LOW:.0%} of the "
            f"test states' mean variance ({number(variance.mean())}).",
            "The paper states no sampling interval; ours is 1 ms, so a segment covers most of a "
            "341 ms beat. The voltage (in mV) dominates loss and error; the gates lie in [0, 1].",
            "The paper takes the model's constants from Doi et al. (2010), which we could not see. "
            "Ours are those on which three published codes agree, one of them the code of Keener "
            "and Sneyd's Mathematical Physiology and one that names the article of 1980; with "
            "them the cell beats every 341 ms. The Physiome repository's CellML file differs in "
            "four: I_s has exp((V − 10)/15) for exp((V − 30)/15), I_h has V + 45 for V + 25, α_d "
            "0.0145 for 0.01045, and β_m falls with 1/17.8 for 0.056 per mV. It beats every 365 "
            "ms, with peaks of 4 mV instead of 21 (LSODA, measured outside this repository).",
        ),
    )


def _from(slot: int, arm: Measured) -> str:
    return f"from slot {slot} of {arm.slots} on" if slot <= arm.slots else "never"


def _fallen(arm: Measured) -> int:
    """The slot from which on the mean test loss stays `FALL` times below the untrained model's."""
    curve, first = arm.curves("loss").mean(axis=0), arm.untrained("loss").mean()
    above = np.flatnonzero(~(curve <= first / FALL))
    return int(above[-1]) + 2 if len(above) else 1


ITEM = Runs(arms, judge, seeds=FEW)
