"""MCAP files with messages of ROS 2, ROS 1 or in JSON; checksums are compared. Read with mcap."""

import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from fedkoopman.data.foreign import Damaged, package, reading
from fedkoopman.data.ros import Bag, Connection, Log, definitions_of
from fedkoopman.data.ros_messages import MOST_ENTRIES, Type

_END = 20 + 9 + 8
"""Bytes of the footer's record and of the magic after it."""


class Mcap(Bag):
    """Channels whose messages are in CDR, in ROS 1's form or in JSON; others have no columns."""

    @contextmanager
    def opened(self) -> Iterator[Log]:
        library = package("mcap.reader", "ros", self.title)
        with (
            reading(self.title, "an MCAP file", "copy it again, or mend it by `mcap recover`"),
            self.path.open("rb") as stream,
        ):
            indexed = library.SeekingReader(stream, validate_crcs=True)
            summary = indexed.get_summary()
            _check_summary(stream)

            def messages(topics: Sequence[Any] | None) -> Iterator[tuple[Any, Any, Any]]:
                if summary is not None and summary.chunk_indexes:
                    reader = indexed
                else:
                    stream.seek(0)
                    reader = library.NonSeekingReader(stream, validate_crcs=True)
                yield from reader.iter_messages(topics, log_time_order=False)

            if summary is not None and summary.channels:
                schemas = summary.schemas
                found = {c.id: (schemas.get(c.schema_id), c) for c in summary.channels.values()}
            else:
                found = {channel.id: (schema, channel) for schema, channel, _ in messages(None)}
            made = (self._connection(schema, channel) for schema, channel in found.values())
            connections = [one for one in made if one is not None]

            def contents(keys: Sequence[Any]) -> Iterator[tuple[Any, int, bytes]]:
                for _, channel, message in messages([found[key][1].topic for key in keys]):
                    if channel.id in keys:
                        yield channel.id, message.log_time, message.data

            yield Log(connections, contents)

    def _connection(self, schema: Any, channel: Any) -> Connection | None:
        """A channel that can be read; None for another."""
        if channel.message_encoding == "json":
            return Connection(channel.id, channel.topic, lambda raw: _of_json(json.loads(raw), ""))
        kinds = {"ros2msg": "cdr", "ros2idl": "cdr", "ros1msg": "ros1"}
        if schema is None or kinds.get(schema.encoding) != channel.message_encoding:
            return None
        base, _, last = schema.name.rpartition("/")
        name = schema.name if base.endswith("/msg") else f"{base}/msg/{last}"
        idl, cdr = schema.encoding == "ros2idl", channel.message_encoding == "cdr"
        defined = definitions_of(schema.data.decode(), name, idl, self.title)
        return Connection.of_type(channel.id, channel.topic, Type(name, defined, cdr))


def _check_summary(stream: BinaryIO) -> None:
    """Compare the checksum of what stands after the messages: channels, types and the index."""
    stream.seek(-_END, 2)
    footer = stream.read(_END)
    start, told = int.from_bytes(footer[9:17], "little"), int.from_bytes(footer[25:29], "little")
    if start and told:
        end = stream.seek(-_END, 2)
        stream.seek(start)
        if zlib.crc32(stream.read(end - start) + footer[:25]) != told:
            raise Damaged("the checksum of its summary is another")


def _of_json(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The numbers of a JSON text with their paths."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _of_json(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and all(isinstance(one, int | float) for one in value):
        yield path, np.array(value, dtype=np.float64)
    elif isinstance(value, list):
        for i, inner in enumerate(value[:MOST_ENTRIES]):
            yield from _of_json(inner, f"{path}[{i}]")
    elif isinstance(value, int | float):
        yield path, value


FORMAT = Mcap
