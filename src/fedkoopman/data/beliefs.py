"""What a site finds out before it estimates states: its noise and its initial state.

All of it comes from the first of the site's training segments, enough to know it well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.parts import noise_of
from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.data.filter_beliefs import ENOUGH, Beliefs
from fedkoopman.data.segments import Segment, segments
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.estimation.initial import estimated_law, first_law
from fedkoopman.estimation.noise import estimate_noise
from fedkoopman.paths import shown
from fedkoopman.sensors import Sensor
from fedkoopman.systems import LocalPolynomial, System
from fedkoopman.systems.initial_law import InitialLaw

DOUBT = 1e-4
"""Process noise that is assumed where none is given yet, relative to the initial covariance."""
STARTS, HEAD = 50, 200
"""Segments, and samples of each, from which the initial state is estimated."""

Progress = Callable[[str, int, int], None]
"""What is at work, how much of it is done, and how much there is."""


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


def starts_of(known: Knowledge, dt: float) -> list[Segment]:
    """The beginnings of the first training segments; those without observations are left out."""
    found = []
    for segment in segments(known.site, dt):
        z, u = segment.observations[:HEAD], segment.inputs
        if segment.name not in known.held_out and not np.isnan(z).all():
            found.append(replace(segment, observations=z, inputs=None if u is None else u[:HEAD]))
        if len(found) == STARTS:
            break
    return found


def beliefs_of(study: Study, system: System, known: Knowledge, tell: Progress) -> Beliefs:
    """What a site believes: declared, or estimated from its first training segments.

    Noise is estimated with a wide initial law, since a narrow one that is wrong would be taken for
    noise; the initial law is estimated with the noise found.
    """
    site, m, dim = known.site, known.sensor.dim, system.dim
    auto = {name: getattr(site.noise, name) == "auto" for name in ("observation", "process")}
    sample = sample_of(known, float(system.dt)) if any(auto.values()) else []
    observation = observation_noise(site, m, [segment.observations for segment in sample])
    process, doubt = _first_process_noise(system, site)
    given = initial_state(site, dim)
    mean, cov = given["initial_mean"], given["initial_cov"]
    starts = starts_of(known, float(system.dt)) if mean is None or cov is None else []
    first = [segment.observations for segment in starts]
    options = spread_of(study) | {"inputs": inputs_of(system, starts)}
    law = InitialLaw(np.zeros(dim) if mean is None else mean, np.eye(dim) if cov is None else cov)
    if starts:
        tell(f"initial state of {site.name}", 0, 1)
        law = first_law(
            system, known.sensor, first, mean=mean, doubt=doubt, observation_noise=observation,
            process_noise=process, **options,
        )  # fmt: skip
    if doubt is not None:
        process = doubt * np.diag(np.diag(law.cov))
    if sample:
        tell(f"noise of {site.name}", 0, 1)
        try:
            found = estimate_noise(
                system, known.sensor, [segment.observations[:ENOUGH] for segment in sample],
                observation_noise=observation, process_noise=process,
                initial_mean=law.mean, initial_cov=law.cov,
                **spread_of(study), inputs=inputs_of(system, sample),
                structure="diagonal" if auto["observation"] else "fixed",
                process_structure=_freedom(system, m) if auto["process"] else "fixed",
            )  # fmt: skip
        except ComputationError as error:
            raise ComputationError(f"{site.name}: {error}") from error
        observation, process = found.observation_noise, found.process_noise
        tell(f"noise of {site.name}", 1, 1)
    if starts:
        law = estimated_law(
            system, known.sensor, first, law, mean=mean, observation_noise=observation,
            process_noise=process, **options,
        )  # fmt: skip
        tell(f"initial state of {site.name}", 1, 1)
    return Beliefs(observation, process, law.mean, law.cov if cov is None else cov)


def _first_process_noise(
    system: System, site: SiteFile
) -> tuple[NDArray[np.float64], float | None]:
    """The process noise that is declared or, of a system that knows its form, to begin with;
    otherwise the share of the initial covariance to begin with."""
    if site.noise.process != "auto":
        where = f"{shown(site.path)}: noise.process"
        return noise_of(site.noise.process, system.dim, where), None
    if isinstance(system, LocalPolynomial):
        return np.asarray(system.process_noise(1.0)), None
    return np.zeros((system.dim, system.dim)), DOUBT


def _freedom(system: System, observed: int) -> str:
    """How much of the process noise so many channels can tell."""
    if isinstance(system, LocalPolynomial):
        return "blocks"
    return "diagonal" if observed >= system.dim else "scalar"


def spread_of(study: Study) -> dict[str, Any]:
    """Where the sigma points lie, as `fk.estimate` takes it."""
    chosen = study.estimation
    return {"alpha": chosen.alpha, "beta": chosen.beta, "kappa": chosen.kappa}


def inputs_of(system: System, sample: Sequence[Segment]) -> NDArray[np.float64] | None:
    """The known inputs of some segments, shorter ones filled up; None of a system without any."""
    if not system.input_dim or not sample:
        return None
    longest = max(len(segment.observations[:ENOUGH]) for segment in sample)
    return np.stack(
        [
            np.pad(u[:longest], ((0, longest - len(u[:longest])), (0, 0)), mode="edge")
            for segment in sample
            if (u := segment.inputs) is not None
        ]
    )


def initial_state(site: SiteFile, dim: int) -> dict[str, NDArray[np.float64] | None]:
    """What a site declares of the state before a segment's first sample; None where it is "auto",
    and so to be estimated."""
    mean, cov = site.initial.mean, site.initial.cov
    where = f"{shown(site.path)}: initial.cov"
    return {
        "initial_mean": None
        if mean == "auto"
        else np.array(np.broadcast_to(np.asarray(mean, float), (dim,))),
        "initial_cov": None if cov == "auto" else noise_of(cov, dim, where),
    }


def observation_noise(
    site: SiteFile, dim: int, sample: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """The covariance that a site declares or, where that is "auto", a first guess from a sample."""
    where, given = shown(site.path), site.noise.observation
    return (
        guessed_noise(sample, where)
        if given == "auto"
        else noise_of(given, dim, f"{where}: noise.observation")
    )


def guessed_noise(sample: Sequence[NDArray[np.float64]], where: str) -> NDArray[np.float64]:
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
