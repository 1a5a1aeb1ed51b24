"""What a person should look at in a site's data, in sentences: what there is and what to do."""

import math
from collections.abc import Iterator, Sequence

from fedkoopman.config.site_sections import DataSection
from fedkoopman.survey.channel_statistics import Channel

_APART = 1.5
_TWO_TURNS = 4 * math.pi
_DEGREES = 361.0


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


def segment_notes(uncut: int, pieces: int, kept: bool, data: DataSection) -> Iterator[str]:
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


def interval_notes(interval: float, dt: float) -> Iterator[str]:
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
