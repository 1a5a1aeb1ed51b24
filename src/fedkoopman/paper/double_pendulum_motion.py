"""Which of the measured samples are free motion: velocities, energy, residual, and the release.

The pendulum hangs at rest, is lifted by hand, held with both links up, and let go. All of this is
in the tracked angles. Derivatives are those of a polynomial through the angles of 82 ms around each
sample. The equation is the paper's, by the package's own system.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.signal import savgol_filter

from fedkoopman.errors import InputError
from fedkoopman.paper.double_pendulum_data import INTERVAL
from fedkoopman.systems import DoublePendulum

Floats = NDArray[np.float64]

WIDTH, DEGREE = 41, 4
"""Samples and degree of the local polynomial.

With 31 to 51 samples the equation explains accelerations after the release best. Fewer leave the
tracker's noise in them, more flatten fast swings.
"""
FAST = np.radians(100)
"""Speed in rad/s above which a link is not held."""
UP = -0.9
"""Cosine of the angle below which a link points up, within 26°."""
HOLD = 100
"""Fewest samples that both links stay up, if they are held."""
MOVED = 0.05
"""Radians from its first angle at which a link has begun to move."""
FIRST, LAST, TEST_LAST = 1000, 6000, 3000
"""First and last sample that the paper trains on, and the last that it tests on."""
AFTER = LAST, 11_000
"""Samples after the paper's, as many as it takes."""
STILL = 1.0
"""Root mean square acceleration in rad/s² below which nothing moves."""
DRAWN, EVERY, BLOCK = 2000, 20, 100
"""The energy is drawn from so many samples before the release on, every so many; the residual as
means over blocks."""


def derivatives(angles: Floats) -> tuple[Floats, Floats]:
    """First and second derivative of angles (T, …) in time, in their unit per s and per s²."""
    first, second = (
        np.asarray(savgol_filter(angles, WIDTH, DEGREE, deriv=k, delta=INTERVAL, axis=0))
        for k in (1, 2)
    )
    return first, second


def matched(states: Floats) -> Floats:
    """The states (T, 4) with velocities that match their angles, in place of the paper's."""
    found = states.copy()
    found[:, 1::2] = derivatives(states[:, ::2])[0]
    return found


def energy(states: Floats, system: DoublePendulum | None = None) -> Floats:
    """Energy in joules of the point masses at states (…, 4); 0 at rest, hanging."""
    s = DoublePendulum() if system is None else system
    theta1, omega1, theta2, omega2 = np.moveaxis(states, -1, 0)
    mass, swing1, swing2 = s.mass1 + s.mass2, s.length1 * omega1, s.length2 * omega2
    kinetic = (
        mass * swing1**2 / 2
        + s.mass2 * swing2**2 / 2
        + s.mass2 * swing1 * swing2 * np.cos(theta1 - theta2)
    )
    height1, height2 = s.length1 * (1 - np.cos(theta1)), s.length2 * (1 - np.cos(theta2))
    total: Floats = kinetic + s.gravity * (mass * height1 + s.mass2 * height2)
    return total


def equation(states: Floats) -> Floats:
    """Accelerations (T, 2) that the paper's equation gives states (T, 4)."""
    with jax.enable_x64(True):
        rates = jax.vmap(DoublePendulum().vector_field)(jnp.asarray(states))
        return np.asarray(rates)[:, 1::2]


def release(angles: Floats) -> int | None:
    """The first sample of free motion in angles (T, 2) in radians; None if nothing is held.

    It ends the longest stretch in which both links point up and neither turns faster than 100°/s.
    A link that is let go near its highest point starts slowly: the hand may have left it 0.1 to
    0.2 s earlier.
    """
    speeds = np.abs(derivatives(angles)[0])
    held = (np.cos(angles) < UP).all(axis=1) & (speeds < FAST).all(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], held.astype(int), [0]])))
    starts, ends = edges[::2], edges[1::2]
    if not len(starts):
        return None
    longest = int(np.argmax(ends - starts))
    found = int(ends[longest])
    return found if found - starts[longest] >= HOLD and found < len(angles) else None


