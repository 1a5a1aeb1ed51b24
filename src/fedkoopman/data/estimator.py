"""From a site's segments to states, and which of them are of use.

States are estimated on all cores, each segment by itself and filled up to a power of two, so that
its states depend on nothing but itself.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.parts import drops_lost, method_of, model_inputs
from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.data.beliefs import Beliefs, Knowledge, Progress, beliefs_of, spread_of
from fedkoopman.data.segments import Segment
from fedkoopman.data.triage import Estimated
from fedkoopman.estimation import ESTIMATORS, Estimates, estimate, lost_track
from fedkoopman.estimation.estimates import cores
from fedkoopman.estimation.left_out import outside, uncertain
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System

SHORTEST = 64
"""Samples to which a shorter segment is filled up, as missing; so that few lengths are compiled."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A segment on which models are scored: what was observed, and the states made of it, with
    inputs after them where the model has some."""

    name: str
    states: NDArray[np.float64]
    observations: NDArray[np.float64]
    std: NDArray[np.float64] | None = None
    """Of the states without inputs, where it is kept."""


@dataclass(frozen=True, eq=False)
class Estimator:
    """One site's way from observations to states.

    Attributes:
        site: bounds of plausible states.
        beliefs: noise and initial state, as declared, or as estimated.
    """

    study: Study
    system: System
    sensor: Sensor
    site: SiteFile
    beliefs: Beliefs

    def __call__(self, stream: Iterator[Segment]) -> Iterator[Estimated]:
        """Segments with their states, and which of these are of no use."""
        options = {
            **self.beliefs.initial,
            **spread_of(self.study),
            "observation_noise": self.beliefs.observation_noise,
            "process_noise": self.beliefs.process_noise,
            "method": method_of(self.study),
            "smooth": self.study.estimation.smooth,
            "particles": self.study.estimation.particles,
        }
        judged, gate = drops_lost(self.study), self.study.estimation.gate
        for segment, found in estimated(self.system, self.sensor, stream, options):
            states = np.asarray(found.mean)
            rows = self._with_inputs(states, segment)
            if not found.ok:
                yield Estimated(segment, rows, "the filter diverged")
                continue
            (reason,) = lost_track(found) if judged else ("",)
            beyond = outside(states, self.bounds)
            std = np.asarray(found.std)
            doubted = uncertain(std, gate) if gate else None
            yield Estimated(segment, rows, reason, beyond, self._example(states), doubted, std)

    def _with_inputs(self, states: NDArray[np.float64], segment: Segment) -> NDArray[np.float64]:
        """Rows [x_k, u_k], where the study's model has inputs; u_k acts from sample k on.

        Nothing is learned from what acts after the last sample.
        """
        if not self.study.network.inputs:
            return states
        assert segment.inputs is not None and segment.coming is not None
        acts = np.vstack([segment.inputs[1:], segment.coming])
        return np.hstack([states, acts[:, model_inputs(self.study, self.site)]])

    @property
    def bounds(self) -> Sequence[tuple[int, float, float]]:
        """The site's bounds, with the places of the states that have some."""
        names = self.system.names
        return [(names.index(name), low, high) for name, (low, high) in self.site.bounds.items()]

    def _example(self, states: NDArray[np.float64]) -> str:
        """The first sample outside of the bounds, in words; empty if there is none."""
        for place, low, high in self.bounds:
            values = states[:, place]
            found = values[(values < low) | (values > high)]
            if len(found):
                return (
                    f"{self.system.names[place]} is {found[0]:.4g}, outside of [{low:g}, {high:g}]"
                )
        return ""


def estimator_of(
    study: Study, system: System, known: Knowledge, tell: Progress = lambda *_: None
) -> Estimator:
    """A site's estimator; what the site does not know is estimated from its first segments."""
    beliefs = beliefs_of(study, system, known, tell)
    return Estimator(study, system, known.sensor, known.site, beliefs)


def estimated(
    system: System, sensor: Sensor, stream: Iterator[Segment], options: dict[str, Any]
) -> Iterator[tuple[Segment, Estimates]]:
    """Segments with their estimates, in order; as many are at work as there are cores."""

    def one(segment: Segment) -> Estimates:
        z = segment.observations
        room = None
        if ESTIMATORS.find(options["method"]).takes_padding:
            room = max(SHORTEST, 1 << (len(z) - 1).bit_length())
        inputs = segment.inputs if system.input_dim else None
        return estimate(system, sensor, z, inputs=inputs, warn=False, room=room, **options)

    with ThreadPoolExecutor(cores()) as pool:
        waiting: deque[tuple[Segment, Future[Estimates]]] = deque()
        for segment in stream:
            waiting.append((segment, pool.submit(one, segment)))
            if len(waiting) > 2 * cores():
                first, result = waiting.popleft()
                yield first, result.result()
        for segment, result in waiting:
            yield segment, result.result()
