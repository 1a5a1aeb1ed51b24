"""Fig. 5c: the measured double pendulum, of which clients see noisy linear images.

The paper does not say how 100 samples are taken in a slot: both readings are run, windows at random
places and one window after the other (50 slots of 100 samples are the whole recording). Beside the
paper's network stands one that was chosen to beat persistence, x̂_{k+1} = x_k, and what it does on
samples that had no part in the choice.

In part of the paper's samples a hand lifts and holds the pendulum. Both networks are therefore run
on free motion too, and what the paper's arms reach is told apart before and after the release.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedkoopman.durable import write_whole, writing
from fedkoopman.errors import InputError
from fedkoopman.paper import double_pendulum_arms as arms_of
from fedkoopman.paper.arms import Runs
from fedkoopman.paper.double_pendulum_arms import FOLDER, arms, inside, recordings
from fedkoopman.paper.double_pendulum_data import SOURCE, read_trials
from fedkoopman.paper.double_pendulum_judging import judge
from fedkoopman.paper.double_pendulum_limits import limits
from fedkoopman.paper.double_pendulum_motion import motion, releases
from fedkoopman.paper.double_pendulum_parts import parts_of, scored
from fedkoopman.paper.items import Options, Tell

LIMITED = (arms_of.RANDOM, arms_of.FREE, arms_of.FREE_MATCHED)
"""Arms beside which `limits` stand: one for each kind of states."""


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
        tell("before and after the release")
        moved = motion(trials)
        states = recordings(trials, releases(trials))
        parts = parts_of(states["trial-3.csv"], moved[2]["release"])
        for arm, table in zip(self.chosen(options), found["arms"], strict=True):
            if arm.study.recordings.test == ("trial-3.csv",):
                run = options.runs / table["folder"]
                table["parts"] = scored(arm.study, run, self._seeds(options), parts)
            if arm.label in LIMITED:
                tell(f"what one state tells of the next: {arm.label}")
                table["limits"] = limits(arm.study, options.seed)
        found["arms"][0] |= {"motion": moved, "inside": inside(states)}
        return found


def slices(trials: Sequence[np.ndarray]) -> dict[str, bytes]:
    """The recordings as CSV, by the name of their file."""
    return {name: _csv(states) for name, states in recordings(trials, releases(trials)).items()}


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
