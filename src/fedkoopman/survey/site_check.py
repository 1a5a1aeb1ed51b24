"""Is a site's data sound, and is it what the site file says it is? Told before anything runs.

The filter runs over the first training segments in its consistent form, whichever the study then
uses, as only that one's innovations can be judged.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.parts import sensor_for, site_files, system_of
from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.data.estimator import (
    Knowledge,
    Progress,
    known_noise,
    known_system,
    sample_of,
    sample_options,
)
from fedkoopman.errors import ComputationError
from fedkoopman.estimation import Diagnosis, Estimates, estimate, nis
from fedkoopman.survey.innovation_tests import observed_noise
from fedkoopman.survey.noise_verdict import Verdict, noise_verdict
from fedkoopman.survey.survey import Survey, surveys_of
from fedkoopman.systems import System

__all__ = ["SiteCheck", "check_sites"]


@dataclass(frozen=True)
class SiteCheck:
    """What was found at a site.

    Attributes:
        survey: its data in figures.
        declared: variances of the observation noise as the site file has them; None if "auto".
        estimated: as the data show them: where the verdict looked for the best noise, or noise is
            "auto", of maximum likelihood; otherwise by the innovations. NaN for a dead channel.
        consistency: NIS of the filter.
        verdict: what that means, and what to try.
        notes: segments that a run would do without, one sentence each.
    """

    survey: Survey
    declared: NDArray[np.float64] | None
    estimated: NDArray[np.float64]
    consistency: Diagnosis
    verdict: Verdict
    notes: tuple[str, ...]


def check_sites(
    study: Study, tell: Progress
) -> tuple[list[SiteCheck], dict[str, tuple[float, float]]]:
    """Read all data of all sites, and run the filter on some of it.

    Arguments:
        tell: called with what is at work, how much of it is done and how much there is.
    """
    system = system_of(study)
    files = site_files(study, system)
    surveys = surveys_of(study, float(system.dt), files, tell)
    known = [
        Knowledge(site, sensor_for(site, system.dim), found.held_out)
        for site, found in zip(files, surveys, strict=True)
    ]
    system, parameters = known_system(study, system, known, tell)
    pairs = zip(known, surveys, strict=True)
    return [_check(study, system, k, found, tell) for k, found in pairs], parameters


def _check(
    study: Study, system: System, known: Knowledge, found: Survey, tell: Progress
) -> SiteCheck:
    site = known.site
    observation, process = known_noise(study, system, known, tell)
    sample = sample_of(known, float(system.dt))
    tell(f"filtering {site.name}", 0, 1)
    options = sample_options(study, system, site, sample)
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
        (*_left_out(study, found), *_implausible(system, site, states)),
    )


def _left_out(study: Study, found: Survey) -> Iterator[str]:
    """Segments that are too short, or empty."""
    bad = [(facts.name, why) for facts in found.segments if (why := facts.useless(study))]
    if bad:
        name, why = bad[0]
        yield f"a run drops {len(bad)} of {len(found.segments)} segments, such as {name}: {why}"


def _implausible(system: System, site: SiteFile, states: Estimates) -> Iterator[str]:
    """Segments whose estimates leave the bounds."""
    for name, (low, high) in site.bounds.items():
        j, ok = system.names.index(name), np.atleast_1d(states.ok)
        tracks = [
            np.asarray(mean)[:, j] for mean, good in zip(states.mean, ok, strict=True) if good
        ]
        outside = [x[(x < low) | (x > high)] for x in tracks]
        bad = [x[0] for x in outside if len(x)]
        if bad:
            yield (
                f"{name} is estimated outside of [{low:g}, {high:g}] in {len(bad)} of "
                f"{len(tracks)} segments, as {bad[0]:.4g}: a run drops such segments; check units "
                f"and data.scale, or widen bounds.{name}"
            )
