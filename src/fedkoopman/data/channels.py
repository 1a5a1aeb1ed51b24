"""The base of formats with channels that are sampled at fixed rates (EDF, BDF, WFDB).

Columns have the channels' labels, and `time` is counted from the first sample, in seconds. The
columns that are read have one rate: those of another are another site's, or another file's.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from fedkoopman.data.tables import Chunk, Table, label_runs
from fedkoopman.errors import InputError

TIME = "time"

Read = Callable[[Sequence[int], int, int], np.ndarray]
"""Channels by their numbers, from one sample to before another, as (n, k)."""


@dataclass(frozen=True)
class Channel:
    """One signal of a file.

    Attributes:
        rate: samples per second.
        samples: how many there are.
        frame: how many samples are only read together.
    """

    label: str
    rate: float
    samples: int
    frame: int = 1


class Channels(Table):
    """A file of channels; a format says which there are and how some of their samples are read."""

    @abstractmethod
    def channels(self) -> Sequence[Channel]:
        """The channels in the file's order."""

    @abstractmethod
    def reader(self) -> AbstractContextManager[Read]:
        """The open file."""

    def header(self) -> list[str]:
        """The labels, numbered where one comes again, and `time`."""
        self._channels = tuple(self.channels())
        if not self._channels:
            raise InputError(f"{self.title} has no channels: it needs at least one")
        names: list[str] = []
        for channel in self._channels:
            again = sum(channel.label == other.label for other in self._channels[: len(names)])
            names.append(f"{channel.label} {again + 1}" if again else channel.label)
        self._places = {name: place for place, name in enumerate(names)}
        return names if TIME in names else [*names, TIME]

    def chunks(self, numbers: list[str], label: str | None, block_bytes: int) -> Iterator[Chunk]:
        wanted = [*numbers, *filter(None, [label])]
        places = [self._places[name] for name in wanted if name in self._places]
        first = self._one_rate(places)
        rows = max(1, block_bytes // (8 * len(wanted) * first.frame)) * first.frame
        with self.reader() as read:
            for start in range(0, first.samples, rows):
                stop = min(start + rows, first.samples)
                columns = dict(zip(places, read(places, start, stop).T, strict=True))
                times = np.arange(start, stop) / first.rate
                values = [columns.get(self._places.get(name, -1), times) for name in wanted]
                runs = label_runs(_texts(values.pop())) if label else ()
                yield Chunk(np.column_stack(values), runs, stop / first.samples)

    def _one_rate(self, places: Sequence[int]) -> Channel:
        """The first of some channels, all of which have its rate."""
        chosen = [self._channels[place] for place in places or [0]]
        first, other = chosen[0], next((c for c in chosen if c.rate != chosen[0].rate), None)
        if other:
            raise InputError(
                f"{self.title} has {first.label!r} at {first.rate:g} Hz but {other.label!r} at "
                f"{other.rate:g} Hz: name columns of one rate by data.columns"
            )
        for channel in chosen:
            if not (0 < channel.rate < np.inf) or channel.samples != first.samples:
                raise InputError(
                    f"channel {channel.label!r} of {self.title} has {channel.samples} samples at "
                    f"{channel.rate:g} Hz: its header is damaged, write the file again"
                )
        return first


def _texts(values: np.ndarray) -> list[str]:
    """Numbers as labels; a zero that was scaled is a zero."""
    return [f"{value:g}" for value in (np.round(values, 6) + 0.0).tolist()]
