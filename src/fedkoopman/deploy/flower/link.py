"""The server's end of Flower's Fleet API: messages to the nodes of sites, and their replies.

Messages and nodes are in Flower's own link state, and requests go to Flower's own handlers; what
stands before them is ours. Flower's HTTP layer takes 8 ms of processor for a request, as it runs
nine middlewares and hands each request over to other threads five times; this one takes less than
one. It looks at the signature before it reads a body (`signing`), holds a poll until there is
something to tell, and serves the paths that sites need and no others. The state is in memory, since
the server loop has a checkpoint of its own: after a restart it asks again.

All of it runs on one thread with an event loop, which the server loop calls from its own thread.
"""

import asyncio
import json
import logging
import queue
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fedkoopman.deploy.flower import internals as flower
from fedkoopman.deploy.flower.parcels import OVERHEAD, content_of, packed, part_names
from fedkoopman.deploy.flower.signing import Door, Refused, Sender, digest_of, fingerprint
from fedkoopman.deploy.wire import LARGEST, Failure
from fedkoopman.errors import ComputationError, InputError

log = logging.getLogger(__name__)
T = TypeVar("T")
HOLD = 20.0
"""Seconds for which a poll is held while there is nothing to tell."""
SMALL = 2**20
"""Bytes of a request that is no part of a message, at most."""
AT_ONCE = 8
"""Requests of one site that are served at the same time."""
SLOWEST = 30.0
"""Seconds in which a body must have come."""
BACKLOG = 1024
"""Connections that may wait to be accepted."""
RELEASE = 10.0
"""Seconds after which the port of a killed server is certainly free."""


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
        reply: the name of the reply that was announced, and `missing` its parts that are to come.
        session: Flower's, in which they come.
        since: when its last part came.
    """

    node: int
    reply: str = ""
    names: tuple[str, ...] = ()
    missing: set[str] = field(default_factory=set)
    session: str = ""
    since: float = 0.0


Parts = Mapping[str, bytes]
Arrival = tuple[str, str, Parts | Failure]
"""The message that is answered, the reply, and the reply's parts."""


