"""From a site's segments to states: one estimator per site, every segment estimated alone.

Segments are estimated on all cores, each filled up to a power of two, so that its states depend on
nothing but itself.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.parts import method_of, noise_of
from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.data.segments import Segment
from fedkoopman.data.site_knowledge import Knowledge, known_noise
from fedkoopman.estimation import ESTIMATORS, Estimates, estimate
from fedkoopman.estimation.estimates import cores
from fedkoopman.paths import shown
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System

__all__ = ["Estimator", "HeldOut", "Progress", "estimated", "estimator_of"]

SHORTEST = 64
"""Samples to which a shorter segment is filled up, as missing; so that few lengths are compiled."""

Progress = Callable[[str, int, int], None]
"""What is at work, how much of it is done, and how much there is."""


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


def estimated(
    system: System, sensor: Sensor, stream: Iterator[Segment], options: dict[str, Any]
) -> Iterator[tuple[Segment, Estimates]]:
    """Segments with their estimates, in order; as many are at work as there are cores.

    Arguments:
        options: of `fk.estimate`.
    """

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


def _options(study: Study, system: System, site: SiteFile) -> dict[str, Any]:
    chosen = study.estimation
    mean = np.broadcast_to(np.asarray(site.initial.mean, float), (system.dim,))
    return {
        "initial_mean": np.array(mean),
        "initial_cov": noise_of(site.initial.cov, system.dim, f"{shown(site.path)}: initial.cov"),
        "method": method_of(study),
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
