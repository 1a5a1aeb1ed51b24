"""The base of formats in which every topic has instants of its own (ULog, ROS bags, MCAP).

The topic of the first column gives the rows. A column of another topic holds its last value; rows
begin where every topic that is read has begun. `time` is in seconds.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fedkoopman.data.arrays import Variables
from fedkoopman.errors import InputError

TIME = "time"

Samples = tuple[np.ndarray, np.ndarray]
"""The instants of a topic (T,) in nanoseconds, as int64, and its fields (T, k)."""


class Topics(Variables):
    """A file of topics; a format says which fields there are and reads some of them.

    Attributes:
        from_first: whether time is counted from the first row, as instants since 1970 would be.
    """

    from_first: ClassVar[bool]

    @abstractmethod
    def fields(self) -> Mapping[str, tuple[str, str]]:
        """The topic and the field of every column."""

    @abstractmethod
    def samples(self, wanted: Mapping[str, Sequence[str]]) -> Mapping[str, Samples]:
        """What topics hold of the wanted fields; all in one reading of the file."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        self._fields = dict(self.fields())
        if not self._fields:
            raise InputError(f"{self.title} has no topic with numbers: it needs at least one")
        return dict.fromkeys([*self._fields, TIME], ())

    def load(self, names: Sequence[str]) -> Mapping[str, Any]:
        wanted: dict[str, list[str]] = {}
        for name in names:
            if name in self._fields:
                topic, field = self._fields[name]
                wanted.setdefault(topic, []).append(field)
        if not wanted:
            raise InputError(f"{self.title} was asked for {TIME!r} only: name observed columns too")
        found = self.samples(wanted)
        for topic, (instants, _) in found.items():
            if not len(instants):
                raise InputError(
                    f"topic {topic!r} of {self.title} has no messages: choose another by "
                    "data.columns, or leave the file out"
                )
        return self._aligned(names, wanted, found)

    def _aligned(
        self,
        names: Sequence[str],
        wanted: Mapping[str, Sequence[str]],
        found: Mapping[str, Samples],
    ) -> dict[str, np.ndarray]:
        """The wanted columns at the instants of the first topic."""
        first = next(iter(wanted))
        others = {t: np.argsort(found[t][0], kind="stable") for t in wanted if t != first}
        begin = max([found[t][0][order[0]] for t, order in others.items()], default=None)
        rows = found[first][0]
        kept = np.full(len(rows), True) if begin is None else rows >= begin
        if not kept.any():
            raise InputError(
                f"the topics {', '.join(map(repr, wanted))} of {self.title} do not overlap in "
                "time: choose columns of one topic"
            )
        rows = rows[kept]
        held = {first: found[first][1][kept]}
        for topic, order in others.items():
            instants, values = found[topic]
            last = np.searchsorted(instants[order], rows, side="right") - 1
            held[topic] = values[order][last]
        columns = {
            name: held[topic][:, wanted[topic].index(field)]
            for name in names
            for topic, field in [self._fields.get(name, (None, None))]
            if topic is not None and field is not None
        }
        origin = int(rows[0]) if self.from_first else 0
        return columns | ({TIME: (rows - origin) / 1e9} if TIME in names else {})
