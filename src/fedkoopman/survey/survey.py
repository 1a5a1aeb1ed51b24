"""A site's data in figures, from one pass: what there is, what is missing, what looks wrong.

found = survey(SiteFile.load("lab-a/site.toml"), dt=0.02)
found.samples, found.channels[0].missing, found.notes
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.site_sections import DataSection
from fedkoopman.config.study import Study
from fedkoopman.data.observations import columns_taken
from fedkoopman.data.segments import segments
from fedkoopman.data.triage import held_out, least_samples, useless
from fedkoopman.errors import InputError
from fedkoopman.paths import naming, shown
from fedkoopman.survey.channel_statistics import Channel, ChannelTally, channel_notes

__all__ = ["SegmentFacts", "Survey", "survey", "surveys_of"]

_APART = 1.5
"""Samples so many times further apart than dt, or closer, are told of."""


@dataclass(frozen=True)
class SegmentFacts:
    """What is known of a segment without its samples.

    Attributes:
        name: the segment's, as `Segment.name`.
        file: where it was recorded, for messages.
        samples: on the grid.
        missing: the share of its observations that is missing.
        gaps: how many times all channels are missing.
        longest_gap: samples of the longest of them.
        start_time: instant of the first sample.
        cut: whether it is a piece of a longer one.
        held_out: whether it is kept for evaluation.
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
        site: its name.
        dt: the study's sampling interval.
        files: how many.
        segments: in order.
        channels: in the sensor's order.
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
        """Samples of all segments, the missing ones too."""
        return sum(s.samples for s in self.segments)

    @property
    def gaps(self) -> int:
        """How many times all channels are missing."""
        return sum(s.gaps for s in self.segments)

    @property
    def longest_gap(self) -> int:
        """Samples of the longest gap."""
        return max(s.longest_gap for s in self.segments)

    @property
    def lengths(self) -> tuple[int, float, int]:
        """Samples of the shortest, the median and the longest segment."""
        counts = [s.samples for s in self.segments]
        return min(counts), float(np.median(counts)), max(counts)

    @property
    def held_out(self) -> tuple[str, ...]:
        """Names of the segments that are kept for evaluation."""
        return tuple(s.name for s in self.segments if s.held_out)


def survey(site: SiteFile, dt: float, progress: Callable[[int, int], None] | None = None) -> Survey:
    """Read all of a site's data once, check it and count.

    Arguments:
        site: what to read.
        dt: the study's sampling interval.
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
        *channel_notes(channels, site.sensor.get("angles", ()), len(facts)),
        *_segment_notes(len(set(bases)), sum(fact.cut for fact in facts), any(kept), site.data),
        *_interval_notes(float(np.median(intervals)) if intervals else dt, dt),
        *([taken] if taken else []),
    )
    return Survey(site.name, dt, len(site.files()), tuple(facts), channels, notes)


def _longest_run(missing: np.ndarray) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], missing, [False]])))
    return int(np.max(edges[1::2] - edges[::2]))


def _segment_notes(uncut: int, pieces: int, kept: bool, data: DataSection) -> Iterator[str]:
    """Segments that were cut, and nothing to evaluate on.

    Arguments:
        uncut: segments as they were recorded.
        pieces: how many pieces were cut.
        kept: whether a segment is held out.
        data: the site's settings.
    """
    if pieces:
        yield (
            f"segments longer than data.longest = {data.longest} samples were cut into {pieces} "
            "pieces"
        )
    if not kept:
        why = "there is only one segment" if uncut == 1 and data.held_out else "data.held_out is 0"
        yield f"no segment is held out for evaluation, as {why}"


def _interval_notes(interval: float, dt: float) -> Iterator[str]:
    """Samples that are further apart than dt, or closer.

    Arguments:
        interval: the usual one of the site's samples.
        dt: the study's.
    """
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


def surveys_of(
    study: Study, dt: float, files: Sequence[SiteFile], tell: Callable[[str, int, int], None]
) -> list[Survey]:
    """The surveys of all sites; refused where they leave nothing to train on or to score with."""
    found, scored = [], False
    for site in files:
        one = survey(site, dt, partial(tell, f"reading {site.name}"))
        found.append(one)
        good = [facts for facts in one.segments if not facts.useless(study)]
        scored = scored or any(facts.held_out for facts in good)
        if all(facts.held_out for facts in good):
            raise InputError(
                f"{shown(site.path)}: of {len(one.segments)} segments, {len(one.held_out)} held "
                f"out, none is left to train on with the {least_samples(study, False)} samples "
                "that it takes: record longer ones, or hold out fewer"
            )
    if not scored:
        raise InputError(
            f"no site holds out a segment of the {least_samples(study, True)} samples that "
            "evaluation.horizon takes: record more than one, or give data.held_out a share"
        )
    return found
