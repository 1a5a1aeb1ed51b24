"""ULog files, the flight logs of PX4: columns are "topic.field", times count from the start.

The file's messages are walked through first, which tells a cut or damaged log from a whole one;
pyulog, which reads it, passes over what it does not understand. See the format's public
specification, "ULog File Format".
"""

import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from fedkoopman.data.foreign import Damaged, package, quietly, reading
from fedkoopman.data.topics import Samples, Topics
from fedkoopman.errors import InputError

_MAGIC, _HEADER = b"ULog\x01\x12\x35", 16
_MESSAGES = frozenset(b"BFIMPQARDLCSO")
_MOST = 65_535
"""Bytes of the largest message, and so its fields."""
_REMEDY = (
    "copy it again, or save what can be read of it in Python: "
    "pyulog.ULog(file).write_ulog(another_file)"
)


class ULog(Topics):
    """Fields of topics by name; a topic's second instance is "topic[1]"."""

    from_first = False

    def fields(self) -> Mapping[str, tuple[str, str]]:
        package("pyulog", "ulog", self.title)
        found: dict[str, tuple[str, str]] = {}
        with reading(self.title, "a ULog file", _REMEDY):
            formats: dict[str, list[tuple[str, str]]] = {}
            for kind, content in self._walk():
                if kind == ord("F"):
                    name, _, listing = content.decode().partition(":")
                    pairs = (one.split(" ", 1) for one in listing.split(";") if one)
                    formats[name] = [(type_, field) for type_, field in pairs]
                elif kind == ord("A"):
                    name, instance = content[3:].decode(), content[0]
                    topic = f"{name}[{instance}]" if instance else name
                    listed = list(islice(_flat(formats, name), _MOST + 1))
                    if len(listed) > _MOST:
                        raise Damaged(f"the format {name} has more fields than fit a message")
                    found |= {f"{topic}.{field}": (topic, field) for field in listed if field}
        return found

    def samples(self, wanted: Mapping[str, Sequence[str]]) -> Mapping[str, Samples]:
        library = package("pyulog", "ulog", self.title)
        names = [topic.partition("[")[0] for topic in wanted]
        with reading(self.title, "a ULog file", _REMEDY), quietly(), self.path.open("rb") as file:
            log = library.ULog(file, names)
            if log.file_corruption:
                raise Damaged("a message is damaged")
            logged = {(one.name, one.multi_id): one.data for one in log.data_list}
            found = {}
            for topic, fields in wanted.items():
                name, _, instance = topic.partition("[")
                data = logged.get((name, int(instance.rstrip("]") or 0)), {})
                columns = [np.asarray(data.get(f, ()), dtype=np.float64) for f in fields]
                instants = np.asarray(data.get("timestamp", ()), dtype=np.uint64)
                if len(instants) and instants.max() > np.uint64(2**63 // 1000):
                    raise Damaged("an instant is beyond all time")
                found[topic] = instants.astype(np.int64) * 1000, np.column_stack(columns)
        return found

    def _walk(self) -> Iterator[tuple[int, bytes]]:
        """The kind and content of definitions; all messages are passed, and none is cut."""
        with (
            self.path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw,
        ):
            if raw[: len(_MAGIC)] != _MAGIC or len(raw) < _HEADER:
                raise Damaged("its first bytes are not those of a log")
            at, unpack = _HEADER, struct.Struct("<HB").unpack_from
            while at < len(raw):
                if at + 3 > len(raw):
                    raise Damaged("it ends within a message")
                size, kind = unpack(raw, at)
                if kind not in _MESSAGES:
                    raise Damaged(f"there is no message at byte {at:,}")
                start, at = at + 3, at + 3 + size
                if at > len(raw):
                    raise Damaged("it ends within a message")
                if kind == ord("B") and any(raw[start + 8 : start + 16]):
                    raise InputError(
                        f"{self.title} has data appended after a crash, or is of a newer kind: "
                        f"{_REMEDY.partition(', or ')[2]}"
                    )
                if kind in b"FA":
                    yield kind, raw[start:at]


_NUMBERS = {"bool", "double", "float"} | {
    f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def _flat(formats: Mapping[str, Sequence[tuple[str, str]]], name: str) -> Iterator[str]:
    """The names of all fields of a message, of nested ones after a dot; "" for what is no number.

    A format that holds itself has no end: take as many as fit a message.
    """
    if not formats[name]:
        raise Damaged(f"the format {name} has no fields")
    for kind, field in formats[name]:
        base, bracket, count = kind.partition("[")
        many = range(int(count.rstrip("]"))) if bracket else (None,)
        for entry in (field if i is None else f"{field}[{i}]" for i in many):
            if base in _NUMBERS:
                yield "" if field.startswith("_padding") else entry
            elif base == "char":
                yield ""
            else:
                yield from (inner and f"{entry}.{inner}" for inner in _flat(formats, base))


FORMAT = ULog
