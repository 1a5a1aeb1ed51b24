"""Parameters of the system that sites estimate together.

Each tells what it found and how sure it is, and never a sample.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.data.beliefs import (
    Knowledge,
    Progress,
    beliefs_of,
    inputs_of,
    sample_of,
    spread_of,
)
from fedkoopman.data.filter_beliefs import ENOUGH
from fedkoopman.errors import ComputationError
from fedkoopman.estimation import ParameterEstimates, combine_parameters, estimate_parameters
from fedkoopman.systems import System


def known_system(
    study: Study, system: System, sites: Sequence[Knowledge], tell: Progress
) -> tuple[System, dict[str, tuple[float, float]]]:
    """The system with its unknown parameters estimated, and these with standard deviations.

    What sites estimate of noise and initial state under wrong parameters is wrong too, and may lead
    one of them far off. Where they estimate any of it, they therefore begin again from the median
    of what they found.
    """
    guesses = {name: float(value) for name, value in study.system.unknown.items()}
    if not guesses:
        return system, {}
    if any(_finds_out(known.site) for known in sites):
        found = [_own_parameters(study, system, known, guesses, tell) for known in sites]
        usable = [one.mean for one in found if one.ok]
        if usable:
            middle = np.median(usable, axis=0).tolist()
            guesses = dict(zip(guesses, middle, strict=True))
    found = []
    for place, known in enumerate(sites):
        tell("unknown parameters", place, len(sites))
        one = _own_parameters(study, system, known, guesses, tell)
        if not one.ok:
            raise ComputationError(
                f"{known.site.name}: the filter diverged while estimating "
                f"{', '.join(guesses)}: give better guesses in system.unknown"
            )
        found.append(one)
    prior = np.array([abs(value) / 2 or 1.0 for value in guesses.values()])
    mean, cov = combine_parameters(
        (np.array(list(guesses.values())), np.diag(prior**2)),
        [(one.mean, one.cov) for one in found],
    )
    spread = np.sqrt(np.diag(cov))
    tell("unknown parameters", len(sites), len(sites))
    values = {name: (float(m), float(s)) for name, m, s in zip(guesses, mean, spread, strict=True)}
    return system.with_parameters(**{name: value for name, (value, _) in values.items()}), values


def _own_parameters(
    study: Study, system: System, known: Knowledge, guesses: Mapping[str, float], tell: Progress
) -> ParameterEstimates:
    """What one site finds, from its first training segments."""
    system = system.with_parameters(**guesses)
    beliefs = beliefs_of(study, system, known, tell)
    sample = sample_of(known, float(system.dt))
    return estimate_parameters(
        system, known.sensor, [segment.observations[:ENOUGH] for segment in sample], guesses,
        observation_noise=beliefs.observation_noise, process_noise=beliefs.process_noise,
        **beliefs.initial, **spread_of(study), inputs=inputs_of(system, sample),
    )  # fmt: skip


def _finds_out(site: SiteFile) -> bool:
    """Whether a site estimates its initial state or its process noise."""
    return "auto" in (site.initial.mean, site.initial.cov, site.noise.process)
