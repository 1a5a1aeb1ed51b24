"""Range, mean, spread and oddities of each observed channel, gathered segment by segment."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

FAR = 20.0
"""A value so many interquartile ranges from the median is suspicious."""

_TWO_TURNS = 4 * math.pi
_DEGREES = 361.0
_PER_SEGMENT = 256
_KEPT = 65_536
"""Samples kept for quartiles: from a segment, and from all; then every other one is dropped."""


@dataclass(frozen=True)
class Suspicious:
    """An extreme value far from all usual ones, as a code for a fault or a slip of units.

    Attributes:
        value: the value, in the sensor's units.
        count: how many times it occurs.
        segment: where it occurs first.
        sample: its number there, from 1.
    """

    value: float
    count: int
    segment: str
    sample: int


@dataclass(frozen=True)
class Channel:
    """What one observed channel holds, in the sensor's units.

    Attributes:
        name: of its column.
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
        """Whether it has one value throughout."""
        return self.low == self.high

    @property
    def dead(self) -> bool:
        """Whether it was never observed."""
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
        """What is known by now."""
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


def channel_notes(
    channels: Sequence[Channel], angles: Sequence[int], segments: int
) -> Iterator[str]:
    """Channels that say nothing, values that stand out, angles in degrees.

    Arguments:
        channels: in the sensor's order.
        angles: indices of those that are angles.
        segments: how many there are.
    """
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
