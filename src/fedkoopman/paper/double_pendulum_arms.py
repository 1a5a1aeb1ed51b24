"""The studies on the measured double pendulum, and the slices of the trials that they read.

The paper's samples include those in which a hand lifts and holds the links. Its own arms keep them;
the arms on free motion begin at the release of each trial. Two arms train on samples that the paper
leaves out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedkoopman.config.study import Study
from fedkoopman.paper.arms import Arm
from fedkoopman.paper.double_pendulum_motion import FIRST, LAST, TEST_LAST, matched
from fedkoopman.paper.items import Options

RANDOM = "random windows"
CONSECUTIVE = "consecutive windows"
PERFECT = "perfect data"
LINEAR = "linear network"
LINEAR_CONSECUTIVE = "linear network, consecutive windows"
LINEAR_PERFECT = "linear network, perfect data"
LATER = "linear network, later samples"
LATER_CONSECUTIVE = "linear network, consecutive windows, later samples"
FREE = "free motion"
FREE_MATCHED = "free motion, matched velocities"
LINEAR_FREE = "linear network, free motion"
LINEAR_MATCHED = "linear network, free motion, matched velocities"
ALL = "trained on all samples"
EXCLUDED = "trained on samples after 6000"

FOLDER = "double-pendulum-data"
FREE_TEST = 2000
"""Samples of free motion that are tested on: as many as the paper tests on."""
LATER_LAST = 5000

PAPER = {
    "system.name": "double-pendulum",
    "slots": 50,
    "segments.steps": 100,
    "trajectories": "per-client",
    "clients.sensor": {"kind": "perturbed-identity"},
    "clients.observation_noise": {"diagonal": [0.01, 1.0, 0.01, 1.0]},
    "clients.process_noise": {"diagonal": [0.01, 1.0, 0.01, 1.0]},
    "training.epochs": 25,
    "recordings": {"train": ["trial-1.csv", "trial-2.csv"], "test": ["trial-3.csv"]},
    # The default of 50 would be the whole run.
    "evaluation.tail_slots": 10,
}
BETTER = {
    "network.hidden_layers": 0,
    "policy.segments": 25,
    "training.epochs": 100,
    "training.decay": 0.95,
}
"""What differs in the network that was chosen to beat persistence."""


def _on(kind: str) -> dict[str, Any]:
    """Training and test on slices of one kind."""
    train, test = [f"trial-1-{kind}.csv", f"trial-2-{kind}.csv"], [f"trial-3-{kind}.csv"]
    return {"recordings": {"train": train, "test": test}}


def _trained_on(kind: str) -> dict[str, Any]:
    return {"recordings.train": [f"trial-1-{kind}.csv", f"trial-2-{kind}.csv"]}


ARMS: dict[str, dict[str, Any]] = {
    RANDOM: {},
    CONSECUTIVE: {"recordings.windows": "consecutive"},
    PERFECT: {"scheme": "perfect-data"},
    LINEAR: BETTER,
    LINEAR_CONSECUTIVE: BETTER | {"recordings.windows": "consecutive"},
    LINEAR_PERFECT: BETTER | {"scheme": "perfect-data"},
    LATER: BETTER | {"recordings.test": ["trial-3-later.csv"]},
    LATER_CONSECUTIVE: BETTER
    | {"recordings.test": ["trial-3-later.csv"], "recordings.windows": "consecutive"},
    FREE: _on("free"),
    FREE_MATCHED: _on("matched"),
    LINEAR_FREE: BETTER | _on("free"),
    LINEAR_MATCHED: BETTER | _on("matched"),
    ALL: _trained_on("all"),
    EXCLUDED: _trained_on("after"),
}


def arms(options: Options) -> tuple[Arm, ...]:
    """The paper's experiment in both readings and with true states, the better network, and both
    on free motion only."""
    default = Study.from_dict({}, options.runs / FOLDER)
    return tuple(
        Arm(label, default.with_values({**PAPER, **changes, "name": f"double pendulum, {label}"}))
        for label, changes in ARMS.items()
    )


def recordings(trials: Sequence[np.ndarray], releases: Sequence[int]) -> dict[str, np.ndarray]:
    """The states of every file that the studies name.

    Arguments:
        trials: states (T, 4) of the three trials.
        releases: the first sample of free motion in each.
    """
    found = {
        "trial-3.csv": trials[2][FIRST : TEST_LAST + 1],
        "trial-3-later.csv": trials[2][TEST_LAST : LATER_LAST + 1],
    }
    for trial, states in enumerate(trials[:2], start=1):
        found |= {
            f"trial-{trial}.csv": states[FIRST : LAST + 1],
            f"trial-{trial}-all.csv": states,
            f"trial-{trial}-after.csv": states[LAST + 1 :],
        }
    for trial, (states, release) in enumerate(zip(trials, releases, strict=True), start=1):
        last = LAST if trial < 3 else release + FREE_TEST
        found |= {
            f"trial-{trial}-free.csv": states[release : last + 1],
            f"trial-{trial}-matched.csv": matched(states)[release : last + 1],
        }
    return found


def inside(found: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Share of samples whose two angles lie in the range of the paper's test samples.

    `papers` of the samples that it trains on, `after` of those after them; mean over both trials.

    Arguments:
        found: what `recordings` gives.
    """
    test = found["trial-3.csv"][:, ::2]

    def share(states: np.ndarray) -> float:
        angles = states[:, ::2]
        return float(((angles >= test.min(axis=0)) & (angles <= test.max(axis=0))).all(1).mean())

    return {
        name: float(np.mean([share(found[f"trial-{trial}{end}.csv"]) for trial in (1, 2)]))
        for name, end in (("papers", ""), ("after", "-after"))
    }
