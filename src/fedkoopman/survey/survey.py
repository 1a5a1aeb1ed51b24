"""A site's data in figures, from one pass: what there is, what is missing, what looks wrong.

found = survey(SiteFile.load("lab-a/site.toml"), dt=0.02)
found.samples, found.channels[0].missing, found.notes
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedkoopman.config.site_file import DataSection, SiteFile
from fedkoopman.config.study import Study
from fedkoopman.data.observations import columns_taken
from fedkoopman.data.segments import segments
from fedkoopman.data.triage import held_out, useless
from fedkoopman.errors import InputError
from fedkoopman.paths import naming, shown

FAR = 20.0
"""A value so many interquartile ranges from the median is suspicious."""

_TWO_TURNS = 4 * math.pi
_DEGREES = 361.0
_PER_SEGMENT = 256
_KEPT = 65_536
"""Samples kept for quartiles: from a segment, and from all; then every other one is dropped."""
_APART = 1.5
"""Samples so many times further apart than dt, or closer, are told of."""


@dataclass(frozen=True)
class Suspicious:
    """An extreme value far from all usual ones, as a code for a fault or a slip of units.

    It occurs `count` times, first in a sample (from 1) of a segment.
    """

    value: float
    count: int
    segment: str
    sample: int


@dataclass(frozen=True)
class Channel:
    """What one observed channel holds, in the sensor's units.

    Attributes:
        missing: the share of samples that is missing.
        low, high, mean, std: of what is there; NaN if nothing is.
        constant_segments: how many segments in which it has two samples or more, all the same.
        suspicious: extreme values far from the others.
    """

    name: str
    missing: float
    low: float
    high: float
    mean: float
    std: float
    constant_segments: int
    suspicious: tuple[Suspicious, ...]

    @property
    def constant(self) -> bool:
        return self.low == self.high

    @property
    def dead(self) -> bool:
        return self.missing == 1.0


class ChannelTally:
    """What is known of one channel after some segments."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.samples = 0
        self.there = 0
        self.mean = 0.0
        self.squares = 0.0
        self.constant = 0
        self.lowest: Suspicious | None = None
        self.highest: Suspicious | None = None
        self.kept: list[np.ndarray] = []
        self.stride = 1

    def add(self, segment: str, values: np.ndarray) -> None:
        """Take in the samples of a segment, NaN where they are missing."""
        self.samples += len(values)
        missing = np.isnan(values)
        z = values[~missing] if missing.any() else values
        if not len(z):
            return
        # Chan's update: sums about the means of the parts lose no digits to a large mean
        mean = float(z.mean())
        total = self.there + len(z)
        between = (mean - self.mean) ** 2 * self.there * len(z) / total
        self.squares += float(np.sum((z - mean) ** 2)) + between
        self.mean += (mean - self.mean) * len(z) / total
        self.there = total
        low, high = float(z.min()), float(z.max())
        self.constant += low == high and len(z) > 1
        self.lowest = _extreme(self.lowest, values, low, segment, is_new=np.less)
        self.highest = _extreme(self.highest, values, high, segment, is_new=np.greater)
        self._keep(z)

    def _keep(self, z: np.ndarray) -> None:
        """A thinned copy, for quartiles: all segments alike, every stride-th of them."""
        step = -(-len(z) // _PER_SEGMENT) * self.stride
        self.kept.append(np.array(z[::step]))
        if sum(map(len, self.kept)) > _KEPT:
            self.kept = [np.concatenate(self.kept)[::2].copy()]
            self.stride *= 2

    def channel(self) -> Channel:
        if self.lowest is None or self.highest is None:
            nan = float("nan")
            return Channel(self.name, 1.0, nan, nan, nan, nan, 0, ())
        low, middle, high = np.quantile(np.concatenate(self.kept), (0.25, 0.5, 0.75))
        far = FAR * (high - low)
        odd = [x for x in (self.lowest, self.highest) if far > 0 and abs(x.value - middle) > far]
        return Channel(
            name=self.name,
            missing=1 - self.there / self.samples,
            low=self.lowest.value,
            high=self.highest.value,
            mean=self.mean,
            std=float(np.sqrt(self.squares / self.there)),
            constant_segments=self.constant,
            suspicious=tuple(odd),
        )


def _extreme(
    known: Suspicious | None, values: np.ndarray, value: float, segment: str, is_new: np.ufunc
) -> Suspicious:
    """The extreme value so far, how often it came and where it came first."""
    if known is not None and not is_new(value, known.value):
        again = int(np.count_nonzero(values == known.value)) if value == known.value else 0
        return Suspicious(known.value, known.count + again, known.segment, known.sample)
    at = values == value
    return Suspicious(value, int(np.count_nonzero(at)), segment, int(np.argmax(at)) + 1)


@dataclass(frozen=True)
class SegmentFacts:
    """What is known of a segment without its samples.

    Attributes:
        file: where it was recorded, for messages.
        missing: the share of its observations that is missing.
        longest_gap: samples of the longest of them.
    """

    name: str
    file: str
    samples: int
    missing: float
    gaps: int
    longest_gap: int
    start_time: float
    cut: bool
    held_out: bool = False

    def useless(self, study: Study) -> str:
        """Why nothing can be learned from it, or scored with it; empty if it can."""
        return useless(study, self.samples, self.missing < 1, self.held_out)


@dataclass(frozen=True)
class Survey:
    """What a site has.

    Attributes:
        notes: what a person should look at, one sentence each.
    """

    site: str
    dt: float
    files: int
    segments: tuple[SegmentFacts, ...]
    channels: tuple[Channel, ...]
    notes: tuple[str, ...]

    @property
    def samples(self) -> int:
        return sum(s.samples for s in self.segments)

    @property
    def gaps(self) -> int:
        return sum(s.gaps for s in self.segments)

    @property
    def longest_gap(self) -> int:
        return max(s.longest_gap for s in self.segments)

    @property
    def lengths(self) -> tuple[int, float, int]:
        """Samples of the shortest, the median and the longest segment."""
        counts = [s.samples for s in self.segments]
        return min(counts), float(np.median(counts)), max(counts)

    @property
    def held_out(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.segments if s.held_out)


def survey(site: SiteFile, dt: float, progress: Callable[[int, int], None] | None = None) -> Survey:
    """Read all of a site's data once, check it and count.

    Arguments:
        progress: called with the bytes read so far, and how many there are.
    """
    facts: list[SegmentFacts] = []
    tallies: list[ChannelTally] = []
    intervals: list[float] = []
    for segment in segments(site, dt, progress=progress):
        z = segment.observations
        tallies = tallies or [ChannelTally(name) for name in segment.channels]
        for tally, values in zip(tallies, z.T, strict=True):
            tally.add(segment.name, values)
        if segment.interval is not None:
            intervals.append(segment.interval)
        facts.append(
            SegmentFacts(
                name=segment.name,
                file=shown(segment.file),
                samples=len(z),
                missing=float(np.count_nonzero(np.isnan(z))) / z.size,
                gaps=segment.gaps,
                longest_gap=_longest_run(np.isnan(z).all(axis=1)) if segment.gaps else 0,
                start_time=segment.start_time,
                cut=segment.cut,
            )
        )
    names = [fact.name for fact in facts]
    twice = next((name for name, n in Counter(names).items() if n > 1), None)
    if twice is not None:
        raise InputError(
            f"{shown(site.path)}: two segments are called {twice!r}: give one another name, or "
            "another data.longest, by which segments are cut and numbered"
        )
    bases = [fact.name.rpartition(".")[0] if fact.cut else fact.name for fact in facts]
    with naming(site.path):
        kept = held_out(site.data.held_out, names, bases)
    facts = [replace(fact, held_out=keep) for fact, keep in zip(facts, kept, strict=True)]
    channels = tuple(tally.channel() for tally in tallies)
    taken = columns_taken(site)
    notes = (
        *_channel_notes(channels, site.sensor.get("angles", ()), len(facts)),
        *_segment_notes(len(set(bases)), sum(fact.cut for fact in facts), any(kept), site.data),
        *_interval_notes(float(np.median(intervals)) if intervals else dt, dt),
        *([taken] if taken else []),
    )
    return Survey(site.name, dt, len(site.files()), tuple(facts), channels, notes)


def _longest_run(missing: np.ndarray) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], missing, [False]])))
    return int(np.max(edges[1::2] - edges[::2]))


