"""Messages of ROS 1 and ROS 2: numbers by their paths, as "pose.position.x" or "ranges[3]".

A message is read by its definition, field after field; a definition is data here. (The usual way
makes Python code of definitions and runs it, which a file from elsewhere should not lead to.)
Reading ends with the last number that is wanted, so that what follows costs nothing.
"""

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fedkoopman.data.foreign import Damaged

Definitions = Mapping[str, Sequence[tuple[str, Any]]]
"""The fields of every type by name, each with what rosbags' parsers say of it."""

MOST_ENTRIES = 1000
"""Entries of a longer array have no names."""

_TIME = [("sec", (1, ("int32", 0))), ("nanosec", (1, ("uint32", 0)))]
BUILT_IN = {"builtin_interfaces/msg/Time": _TIME, "builtin_interfaces/msg/Duration": _TIME}
"""What ROS 1 does not define in its files."""
_HEADER, _FILLER = "std_msgs/msg/Header", "structure_needs_at_least_one_member"
_BASE, _NAME, _ARRAY, _SEQUENCE = 1, 2, 3, 4  # rosbags.interfaces.Nodetype
_FORMATS = {
    "bool": "B", "byte": "B", "char": "B", "octet": "B", "int8": "b", "uint8": "B", "int16": "h",
    "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q", "float32": "f",
    "float64": "d",
}  # fmt: skip

_STRUCTS = {o + code: struct.Struct(o + code) for o in "<>" for code in set(_FORMATS.values())}


@dataclass(frozen=True)
class Type:
    """The type of a topic's messages.

    Attributes:
        name: as "sensor_msgs/msg/Imu".
        definitions: of it, and of all that it is made of.
        cdr: whether messages are in CDR, as in ROS 2.
    """

    name: str
    definitions: Definitions
    cdr: bool

    @property
    def stamp(self) -> str:
        """The path of the time at which a message was made; empty where it has no header."""
        fields = self.definitions.get(self.name, ())
        stamped = fields and tuple(fields[0][1]) == (_NAME, _HEADER)
        return f"{fields[0][0]}.stamp" if stamped else ""

    def numbers(self, raw: bytes) -> Iterator[tuple[str, Any]]:
        """All numbers of a message in their order, with their paths; arrays as a whole."""
        return self._numbers(_Cursor(raw, self.cdr), self.name, "")

    def _numbers(self, cursor: "_Cursor", name: str, path: str) -> Iterator[tuple[str, Any]]:
        for step in self._steps[name]:
            inner, count = path + step.path, step.count
            if step.many and count is None:
                count = cursor.number("I")
            if step.code and step.many:
                yield inner, cursor.array(step.code, count)
            elif step.code:
                yield inner, cursor.number(step.code)
            elif step.name:
                for i in range(cursor.counted(count)):
                    yield from self._numbers(cursor, step.name, f"{inner}[{i}].")
            else:
                for _ in range(cursor.counted(count) if step.many else 1):
                    cursor.skip(cursor.number("I") if step.text else int(self.cdr))

    @cached_property
    def _steps(self) -> "_Steps":
        return _Steps(self.definitions)


class _Step(NamedTuple):
    """One field: numbers of a format `code`, messages of a type `name`, a text, or a filler.

    `many` is an array or sequence, whose `count` is None where the message tells it.
    """

    path: str
    code: str = ""
    name: str = ""
    text: bool = False
    many: bool = False
    count: Any = None


