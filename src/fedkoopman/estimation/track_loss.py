"""Has the filter lost track? Windows of innovations that are far larger than the filter expects.

A filter that follows the wrong state is sure of it: its innovations hold a signal beside the noise.
In windows of a segment the normalised innovations squared (NIS) are therefore compared with

- the χ² bound that a filter which follows crosses in one window of ten million,
- twice what is expected: a model that is a little off, or noise that is stated a little too small,
  does not mean that the track is lost,
- and both times the power of the white part of the innovations, if that is larger than 1. Noise
  that is stated too small makes larger innovations, but white ones; a lost track adds a signal
  that is smooth from sample to sample and hardly shows in second differences. So a wrong noise is
  left to `nis` and to `fedkoopman check`, and where samples are too far apart to be smooth, nothing
  is called lost.

In the first window the filter still looks for the initial state, of which it may have been told
wrong; the smoother mends a few samples. So five times as much is allowed there.
"""

from functools import lru_cache
from itertools import pairwise

import numpy as np

from fedkoopman.errors import InputError
from fedkoopman.estimation.diagnostics import whitened
from fedkoopman.estimation.estimates import Estimates
from fedkoopman.estimation.methods import ESTIMATORS

WINDOW = 50
"""Samples of a window; a segment that is no multiple has longer ones."""
FALSE_ALARM = 1e-7
"""Probability, per window, with which a filter that follows crosses the χ² bound."""
LARGEST, AT_FIRST = 2.0, 5.0
"""Times the expected power that innovations may have in any case; and in the first of several
windows."""
DIFFERENCES = 20
"""Second differences from which the white part is known."""


def lost_track(estimates: Estimates) -> list[str]:
    """For each trajectory where, and by how much, the filter lost track; empty if it did not.

    A trajectory on which it diverged has no such reason: `Estimates.ok` says that.

    Arguments:
        estimates: of a method whose innovation covariances are those of the model.
    """
    if not ESTIMATORS.find(estimates.method).consistent:
        raise InputError(
            f"the innovations of method {estimates.method!r} cannot be judged, as their covariance "
            "lacks the process noise: use 'ukf-resampled'"
        )
    return [_reason(white) for white in whitened(estimates)]


def _reason(white: np.ndarray | None) -> str:
    """Why normalised innovations (T, m) cannot be those of a filter that follows."""
    if white is None:
        return ""
    count = max(1, len(white) // WINDOW)
    edges = np.linspace(0, len(white), count + 1).astype(int)
    level = max(1.0, _white_power(white))
    worst, found = 0.0, ""
    for first, end in pairwise(edges):
        seen = white[first:end][~np.isnan(white[first:end])]
        if not len(seen):
            continue
        allowed = AT_FIRST if first == 0 and count > 1 else LARGEST
        bound = max(allowed, _chi_square_bound(len(seen)))
        power = float(np.mean(seen**2)) / level
        if power > bound and power > worst:
            worst = power
            found = (
                f"the filter lost track: in samples {first + 1} to {end} the innovations squared "
                f"are {power:.3g} times what it expects"
            )
    return found


@lru_cache(maxsize=1024)
def _chi_square_bound(freedom: int) -> float:
    """What the mean of so many squares exceeds with the probability of a false alarm."""
    from scipy.special import chdtri  # slow to import, and few need it

    return float(chdtri(freedom, FALSE_ALARM)) / freedom


def _white_power(white: np.ndarray) -> float:
    """The power of the part of a signal that is white, to which a smooth part adds little."""
    bends = np.diff(white, n=2, axis=0)
    seen = bends[~np.isnan(bends)]
    return float(np.mean(seen**2)) / 6 if len(seen) >= DIFFERENCES else 1.0