class Link:
    """Messages to nodes, and their replies.

    Attributes:
        requests: how many were served, by the last part of their path.
    """

    def __init__(self, *, signed: bool) -> None:
        flower.check_version()
        self.requests: Counter[str] = Counter()
        self._door = Door(signed=signed)
        self._state = flower.InMemoryLinkState(
            flower.NoOpFederationManager(), flower.InMemoryObjectStore()
        )
        logging.getLogger("flwr").setLevel(logging.CRITICAL)  # it is set when it is imported
        self._run = _running(self._state)
        self._ids: dict[bytes, int] = {}
        self._names: dict[int, str] = {}
        self._instances: dict[int, str] = {}
        self._awaited: dict[str, _Awaited] = {}
        self._arrived: queue.SimpleQueue[Arrival | None] = queue.SimpleQueue()
        self._polls: dict[int, asyncio.Event] = {}
        self._busy: Counter[bytes] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._paths: dict[str, tuple[Any, Callable[[Sender, Any], Any]]] = {
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
        if self._loop is None:
            return work()

        async def done() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result()

    # serving

    @contextmanager
    def serving(
        self, listener: socket.socket, certificate: tuple[Path, Path] | None = None
    ) -> Iterator[None]:
        """Serve requests in a thread.

        Arguments:
            listener: a bound socket.
            certificate: the files with the certificate and its key; None: no TLS.
        """
        import uvicorn

        crt, key = certificate or (None, None)
        config = uvicorn.Config(
            self, lifespan="off", ws="none", log_config=None, log_level="critical",
            access_log=False, server_header=False, timeout_keep_alive=75, proxy_headers=False,
            timeout_graceful_shutdown=1, backlog=BACKLOG, ssl_certfile=crt, ssl_keyfile=key,
        )  # fmt: skip
        server, started, failed = uvicorn.Server(config), threading.Event(), list[BaseException]()

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            ready = asyncio.ensure_future(_until(lambda: server.started, started))
            try:
                await server.serve(sockets=[listener])
            finally:
                ready.cancel()

        def run() -> None:
            try:
                with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
                    runner.run(serve())
            except BaseException as error:
                failed.append(error)
            finally:
                self._loop = None
                started.set()

        thread = threading.Thread(target=run, name="link", daemon=True)
        thread.start()
        started.wait()
        if failed:
            raise ComputationError(f"cannot serve sites: {failed[0]}") from failed[0]
        try:
            yield
        finally:
            for event in list(self._polls.values()):
                self._wake(event)
            server.should_exit = True
            thread.join(timeout=5.0)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request, as ASGI has it."""
        if scope["type"] != "http":
            return
        status, kind, body = 200, b"application/protobuf", b""
        try:
            body = await self._answered(scope, receive)
        except Refused as refusal:
            status, kind, body = refusal.status, b"text/plain", refusal.reason.encode()
        except flower.FlowerError as error:
            told = json.dumps({"code": int(error.code)})
            status, kind, body = 409, b"application/json", told.encode()
            log.info("refused: %s", " ".join(str(error).split())[:300])
        except ConnectionError:  # the sender has gone
            return
        except Exception:
            log.exception("a request failed")
            status, kind, body = 500, b"text/plain", b"it failed: see the server's log"
        headers = [
            (b"content-type", kind),
            (b"content-length", str(len(body)).encode()),
            *self._door.answer_headers(),
        ]
        if status >= 400:  # the rest of its body is not read
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answered(self, scope: Any, receive: Any) -> bytes:
        """The answer to a request, which is looked at in this order: path, sender, body."""
        path, headers = scope["path"], _headers(scope)
        name = path.removeprefix("/v1/fleet/")
        if scope["method"] != "POST":
            raise Refused(405, "only POST")
        if name not in self._paths or path != f"/v1/fleet/{name}":
            raise Refused(404, "no such path")
        sender = self._door.check(path, headers)
        length = _length(headers, LARGEST + OVERHEAD if name == "push-object" else SMALL)
        if self._busy[sender.key] >= AT_ONCE:
            raise Refused(503, f"more than {AT_ONCE} requests at once")
        self._busy[sender.key] += 1
        try:
            body = await asyncio.wait_for(_body(receive, length), SLOWEST)
            if digest_of(body) != sender.digest:
                raise Refused(401, "the signature is for another body")
            kind, handler = self._paths[name]
            request = kind()
            try:
                request.ParseFromString(body)
            except Exception as error:  # of protobuf
                raise Refused(400, "the body is malformed") from error
            self.requests[name] += 1
            answer = handler(sender, request)
            if name == "pull-messages" and not answer.messages_list:
                if not await self._held(sender, receive):
                    raise ConnectionError("the sender has gone")
                answer = handler(sender, request)
            return bytes(answer.SerializeToString())
        except TimeoutError:
            raise Refused(408, f"the body did not come within {SLOWEST:g} s") from None
        finally:
            self._busy[sender.key] -= 1
            if not self._busy[sender.key]:
                del self._busy[sender.key]

    # paths, on the event loop's thread

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
        self._checked(sender, request.node.node_id)
        store = self._state.object_store
        return flower.fleet_handlers.pull_messages(request, self._state, store)

    async def _held(self, sender: Sender, receive: Any) -> bool:
        """Wait until there is a message for a node; False if its process no longer listens.

        A later poll ends an earlier one.
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

    def _pull_object(self, sender: Sender, request: Any) -> Any:
        self._checked(sender, request.node.node_id)
        return flower.fleet_handlers.pull_object(request, self._state)

    def _confirm(self, sender: Sender, request: Any) -> Any:
        node = self._checked(sender, request.node.node_id)
        sent = self._awaited.get(request.message_object_id)
        if sent is not None and sent.node != node:
            raise Refused(403, "this message is for another site")
        return flower.fleet_handlers.confirm_message_received(
            request, self._state, self._state.object_store
        )

    def _push(self, sender: Sender, request: Any) -> Any:
        """The announcement of a reply; one that carries only an error is complete."""
        node = self._checked(sender, request.node.node_id)
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            raise Refused(400, "one message at a time")
        about, [tree] = request.messages_list[0].metadata, request.message_object_trees
        asked, reply = about.reply_to_message_id, about.message_id
        sent = self._awaited.get(asked)
        if about.src_node_id != node or (sent is not None and sent.node != node):
            raise Refused(403, "this message speaks for another site")
        if sent is None:
            raise Refused(410, "nobody waits for this reply any more")
        if request.messages_list[0].HasField("error"):
            reason = " ".join(request.messages_list[0].error.reason.split())[:500]
            return self._refusal(asked, reply, Failure(reason))
        names = part_names(tree)
        if names is None or tree.object_id != reply:
            return self._refusal(asked, reply, Failure("sends a reply of other parts", broken=True))
        if sent.reply not in ("", reply):
            raise Refused(409, "this message was answered already")
        answer = flower.fleet_handlers.push_messages(request, self._state)
        sent.reply, sent.names, sent.session = reply, tuple(names), answer.session_id
        sent.missing, sent.since = set(answer.objects_to_push), time.monotonic()
        if not sent.missing:
            self._completed(asked)
        return answer

    def _refusal(self, asked: str, reply: str, failure: Failure) -> Any:
        """Note that a message is answered by a failure, of which nothing more is to come."""
        self._forgotten(asked)
        self._arrived.put((asked, reply, failure))
        return flower.PushMessagesResponse()

    def _push_object(self, sender: Sender, request: Any) -> Any:
        node = self._checked(sender, request.node.node_id)
        name = request.object_id
        waiting = [
            id for id, one in self._awaited.items() if one.node == node and name in one.missing
        ]
        if not waiting:
            raise Refused(410, "nobody waits for this part any more")
        answer = flower.fleet_handlers.push_object(request, self._state)
        if not answer.stored:
            raise Refused(422, "this part is not what its name says")
        for other in waiting:  # equal contents are one part of several replies
            sent = self._awaited[other]
            if name in sent.missing:
                sent.missing.discard(name)
                sent.since = time.monotonic()
                if not sent.missing:
                    self._completed(other)
        return answer

    # the state

    def _completed(self, asked: str) -> None:
        """A reply has come whole: hand it over, and keep nothing of it."""
        sent, store = self._awaited[asked], self._state.object_store
        parts = {name: bytes(store.get(name) or b"") for name in sent.names}
        self._forgotten(asked)
        self._arrived.put((asked, sent.reply, parts))

    def _forgotten(self, asked: str) -> None:
        sent = self._awaited.pop(asked, None)
        if sent is None:
            return
        if sent.session:
            self._state._cleanup_push_session(sent.session, cleanup_messages=False)
        self._state.delete_messages({asked})
        for name in (asked, sent.reply):
            if name:
                self._state.object_store.delete(name)

    def _sent(self, letter: Letter) -> str | None:
        """The group is a random number and enters the message's name, which nobody can guess."""
        about = flower.Metadata(
            run_id=self._run, message_id="", src_node_id=flower.SUPERLINK_NODE_ID,
            dst_node_id=letter.node, reply_to_message_id="", group_id=secrets.token_hex(16),
            created_at=time.time(), ttl=letter.ttl, message_type=flower.MessageType.QUERY,
        )  # fmt: skip
        about.delivered_at = ""
        message = flower.make_message(about, content_of(letter.body))
        parcel = packed(message)
        session = self._state.start_session(self._run)
        stored, missing = self._state.store_message_and_object_tree(
            parcel.message, parcel.tree, session
        )
        if not stored:
            self._state._cleanup_push_session(session, cleanup_messages=False)
            return None
        for name in missing:
            self._state.store_object(self._run, session, name, parcel.parts[name])
        if not missing:
            self._state._cleanup_push_session(session, cleanup_messages=False)
        self._awaited[parcel.id] = _Awaited(letter.node)
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
        self._door.keys = {fingerprint(key): key for key in self._ids}
        return added, removed

    def _shut_out(self, key: bytes, owner: str) -> str:
        node = self._ids.pop(key)
        self._state.delete_node(owner, node)
        self._instances.pop(node, None)
        if (event := self._polls.get(node)) is not None:
            event.set()
        for asked in [id for id, one in self._awaited.items() if one.node == node]:
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
            raise Refused(403, "the request names another node: activate it anew")
        if self._instances.get(node) != sender.instance:
            raise Refused(412, "another machine uses this site's key")
        return node

    def _wake(self, event: asyncio.Event) -> None:
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)


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


def _headers(scope: Any) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _length(headers: Mapping[str, str], most: int) -> int:
    told = headers.get("content-length", "")
    if not told.isdecimal():
        raise Refused(411, "the length of the body is not told")
    if int(told) > most:
        raise Refused(413, f"a body of more than {most:,} bytes")
    return int(told)


async def _body(receive: Any, length: int) -> bytes:
    parts = bytearray()
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ConnectionError("the sender has gone")
        parts += event.get("body", b"")
        if len(parts) > length:
            raise Refused(413, "more than was announced")
        if not event.get("more_body"):
            return bytes(parts)


async def _until(condition: Callable[[], bool], event: threading.Event) -> None:
    while not condition():
        await asyncio.sleep(0.005)
    event.set()


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket bound to an address; the port of a killed server may be taken for a while."""
    end = time.monotonic() + RELEASE
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        while True:
            try:
                listener.bind((host, port))
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise InputError(
                        f"cannot listen on {host}:{port}: {error.strerror}: stop what listens "
                        "there, or choose another by --port"
                    ) from error
            time.sleep(0.2)
        listener.listen(BACKLOG)
        yield listener