class _Steps(dict[str, list[_Step]]):
    """The fields of each type, when they are first asked for; messages within it are unfolded."""

    def __init__(self, definitions: Definitions) -> None:
        super().__init__()
        self.definitions = definitions

    def __missing__(self, name: str) -> list[_Step]:
        self[name] = found = list(self._unfolded(name, ""))
        return found

    def _unfolded(self, name: str, path: str) -> Iterator[_Step]:
        if name not in self.definitions:
            raise Damaged(f"the type {name} is not defined in it")
        if not self.definitions[name]:
            yield _Step(path)  # in CDR no message is without a byte
        for field, (node, detail) in self.definitions[name]:
            many = node in (_ARRAY, _SEQUENCE)
            (entry, what), count = detail if many else ((node, detail), None)
            step = _Step(path + field, many=many, count=count if node == _ARRAY else None)
            if field == _FILLER:
                yield step
            elif entry == _NAME and many:
                yield step._replace(name=what)
            elif entry == _NAME:
                yield from self._unfolded(what, f"{path}{field}.")
            elif what[0] == "string":
                yield step._replace(text=True)
            elif what[0] in _FORMATS:
                yield step._replace(code=_FORMATS[what[0]])
            else:
                raise Damaged(f"{path}{field} is a {what[0]}, which cannot be read")


class _Cursor:
    """A place in a serialized message, which it never leaves."""

    def __init__(self, raw: bytes, cdr: bool) -> None:
        self.raw, self.cdr, self.order, self.at, self.start = raw, cdr, "<", 0, 0
        self.budget = 10_000 + 8 * len(raw)
        if cdr:
            if bytes(raw[:2]) not in (b"\x00\x00", b"\x00\x01"):
                packed = " (it is compressed)" if bytes(raw[:4]) == b"\x28\xb5\x2f\xfd" else ""
                raise Damaged(f"a message is not in plain CDR{packed}")
            self.order, self.at, self.start = "<" if raw[1] else ">", 4, 4

    def number(self, code: str) -> Any:
        form = _STRUCTS[self.order + code]
        return form.unpack_from(self.raw, self._room(form.size, 1))[0]

    def array(self, code: str, count: int) -> np.ndarray:
        kind = np.dtype(self.order + code)
        at = self._room(kind.itemsize, count)
        return np.frombuffer(self.raw, kind, count, at) if count else np.empty(0, kind)

    def skip(self, size: int) -> None:
        self._room(1, size)

    def counted(self, count: int) -> int:
        """The number of entries, which may be empty but not without end."""
        self.budget -= count
        if self.budget < 0:
            raise Damaged("a message has more entries than bytes")
        return count

    def _room(self, size: int, count: int) -> int:
        """The place of so many entries, after which reading goes on."""
        if self.cdr and count:
            self.at += -(self.at - self.start) % size
        at, self.at = self.at, self.at + size * count
        if self.at > len(self.raw):
            raise Damaged("a message is shorter than its definition says")
        return at


def named_numbers(numbers: Iterator[tuple[str, Any]]) -> Iterator[str]:
    """The names of a message's numbers, of each entry of an array."""
    for path, value in numbers:
        if not isinstance(value, np.ndarray):
            yield path
        elif len(value) <= MOST_ENTRIES:
            yield from (f"{path}[{i}]" for i in range(len(value)))


def picker(wanted: Sequence[str]) -> Callable[[Iterator[tuple[str, Any]]], list[float]]:
    """A function that takes some numbers of a message by their names."""
    places: dict[str, list[tuple[int, int | None]]] = {}
    for place, name in enumerate(wanted):
        path, _, index = name.rpartition("[")
        entry = int(index[:-1]) if name.endswith("]") else None
        places.setdefault(name if entry is None else path, []).append((place, entry))

    def pick(numbers: Iterator[tuple[str, Any]]) -> list[float]:
        found = [math.nan] * len(wanted)
        left = len(places)
        for path, value in numbers:
            if path not in places:
                continue
            for place, entry in places[path]:
                if entry is not None and entry >= len(value):
                    raise Damaged(f"a message has {len(value)} entries in {path}, no [{entry}]")
                found[place] = float(value if entry is None else value[entry])
            left -= 1
            if not left:
                return found
        raise Damaged(f"a message has not all of {', '.join(wanted)}")

    return pick
