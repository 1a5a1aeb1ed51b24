"""What a site finds out before it estimates states: its noise, and unknown parameters.

Both come from the first of its training segments, enough to know them well. Parameters are shared:
each site tells what it found and how sure it is, and never a sample.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.parts import noise_of
from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.data.segments import Segment, segments
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.estimation import estimate_parameters
from fedkoopman.estimation.noise import estimate_noise
from fedkoopman.paths import shown
from fedkoopman.sensors import Sensor
from fedkoopman.systems import LocalPolynomial, System

__all__ = [
    "Knowledge",
    "Tell",
    "common_options",
    "guessed_noise",
    "known_noise",
    "known_system",
    "sample_of",
]

ENOUGH = 5_000
"""Samples from which noise and parameters are estimated."""
DOUBT = 1e-4
"""Process noise that is assumed where none is given yet, relative to the initial covariance."""

Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Knowledge:
    """A site's file and sensor, and the names of its held-out segments, which teach nothing."""

    site: SiteFile
    sensor: Sensor
    held_out: Sequence[str] = field(repr=False)


def sample_of(known: Knowledge, dt: float) -> list[Segment]:
    """The first training segments, as many as give enough samples; the last is cut."""
    found, count = [], 0
    for segment in segments(known.site, dt):
        if segment.name in known.held_out or np.isnan(segment.observations).all():
            continue
        found.append(segment)
        count += len(segment.observations)
        if count >= ENOUGH:
            break
    return found


def known_noise(
    study: Study, system: System, known: Knowledge, tell: Tell
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Covariances of observation and process noise, as declared or, where "auto", estimated."""
    site, m = known.site, known.sensor.dim
    where = shown(site.path)
    auto = {name: getattr(site.noise, name) == "auto" for name in ("observation", "process")}
    sample = sample_of(known, float(system.dt)) if any(auto.values()) else []
    if auto["observation"]:
        observation = guessed_noise([segment.observations for segment in sample], where)
    else:
        observation = noise_of(site.noise.observation, m, f"{where}: noise.observation")
    if auto["process"] and isinstance(system, LocalPolynomial):
        process = np.asarray(system.process_noise(1.0))
    elif auto["process"]:
        process = DOUBT * np.diag(np.diag(noise_of(site.initial.cov, system.dim, "initial.cov")))
    else:
        process = noise_of(site.noise.process, system.dim, f"{where}: noise.process")
    if not sample:
        return observation, process
    tell(f"noise of {site.name}", 0, 1)
    found = estimate_noise(
        system, known.sensor, [segment.observations[:ENOUGH] for segment in sample],
        observation_noise=observation, process_noise=process,
        **common_options(study, system, site, sample),
        structure="diagonal" if auto["observation"] else "fixed",
        process_structure=_freedom(system, m) if auto["process"] else "fixed",
    )  # fmt: skip
    tell(f"noise of {site.name}", 1, 1)
    return found.observation_noise, found.process_noise


def known_system(
    study: Study, system: System, sites: Sequence[Knowledge], tell: Tell
) -> tuple[System, dict[str, tuple[float, float]]]:
    """The system with its unknown parameters estimated, and these with standard deviations."""
    guesses = {name: float(value) for name, value in study.system.unknown.items()}
    if not guesses:
        return system, {}
    from fedkoopman.estimation.parameters import combine_parameters

    system = system.with_parameters(**guesses)
    found = []
    for place, known in enumerate(sites):
        tell("unknown parameters", place, len(sites))
        observation, process = known_noise(study, system, known, tell)
        sample = sample_of(known, float(system.dt))
        one = estimate_parameters(
            system, known.sensor, [segment.observations[:ENOUGH] for segment in sample], guesses,
            observation_noise=observation, process_noise=process,
            **common_options(study, system, known.site, sample),
        )  # fmt: skip
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


def _freedom(system: System, observed: int) -> str:
    """How much of the process noise so many channels can tell."""
    if isinstance(system, LocalPolynomial):
        return "blocks"
    return "diagonal" if observed >= system.dim else "scalar"


def common_options(
    study: Study, system: System, site: SiteFile, sample: list[Segment]
) -> dict[str, Any]:
    """What all estimators are told."""
    inputs = None
    if system.input_dim:
        longest = max(len(segment.observations[:ENOUGH]) for segment in sample)
        inputs = np.stack(
            [
                np.pad(u[:longest], ((0, longest - len(u[:longest])), (0, 0)), mode="edge")
                for segment in sample
                if (u := segment.inputs) is not None
            ]
        )
    mean = np.broadcast_to(np.asarray(site.initial.mean, float), (system.dim,))
    cov = noise_of(site.initial.cov, system.dim, "initial.cov")
    chosen = study.estimation
    spread = {"alpha": chosen.alpha, "beta": chosen.beta, "kappa": chosen.kappa}
    return {"initial_mean": np.array(mean), "initial_cov": cov, "inputs": inputs, **spread}


def guessed_noise(sample: list[NDArray[np.float64]], where: str) -> NDArray[np.float64]:
    """Variances from second differences, to which a smooth signal adds little; a channel that was
    never observed has 1."""
    if max(map(len, sample)) < 3:
        raise InputError(
            f'{where}: noise.observation is "auto" but no segment to train on has three samples: '
            "give a variance"
        )
    bends = np.concatenate([np.diff(z, n=2, axis=0) for z in sample if len(z) > 2])
    with np.errstate(invalid="ignore"):
        seen = (~np.isnan(bends)).sum(axis=0) > 1
        variance = np.where(seen, np.nanmean(np.where(seen, bends, 0.0) ** 2, axis=0) / 6, 1.0)
    return np.diag(np.where(variance > 0, variance, 1e-12))
