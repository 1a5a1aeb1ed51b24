"""The server's end of Flower's Fleet API: messages to the nodes of sites, and their replies.

Messages and nodes are in Flower's own link state, and requests go to Flower's own handlers. The
state is in memory, since the server loop has a checkpoint of its own: after a restart it asks
again. A poll is held until there is something to tell.

What sites send never enters Flower's store: objects there are named by their content and shared, so
a site could register another site's next message before it is made, with other parts. A reply is
collected here, apart from all others, and only its site can add to it.

Requests come in by `front`, on one thread with an event loop. The server loop calls from another
thread, and what it asks for is done on that one.
"""

import asyncio
import logging
import queue
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedkoopman.deploy.flower import internals as flower
from fedkoopman.deploy.flower.parcels import content_of, packed, part_names
from fedkoopman.deploy.flower.signing import Door, Refused, Sender, digest_of, fingerprint
from fedkoopman.deploy.wire import Failure
from fedkoopman.errors import ComputationError

log = logging.getLogger(__name__)
T = TypeVar("T")
HOLD = 20.0
"""Seconds for which a poll is held while there is nothing to tell."""
OPEN = 3
"""Messages to one node that may be unanswered; when it is asked again, older ones are given up."""
EVER = 1e9
"""Seconds: Flower lets no message expire, as it goes by a clock that people set. We do."""


@dataclass(frozen=True)
class Letter:
    """A body for a node.

    Arguments:
        ttl: seconds after which it is no longer delivered or answered.
    """

    node: int
    body: bytes
    ttl: float


@dataclass(frozen=True)
class Node:
    """An enrolled node that is connected.

    Arguments:
        since: when its process announced itself; another time is another process.
    """

    id: int
    since: str


@dataclass
class _Awaited:
    """A message whose reply is awaited.

    Arguments:
        until: when it is given up.
        names: of its parts.
        reply: the name of the reply that was announced, and `missing` its parts that are to come.
        session: in which they come.
        since: when the last of them came.
    """

    node: int
    until: float
    names: tuple[str, ...]
    reply: str = ""
    missing: set[str] = field(default_factory=set)
    parts: dict[str, bytes] = field(default_factory=dict)
    session: str = ""
    since: float = 0.0


Parts = Mapping[str, bytes]
Arrival = tuple[str, str, Parts | Failure]
"""The message that is answered, the reply, and the reply's parts."""


