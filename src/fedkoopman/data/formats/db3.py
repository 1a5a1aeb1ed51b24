"""Bags of ROS 2 in SQLite, read with rosbags; each .db3 file of a bag's folder by itself."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fedkoopman.data.foreign import package, reading
from fedkoopman.data.ros import Bag, Connection, Log, definitions_of, usual_definitions
from fedkoopman.data.ros_messages import Definitions, Type


class Bag2(Bag):
    """One .db3 file; metadata.yaml beside it is not needed."""

    @contextmanager
    def opened(self) -> Iterator[Log]:
        library = package("rosbags.rosbag2", "ros", self.title)
        with (
            reading(
                self.title, "a bag of ROS 2", "copy it again, or write it by `ros2 bag convert`"
            ),
            library.Reader(self.path) as bag,
        ):
            found = {one.id: one for one in bag.connections if self._definitions(one)}

            def messages(keys: Sequence[Any]) -> Iterator[tuple[Any, int, bytes]]:
                for one, instant, raw in bag.messages([found[key] for key in keys]):
                    yield one.id, instant, raw

            yield Log([self._connection(one) for one in found.values()], messages)

    def _definitions(self, one: Any) -> Definitions:
        """Of a connection's type; nothing for one that is unknown."""
        if one.ext.serialization_format != "cdr":
            return {}
        if one.msgdef.format.name != "NONE":
            idl = one.msgdef.format.name == "IDL"
            return definitions_of(one.msgdef.data, one.msgtype, idl, self.title)
        usual = usual_definitions(self.title)
        return usual if one.msgtype in usual else {}

    def _connection(self, one: Any) -> Connection:
        return Connection.of_type(
            one.id, one.topic, Type(one.msgtype, self._definitions(one), cdr=True)
        )


FORMAT = Bag2
