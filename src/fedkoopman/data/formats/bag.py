"""Bags of ROS 1, read with rosbags."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fedkoopman.data.foreign import package, reading
from fedkoopman.data.ros import Bag, Connection, Log, definitions_of
from fedkoopman.data.ros_messages import Type


class Bag1(Bag):
    """One .bag file, which has an index and the definitions of its messages."""

    @contextmanager
    def opened(self) -> Iterator[Log]:
        library = package("rosbags.rosbag1", "ros", self.title)
        with (
            reading(self.title, "a bag of ROS 1", "copy it again, or mend it by `rosbag reindex`"),
            library.Reader(self.path) as bag,
        ):
            found = {one.id: one for one in bag.connections}

            def messages(keys: Sequence[Any]) -> Iterator[tuple[Any, int, bytes]]:
                for one, instant, raw in bag.messages([found[key] for key in keys]):
                    yield one.id, instant, raw

            yield Log([self._connection(one) for one in found.values()], messages)

    def _connection(self, one: Any) -> Connection:
        defined = definitions_of(one.msgdef.data, one.msgtype, False, self.title)
        return Connection.of_type(one.id, one.topic, Type(one.msgtype, defined, cdr=False))


FORMAT = Bag1
