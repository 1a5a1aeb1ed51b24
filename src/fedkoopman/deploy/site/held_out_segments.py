"""What a site holds out, as it lies in its store."""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from fedkoopman.data.estimator import HeldOut
from fedkoopman.deploy.site.store import Store


class HeldOutSegments(Sequence[HeldOut]):
    """Held-out segments, each read from the store when it is looked at."""

    def __init__(self, store: Store) -> None:
        """Arguments: store: where they are kept."""
        self._store = store
        with store.looking() as c:
            rows = c.execute(
                "SELECT number, samples FROM segments JOIN files ON file = path "
                "WHERE kind = 'held-out' AND state = 'taken' ORDER BY number"
            )
            self._found: list[tuple[int, int]] = rows.fetchall()

    @property
    def lengths(self) -> list[int]:
        """Samples of each."""
        return [samples for _, samples in self._found]

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[HeldOut]:
        return (self._read(place) for place in range(len(self)))

    @overload
    def __getitem__(self, place: int) -> HeldOut: ...
    @overload
    def __getitem__(self, place: slice) -> list[HeldOut]: ...
    def __getitem__(self, place: int | slice) -> HeldOut | list[HeldOut]:
        if isinstance(place, slice):
            return [self._read(i) for i in range(len(self))[place]]
        return self._read(place)

    def _read(self, place: int) -> HeldOut:
        number, samples = self._found[place]
        with self._store.looking() as c:
            name, states, observations = c.execute(
                "SELECT name, states, observations FROM segments JOIN contents ON segment = number "
                "WHERE number = ?",
                (number,),
            ).fetchone()
        return HeldOut(
            name, *(np.frombuffer(b).reshape(samples, -1) for b in (states, observations))
        )