def _channel_notes(
    channels: Sequence[Channel], angles: Sequence[int], segments: int
) -> Iterator[str]:
    """Channels that say nothing, values that stand out, angles (by index) in degrees."""
    for i, channel in enumerate(channels):
        name = channel.name
        if channel.dead:
            yield f"{name} was never observed: check data.columns, or do without it"
            continue
        if channel.constant:
            yield f"{name} is {channel.low:g} throughout: check the sensor, or data.columns"
        elif channel.constant_segments:
            yield (
                f"{name} does not change in {channel.constant_segments} of {segments} segments: "
                "check the sensor"
            )
        for odd in channel.suspicious:
            times = "once" if odd.count == 1 else f"{odd.count} times"
            yield (
                f"{name} is {odd.value:g} {times}, first in sample {odd.sample} of segment "
                f"{odd.segment}, far from all else: if that marks a fault, leave the cell blank"
            )
        size = max(abs(channel.low), abs(channel.high))
        if i in angles and not channel.suspicious and _TWO_TURNS < size <= _DEGREES:
            yield (
                f"{name} reaches {size:.4g} but angles are in radians: if these are degrees, set "
                "data.scale = 0.017453292519943295"
            )


def _segment_notes(uncut: int, pieces: int, kept: bool, data: DataSection) -> Iterator[str]:
    """Segments that were cut, and nothing to evaluate on (`kept`)."""
    if pieces:
        yield (
            f"segments longer than data.longest = {data.longest} samples were cut into {pieces} "
            "pieces"
        )
    if not kept:
        why = "there is only one segment" if uncut == 1 and data.held_out else "data.held_out is 0"
        yield f"no segment is held out for evaluation, as {why}"


def _interval_notes(interval: float, dt: float) -> Iterator[str]:
    """Samples that are usually further apart than the study's dt, or closer."""
    if interval > _APART * dt:
        yield (
            f"samples are {interval:.6g} apart but the study's dt is {dt:.6g}: those between are "
            "missing or, where resampled, interpolated"
        )
    elif interval * _APART < dt:
        yield (
            f"samples are {interval:.6g} apart but the study's dt is {dt:.6g}: they are resampled "
            "without averaging, and keep their noise"
        )
