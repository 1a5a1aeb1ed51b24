"""The nodes at the SuperLink: which of them is which site, and the replies that come from them.

A site is identified by its key: the SuperLink admits a node only if it holds a registered private
key, and tells the public key of each node. Without keys, on one machine, a node is asked for its
name.

A reply is fetched whole, without waiting for any of them. Flower's own `pull_messages` waits until
the content of each reply is there. If a sender dies while sending, that takes minutes, and one site
holds up all others. Here a reply whose content is still on its way is looked at again next time. A
reply is not trusted: the number and the size of its parts are checked before it is read.
"""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from flwr.app import Message, MessageType
from flwr.common.constant import ErrorCode
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.superlink.grid import HttpGrid

from fedkoopman.deploy.flower.control import key_bytes
from fedkoopman.deploy.flower.courier import body_of, content_of
from fedkoopman.deploy.provisioning.roster import Roster
from fedkoopman.deploy.wire import LARGEST, Failure
from fedkoopman.errors import InputError

log = logging.getLogger(__name__)
PARTS = 3
"""A reply has the message, its records, and the one record."""
OVERHEAD = 4096
"""Bytes that Flower may add to a body."""
ABSENT = (
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
)
HELLO_TIMEOUT = 5.0
"""Seconds that a node has to tell its name before it is asked again."""


@dataclass
class _Arriving:
    """A reply whose content may still be on its way.

    Arguments:
        since: when its last part came.
    """

    id: str
    parts: list[str]
    contents: dict[str, bytes] = field(default_factory=dict)
    since: float = field(default_factory=time.monotonic)


class Inbox:
    """Replies to messages that were sent through a grid."""

    def __init__(self, grid: HttpGrid) -> None:
        self._grid = grid
        self._arriving: dict[str, _Arriving] = {}

    def collect(self, asked: Collection[str]) -> list[tuple[str, bytes | Failure]]:
        """What has arrived: the id of the message that is answered, and the body or a failure.

        Arguments:
            asked: the ids of all messages that await a reply.
        """
        arrived = self._headers([id for id in asked if id not in self._arriving])
        for id in [id for id in self._arriving if id in asked]:
            if (outcome := self._fetch(self._arriving[id])) is not None:
                self._done(self._arriving.pop(id).id)
                arrived.append((id, outcome))
        for id in [id for id in self._arriving if id not in asked]:
            self._done(self._arriving.pop(id).id)
        return arrived

    def stalled(self) -> dict[str, float]:
        """Messages whose replies are incomplete, and seconds since the last part of each came.

        This happens when a sender's announcement is received but the confirmation is lost: the
        sender announces the reply again, is told that nobody waits for it, and sends no content.
        """
        now = time.monotonic()
        return {id: now - reply.since for id, reply in self._arriving.items()}

    def _headers(self, asked: list[str]) -> list[tuple[str, bytes | Failure]]:
        """See which replies have arrived; errors are complete at once."""
        if not asked:
            return []
        request = PullAppMessagesRequest(message_ids=asked)
        found = self._grid._runtime_client.PullMessages(request)
        complete: list[tuple[str, bytes | Failure]] = []
        for header, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            about = header.metadata
            if about.reply_to_message_id not in asked:
                log.warning("dropped a message that answers none of ours")
                self._done(about.message_id)
            elif header.HasField("error"):
                reason = " ".join(header.error.reason.split())[:500]
                failure = Failure(reason, header.error.code in ABSENT)
                self._done(about.message_id)
                complete.append((about.reply_to_message_id, failure))
            elif (parts := _parts(tree)) is None:
                self._done(about.message_id)
                failure = Failure("sends a reply of other parts", broken=True)
                complete.append((about.reply_to_message_id, failure))
            else:
                reply = _Arriving(about.message_id, parts)
                self._arriving[about.reply_to_message_id] = reply
        return complete

    def _fetch(self, reply: _Arriving) -> bytes | Failure | None:
        """The body, once all of its parts are there."""
        grid = self._grid
        for part in reply.parts:
            if part in reply.contents:
                continue
            request = PullObjectRequest(node=grid.node, run_id=grid.run.run_id, object_id=part)
            found = grid._runtime_client.PullObject(request)
            if not found.object_found:
                return Failure("its reply was not sent to the end")
            if not found.object_available:
                return None
            if len(found.object_content) > LARGEST + OVERHEAD:
                return Failure(f"sends more than {LARGEST} bytes", broken=True)
            reply.contents[part] = found.object_content
            reply.since = time.monotonic()
        try:
            message = inflate_object_from_contents(reply.id, reply.contents)
            if not isinstance(message, Message) or not message.has_content():
                return Failure("sends a reply without content", broken=True)
            return body_of(message.content)
        except InputError as error:
            return Failure(f"sends no reply: {error}", broken=True)
        except Exception as error:  # a site may send any bytes
            why = f"sends what cannot be read ({type(error).__name__})"
            return Failure(why, broken=True)

    def _done(self, message: str) -> None:
        """Let the SuperLink forget a reply."""
        grid = self._grid
        request = ConfirmMessageReceivedRequest(
            node=grid.node, run_id=grid.run.run_id, message_object_id=message
        )
        grid._runtime_client.ConfirmMessageReceived(request)


