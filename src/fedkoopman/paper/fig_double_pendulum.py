"""Fig. 5c: the measured double pendulum, of which clients see noisy linear images.

The paper does not say how 100 samples are taken in a slot: both readings are run, windows at random
places and one window after the other (50 slots of 100 samples are the whole recording). Beside the
paper's network stands one that was chosen to beat persistence, x̂_{k+1} = x_k, and what it does on
samples that had no part in the choice.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedkoopman.config.study import Study
from fedkoopman.durable import write_whole, writing
from fedkoopman.errors import InputError
from fedkoopman.paper.arms import Arm, Runs
from fedkoopman.paper.double_pendulum_data import SOURCE, motion, read_trials
from fedkoopman.paper.double_pendulum_judging import (
    CONSECUTIVE,
    LATER,
    LATER_CONSECUTIVE,
    LINEAR,
    LINEAR_CONSECUTIVE,
    LINEAR_PERFECT,
    PERFECT,
    RANDOM,
    judge,
    limits,
)
from fedkoopman.paper.result import Options, Tell

__all__ = ["ITEM", "SLICES", "arms"]

SLICES = {
    "trial-1.csv": (1, 1000, 6000),
    "trial-2.csv": (2, 1000, 6000),
    "trial-3.csv": (3, 1000, 3000),
    "trial-3-later.csv": (3, 3000, 5000),
}
"""Trial, first and last sample of every file that the studies name."""
FOLDER = "double-pendulum-data"

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
}


def arms(options: Options) -> tuple[Arm, ...]:
    """The paper's experiment in both readings and with true states, and the better network."""
    default = Study.from_dict({}, options.runs / FOLDER)
    return tuple(
        Arm(label, default.with_values({**PAPER, **changes, "name": f"double pendulum, {label}"}))
        for label, changes in ARMS.items()
    )


@dataclass(frozen=True)
class DoublePendulum(Runs):
    """Runs on slices of the measured data, which are written beside them."""

    def settings(self, options: Options) -> dict[str, Any]:
        """Seeds, studies and data; the samples beyond the slices by what is taken from them."""
        trials = _trials(options)
        digests = {n: hashlib.sha256(text).hexdigest() for n, text in slices(trials).items()}
        return {**super().settings(options), "data": digests, "motion": motion(trials)}

    def compute(self, options: Options, tell: Tell) -> dict[str, Any]:
        """Write the slices, run the studies, and find what could be reached."""
        tell("measured data")
        trials = _trials(options)
        _write(options.runs / FOLDER, slices(trials))
        found = super().compute(options, tell)
        tell("what one state tells of the next")
        random = self.chosen(options)[0].study
        found["arms"][0] |= {"limits": limits(random, options.seed), "motion": motion(trials)}
        return found


def slices(trials: Sequence[np.ndarray]) -> dict[str, bytes]:
    """The recordings as CSV, by the name of their file."""
    return {
        name: _csv(trials[trial - 1][first : last + 1])
        for name, (trial, first, last) in SLICES.items()
    }


def _trials(options: Options) -> list[np.ndarray]:
    if options.data is None:
        raise InputError(f"fig-double-pendulum needs --data PATH: {SOURCE}")
    return read_trials(options.data)


def _csv(states: np.ndarray) -> bytes:
    """Numbers as they are read back exactly."""
    lines = ["theta1,omega1,theta2,omega2", *(",".join(map(repr, row)) for row in states.tolist())]
    return ("\n".join(lines) + "\n").encode()


def _write(folder: Path, files: dict[str, bytes]) -> None:
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        with writing(path):
            before = path.read_bytes() if path.exists() else None
        if before is None:
            write_whole(path, content)
        elif before != content:
            raise InputError(
                f"{path} was made from other data than --data now names: give the same as before, "
                "or choose another --out"
            )


ITEM = DoublePendulum(arms, judge)
