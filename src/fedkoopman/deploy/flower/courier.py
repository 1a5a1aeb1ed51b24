"""Carries messages between a SuperNode and the site agent, and does nothing else.

    python -m fedkoopman.deploy.flower.courier --runtime HOST:PORT --secret FILE --socket PATH

It replaces the process that Flower would start for each message to run the app that the server
named. It installs and imports no app: the bytes of a message go to the agent's socket, the agent's
answer goes back. A message of any other form is refused and logged.

A lost message needs no care here: the server asks again, and the agent answers a repeated request
as it did before.
"""

import argparse
import logging
import socket
import struct
import sys
import time
from pathlib import Path

import httpx
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import context_from_proto
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    PullAppMessagesRequest,
    PullTaskInputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    inflate_object_from_contents,
)
from flwr.supernode.runtime.run_clientapp import push_message

from fedkoopman.deploy.flower.programs import AdaptiveInterval, configure_flower
from fedkoopman.deploy.flower.tasks import Tasks, heartbeat
from fedkoopman.deploy.wire import LARGEST
from fedkoopman.errors import InputError

log = logging.getLogger(__name__)
RECORD = "fedkoopman"
FIELD = "body"
_LENGTH = struct.Struct(">Q")
"""A body on the socket: its length in eight bytes, then itself."""


class Stuck(Exception):
    """The SuperNode waits for an answer that cannot come: it must be started again."""


def content_of(body: bytes) -> RecordDict:
    """A body as the content of one of Flower's messages."""
    return RecordDict({RECORD: ConfigRecord({FIELD: body})})


def body_of(content: RecordDict) -> bytes:
    """The body of a message; refuses every other form."""
    if list(content) != [RECORD] or not isinstance(content[RECORD], ConfigRecord):
        raise InputError("the message is not one of fedkoopman's: other records than expected")
    record = content[RECORD]
    body = record.get(FIELD)
    if list(record) != [FIELD] or not isinstance(body, bytes):
        raise InputError("the message is not one of fedkoopman's: other fields than expected")
    if len(body) > LARGEST:
        raise InputError(f"the message has {len(body)} bytes; at most {LARGEST} are taken")
    return body


