"""From sites' files to states: what every site does by itself before anybody trains.

Segments are read one after the other and estimated on all cores, each alone and filled up to a
power of two, so that its states depend on nothing but itself. States lie in a temporary file, not
in memory.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import ComputationError, InputError
from fedkoopman.estimation import Estimates, estimate
from fedkoopman.estimation.batches import cores
from fedkoopman.sensors import Sensor
from fedkoopman.studies.config import Study
from fedkoopman.studies.parts import noise_of, sensor_of, system_of
from fedkoopman.studies.segments import Segment, segments
from fedkoopman.studies.shelf import Shelf
from fedkoopman.studies.site_file import SiteFile
from fedkoopman.studies.site_knowledge import Knowledge, known_noise, known_system
from fedkoopman.studies.site_surveys import surveys_of, useless
from fedkoopman.studies.source_file import shown
from fedkoopman.studies.survey import Survey
from fedkoopman.systems import System

__all__ = [
    "Estimator",
    "HeldOut",
    "PreparedSite",
    "Sites",
    "estimated",
    "estimator_of",
    "prepared_sites",
    "sensor_for",
    "site_files",
]

SHORTEST = 64
"""Samples to which a shorter segment is filled up, as missing; so that few lengths are compiled."""
SHOWN = 3
"""Dropped segments that a message names."""

Progress = Callable[[str, int, int], None]
"""What is at work, how much of it is done, and how much there is."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A segment on which models are scored: what was observed, and the states made of it."""

    name: str
    states: NDArray[np.float64]
    observations: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PreparedSite:
    """What a site brings.

    Attributes:
        name: the site's.
        sensor: how it sees the state.
        observation_noise, process_noise: as declared, or as estimated.
        train: states (T_i, d) of its segments, in order.
        held_out: segments that are not trained on.
        dropped: segments that are of no use, with the reason.
    """

    name: str
    sensor: Sensor
    observation_noise: NDArray[np.float64]
    process_noise: NDArray[np.float64]
    train: tuple[NDArray[np.float64], ...]
    held_out: tuple[HeldOut, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Sites:
    """All sites of a study.

    Attributes:
        system: the dynamics, with the parameters that were estimated.
        sites: in the study's order.
        parameters: estimated ones by name, with their standard deviations.
    """

    system: System
    sites: tuple[PreparedSite, ...]
    parameters: dict[str, tuple[float, float]]


def site_files(study: Study, system: System | None = None) -> tuple[SiteFile, ...]:
    """The study's site files, checked against its system and against each other."""
    system = system or system_of(study)
    files = [SiteFile.load(study.root / file) for file in study.sites.files]
    seen: dict[str, Path] = {}
    for site in files:
        if site.name in seen:
            raise InputError(
                f"{shown(site.path)} and {shown(seen[site.name])} are both called "
                f"{site.name!r}: give every site a name of its own"
            )
        seen[site.name] = site.path
        site.check_states(system.names)
        if len(site.data.inputs) != system.input_dim:
            raise InputError(
                f"{shown(site.path)}: data.inputs names {len(site.data.inputs)} columns but the "
                f"system takes {system.input_dim} inputs: name one column per input"
            )
        sensor_for(site, system)
    return tuple(files)


def sensor_for(site: SiteFile, system: System) -> Sensor:
    """The site's sensor."""
    key = f"{shown(site.path)}: sensor"
    return sensor_of(site.sensor, system.dim, seed=0, folder=site.folder, key=key)


def prepared_sites(study: Study, progress: Progress | None = None) -> Sites:
    """Everything that sites do before training; once per study and state of their files."""
    stamps = tuple(
        (str(path), path.stat().st_mtime_ns, path.stat().st_size)
        for site in site_files(study)
        for path in (site.path, *site.files())
    )
    # Seeds, slots and training change nothing here.
    key = (study.system, study.sites, study.estimation, study.root)
    return _prepared(_Call(study, progress, (repr(key), stamps)))


@dataclass(frozen=True)
class _Call:
    """A study that is told from others by what decides its sites' states."""

    study: Study = field(compare=False)
    progress: Progress | None = field(compare=False)
    key: tuple[str, tuple[tuple[str, int, int], ...]]


@lru_cache(maxsize=4)
def _prepared(call: _Call) -> Sites:
    study, tell = call.study, call.progress or (lambda *_: None)
    system = system_of(study)
    files = site_files(study, system)
    surveys = surveys_of(study, system, files, tell)
    sensors = [sensor_for(site, system) for site in files]
    knowledge = [
        Knowledge(site, sensor, found.held_out)
        for site, sensor, found in zip(files, sensors, surveys, strict=True)
    ]
    system, parameters = known_system(study, system, knowledge, tell)
    found = tuple(_site(study, system, k, s, tell) for k, s in zip(knowledge, surveys, strict=True))
    if not any(site.held_out for site in found):
        reasons = [reason for site in found for reason in site.dropped]
        raise ComputationError(
            f"no held-out segment is left to score with; dropped: {_listed(reasons)}: run "
            "fedkoopman check, and mend the site files"
        )
    return Sites(system, found, parameters)


@dataclass(frozen=True, eq=False)
class Estimator:
    """One site's way from observations to states.

    Attributes:
        study: how to estimate.
        system, sensor: what is observed, and through what.
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
        options = _options(self.study, self.system, self.site) | {
            "observation_noise": self.observation_noise,
            "process_noise": self.process_noise,
        }
        for segment, found in estimated(self.system, self.sensor, stream, options):
            yield segment, np.asarray(found.mean), _implausible(self.system, self.site, found)


def estimator_of(
    study: Study, system: System, known: Knowledge, tell: Progress = lambda *_: None
) -> Estimator:
    """A site's estimator; noise that it does not know is estimated from its first segments."""
    observation, process = known_noise(study, system, known, tell)
    return Estimator(study, system, known.sensor, known.site, observation, process)


def _site(
    study: Study, system: System, known: Knowledge, found: Survey, tell: Progress
) -> PreparedSite:
    site = known.site
    estimator = estimator_of(study, system, known, tell)
    names, dropped = list[str](), list[str]()
    title, total = f"estimating {site.name}", len(found.segments)
    results = estimator(segments(site, float(system.dt)))
    with Shelf() as shelf, Shelf() as aside:
        pairs = zip(found.segments, results, strict=True)
        for done, (facts, (segment, states, implausible)) in enumerate(pairs):
            reason = useless(study, facts) or implausible
            if reason:
                dropped.append(f"{segment.name}: {reason}")
            elif facts.held_out:
                names.append(segment.name)
                aside.keep(states)
                aside.keep(segment.observations)
            else:
                shelf.keep(states)
            tell(title, done + 1, total)
        train, kept = shelf.arrays(), aside.arrays()
    held = tuple(map(HeldOut, names, kept[::2], kept[1::2]))
    if not train:
        raise ComputationError(
            f"{site.name} has no segment to train on; dropped: {_listed(dropped)}: "
            f"run fedkoopman check, and mend {shown(site.path)}"
        )
    return PreparedSite(
        site.name, known.sensor, estimator.observation_noise, estimator.process_noise, train, held,
        tuple(dropped),
    )  # fmt: skip


def estimated(
    system: System, sensor: Sensor, stream: Iterator[Segment], options: dict[str, Any]
) -> Iterator[tuple[Segment, Estimates]]:
    """Segments with their estimates, in order; as many are at work as there are cores.

    Arguments:
        options: of `fk.estimate`.
    """

    def one(segment: Segment) -> Estimates:
        z = segment.observations
        room = None  # a particle filter draws for every sample, so that each length is its own
        if options["method"] != "particle":
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


def _options(study: Study, system: System, site: SiteFile) -> dict[str, Any]:
    chosen = study.estimation
    mean = np.broadcast_to(np.asarray(site.initial.mean, float), (system.dim,))
    return {
        "initial_mean": np.array(mean),
        "initial_cov": noise_of(site.initial.cov, system.dim, f"{shown(site.path)}: initial.cov"),
        "method": chosen.method,
        "smooth": chosen.smooth,
        "alpha": chosen.alpha,
        "beta": chosen.beta,
        "kappa": chosen.kappa,
        "particles": chosen.particles,
    }


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


def _listed(reasons: Sequence[str]) -> str:
    """The first of many, as they may stand in one line."""
    more = f"; and {len(reasons) - SHOWN} more" if len(reasons) > SHOWN else ""
    return "; ".join(reasons[:SHOWN]) + more
