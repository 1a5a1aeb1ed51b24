"""From a site's segments to states, and what a site must find out before: noise and parameters.

Noise and unknown parameters come from the first of a site's training segments, enough to know them
well. Parameters are shared: each site tells what it found and how sure it is, and never a sample.
States are estimated on all cores, each segment by itself and filled up to a power of two, so that
its states depend on nothing but itself.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.parts import method_of, noise_of
from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.data.segments import Segment, segments
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.estimation import ESTIMATORS, Estimates, estimate, estimate_parameters
from fedkoopman.estimation.estimates import cores
from fedkoopman.estimation.noise import estimate_noise
from fedkoopman.paths import shown
from fedkoopman.sensors import Sensor
from fedkoopman.systems import LocalPolynomial, System

ENOUGH = 5_000
"""Samples from which noise and parameters are estimated."""
DOUBT = 1e-4
"""Process noise that is assumed where none is given yet, relative to the initial covariance."""
SHORTEST = 64
"""Samples to which a shorter segment is filled up, as missing; so that few lengths are compiled."""

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


def known_noise(
    study: Study, system: System, known: Knowledge, tell: Progress
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Covariances of observation and process noise, as declared or, where "auto", estimated."""
    site, m = known.site, known.sensor.dim
    auto = {name: getattr(site.noise, name) == "auto" for name in ("observation", "process")}
    sample = sample_of(known, float(system.dt)) if any(auto.values()) else []
    observation = observation_noise(site, m, [segment.observations for segment in sample])
    if auto["process"] and isinstance(system, LocalPolynomial):
        process = np.asarray(system.process_noise(1.0))
    elif auto["process"]:
        process = DOUBT * np.diag(np.diag(initial_state(site, system.dim)["initial_cov"]))
    else:
        process = noise_of(site.noise.process, system.dim, f"{shown(site.path)}: noise.process")
    if not sample:
        return observation, process
    tell(f"noise of {site.name}", 0, 1)
    found = estimate_noise(
        system, known.sensor, [segment.observations[:ENOUGH] for segment in sample],
        observation_noise=observation, process_noise=process,
        **sample_options(study, system, site, sample),
        structure="diagonal" if auto["observation"] else "fixed",
        process_structure=_freedom(system, m) if auto["process"] else "fixed",
    )  # fmt: skip
    tell(f"noise of {site.name}", 1, 1)
    return found.observation_noise, found.process_noise


def known_system(
    study: Study, system: System, sites: Sequence[Knowledge], tell: Progress
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
            **sample_options(study, system, known.site, sample),
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


def common_options(study: Study, system: System, site: SiteFile) -> dict[str, Any]:
    """What all estimators are told."""
    chosen = study.estimation
    spread = {"alpha": chosen.alpha, "beta": chosen.beta, "kappa": chosen.kappa}
    return {**initial_state(site, system.dim), **spread}


def sample_options(
    study: Study, system: System, site: SiteFile, sample: list[Segment]
) -> dict[str, Any]:
    """`common_options`, and the inputs of some segments."""
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
    return common_options(study, system, site) | {"inputs": inputs}


def initial_state(site: SiteFile, dim: int) -> dict[str, NDArray[np.float64]]:
    """What a site expects of the state before a segment's first sample."""
    return {
        "initial_mean": np.array(np.broadcast_to(np.asarray(site.initial.mean, float), (dim,))),
        "initial_cov": noise_of(site.initial.cov, dim, f"{shown(site.path)}: initial.cov"),
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


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A segment on which models are scored: what was observed, and the states made of it."""

    name: str
    states: NDArray[np.float64]
    observations: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Estimator:
    """One site's way from observations to states.

    Attributes:
        site: bounds of plausible states, and what is known beforehand.
        observation_noise, process_noise: as declared, or as estimated.
    """

    study: Study
    system: System
    sensor: Sensor
    site: SiteFile
    observation_noise: NDArray[np.float64]
    process_noise: NDArray[np.float64]

    def __call__(
        self, stream: Iterator[Segment]
    ) -> Iterator[tuple[Segment, NDArray[np.float64], str]]:
        """Segments with their states (T, d), and why these are of no use; empty if they are."""
        options = {
            **common_options(self.study, self.system, self.site),
            "observation_noise": self.observation_noise,
            "process_noise": self.process_noise,
            "method": method_of(self.study),
            "smooth": self.study.estimation.smooth,
            "particles": self.study.estimation.particles,
        }
        for segment, found in estimated(self.system, self.sensor, stream, options):
            yield segment, np.asarray(found.mean), _implausible(self.system, self.site, found)


def estimator_of(
    study: Study, system: System, known: Knowledge, tell: Progress = lambda *_: None
) -> Estimator:
    """A site's estimator; noise that it does not know is estimated from its first segments."""
    observation, process = known_noise(study, system, known, tell)
    return Estimator(study, system, known.sensor, known.site, observation, process)


def estimated(
    system: System, sensor: Sensor, stream: Iterator[Segment], options: dict[str, Any]
) -> Iterator[tuple[Segment, Estimates]]:
    """Segments with their estimates, in order; as many are at work as there are cores."""

    def one(segment: Segment) -> Estimates:
        z = segment.observations
        room = None
        if ESTIMATORS.find(options["method"]).takes_padding:
            room = max(SHORTEST, 1 << (len(z) - 1).bit_length())
        return estimate(system, sensor, z, inputs=segment.inputs, warn=False, room=room, **options)

    with ThreadPoolExecutor(cores()) as pool:
        waiting: deque[tuple[Segment, Future[Estimates]]] = deque()
        for segment in stream:
            waiting.append((segment, pool.submit(one, segment)))
            if len(waiting) > 2 * cores():
                first, result = waiting.popleft()
                yield first, result.result()
        for segment, result in waiting:
            yield segment, result.result()


def _implausible(system: System, site: SiteFile, found: Estimates) -> str:
    """Why estimates cannot be used; empty if they can."""
    if not found.ok:
        return "the filter diverged"
    for name, (low, high) in site.bounds.items():
        values = np.asarray(found.mean)[:, system.names.index(name)]
        outside = (values < low) | (values > high)
        if outside.any():
            worst = values[outside][0]
            return f"{name} is {worst:.4g}, outside of [{low:g}, {high:g}]"
    return ""
