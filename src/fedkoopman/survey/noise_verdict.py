"""What a filter's innovations say of the noise that a site declares, in plain words.

A wrong noise makes innovations both too large or small and coloured, and so does a wrong model.
What tells them apart is the best noise there is: with it, innovations of a right model are
white. So an inconsistent filter is judged once more with noise from `estimate_noise`, that of the
observations alone and then with the process noise; what stays coloured is the model's fault, and
what does not is named with the value to try.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.covariance import covariance
from fedkoopman.data.segments import Segment
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.estimation import ESTIMATORS, Estimates, GaussianEstimator, estimate
from fedkoopman.estimation.noise import estimate_noise
from fedkoopman.estimation.noise_structure import NoiseEstimates
from fedkoopman.sensors import Sensor
from fedkoopman.survey.innovation_tests import (
    MARGIN,
    SETTLED,
    ChannelTest,
    InitialTest,
    channel_tests,
    initial_test,
)
from fedkoopman.systems import System

__all__ = ["Fit", "Verdict", "judge", "noise_verdict"]

LEVEL = 0.99
"""At least so often a right model with right noise is called consistent."""
CLEAR = 6.0
"""Rise of the log-likelihood that one more free variance must bring: 3.5 standard errors."""
NEGLIGIBLE = 0.5
"""Ratio below which innovations are too small, for what is said of them, to blame the model."""


PROCESS_MARGIN = 2.0
"""Process noise is known less well, and its size matters less, than that of observations."""
LEAST_FACTOR = 0.01
"""Least by which it is advised to multiply noise at once, where the data show hardly any."""
HARDLY_COUNTED = 1e6
"""Factors beyond are not spelt out."""


@dataclass(frozen=True)
class Verdict:
    """What is found of a site's noise and model; `str` of it is one line.

    Attributes:
        kind: "consistent", "noise", "model", "initial" or "unknown".
        text: the line.
        channels: the tests of each channel's innovations with the noise declared.
        observation: variances to try, where the declared ones are off.
        process: factor to try on the process noise, where that is off.
        estimated: variances of the best noise, where those declared were not good enough.
    """

    kind: str
    text: str
    channels: tuple[ChannelTest, ...]
    observation: NDArray[np.float64] | None = None
    process: float | None = None
    estimated: NDArray[np.float64] | None = None

    @property
    def consistent(self) -> bool:
        """Whether there is nothing to mend."""
        return self.kind == "consistent"

    def __str__(self) -> str:
        return self.text


class Fit(NamedTuple):
    """Some of the noise at its best, and the channels' tests with it."""

    noise: NoiseEstimates
    tests: tuple[ChannelTest, ...]


def noise_verdict(
    system: System,
    sensor: Sensor,
    sample: Sequence[Segment],
    states: Estimates,
    observation: NDArray[np.float64],
    process: NDArray[np.float64],
    options: Mapping[str, Any],
    *,
    level: float = LEVEL,
) -> Verdict:
    """Judge declared noise by the filter's innovations, and find better where it fails.

    Arguments:
        system, sensor: that the site declares.
        sample: some of its segments.
        states: the estimates of `sample` with the noise declared, by "ukf-resampled" or "ekf".
        observation, process: covariances that were used for `states`.
        options: initial state, inputs and the like, as `fk.estimate` takes them.
        level: how often, at least, a right model with right noise is called consistent.
    """
    estimator = ESTIMATORS.find(states.method)
    if not isinstance(estimator, GaussianEstimator) or not estimator.consistent:
        raise InputError(
            f"the innovations of method {states.method!r} cannot be judged: use 'ukf-resampled'"
        )
    names = sample[0].channels or tuple(f"z{i}" for i in range(1, sensor.dim + 1))
    level = (1 + level) / 2  # half of the tolerance for the channels, half for the initial state
    z = [segment.observations for segment in sample]

    def tests(observation: Any, process: Any) -> tuple[ChannelTest, ...]:
        again = estimate(
            system, sensor, z, observation_noise=observation, process_noise=process,
            method=states.method, smooth=False, warn=False, **options,
        )  # fmt: skip
        return channel_tests(again, names, level)

    declared, initial = channel_tests(states, names, level), initial_test(states, level)
    if not any(test.count for test in declared):
        return Verdict("unknown", "cannot be judged: there are too few observations", declared)
    settled = declared
    if not initial.consistent and not _consistent(declared):
        # a filter that is sure of a wrong state takes long to forget it
        options = {**options, "initial_cov": _wider(options, system.dim, 10 * initial.ratio)}
        settled = tests(observation, process)
    if _consistent(settled):
        return judge(declared, initial, observation, process)
    silent = [name for name, test, r in zip(names, settled, np.diag(observation), strict=True)
              if r == 0 and not test.consistent]  # fmt: skip
    if silent:
        text = f"observation noise of {silent[0]} is 0 but the data have some: give a variance"
        return Verdict("noise", text, declared)
    fits = []
    try:
        for process_structure in ("fixed", "scalar"):
            found = estimate_noise(
                system, sensor, z, observation_noise=observation, process_noise=process,
                method=states.method, process_structure=process_structure, skip=_skip(z), **options,
            )  # fmt: skip
            fits.append(Fit(found, tests(found.observation_noise, found.process_noise)))
    except (ComputationError, InputError) as error:
        text = f"inconsistent, and no better noise could be found: {error}"
        return Verdict("unknown", text, declared)
    best = np.diag(_simplest(fits).noise.observation_noise)
    return replace(judge(declared, initial, observation, process, fits), estimated=best)


