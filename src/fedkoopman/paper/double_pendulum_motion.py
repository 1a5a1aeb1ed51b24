"""When the measured double pendulum moves: what the paper says of the samples that it takes.

Speeds are plain differences of neighbouring angles, not the paper's velocity, which averages over
0.8 s and so hides fast swings.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.paper.double_pendulum_data import INTERVAL
from fedkoopman.paper.judging import all_of, number, ratio
from fedkoopman.paper.result import FAILS, HOLDS, OPEN, Claim

__all__ = ["AFTER", "MOVED", "NOTE", "motion", "motion_claims"]

MOVED = 0.05
"""Radians from its first angle at which a link has begun to move."""
BEGIN, AROUND = 1000, 250
USED, AFTER = (1000, 6000), (6000, 11000)
"""Samples that the paper takes, and as many after them."""
SUBSIDED = 2.0
"""Motion has largely subsided whose speed has fallen by this factor."""
LINKS = ("upper link", "lower link")

NOTE = (
    f"Motion: a link has begun to move where its angle is {MOVED} rad from its first; “around "
    f"sample {BEGIN}” is read as within {AROUND} samples (half a second) of it, “largely subsided” "
    f"as a root mean square speed, by differences of neighbouring angles, at least {SUBSIDED:g} "
    "times lower; intervals are over the trials."
)


def motion(trials: Sequence[NDArray[np.float64]]) -> list[dict[str, Any]]:
    """First motion and speeds of every trial.

    Arguments:
        trials: states (T, 4), as `double_pendulum_data.read_trials` gives them.

    Returns:
        of each trial `begins`, the first sample at which a link has moved, or None; `used` and
        `after`, the root mean square speed of both links; `last`, where `after` ends.
    """
    found = []
    for states in trials:
        angles = states[:, [0, 2]]
        moved = np.flatnonzero((np.abs(angles - angles[0]) > MOVED).any(axis=1))
        speeds = np.diff(angles, axis=0) / INTERVAL
        used, after = (
            np.sqrt(np.mean(speeds[first:last] ** 2, axis=0)).tolist()
            for first, last in (USED, AFTER)
        )
        found.append(
            {
                "begins": int(moved[0]) if len(moved) else None,
                "used": used,
                "after": after,
                "last": min(AFTER[1], len(speeds)),
            }
        )
    return found


def motion_claims(trials: Sequence[Mapping[str, Any]]) -> tuple[Claim, ...]:
    """The paper's statements about the samples, from what `motion` gives."""
    begins = [trial["begins"] for trial in trials]
    near = [begin is not None and abs(begin - BEGIN) <= AROUND for begin in begins]
    told = ", ".join("never" if begin is None else str(begin) for begin in begins)
    used, after = (np.array([trial[part] for trial in trials]) for part in ("used", "after"))
    last = min(trial["last"] for trial in trials)
    falls = [
        (
            found.above(SUBSIDED),
            f"{link} {number(used[:, i].mean())} to {number(after[:, i].mean())} rad/s, a fall by "
            f"{found.words}",
        )
        for i, link in enumerate(LINKS)
        for found in [ratio(used[:, i], after[:, i])]
    ]
    return (
        Claim(
            f"the pendulums begin to move around sample {BEGIN}",
            HOLDS if all(near) else FAILS,
            f"first sample more than {MOVED} rad from the start, by trial: {told}",
        ),
        all_of(
            f"the motion has largely subsided by sample {USED[1]}",
            falls,
            lead=f"root mean square speed, samples {USED[0]} to {USED[1]} against {AFTER[0]} to "
            f"{last}: ",
        ),
        Claim(
            "the excluded samples are noninformative and harmful to training",
            OPEN,
            "not computed",
            "the paper speaks of preliminary experiments and shows none",
        ),
    )