def releases(trials: Sequence[Floats]) -> list[int]:
    """The release of every trial, whose states (T, 4) are as `read_trials` gives them."""
    found = []
    for trial, states in enumerate(trials, start=1):
        sample = release(states[:, ::2])
        if sample is None or not FIRST < sample < TEST_LAST:
            where = "none was found" if sample is None else f"it was found at sample {sample}"
            raise InputError(
                f"trial {trial} should be lifted, held with both links up and let go between "
                f"samples {FIRST} and {TEST_LAST}, but {where}: give the authors' angles unchanged"
            )
        found.append(sample)
    return found


def explained(states: Floats, first: int, last: int) -> dict[str, Any]:
    """How well the equation explains accelerations in samples `first` to `last`.

    R² of each link and of both together: 1 − Σ (a − f)² / Σ (a − mean)². Beside it root mean
    squares in rad/s² of the measured accelerations and of what the equation leaves.
    """
    measured, left = (part[first : last + 1] for part in _residual(states))
    squares = (left**2).sum(axis=0)
    total = ((measured - measured.mean(axis=0)) ** 2).sum(axis=0)
    return {
        "links": (1 - squares / total).tolist(),
        "both": float(1 - squares.sum() / total.sum()),
        "measured": float(np.sqrt(np.mean(measured**2))),
        "left": float(np.sqrt(np.mean(left**2))),
    }


def motion(trials: Sequence[Floats]) -> list[dict[str, Any]]:
    """What moves in every trial, whose states (T, 4) are as `read_trials` gives them.

    Of each trial `begins`, the first sample at which a link has moved, or None; `release`; `used`
    and `after`, the root mean square speed of both links from the release to sample 6000 and from
    there to `last`; `before` and `free`, how well the equation explains the paper's samples on
    either side of the release; `energies`, the lowest and highest energy in the second after it;
    `trace`, lines to be drawn.
    """
    return [
        _of_trial(states, sample) for states, sample in zip(trials, releases(trials), strict=True)
    ]


def _of_trial(states: Floats, sample: int) -> dict[str, Any]:
    angles = states[:, ::2]
    moved = np.flatnonzero((np.abs(angles - angles[0]) > MOVED).any(axis=1))
    # Plain differences: what subsides must not be hidden by smoothing.
    speeds = np.diff(angles, axis=0) / INTERVAL
    used, after = (
        np.sqrt(np.mean(speeds[first:last] ** 2, axis=0)).tolist()
        for first, last in ((sample, LAST), AFTER)
    )
    joules = energy(matched(states))
    second = joules[sample : sample + round(1 / INTERVAL)]
    return {
        "begins": int(moved[0]) if len(moved) else None,
        "release": sample,
        "used": used,
        "after": after,
        "last": min(AFTER[1], len(speeds)),
        "before": explained(states, FIRST, sample - 1),
        "free": explained(states, sample, LAST),
        "energies": [float(second.min()), float(second.max())],
        "trace": _trace(states, sample, joules),
    }


def _residual(states: Floats) -> tuple[Floats, Floats]:
    """Measured accelerations (T, 2), and what the equation leaves of them."""
    measured = derivatives(states[:, ::2])[1]
    return measured, measured - equation(matched(states))


def _trace(states: Floats, sample: int, joules: Floats) -> dict[str, list[float | None]]:
    """Energy, and the residual's share of the acceleration, over seconds from the release.

    Where nothing moves there is no share.
    """
    kept = np.arange(max(sample - DRAWN, 0), LAST + 1, EVERY)
    blocks = [
        np.sqrt(np.mean(part[:LAST].reshape(-1, BLOCK * 2) ** 2, axis=1))
        for part in _residual(states)
    ]
    middles = (np.arange(len(blocks[0])) + 0.5) * BLOCK
    return {
        "seconds": (INTERVAL * (kept - sample)).tolist(),
        "energy": joules[kept].tolist(),
        "block_seconds": (INTERVAL * (middles - sample)).tolist(),
        "share": [
            float(left / all_) if all_ > STILL else None for all_, left in zip(*blocks, strict=True)
        ],
    }
