"""What the agent and its worker hand each other over a socket: a closed list of plain values.

A value is a tree of JSON with arrays beside it, bit for bit. Of classes only those in `KINDS` can
be handed over, and nothing that is read runs code, as a pickle would.
"""

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.data.filter_beliefs import Beliefs
from fedkoopman.data.segments import Segment
from fedkoopman.data.triage import Estimated, HeldOut
from fedkoopman.deploy.site.catalogue import Counts
from fedkoopman.federation.messages import ArrayField, Message, NumberField, Schema
from fedkoopman.federation.options import PrivacyOptions
from fedkoopman.federation.privacy import Release

__all__ = ["Facts", "Scores", "receive", "send"]


@dataclass(frozen=True)
class Facts:
    """What the agent must know of the study's problem.

    Attributes:
        schemas: of the algorithm's messages.
        comparison: of the messages by which models are compared.
        dt: the sampling interval.
        probability: p_n of this site.
        privacy: the study's options.
    """

    schemas: Mapping[str, Schema]
    comparison: Mapping[str, Schema]
    dt: float
    probability: float
    privacy: PrivacyOptions


class Scores(NamedTuple):
    """How good a model is on a site's held-out segments; see `wire.Evaluated`."""

    windows: int
    metrics: Mapping[str, float]
    measured: Mapping[str, NDArray[Any]]
    table: Mapping[str, Any]


KINDS = {
    kind.__name__: kind
    for kind in (
        ArrayField, Beliefs, Counts, Estimated, Facts, HeldOut, Message, NumberField,
        PrivacyOptions, Release, Schema, Scores, Segment,
    )
}  # fmt: skip
"""All classes whose objects can be handed over."""
_LENGTH = struct.Struct(">Q")


def send(connection: socket.socket, value: Any) -> None:
    """Send one value."""
    arrays: list[NDArray[Any]] = []
    tree = json.dumps(_plain(value, arrays)).encode()
    connection.sendall(_LENGTH.pack(len(tree)) + tree)
    for array in arrays:
        if array.nbytes:
            connection.sendall(array.reshape(-1).view(np.uint8).data)


def receive(connection: socket.socket) -> Any:
    """Receive one value; an `EOFError` if the other side has ended."""
    (length,) = _LENGTH.unpack(_filled(connection, bytearray(_LENGTH.size)))
    tree = json.loads(bytes(_filled(connection, bytearray(length))))
    return _made(tree, connection)


def _filled(connection: socket.socket, room: Any) -> Any:
    view = memoryview(room)
    while len(view):
        if not (count := connection.recv_into(view)):
            raise EOFError
        view = view[count:]
    return room


def _plain(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """A value as JSON has it: what JSON has not is an object of one entry, its kind."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        arrays.append(np.ascontiguousarray(value))
        return {"array": [value.dtype.str, value.shape]}
    name = type(value).__name__
    if KINDS.get(name) is type(value):
        names = _fields(type(value))
        return {name: [_plain(getattr(value, one), arrays) for one in names]}
    if isinstance(value, Path):
        return {"path": str(value)}
    if isinstance(value, Mapping):
        return {"map": [[_plain(k, arrays), _plain(v, arrays)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_plain(one, arrays) for one in value]}
    if isinstance(value, Sequence):
        return [_plain(one, arrays) for one in value]
    raise TypeError(f"a {name} cannot be handed over")


def _made(tree: Any, connection: socket.socket) -> Any:
    """The value; its arrays are received in the order in which they stand in it."""
    if isinstance(tree, list):
        return [_made(one, connection) for one in tree]
    if not isinstance(tree, dict):
        return tree
    ((name, content),) = tree.items()
    if name == "array":
        dtype, shape = content
        array = np.empty(tuple(shape), np.dtype(dtype))
        if array.nbytes:
            _filled(connection, array.reshape(-1).view(np.uint8).data)
        return array
    if name == "path":
        return Path(content)
    parts = [_made(one, connection) for one in content]
    if name == "map":
        return {key: value for key, value in parts}  # pairs are lists
    return tuple(parts) if name == "tuple" else KINDS[name](*parts)


def _fields(kind: Any) -> Sequence[str]:
    return [f.name for f in fields(kind)] if is_dataclass(kind) else kind._fields