def _parts(tree: ObjectTree) -> list[str] | None:
    """The ids of a reply's parts; None if it has more or fewer than it should."""
    parts: list[str] = []
    for part in iterate_object_tree(tree):
        if len(parts) == PARTS:
            return None
        parts.append(part.object_id)
    return parts if len(parts) == PARTS else None


@dataclass(frozen=True)
class Place:
    """Where a site is: its node, and since when that node's process runs."""

    node: int
    since: str


class NodeDirectory:
    """Finds the node of each site.

    Arguments:
        grid: through which nodes are listed.
        roster: who may take part now.
        site_of: the site that a reply claims to come from; raises InputError if it is malformed.
        hello: a request that every site answers and that changes nothing.

    Attributes:
        asked: nodes that were asked for their names, by the message that asked them.
        unknown: nodes that belong to no site.
    """

    def __init__(
        self,
        grid: HttpGrid,
        roster: Callable[[], Roster],
        site_of: Callable[[bytes], str],
        hello: bytes,
    ) -> None:
        self.asked: dict[str, int] = {}
        self.unknown: set[int] = set()
        self._grid = grid
        self._roster = roster
        self._site_of = site_of
        self._hello = hello
        self._names: dict[int, str] = {}
        self._asked_at: dict[int, float] = {}

    def places(self) -> dict[str, Place]:
        """The nodes of sites that may take part; of two nodes with one name, the later one."""
        roster = self._roster()
        active = {site.name: site.public_key for site in roster.active}
        owners = {key_bytes(key): name for name, key in active.items() if roster.secure}
        places: dict[str, Place] = {}
        for node in sorted(self._grid.get_nodes(), key=lambda node: node.last_activated_at):
            id = node.node_id
            name = owners.get(node.public_key) if roster.secure else self._names.get(id)
            if name in active:
                places[str(name)] = Place(id, node.last_activated_at)
            elif name is None and not roster.secure:
                self._ask_name(id)
            elif id not in self.unknown:
                self.unknown.add(id)
                log.warning("node %d belongs to no site that may take part: left out", id)
        return places

    def learn(self, message: str, answer: bytes | Failure) -> None:
        """Note what a node answered that was asked for its name."""
        node = self.asked.pop(message)
        try:
            if isinstance(answer, Failure):
                raise InputError(answer.reason)
            self._names[node] = self._site_of(answer)
        except InputError as error:
            log.info("node %d does not tell its name: %s", node, error)

    def _ask_name(self, node: int) -> None:
        """Ask a node for its name, if it has not just been asked."""
        if time.monotonic() - self._asked_at.get(node, -HELLO_TIMEOUT) < HELLO_TIMEOUT:
            return
        self._asked_at[node] = time.monotonic()
        content = content_of(self._hello)
        message = Message(content, node, MessageType.QUERY, ttl=HELLO_TIMEOUT, group_id="hello")
        self.asked |= {id: node for id in self._grid.push_messages([message]) if id}
