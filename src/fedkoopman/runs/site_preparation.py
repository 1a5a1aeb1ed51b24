"""From sites' files to states: what every site does by itself before anybody trains.

Segments are read one after the other and estimated on all cores, each alone and filled up to a
power of two, so that its states depend on nothing but itself. States lie in a temporary file, not
in memory.
"""

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.study import Study
from fedkoopman.data.beliefs import Knowledge, Progress
from fedkoopman.data.estimator import HeldOut, estimator_of
from fedkoopman.data.observations import columns_taken
from fedkoopman.data.segments import segments
from fedkoopman.data.triage import triage
from fedkoopman.errors import ComputationError
from fedkoopman.paths import shown
from fedkoopman.sensors import Sensor
from fedkoopman.survey.site_check import known_sites
from fedkoopman.survey.survey import Survey
from fedkoopman.systems import System

SHOWN = 3
"""Dropped segments that a message names."""


@dataclass(frozen=True, eq=False)
class PreparedSite:
    """What a site brings.

    Attributes:
        observation_noise, process_noise: as declared, or as estimated.
        train: states (T_i, d) of its segments, in order; where samples were left out, with a row
            of NaN in their place (`estimation.left_out`).
        held_out: segments that are not trained on.
        dropped: segments that are of no use, with the reason.
        left_out: other segments of which samples are of no use, with their number and the reason.
        budget: of privacy, ε.
    """

    name: str
    sensor: Sensor
    observation_noise: NDArray[np.float64]
    process_noise: NDArray[np.float64]
    train: tuple[NDArray[np.float64], ...]
    held_out: tuple[HeldOut, ...]
    dropped: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    budget: float = math.inf


@dataclass(frozen=True, eq=False)
class Sites:
    """All sites of a study.

    Attributes:
        system: the dynamics, with the parameters that were estimated.
        sites: in the study's order.
        parameters: estimated ones by name, with their standard deviations.
        notes: what a user should be told of the sites' files, one sentence each.
    """

    system: System
    sites: tuple[PreparedSite, ...]
    parameters: dict[str, tuple[float, float]]
    notes: tuple[str, ...] = ()


def prepared_sites(study: Study, tell: Progress = lambda *_: None) -> Sites:
    """Everything that sites do before training. It takes long: pass the result on.

    Arguments:
        study: whose seed, slots and training change nothing here.
        tell: called with what is at work, how much of it is done, and how much there is.
    """
    known = known_sites(study, tell)
    found = tuple(_site(study, known.system, *one, tell) for one in known.sites)
    if not any(site.held_out for site in found):
        reasons = [reason for site in found for reason in site.dropped]
        raise ComputationError(
            f"no held-out segment is left to score with; dropped: {_listed(reasons)}: run "
            "fedkoopman check, and mend the site files"
        )
    notes = tuple(note for one, _ in known.sites if (note := columns_taken(one.site)))
    return Sites(known.system, found, known.parameters, notes)


def _site(
    study: Study, system: System, known: Knowledge, found: Survey, tell: Progress
) -> PreparedSite:
    site = known.site
    estimator = estimator_of(study, system, known, tell)
    names, dropped, left_out = list[str](), list[str](), list[str]()
    title, total = f"estimating {site.name}", len(found.segments)
    results = estimator(segments(site, float(system.dt)))
    first_std = None  # of the first held-out segment, which reports show
    with SpilledArrays() as to_train, SpilledArrays() as to_score:
        pairs = zip(found.segments, results, strict=True)
        for done, (facts, result) in enumerate(pairs):
            fate, name = triage(study, result, facts.held_out), result.segment.name
            if fate.kind == "dropped":
                dropped.append(f"{name}: {fate.reason}")
            elif fate.reason:
                left_out.append(f"{name}: {fate.reason}")
            if fate.observations is not None:
                first_std = fate.std if not names else first_std
                names.append(name)
                to_score.keep(fate.states)
                to_score.keep(fate.observations)
            elif fate.kind == "train":
                to_train.keep(fate.states)
            tell(title, done + 1, total)
        train, kept = to_train.arrays(), to_score.arrays()
    stds = [first_std, *([None] * len(names))]
    held = tuple(map(HeldOut, names, kept[::2], kept[1::2], stds))
    if not train:
        raise ComputationError(
            f"{site.name} has no segment to train on; dropped: {_listed(dropped)}: "
            f"run fedkoopman check, and mend {shown(site.path)}"
        )
    return PreparedSite(
        site.name, known.sensor, estimator.beliefs.observation_noise,
        estimator.beliefs.process_noise, train, held, tuple(dropped),
        tuple(left_out), site.privacy.limit,
    )  # fmt: skip


def _listed(reasons: Sequence[str]) -> str:
    """The first of many, as they may stand in one line."""
    more = f"; and {len(reasons) - SHOWN} more" if len(reasons) > SHOWN else ""
    return "; ".join(reasons[:SHOWN]) + more


class SpilledArrays:
    """Takes arrays one by one into a temporary file, and gives them back when all are there.

    The file has no name that anybody could see. It is gone when nobody looks at the arrays.
    """

    def __init__(self) -> None:
        with _told():
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed on exit
        self._shapes: list[tuple[int, ...]] = []

    def __enter__(self) -> "SpilledArrays":
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file; arrays that were given back keep what they need of it."""
        with suppress(OSError):  # of a full disk, told before
            self._file.close()

    def keep(self, array: NDArray[np.float64]) -> None:
        with _told():
            self._file.write(np.ascontiguousarray(array, np.float64).tobytes())
            self._file.flush()
        self._shapes.append(array.shape)

    def arrays(self) -> tuple[NDArray[np.float64], ...]:
        """All arrays in order, read from the file when they are looked at.

        They share one mapping: with one each, a thousand segments would take a thousand handles.
        """
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        if not sum(sizes):
            return tuple(np.empty(shape) for shape in self._shapes)
        with _told():
            whole = np.asarray(np.memmap(self._file, np.float64, "r"))
        parts = np.split(whole, np.cumsum(sizes)[:-1])
        return tuple(part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True))


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ComputationError(
            f"cannot keep estimated states in a temporary file: {error.strerror or error}: make "
            "room, or set TMPDIR to a directory that has some"
        ) from error