class Link:
    """Messages to nodes, and their replies.

    Attributes:
        door: tells who sent a request.
        paths: of requests, by their last part: the kind of the request, and what answers it.
    """

    def __init__(self, *, signed: bool) -> None:
        flower.check_version()
        self.door = Door(signed=signed)
        self._state = flower.InMemoryLinkState(
            flower.NoOpFederationManager(), flower.InMemoryObjectStore()
        )
        logging.getLogger("flwr").setLevel(logging.CRITICAL)  # it is set when it is imported
        self._run = _running(self._state)
        self._ids: dict[bytes, int] = {}
        self._names: dict[int, str] = {}
        self._instances: dict[int, str] = {}
        self._awaited: dict[str, _Awaited] = {}
        self._open: dict[int, list[str]] = {}
        self._arrived: queue.SimpleQueue[Arrival | None] = queue.SimpleQueue()
        self._polls: dict[int, asyncio.Event] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._broken = ""
        self.paths: dict[str, tuple[Any, Callable[[Sender, Any], Any]]] = {
            "activate-node": (flower.ActivateNodeRequest, self._activate),
            "deactivate-node": (flower.DeactivateNodeRequest, self._deactivate),
            "send-node-heartbeat": (flower.SendNodeHeartbeatRequest, self._heartbeat),
            "pull-messages": (flower.PullMessagesRequest, self._pull),
            "pull-object": (flower.PullObjectRequest, self._pull_object),
            "confirm-message-received": (flower.ConfirmMessageReceivedRequest, self._confirm),
            "push-messages": (flower.PushMessagesRequest, self._push),
            "push-object": (flower.PushObjectRequest, self._push_object),
        }

    # what the server loop calls

    def enrol(self, keys: Mapping[str, bytes]) -> tuple[list[str], list[str]]:
        """Let exactly these keys in; gives the names of sites that were added and shut out.

        Arguments:
            keys: by site, its public key; where nothing is signed, its name.
        """
        return self._call(lambda: self._enrolled(keys))

    def nodes(self) -> dict[str, Node]:
        """The nodes that are connected, by site."""

        def found() -> dict[str, Node]:
            online = self._state.get_node_info(
                node_ids=list(self._names), statuses=[flower.NodeStatus.ONLINE]
            )
            return {self._names[n.node_id]: Node(n.node_id, n.last_activated_at) for n in online}

        return self._call(found)

    def send(self, letters: Sequence[Letter]) -> list[str | None]:
        """Give letters to their nodes; gives a name for each that its reply will have, or None."""
        return self._call(lambda: [self._sent(letter) for letter in letters])

    def take(self, seconds: float) -> Arrival | None:
        """The next reply; None after some seconds, or when a node has come."""
        try:
            return self._arrived.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None

    def stalled(self) -> dict[str, float]:
        """Messages whose reply is announced and has not come whole; seconds since its last part."""
        now = time.monotonic()
        return self._call(
            lambda: {name: now - one.since for name, one in self._awaited.items() if one.missing}
        )

    def forget(self, messages: Sequence[str]) -> None:
        """Expect no replies to these messages any more."""

        def forgotten() -> None:
            for name in messages:
                self._forgotten(name)

        self._call(forgotten)

    def _call(self, work: Callable[[], T]) -> T:
        """Do something on the event loop's thread."""
        if self._broken:
            raise ComputationError(f"sites are no longer served: {self._broken}")
        if self._loop is None:
            return work()

        async def done() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result()

    # what the front calls, on the event loop's thread

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on requests come on the thread of this event loop."""
        self._loop = loop

    def end(self, broken: str) -> None:
        """No more requests come.

        Arguments:
            broken: why, if that was not wanted.
        """
        self._loop, self._broken = None, broken

    def release(self) -> None:
        """End all polls that are held, as nobody is served any more."""
        if (loop := self._loop) is not None:
            for event in list(self._polls.values()):
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(event.set)

    def site_of(self, sender: Sender) -> str:
        """The site that sent a request."""
        return self._names[self._own(sender)]

    def awaits_parts(self, sender: Sender) -> bool:
        """Whether a reply that a site has announced is still to come."""
        return any(self._awaited[asked].missing for asked in self._open.get(self._own(sender), ()))

    async def held(self, sender: Sender, receive: Any) -> bool:
        """Wait until there may be a message for a node; False if its process no longer listens.

        A later poll ends an earlier one, which is then told of no message.
        """
        node = self._own(sender)
        if (before := self._polls.get(node)) is not None:
            before.set()
        self._polls[node] = event = asyncio.Event()
        gone, told = asyncio.ensure_future(receive()), asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({gone, told}, timeout=HOLD, return_when=asyncio.FIRST_COMPLETED)
            return not gone.done() and self._polls.get(node) is event
        finally:
            gone.cancel()
            told.cancel()
            if self._polls.get(node) is event:
                del self._polls[node]

    # paths

    def _activate(self, sender: Sender, request: Any) -> Any:
        node = self._own(sender)
        if request.public_key != sender.key:
            raise Refused(403, "another key than the one that signed")
        [about] = self._state.get_node_info(node_ids=[node])
        if about.status == flower.NodeStatus.ONLINE:
            # Restarted: the process before it is gone. Another machine would have another name.
            if self._instances.get(node) != sender.instance:
                raise Refused(412, "another machine uses this site's key")
            self._state.deactivate_node(node)
        answer = flower.fleet_handlers.activate_node(request, self._state)
        self._instances[node] = sender.instance
        if self._arrived.empty():  # otherwise it is looked at soon enough
            self._arrived.put(None)
        return answer

    def _deactivate(self, sender: Sender, request: Any) -> Any:
        self._checked(sender, request.node_id)
        return flower.fleet_handlers.deactivate_node(request, self._state)

    def _heartbeat(self, sender: Sender, request: Any) -> Any:
        self._checked(sender, request.node.node_id)
        return flower.fleet_handlers.send_node_heartbeat(request, self._state)

    def _pull(self, sender: Sender, request: Any) -> Any:
        """The next message, if there is one."""
        node, now = self._checked(sender, request.node.node_id), time.monotonic()
        for asked in [one for one in self._open.get(node, ()) if self._awaited[one].until < now]:
            self._forgotten(asked)
        store = self._state.object_store
        return flower.fleet_handlers.pull_messages(request, self._state, store)

    def _pull_object(self, sender: Sender, request: Any) -> Any:
        """A part of a message that is for this node."""
        node, name = self._checked(sender, request.node.node_id), request.object_id
        if not any(name in self._awaited[asked].names for asked in self._open.get(node, ())):
            return flower.PullObjectResponse()
        self._of_run(request.run_id)
        return flower.fleet_handlers.pull_object(request, self._state)

    def _confirm(self, sender: Sender, request: Any) -> Any:
        node = self._checked(sender, request.node.node_id)
        if (sent := self._awaited.get(request.message_object_id)) is None:
            return flower.ConfirmMessageReceivedResponse()
        if sent.node != node:
            raise Refused(403, "the message is for another site")
        self._of_run(request.run_id)
        return flower.fleet_handlers.confirm_message_received(
            request, self._state, self._state.object_store
        )

    def _of_run(self, run: int) -> None:
        if run != self._run:
            raise Refused(400, "the request names another run")

    def _push(self, sender: Sender, request: Any) -> Any:
        """The announcement of a reply; one that carries only an error is complete."""
        node = self._checked(sender, request.node.node_id)
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            raise Refused(400, "one message at a time")
        about, [tree] = request.messages_list[0].metadata, request.message_object_trees
        asked, reply = about.reply_to_message_id, about.message_id
        sent = self._awaited.get(asked)
        if about.src_node_id != node or (sent is not None and sent.node != node):
            raise Refused(403, "the message speaks for another site")
        if sent is None or sent.until < time.monotonic():
            raise Refused(410, "nobody waits for this reply any more")
        if request.messages_list[0].HasField("error"):
            reason = " ".join(request.messages_list[0].error.reason.split())[:500]
            return self._answer(asked, reply, Failure(reason))
        names = part_names(tree)
        if names is None or tree.object_id != reply:
            return self._answer(asked, reply, Failure("sends a reply of other parts", broken=True))
        if sent.reply not in ("", reply):
            raise Refused(409, "this message was answered already")
        if not sent.reply:
            sent.reply, sent.missing, sent.session = reply, set(names), secrets.token_hex(16)
        sent.since = time.monotonic()
        return flower.PushMessagesResponse(
            results={reply: 0}, objects_to_push=sorted(sent.missing), session_id=sent.session
        )

    def _push_object(self, sender: Sender, request: Any) -> Any:
        """A part of a reply; with the last of them, the reply is handed over."""
        node, name = self._checked(sender, request.node.node_id), request.object_id
        for asked in self._open.get(node, ()):
            sent = self._awaited[asked]
            if name in sent.missing and sent.session == request.session_id:
                break
        else:
            raise Refused(410, "nobody waits for this part any more")
        if digest_of(request.object_content) != name:
            raise Refused(422, "this part is not what its name says")
        sent.missing.discard(name)
        sent.parts[name], sent.since = request.object_content, time.monotonic()
        if not sent.missing:
            self._answer(asked, sent.reply, sent.parts)
        return flower.PushObjectResponse(stored=True)

    # the state

    def _answer(self, asked: str, reply: str, answer: Parts | Failure) -> Any:
        """Hand over the answer to a message, of which nothing more is to come."""
        self._forgotten(asked)
        self._arrived.put((asked, reply, answer))
        return flower.PushMessagesResponse(results={reply: 0})

    def _forgotten(self, asked: str) -> None:
        sent = self._awaited.pop(asked, None)
        if sent is None:
            return
        self._open[sent.node].remove(asked)
        if not self._open[sent.node]:
            del self._open[sent.node]
        self._state.delete_messages({asked})
        self._state.object_store.delete(asked)

    def _sent(self, letter: Letter) -> str | None:
        """The group is a random number and enters the message's name, which nobody can guess."""
        if letter.node not in self._names:  # shut out meanwhile
            return None
        about = flower.Metadata(
            run_id=self._run, message_id="", src_node_id=flower.SUPERLINK_NODE_ID,
            dst_node_id=letter.node, reply_to_message_id="", group_id=secrets.token_hex(16),
            created_at=time.time(), ttl=EVER, message_type=flower.MessageType.QUERY,
        )  # fmt: skip
        about.delivered_at = ""
        message = flower.make_message(about, content_of(letter.body))
        parcel = packed(message)
        session = self._state.start_session(self._run)
        stored, missing = self._state.store_message_and_object_tree(
            parcel.message, parcel.tree, session
        )
        for name in missing:
            self._state.store_object(self._run, session, name, parcel.parts[name])
        if not missing:
            self._state._cleanup_push_session(session, cleanup_messages=False)
        if not stored:
            return None
        open_ = self._open.setdefault(letter.node, [])
        if len(open_) >= OPEN:
            self._forgotten(open_[1])  # not the first, which the site may be at work on
        until = time.monotonic() + letter.ttl
        names = tuple(part_names(parcel.tree) or ())
        self._awaited[parcel.id] = _Awaited(letter.node, until, names)
        open_.append(parcel.id)
        if (event := self._polls.get(letter.node)) is not None:
            event.set()
        return parcel.id

    def _enrolled(self, keys: Mapping[str, bytes]) -> tuple[list[str], list[str]]:
        owner = flower.NOOP_FLWR_AID
        gone = [key for key in self._ids if key not in keys.values()]
        removed = [self._shut_out(key, owner) for key in gone]
        added = [name for name, key in keys.items() if key not in self._ids]
        for name in added:
            key = keys[name]
            self._ids[key] = node = self._state.create_node(
                owner, flower.NOOP_ACCOUNT_NAME, key, 0, name=name
            )
            self._names[node] = name
        self.door.keys = {fingerprint(key): key for key in self._ids}
        return added, removed

    def _shut_out(self, key: bytes, owner: str) -> str:
        node = self._ids.pop(key)
        # Flower only marks a node as deleted, and fails for one that never came; its key could not
        # be enrolled again.
        del self._state.nodes[node], self._state.node_public_key_to_node_id[key]
        self._state.owner_to_node_ids[owner].discard(node)
        self._instances.pop(node, None)
        if (event := self._polls.get(node)) is not None:
            event.set()
        for asked in list(self._open.get(node, ())):
            self._forgotten(asked)
        return self._names.pop(node)

    def _own(self, sender: Sender) -> int:
        """The node of a sender, who may have been shut out while its body was read."""
        node = self._ids.get(sender.key)
        if node is None:
            raise Refused(412, "no site that may take part has this key")
        return node

    def _checked(self, sender: Sender, named: int) -> int:
        """The node of a sender that names no other."""
        node = self._own(sender)
        if named != node:
            if named in self._names:
                raise Refused(403, f"the request names the node of {self._names[named]}")
            raise Refused(428, "the request names a node of long ago: activate it anew")
        if self._instances.get(node) != sender.instance:
            raise Refused(412, "another machine uses this site's key")
        return node


def _running(state: Any) -> int:
    """A run of Flower's, which messages must belong to; it lasts as long as the state."""
    run = state.create_run(
        fab_id=None, fab_version=None, fab_hash=None, override_config={},
        federation_id=flower.NOOP_FEDERATION_ID, federation_config=None,
        flwr_aid=flower.NOOP_FLWR_AID, primary_task_type=flower.TaskType.SERVER_APP,
    )  # fmt: skip
    [about] = state.get_run_info(run_ids=[run])
    task = state.task_store[about.primary_task_id]
    task.status.status = flower.Status.RUNNING  # without a token, which would expire
    return int(run)
