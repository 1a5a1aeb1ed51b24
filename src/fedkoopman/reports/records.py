"""A seed's records, read back for display while they may still grow."""

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedkoopman.errors import InputError, system_error

Record = dict[str, Any]
METRICS = ("l1", "l2", "l3", "E", "horizon")
"""The numbers of a record that a report shows."""
ALSO = ("E1",)
"""Numbers that are shown where they are recorded."""
CLIENTS = ("arrived", "active", "dropped")
"""A record's lists of clients."""
NOT_SHOWN = ("buffered", "loss", "E2")
"""Entries of a record that no page shows; the first is by far the largest."""


@dataclass(frozen=True)
class SeedRecords:
    """The records of one seed, one entry per finished slot, ascending."""

    seed: int
    slots: np.ndarray
    """Slot numbers; 0 is the untrained model."""
    metrics: dict[str, np.ndarray]
    """One value per slot and metric; NaN where it was not finite."""
    arrived: tuple[np.ndarray, ...]
    """Clients whose observation succeeded."""
    active: tuple[np.ndarray, ...]
    """Clients that trained."""
    dropped: tuple[np.ndarray, ...]
    """Clients whose estimate diverged, so that the segment was left out."""
    samples: int
    seconds: float
    trust: tuple[dict[str, Any], ...] = ()
    """Of slots in which updates were judged, what the record says of that."""


class AppendedRecords:
    """A `records.jsonl`, of which every reading gives what is new.

    A run that is resumed cuts records off and writes them again, and a directory may be replaced:
    where the last line that was read no longer stands where it stood, all is read again.
    """

    def __init__(self, path: Path, shape: Callable[[Record], Record] = dict) -> None:
        """Arguments:
        shape: what is made of each record; its ValueError or TypeError says what is wrong.
        """
        self._path, self._shape = path, shape
        self._end, self._count, self._last = 0, 0, b""

    def read(self) -> tuple[bool, list[Record]]:
        """Whether all is read anew, and the new records; what a crash cut off is passed over."""
        try:
            with self._path.open("rb") as file:
                return self._read(file)
        except FileNotFoundError:
            self._end, self._count, self._last = 0, 0, b""
            return True, []
        except OSError as error:
            raise system_error(f"cannot read {self._path}", error) from error

    def _read(self, file: BinaryIO) -> tuple[bool, list[Record]]:
        end, count, last = self._end, self._count, self._last
        file.seek(end - len(last))
        anew = os.fstat(file.fileno()).st_size < end or file.read(len(last)) != last
        if anew:
            end, count, last = 0, 0, b""
            file.seek(0)
        found = []
        for line in file:
            if not line.endswith(b"\n"):
                break  # it is being written, or was cut off by a crash
            end, count, last = end + len(line), count + 1, line
            found.append(self._parsed(line, count))
        self._end, self._count, self._last = end, count, last
        return anew, found

    def _parsed(self, line: bytes, number: int) -> Record:
        try:
            record = json.loads(line.decode(errors="replace"))
            if not isinstance(record, dict) or not isinstance(record.get("slot"), int):
                raise ValueError("no object with a slot number")
            return self._shape(record)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InputError(
                f"line {number} of {self._path} is no record ({error}): resume the run to mend it"
            ) from error


class RecordsFile:
    """What is shown of a seed's records; every reading takes in only what is new."""

    def __init__(self, path: Path) -> None:
        self._records = AppendedRecords(path, _checked)
        self._by_slot: dict[int, Record] = {}
        self._so_far: SeedRecords | None = None

    def read(self, seed: int, untrained: Mapping[str, Any] | None = None) -> SeedRecords | None:
        """All records so far; None while there is none.

        Arguments:
            untrained: the scores of slot 0, if they are known.
        """
        anew, records = self._records.read()
        if anew:
            self._by_slot, self._so_far = {}, None
        follow = self._so_far is None or all(r["slot"] > self._so_far.slots[-1] for r in records)
        new = {record["slot"]: record for record in records}
        self._by_slot |= new
        if not self._by_slot:
            return None
        if self._so_far is None or not follow:
            self._so_far = _columns(seed, _ascending(self._by_slot.values()))
        elif new:
            self._so_far = _joined(self._so_far, _columns(seed, _ascending(new.values())))
        told = replace(self._so_far, samples=_samples(self._by_slot.values()))
        if untrained is None or 0 in self._by_slot:
            return told
        return _joined(_columns(seed, [_checked({**untrained, "slot": 0})]), told)


def _ascending(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record["slot"])


def _joined(first: SeedRecords, then: SeedRecords) -> SeedRecords:
    """Records of earlier and of later slots, with the samples of the later ones."""
    return replace(
        then,
        slots=np.concatenate([first.slots, then.slots]),
        metrics={
            key: np.concatenate([first.metrics[key], values])
            for key, values in then.metrics.items()
        },
        arrived=first.arrived + then.arrived,
        active=first.active + then.active,
        dropped=first.dropped + then.dropped,
        seconds=max(first.seconds, then.seconds),
        trust=first.trust + then.trust,
    )


def _checked(record: Record) -> Record:
    """What is shown of a record, with numbers and lists as arrays have them."""
    shown = {name: value for name, value in record.items() if name not in NOT_SHOWN}
    for key in CLIENTS:
        shown[key] = np.asarray(record.get(key) or (), dtype=np.int32)
    for key in (*METRICS, *ALSO):
        shown[key] = finite(record.get(key))
    return shown


def _columns(seed: int, records: Sequence[Mapping[str, Any]]) -> SeedRecords:
    return SeedRecords(
        seed=seed,
        slots=np.array([record["slot"] for record in records]),
        metrics={key: np.array([record[key] for record in records]) for key in (*METRICS, *ALSO)},
        arrived=tuple(record["arrived"] for record in records),
        active=tuple(record["active"] for record in records),
        dropped=tuple(record["dropped"] for record in records),
        samples=_samples(records),
        seconds=max(finite(record.get("seconds") or 0.0) for record in records),
        trust=tuple(
            {name: record[name] for name in ("slot", "trust", "rolled_back") if name in record}
            for record in records
            if "trust" in record or "rolled_back" in record
        ),
    )


def _samples(records: Iterable[Mapping[str, Any]]) -> int:
    """Samples that the model was learned from; see `runs.results.samples_of`."""
    records = list(records)
    solved = [record for record in records if record.get("stage") == "sums"]
    return sum(record.get("samples") or 0 for record in solved or records)


def finite(value: float | None) -> float:
    """A number of a record; NaN where it was not finite."""
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else math.nan
