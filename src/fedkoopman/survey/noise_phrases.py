"""Estimated noise beside the declared one, in words: how far off, and what to try."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedkoopman.estimation.noise_structure import NoiseEstimates
from fedkoopman.survey.innovation_tests import MARGIN, ChannelTest

__all__ = ["model_phrase", "observation_phrases", "process_phrases"]

PROCESS_MARGIN = 2.0
"""Process noise is known less well, and its size matters less, than that of observations."""
LEAST_FACTOR = 0.01
"""Least by which it is advised to multiply noise at once, where the data show hardly any."""
HARDLY_COUNTED = 1e6
"""Factors beyond are not spelt out."""


def model_phrase(coloured: Sequence[ChannelTest]) -> str:
    """What to say of channels whose innovations no noise can make white."""
    worst = max(coloured, key=lambda test: abs(test.correlation))
    apart = "from one sample to the next" if worst.lag == 1 else f"{worst.lag} samples apart"
    return (
        f"the model does not explain the data: with the best noise too, what is left of "
        f"{worst.name} is correlated in time ({worst.correlation:.2f} {apart}): check the "
        "equations and their parameters, units, dt and the sensor"
    )


def observation_phrases(
    found: NoiseEstimates, declared: NDArray[np.float64], names: Sequence[str]
) -> tuple[NDArray[np.float64] | None, list[str]]:
    """Variances to try, and a phrase for each channel whose noise is off.

    Arguments:
        found: the best noise.
        declared: the covariance that is declared.
        names: the channels'.
    """
    now = np.diag(declared)
    least = np.where(found.observation_floored, LEAST_FACTOR * now, 0.0)
    best = np.maximum(np.diag(found.observation_noise), least)
    errors = np.where(found.observation_floored, 0.0, found.observation_error)
    live = np.flatnonzero(np.isfinite(errors) & (now > 0))
    ratios = {int(i): float(best[i] / now[i]) for i in live}
    off = [i for i, ratio in ratios.items() if _off(ratio, errors[i], MARGIN)]
    if not off:
        return None, []
    logs = np.log(list(ratios.values()))
    if np.ptp(now[live]) == 0 and np.ptp(logs) < np.log(MARGIN):  # one number serves for all
        common = float(np.exp(logs.mean()))
        said = [f"observation noise looks {_times(common)}: try {common * now[live[0]]:.2g}"]
        return best, said
    return best, [
        f"observation noise of {names[i]} looks {_times(ratios[i])}: try {best[i]:.2g}" for i in off
    ]


def process_phrases(
    found: NoiseEstimates, declared: NDArray[np.float64]
) -> tuple[float | None, list[str]]:
    """A factor to try, and a phrase, where the process noise is off.

    Arguments: as `observation_phrases`.
    """
    now, best = np.diag(declared), np.diag(found.process_noise)
    if not (now > 0).any():
        return None, []
    at = int(np.argmax(now))
    factor = float(best[at] / now[at])
    error = found.process_error[at]
    unseen = not np.isfinite(error) or error > 1  # gone, as far as the data can tell
    if factor < 1 and unseen:
        if factor > 1 / PROCESS_MARGIN**2:
            return None, []
        factor = max(factor, LEAST_FACTOR)
        said = "process noise looks far too large, the data show hardly any"
    elif _off(factor, error, PROCESS_MARGIN):
        said = f"process noise looks {_times(factor)}"
    else:
        return None, []
    same = np.ptp(now[now > 0]) == 0
    remedy = f"try {factor * now[at]:.2g}" if same else f"multiply it by {factor:.2g}"
    if factor > PROCESS_MARGIN**4:
        remedy += ", or mend the equations, which miss something"
    return factor, [f"{said}: {remedy}"]


def _off(ratio: float, error: float, margin: float) -> bool:
    """Whether a ratio is of consequence, and more than chance (3 standard errors)."""
    size = abs(np.log(ratio))
    return bool(np.isfinite(error) and size > max(np.log(margin), 3 * error))


def _times(ratio: float) -> str:
    size, way = max(ratio, 1 / ratio), f"too {'small' if ratio > 1 else 'large'}"
    if size > HARDLY_COUNTED:
        return f"far {way}"
    rounded = f"{size:.1f}" if size < 2 else f"{float(f'{size:.{1 if size < 10 else 2}g}'):,.0f}"
    return f"{rounded}× {way}"
