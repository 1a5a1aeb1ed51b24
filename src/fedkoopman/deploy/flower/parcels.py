"""A body of bytes as one of Flower's messages, and back; no other form is accepted.

A message of Flower's is a tree of objects, each with the hash of its content as its name: the
message, its records, and the one record that holds the body.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedkoopman.deploy.flower import internals as flower
from fedkoopman.deploy.wire import LARGEST
from fedkoopman.errors import InputError

RECORD, FIELD = "fedkoopman", "body"
PARTS = 3
"""A message, its records, and the one record."""
OVERHEAD = 4096
"""Bytes that Flower may add to a body."""


@dataclass(frozen=True)
class Parcel:
    """A message that is ready to be sent.

    Attributes:
        message: without its content; its metadata has its id.
        tree: of the names of its parts, as Flower has it.
        parts: by name, the inner ones first.
    """

    message: Any
    tree: Any
    parts: Mapping[str, bytes]

    @property
    def id(self) -> str:
        """The message's."""
        return str(self.message.metadata.message_id)


def content_of(body: bytes) -> Any:
    """A body as the content of a message."""
    return flower.RecordDict({RECORD: flower.ConfigRecord({FIELD: body})})


def body_of(content: Any) -> bytes:
    """The body of a message; refuses every other form."""
    if list(content) != [RECORD] or not isinstance(content[RECORD], flower.ConfigRecord):
        raise InputError("the message is not one of fedkoopman's: other records than expected")
    record = content[RECORD]
    body = record.get(FIELD)
    if list(record) != [FIELD] or not isinstance(body, bytes):
        raise InputError("the message is not one of fedkoopman's: other fields than expected")
    if len(body) > LARGEST:
        raise InputError(f"the message has {len(body)} bytes; at most {LARGEST} are taken")
    return body


def packed(message: Any) -> Parcel:
    """Take a message apart."""
    message.metadata.__dict__["_message_id"] = message.object_id  # as Flower's own clients do
    with flower.no_object_id_recompute():
        tree = flower.get_object_tree(message)
        parts = {id: part.deflate() for id, part in flower.get_all_nested_objects(message).items()}
    bare = flower.remove_content_from_message(message) if message.has_content() else message
    return Parcel(bare, tree, parts)


def part_names(tree: Any) -> list[str] | None:
    """The names of a message's parts; None if it has more or fewer than it should."""
    names: list[str] = []
    for part in flower.iterate_object_tree(tree):
        if len(names) == PARTS:
            return None
        names.append(part.object_id)
    return names if len(names) == PARTS else None


def unpacked(id: str, parts: Mapping[str, bytes]) -> Any:
    """A message from its parts, which may be any bytes."""
    try:
        message = flower.inflate_object_from_contents(id, dict(parts))
    except Exception as error:
        raise InputError(f"the message cannot be read ({type(error).__name__})") from error
    if not isinstance(message, flower.Message) or not message.has_content():
        raise InputError("the message has no content")
    message.metadata.__dict__["_message_id"] = id
    return message


def reply_to(message: Any, answer: bytes | str) -> Any:
    """The reply to a message: a body, or a reason why there is none.

    Its times are those of the message that it answers, as the clocks may differ.
    """
    code = flower.ErrorCode.CLIENT_APP_RAISED_EXCEPTION
    said = content_of(answer) if isinstance(answer, bytes) else flower.Error(code, answer)
    reply = flower.Message(said, reply_to=message)
    metadata = reply.metadata.__dict__
    metadata["_created_at"], metadata["_ttl"] = message.metadata.created_at, message.metadata.ttl
    return reply