def ask_agent(path: Path, body: bytes) -> bytes:
    """One exchange with the site agent. It has no time limit, as training is slow."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(str(path))
        link.sendall(_LENGTH.pack(len(body)) + body)
        (length,) = _LENGTH.unpack(_exactly(link, _LENGTH.size))
        if length > LARGEST:
            raise InputError(f"the agent's answer has {length} bytes; at most {LARGEST} are sent")
        return _exactly(link, length)


def _exactly(link: socket.socket, length: int) -> bytes:
    """Read a given number of bytes."""
    parts = bytearray()
    while len(parts) < length:
        part = link.recv(min(length - len(parts), 2**20))
        if not part:
            raise ConnectionError("the agent closed the connection")
        parts += part
    return bytes(parts)


def carry(tasks: Tasks, path: Path) -> bool:
    """Carry one message, if there is one."""
    if tasks.acquire(TaskType.CLIENT_APP) is None:
        return False
    try:
        with heartbeat(tasks.client):
            message, context = _receive(tasks)
            reply = _reply(message, path)
            push_message(tasks.client, reply, context)
            tasks.finish(SubStatus.COMPLETED)
    except (httpx.HTTPError, ObjectPullError, ObjectPushError) as error:
        if _awaited(tasks):
            raise Stuck(f"a message was lost between SuperNode and courier: {error}") from error
        log.warning("the SuperNode has given a message up (%s); the server will ask again", error)
    return True


def _receive(tasks: Tasks) -> tuple[Message, Context]:
    """The message of the current task.

    Flower announces a task before it has stored the message, and the message before its content:
    so this asks repeatedly. Flower may also drop a message whose content did not come, because the
    run is over, and not say so. But it takes one message at a time, so a newer task shows that. The
    app that comes with the task is not touched.
    """
    arriving = _Arriving(tasks)
    interval = AdaptiveInterval(0.01, 0.5)
    while (message := arriving.message()) is None:
        if tasks.acquire(TaskType.CLIENT_APP) is not None:
            log.warning("the SuperNode has dropped an incomplete message")
            arriving = _Arriving(tasks)
            interval.refresh()
        interval.wait()
    return message, arriving.context


class _Arriving:
    """A message whose content may still be on its way."""

    def __init__(self, tasks: Tasks) -> None:
        self._client = tasks.client
        given = tasks.client.PullTaskInput(PullTaskInputRequest())
        self.context = context_from_proto(given.context)
        self._tree: ObjectTree | None = None
        self._contents: dict[str, bytes] = {}

    def message(self) -> Message | None:
        """The message, once all of it is there."""
        if self._tree is None:
            found = self._client.PullMessages(PullAppMessagesRequest())
            if not found.messages_list:
                return None
            self._tree = found.message_object_trees[0]
        node, run = Node(node_id=self.context.node_id), self.context.run_id
        for part in iterate_object_tree(self._tree):
            if part.object_id in self._contents:
                continue
            request = PullObjectRequest(node=node, run_id=run, object_id=part.object_id)
            answer = self._client.PullObject(request)
            if not answer.object_found:
                raise ObjectPullError(part.object_id, "it was dropped")
            if not answer.object_available:
                return None
            self._contents[part.object_id] = answer.object_content
        id = self._tree.object_id
        self._client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=id)
        )
        message = inflate_object_from_contents(id, self._contents)
        if not isinstance(message, Message):
            raise ObjectPullError(id, "it is no message")
        message.metadata.__dict__["_message_id"] = id  # as Flower's own client does
        return message


def _awaited(tasks: Tasks) -> bool:
    """Whether the SuperNode, once it answers again, still waits for this task's reply.

    A restarted SuperNode does not know the task. One that knows it would wait for ever: it hands
    out each message once, and takes no other before that one is answered.
    """
    while True:
        try:
            return bool(tasks.client.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success)
        except httpx.HTTPStatusError:
            return False
        except httpx.TransportError:
            time.sleep(0.5)


def _reply(message: Message, path: Path) -> Message:
    """What the agent answers, or an error in its place."""
    started = time.monotonic()
    try:
        body = body_of(message.content)
        answer = ask_agent(path, body)
    except InputError as error:
        log.warning("refused message %s: %s", message.metadata.message_id[:16], error)
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, str(error)), reply_to=message)
    except OSError as error:
        reason = f"the site agent does not answer: {error.strerror or error}"
        log.warning("%s (%s)", reason, path)
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
    took = time.monotonic() - started
    log.info("%d bytes to the agent, %d bytes from it, %.2f s", len(body), len(answer), took)
    return Message(content_of(answer), reply_to=message)


def main(arguments: list[str] | None = None) -> int:
    """Carry messages until told to stop."""
    name = "fedkoopman.deploy.flower.courier"
    parser = argparse.ArgumentParser(prog=name, description=__doc__)
    parser.add_argument("--runtime", required=True, metavar="HOST:PORT", help="the SuperNode's API")
    parser.add_argument("--secret", required=True, type=Path, help="shared with the SuperNode")
    parser.add_argument("--socket", required=True, type=Path, help="of the site agent")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        tasks = Tasks(chosen.runtime, chosen.secret)
    except InputError as error:
        log.error("%s", error)
        return 2
    log.info("messages at %s go to the agent at %s", chosen.runtime, chosen.socket)
    return _work(tasks, chosen.socket)


def _work(tasks: Tasks, path: Path) -> int:
    """Carry messages as they come."""
    interval, away = AdaptiveInterval(0.02, 0.5), False
    while True:
        try:
            if carry(tasks, path):
                interval.refresh()
            away = False
        except Stuck as error:
            log.error("%s; the SuperNode must be started again", error)
            return 1
        except httpx.HTTPStatusError as error:
            log.error("the SuperNode refuses this courier: %s", error)
            return 1
        except httpx.TransportError as error:
            if not away:
                log.warning("the SuperNode does not answer: %s; trying again", error)
            away = True
        interval.wait()


if __name__ == "__main__":
    configure_flower()
    sys.exit(main())
