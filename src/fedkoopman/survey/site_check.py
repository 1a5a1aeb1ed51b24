"""Is a site's data sound, and is it what the site file says it is? Told before anything runs.

The filter runs over the first training segments in its consistent form, whichever the study then
uses, as only that one's innovations can be judged.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.parts import sensor_for, site_files, system_of
from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.covariance import covariance
from fedkoopman.data.beliefs import (
    Knowledge,
    Progress,
    beliefs_of,
    inputs_of,
    sample_of,
    spread_of,
)
from fedkoopman.data.estimator import Estimator
from fedkoopman.data.filter_beliefs import Beliefs
from fedkoopman.data.segments import Segment
from fedkoopman.data.triage import least_samples, triage
from fedkoopman.data.unknown_parameters import known_system
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.estimation import (
    ESTIMATORS,
    Diagnosis,
    Estimates,
    GaussianEstimator,
    estimate,
    nis,
)
from fedkoopman.estimation.left_out import outside
from fedkoopman.estimation.noise import estimate_noise
from fedkoopman.paths import shown
from fedkoopman.sensors import Sensor
from fedkoopman.survey.noise_verdict import (
    ChannelTest,
    Fit,
    Verdict,
    channel_tests,
    consistent,
    first_samples,
    initial_test,
    judge,
    observed_noise,
    simplest,
)
from fedkoopman.survey.survey import Survey, survey
from fedkoopman.systems import System

LEVEL = 0.99
"""At least so often a right model with right noise is called consistent."""


@dataclass(frozen=True)
class SiteCheck:
    """What was found at a site.

    Attributes:
        declared: variances of the observation noise as the site file has them; None if "auto".
        estimated: as the data show them: where the verdict looked for the best noise, or noise is
            "auto", of maximum likelihood; otherwise by the innovations. NaN for a dead channel.
        notes: segments that a run would do without, one sentence each.
    """

    survey: Survey
    declared: NDArray[np.float64] | None
    estimated: NDArray[np.float64]
    consistency: Diagnosis
    verdict: Verdict
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class KnownSites:
    """What is known of a study's sites before their states are estimated.

    Attributes:
        system: the dynamics, with the parameters that were estimated.
        parameters: these by name, with their standard deviations.
        sites: each with the survey of its data, in the study's order.
    """

    system: System
    parameters: dict[str, tuple[float, float]]
    sites: list[tuple[Knowledge, Survey]]


def known_sites(study: Study, tell: Progress) -> KnownSites:
    """Read all data of all sites, and estimate the parameters that the study leaves open.

    Arguments:
        tell: called with what is at work, how much of it is done and how much there is.
    """
    system = system_of(study)
    files = site_files(study, system)
    surveys = _surveys(study, float(system.dt), files, tell)
    known = [
        Knowledge(site, sensor_for(site, system.dim), found.held_out)
        for site, found in zip(files, surveys, strict=True)
    ]
    system, parameters = known_system(study, system, known, tell)
    return KnownSites(system, parameters, list(zip(known, surveys, strict=True)))


def _surveys(study: Study, dt: float, files: Sequence[SiteFile], tell: Progress) -> list[Survey]:
    """The surveys of all sites; refused where they leave nothing to train on or to score with."""
    found, scored = [], False
    for site in files:
        one = survey(site, dt, partial(tell, f"reading {site.name}"))
        found.append(one)
        good = [facts for facts in one.segments if not facts.useless(study)]
        scored = scored or any(facts.held_out for facts in good)
        if all(facts.held_out for facts in good):
            raise InputError(
                f"{shown(site.path)}: of {len(one.segments)} segments, {len(one.held_out)} held "
                f"out, none is left to train on with the {least_samples(study, False)} samples "
                "that it takes: record longer ones, or hold out fewer"
            )
    if not scored:
        raise InputError(
            f"no site holds out a segment of the {least_samples(study, True)} samples that "
            "evaluation.horizon takes: record more than one, or give data.held_out a share"
        )
    return found


def check_sites(
    study: Study, tell: Progress
) -> tuple[list[SiteCheck], dict[str, tuple[float, float]]]:
    """Check every site, the filter running on some of its data; and the estimated parameters."""
    found = known_sites(study, tell)
    return [_check(study, found.system, *one, tell) for one in found.sites], found.parameters


def _check(
    study: Study, system: System, known: Knowledge, found: Survey, tell: Progress
) -> SiteCheck:
    site = known.site
    beliefs = beliefs_of(study, system, known, tell)
    observation, process = beliefs.observation_noise, beliefs.process_noise
    sample = sample_of(known, float(system.dt))
    tell(f"filtering {site.name}", 0, 1)
    options: dict[str, Any] = {**beliefs.initial, **spread_of(study)}
    options["inputs"] = inputs_of(system, sample)
    states = estimate(
        system, known.sensor, [segment.observations for segment in sample],
        observation_noise=observation, process_noise=process, method="ukf-resampled",
        smooth=False, warn=False, **options,
    )  # fmt: skip
    tell(f"filtering {site.name}", 1, 1)
    if not np.any(states.ok):
        raise ComputationError(
            f"the filter diverged on all segments of {site.name} that were tried: check the "
            "system, its units and dt, or give a larger noise.process"
        )
    verdict = noise_verdict(system, known.sensor, sample, states, observation, process, options)
    auto, estimated = site.noise.observation == "auto", verdict.estimated
    if estimated is None:
        estimated = np.diag(observation) if auto else observed_noise(states, observation)
    seen = [test.count > 0 for test in verdict.channels]
    return SiteCheck(
        found,
        None if auto else np.diag(observation),
        np.where(seen, estimated, np.nan),
        nis(states),
        verdict,
        (*_useless(study, found), *_left_out(study, system, known, beliefs, sample)),
    )


def _useless(study: Study, found: Survey) -> Iterator[str]:
    """Segments that are too short, or empty."""
    bad = [(facts.name, why) for facts in found.segments if (why := facts.useless(study))]
    if bad:
        name, why = bad[0]
        yield f"a run drops {len(bad)} of {len(found.segments)} segments, such as {name}: {why}"


def _left_out(
    study: Study, system: System, known: Knowledge, beliefs: Beliefs, sample: Sequence[Segment]
) -> Iterator[str]:
    """Samples that a run would leave out of these segments, by what a run itself does."""
    site, gate = known.site, study.estimation.gate
    if not site.bounds and not gate:
        return
    estimator = Estimator(study, system, known.sensor, site, beliefs)
    found = [one for one in estimator(iter(sample)) if one.outside is not None]
    samples = sum(len(one.states) for one in found)
    for (place, low, high), name in zip(estimator.bounds, site.bounds, strict=True):
        each = [one.states[outside(one.states, [(place, low, high)]), place] for one in found]
        bad = [values for values in each if len(values)]
        if bad:
            yield (
                f"{name} is estimated outside of [{low:g}, {high:g}] in {len(bad)} of "
                f"{len(found)} segments ({sum(map(len, bad)):,} of {samples:,} samples), as "
                f"{bad[0][0]:.4g}: a run leaves such samples out; check units and data.scale, or "
                f"widen bounds.{name}"
            )
    doubted = sum(int(one.uncertain.sum()) for one in found if one.uncertain is not None)
    if doubted:
        yield (
            f"{doubted:,} of {samples:,} samples are more than {gate:g} times as uncertain as "
            "usual: a run does not train on them (estimation.gate)"
        )
    least = least_samples(study, False)
    tried = [one for one in found if not one.useless and len(one.states) >= least]
    fates = [(one.segment.name, triage(study, one, False)) for one in tried]
    lost = [(name, fate.reason) for name, fate in fates if fate.kind == "dropped"]
    if lost:
        name, why = lost[0]
        yield f"that drops {len(lost)} of {len(found)} segments as a whole, such as {name}: {why}"


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

    An inconsistent filter is judged once more with noise from `estimate_noise`, that of the
    observations alone and then with the process noise.

    Arguments:
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
    if not initial.consistent and not consistent(declared):
        # a filter that is sure of a wrong state takes long to forget it
        given = options.get("initial_cov")
        cov = covariance(1.0 if given is None else given, system.dim, "initial_cov")
        options = {**options, "initial_cov": 10 * initial.ratio * cov}
        settled = tests(observation, process)
    if consistent(settled):
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
                method=states.method, process_structure=process_structure,
                skip=first_samples(min(map(len, z))), **options,
            )  # fmt: skip
            fits.append(Fit(found, tests(found.observation_noise, found.process_noise)))
    except (ComputationError, InputError) as error:
        text = f"inconsistent, and no better noise could be found: {error}"
        return Verdict("unknown", text, declared)
    best = np.diag(simplest(fits).noise.observation_noise)
    return replace(judge(declared, initial, observation, process, fits), estimated=best)