def judge(
    declared: tuple[ChannelTest, ...],
    initial: InitialTest,
    observation: NDArray[np.float64],
    process: NDArray[np.float64],
    fits: Sequence[Fit] = (),
) -> Verdict:
    """The verdict from tests with the noise declared and with the best noise there is.

    Arguments:
        declared: the channels' tests with the noise declared.
        initial: the test of the first samples.
        observation, process: covariances that are declared.
        fits: the best noise, with more and more that is free; none if that declared is good enough.
    """
    if fits:
        fit = _simplest(fits)
        coloured = [test for test in fit.tests if not test.white and test.ratio > NEGLIGIBLE]
        if coloured:
            return Verdict("model", _model_phrase(coloured), declared)
        names = [test.name for test in declared]
        variances, texts = _observation_phrases(fit.noise, observation, names)
        factor, more = _process_phrases(fit.noise, process)
        if texts or more:
            return Verdict("noise", "; ".join([*texts, *more]), declared, variances, factor)
    if not initial.consistent:
        text = (
            f"the first samples lie {np.sqrt(initial.ratio):.2g}× as far off as the initial state "
            "lets expect: give another initial.mean or a larger initial.cov"
        )
        return Verdict("initial", text, declared)
    return Verdict("consistent", "consistent", declared)


def _consistent(tests: Sequence[ChannelTest]) -> bool:
    return all(test.consistent for test in tests)


def _simplest(fits: Sequence[Fit]) -> Fit:
    """The first that is consistent, unless the freest is much likelier and sees the sensor
    differently: then what is put down to the sensor is not the sensor's."""
    freest = fits[-1].noise
    seen = np.isfinite(freest.observation_error)
    variances = np.diag(freest.observation_noise)[seen]
    for fit in fits:
        rise = freest.log_likelihoods[-1] - fit.noise.log_likelihoods[-1]
        ratios = np.diag(fit.noise.observation_noise)[seen] / variances
        agree = np.all(np.abs(np.log(ratios)) < np.log(MARGIN))
        if _consistent(fit.tests) and (rise < CLEAR or agree):
            return fit
    return fits[-1]


def _wider(options: Mapping[str, Any], dim: int, factor: float) -> NDArray[np.float64]:
    given = options.get("initial_cov")
    return factor * covariance(1.0 if given is None else given, dim, "initial_cov")


def _skip(z: Sequence[NDArray[np.float64]]) -> int:
    return min(SETTLED, min(map(len, z)) // 4)


def _model_phrase(coloured: Sequence[ChannelTest]) -> str:
    """What to say of channels whose innovations no noise can make white."""
    worst = max(coloured, key=lambda test: abs(test.correlation))
    apart = "from one sample to the next" if worst.lag == 1 else f"{worst.lag} samples apart"
    return (
        f"the model does not explain the data: with the best noise too, what is left of "
        f"{worst.name} is correlated in time ({worst.correlation:.2f} {apart}): check the "
        "equations and their parameters, units, dt and the sensor"
    )


def _observation_phrases(
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


def _process_phrases(
    found: NoiseEstimates, declared: NDArray[np.float64]
) -> tuple[float | None, list[str]]:
    """A factor to try, and a phrase, where the process noise is off.

    Arguments: as `_observation_phrases`.
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
