"""The base of recordings of ROS 1, ROS 2 and MCAP: columns are "topic/field.subfield".

A message's instant is that of its header, or the recorder's where it has none. Definitions of
messages are parsed by rosbags, and messages are read by `ros_messages`.
"""

from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkoopman.data.foreign import package
from fedkoopman.data.ros_messages import BUILT_IN, Definitions, Type, named_numbers, picker
from fedkoopman.data.topics import Samples, Topics

_SECTION = "=" * 80 + "\n"


@dataclass(frozen=True)
class Connection:
    """Messages of one type on one topic.

    Attributes:
        key: by which the recording knows it.
        numbers: the numbers of a message with their paths.
        stamp: the path of a message's own time; empty where it has none.
    """

    key: Any
    topic: str
    numbers: Callable[[bytes], Iterator[tuple[str, Any]]]
    stamp: str = ""

    @classmethod
    def of_type(cls, key: Any, topic: str, type_: Type) -> "Connection":
        """A connection whose messages ROS wrote."""
        return cls(key, topic, type_.numbers, type_.stamp)


@dataclass(frozen=True)
class Log:
    """An open recording: its connections, and the messages (key, nanoseconds, content) of some."""

    connections: Sequence[Connection]
    messages: Callable[[Sequence[Any]], Iterator[tuple[Any, int, bytes]]]


class Bag(Topics):
    """A recording; a format opens it."""

    from_first = True

    @abstractmethod
    def opened(self) -> AbstractContextManager[Log]:
        """The open recording; what goes wrong within is told as what is wrong with the file."""

    def fields(self) -> Mapping[str, tuple[str, str]]:
        """The numbers of each topic's first message."""
        found: dict[str, tuple[str, str]] = {}
        with self.opened() as log:
            for one in log.connections:
                for _, _, raw in log.messages([one.key]):
                    for field in named_numbers(one.numbers(raw)):
                        found[f"{one.topic}/{field}"] = one.topic, field
                    break
        return found

    def samples(self, wanted: Mapping[str, Sequence[str]]) -> Mapping[str, Samples]:
        instants = {topic: array("q") for topic in wanted}
        values = {topic: array("d") for topic in wanted}
        with self.opened() as log:
            chosen = {one.key: one for one in log.connections if one.topic in wanted}
            stamps = {topic: "" for topic in wanted} | {o.topic: o.stamp for o in chosen.values()}
            names = {topic: (*wanted[topic], *_parts(stamps[topic])) for topic in wanted}
            pick = {topic: picker(names[topic]) for topic in wanted}
            for key, instant, raw in log.messages(list(chosen)):
                topic = chosen[key].topic
                instants[topic].append(instant)
                values[topic].extend(pick[topic](chosen[key].numbers(raw)))
        return {
            topic: _stamped(
                np.array(instants[topic], dtype=np.int64),
                np.array(values[topic]).reshape(-1, len(names[topic])),
                bool(stamps[topic]),
            )
            for topic in wanted
        }


def _parts(stamp: str) -> tuple[str, ...]:
    return (f"{stamp}.sec", f"{stamp}.nanosec") if stamp else ()


def _stamped(instants: np.ndarray, values: np.ndarray, stamped: bool) -> Samples:
    """The values, at the messages' own instants where they have any."""
    if not stamped:
        return instants, values
    values, (seconds, rest) = values[:, :-2], values[:, -2:].T.astype(np.int64)
    own = seconds * 10**9 + rest
    return (own if own.any() else instants), values


def definitions_of(text: str, name: str, idl: bool, title: str) -> Definitions:
    """The types that a recording defines, by its text for one of them.

    Arguments:
        name: of that type.
        idl: whether the text is in IDL, and not in the language of .msg files.
        title: the file.
    """
    types = package("rosbags.typesys", "ros", title)
    if not idl:
        parsed = types.get_types_from_msg(text, name)
    elif text.startswith(f"{_SECTION}IDL: "):
        parsed = {}
        for section in text.split(_SECTION)[1:]:
            parsed |= types.get_types_from_idl(section.partition("\n")[2])
    else:
        parsed = types.get_types_from_idl(text)
    return BUILT_IN | {known: fields for known, (_, fields) in parsed.items()}


def usual_definitions(title: str) -> Definitions:
    """The types that every ROS 2 has, for recordings without definitions (before ROS 2 Iron)."""
    stored = package("rosbags.typesys.stores.ros2_humble", "ros", title)
    return {known: fields for known, (_, fields) in stored.FIELDDEFS.items()}
