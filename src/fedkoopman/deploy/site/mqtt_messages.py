"""From an MQTT message's payload to samples; what cannot be a sample is refused in one line.

A message is JSON, an object or a list of objects of numbers by name, or lines of CSV. It counts as
a whole or not at all. Values are checked here as files are when they are read, so that one bad
message does not spoil the file of its whole segment.
"""

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedkoopman.config.mqtt_section import TOPIC_COLUMN
from fedkoopman.config.site_file import AUTO, SiteFile
from fedkoopman.data.row_blocks import PLAUSIBLE
from fedkoopman.errors import InputError, short

LARGEST = 2**20
"""Bytes of a message."""
LONGEST_NAME = 100
"""Characters of a segment's name."""
WHOLE = 2.0**53
"""Up to here a double holds every whole number."""


@dataclass(frozen=True)
class Sample:
    """One sample.

    Attributes:
        segment: the segment's name in the message; "" without.
        number: by which it is known if it comes again, within its topic and segment: its place in
            the sequence, or its time. It grows.
        time: its instant; None without.
        row: its line in the segment's file.
        header: that file's first line.
    """

    segment: str
    number: float
    time: float | None
    row: str
    header: str


@dataclass(frozen=True)
class Layout:
    """What the fields of a message mean.

    Attributes:
        columns, inputs: observed, and known inputs.
        time, segment: names of these fields; "" for none.
        needs_segment: whether a message without a segment's name is refused.
        sequence: the field that counts; "" where the time tells samples apart.
        needs_time: whether a message without time is refused.
        cells: the names of a line's cells; empty for JSON.
    """

    columns: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    time: str = "time"
    needs_time: bool = True
    segment: str = "segment"
    needs_segment: bool = False
    sequence: str = ""
    cells: tuple[str, ...] = ()

    @classmethod
    def of(cls, site: SiteFile) -> "Layout":
        """As a site file has it; "auto" takes the field with the usual name, if there is one."""
        data, mqtt = site.data, site.mqtt
        time, segment = mqtt.time_and_segment(data)
        return cls(
            data.columns,
            data.inputs,
            time=time,
            needs_time=not mqtt.sequence or data.time not in ("", AUTO),
            segment=segment,
            needs_segment=data.segment not in ("", AUTO),
            sequence=mqtt.sequence,
            cells=mqtt.fields if mqtt.payload == "csv" else (),
        )

    def read(self, payload: bytes, topic: str) -> list[Sample]:
        """The samples of a message."""
        if len(payload) > LARGEST:
            raise InputError(f"has {len(payload):,} bytes: send at most {LARGEST:,} in one message")
        tables = self._lines(payload) if self.cells else _objects(payload)
        if not tables:
            raise InputError("holds no sample: send at least one")
        found = []
        for place, table in enumerate(tables, 1):
            try:
                found.append(self._sample(table, topic))
            except InputError as error:
                if len(tables) == 1:
                    raise
                raise InputError(f"sample {place} of {len(tables)}: {error}") from error
        return found

    def _lines(self, payload: bytes) -> list[Mapping[str, Any]]:
        """The lines of CSV, as numbers by name."""
        try:
            rows = [row for row in csv.reader(io.StringIO(payload.decode())) if row]
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"is no CSV in UTF-8 ({error}): send lines of numbers") from error
        for row in rows:
            if len(row) != len(self.cells):
                raise InputError(
                    f"has a line of {len(row)} cells but mqtt.fields names {len(self.cells)}: "
                    f"send {','.join(self.cells)}"
                )
        return [
            {
                name: _cell(name, text.strip(), name == self.segment)
                for name, text in zip(self.cells, row, strict=True)
            }
            for row in rows
        ]

    def _sample(self, table: Mapping[str, Any], topic: str) -> Sample:
        segment = self._name(table)
        time = self._number(table, self.time) if self._has(table, self.time) else None
        if time is None and self.needs_time:
            raise InputError(f"has no {self.time!r}: send the sampling instant, a number")
        cells = [] if time is None else [(self.time, repr(time))]
        number = time if time is not None else 0.0
        if self.sequence:
            number = self._count(table)
            cells.insert(0, (self.sequence, str(int(number))))
        for name in self.columns:
            value = self._number(table, name, missing=True)
            cells.append((name, "" if value is None else repr(value)))
        cells += [(name, repr(self._number(table, name))) for name in self.inputs]
        cells += [(self.segment, segment)] if segment else []
        cells.append((TOPIC_COLUMN, topic))
        return Sample(
            segment, number, time, _line(text for _, text in cells), _line(n for n, _ in cells)
        )

    def _has(self, table: Mapping[str, Any], name: str) -> bool:
        return bool(name) and table.get(name) is not None

    def _count(self, table: Mapping[str, Any]) -> float:
        number = self._number(table, self.sequence)
        if number is None or number != math.floor(number) or not 0 <= number <= WHOLE:
            raise InputError(
                f"{self.sequence!r} is {short(table[self.sequence])}: send a whole number that "
                "counts the samples"
            )
        return number

    def _name(self, table: Mapping[str, Any]) -> str:
        """The segment's name; a number is one too."""
        if not self._has(table, self.segment) and not self.needs_segment:
            return ""
        given = table.get(self.segment)
        text = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
        if (
            not isinstance(text, str)
            or not text.strip()
            or not text.isprintable()
            or len(text) > LONGEST_NAME
        ):
            raise InputError(
                f"{self.segment!r} is {short(given)}: send a segment's name, of at most "
                f"{LONGEST_NAME} characters on one line"
            )
        return text.strip()

    def _number(self, table: Mapping[str, Any], name: str, missing: bool = False) -> float | None:
        """A finite number of plausible size; None where it may be missing, and is."""
        if name not in table:
            known = ", ".join(map(str, list(table)[:10])) or "nothing"
            raise InputError(f"has no {name!r} but {short(known)}: see data.columns and data.time")
        value = table[name]
        if value is None and missing:
            return None
        remedy = "a number, or null where it is missing" if missing else "a number"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{name!r} is {short(value)}: send {remedy}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not abs(number) <= PLAUSIBLE:
            raise InputError(f"{name!r} is {short(value)}, which is no measurement: send {remedy}")
        return number


def _objects(payload: bytes) -> list[Mapping[str, Any]]:
    """The objects in a JSON text."""
    try:
        found = json.loads(payload.decode())
    except (ValueError, RecursionError) as error:
        cause = " ".join(str(error).split())[:80]
        raise InputError(
            f"begins {short(payload[:40])} and is no JSON in UTF-8 ({cause}): send an object of "
            "numbers by name"
        ) from error
    tables = found if isinstance(found, list) else [found]
    for table in tables:
        if not isinstance(table, dict):
            raise InputError(f"holds {short(table)}: send an object of numbers by name, or a list")
    return tables


def _cell(name: str, text: str, is_name: bool) -> Any:
    if is_name or not text:
        return text or None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{name!r} is {short(text)}: send a number, or nothing") from None


def _line(cells: Any) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()
