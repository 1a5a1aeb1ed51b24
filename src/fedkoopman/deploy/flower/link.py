"""The server's end of Flower's Fleet API: messages to the nodes of sites, and their replies.

Messages and nodes are in Flower's own link state, and requests go to Flower's own handlers; what
stands before them is ours. Flower's HTTP layer takes 8 ms of processor for a request, as it runs
nine middlewares and hands each request over to other threads five times; this one takes less than
one. It looks at the signature before it reads a body (`signing`), holds a poll until there is
something to tell, and serves the paths that sites need and no others. The state is in memory, since
the server loop has a checkpoint of its own: after a restart it asks again.

What sites send never enters Flower's store: objects there are named by their content and shared, so
a site could register another site's next message before it is made, with other parts. A reply is
collected here, apart from all others, and only its site can add to it.

All of it runs on one thread with an event loop, which the server loop calls from its own thread.
"""

import asyncio
import hashlib
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
from fedkoopman.deploy.flower.signing import AGAIN, Door, Refused, Sender, digest_of, fingerprint
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
SLOWEST, PATIENCE = 2**18, 30.0
"""Bytes per second with which a body must come, and seconds that are given beyond that."""
LINGER = 5.0
"""Seconds for which the rest of a refused body is thrown away, so that its sender hears of it."""
OPEN = 3
"""Messages to one node that may be unanswered; when it is asked again, older ones are given up."""
EVER = 1e9
"""Seconds: Flower lets no message expire, as it goes by a clock that people set. We do."""
TOLD = 10.0
"""Seconds after which a refusal that happens again is logged again."""
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
        self._open: dict[int, list[str]] = {}
        self._arrived: queue.SimpleQueue[Arrival | None] = queue.SimpleQueue()
        self._polls: dict[int, asyncio.Event] = {}
        self._busy: Counter[bytes] = Counter()
        self._bytes: Counter[bytes] = Counter()
        self._told: dict[tuple[str, str, str], float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._broken = ""
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
        if self._broken:
            raise ComputationError(f"sites are no longer served: {self._broken}")
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
        # The faster parser takes heads of any length; without a proxy nobody else limits them.
        config = uvicorn.Config(
            self, http="h11" if certificate else "auto", lifespan="off", ws="none",
            log_config=None, log_level="critical",
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
                if not server.should_exit:
                    self._broken = str(failed[0]) if failed else "the thread has ended"
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
        status, kind, body, whole = 200, b"application/protobuf", b"", False

        async def received() -> Any:
            nonlocal whole
            event = await receive()
            whole = not event.get("more_body")  # also if the sender has gone
            return event

        try:
            body = await self._answered(scope, received)
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
        if not whole:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        if not whole:  # closed at once, the answer would be lost to whoever is still sending
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER):
                    while not whole:
                        await received()
        await send({"type": "http.response.body"})

    async def _answered(self, scope: Any, receive: Any) -> bytes:
        """The answer to a request, which is looked at in this order: path, sender, body."""
        path, headers = scope["path"], _headers(scope)
        name = path.removeprefix("/v1/fleet/")
        if scope["method"] != "POST":
            raise Refused(405, "only POST")
        if name not in self._paths or path != f"/v1/fleet/{name}":
            raise Refused(404, "no such path")
        who = "somebody"
        try:
            sender = self._door.check(path, headers)
            who = self._names[self._own(sender)]
            length = _length(headers, LARGEST + OVERHEAD if name == "push-object" else SMALL)
            with self._room(sender, name, length):
                body = await _body(receive, length, sender.digest)
                return await self._told_by(sender, name, body, receive)
        except Refused as refusal:
            self._note(who, name, refusal)
            raise

    async def _told_by(self, sender: Sender, name: str, body: bytes, receive: Any) -> bytes:
        """The answer to a body that its sender has signed."""
        kind, handler = self._paths[name]
        request = kind()
        try:
            request.ParseFromString(body)
        except Exception as error:  # of protobuf
            raise Refused(400, "the body is malformed") from error
        self.requests[name] += 1
        answer = handler(sender, request)
        if (
            name == "pull-messages"
            and not answer.messages_list
            and await self._held(sender, receive)
        ):
            answer = handler(sender, request)
        return bytes(answer.SerializeToString())

    @contextmanager
    def _room(self, sender: Sender, name: str, length: int) -> Iterator[None]:
        """Room for one more request of a sender; refuses what nobody needs before it is read."""
        key = sender.key
        if self._busy[key] >= AT_ONCE or self._bytes[key] + length > LARGEST + OVERHEAD + SMALL:
            raise Refused(503, f"more than {AT_ONCE} requests, or {LARGEST:,} bytes, at once")
        if length > SMALL and not any(
            self._awaited[asked].missing for asked in self._open.get(self._own(sender), ())
        ):
            raise Refused(410, "nobody waits for this part any more")
        self._busy[key] += 1
        self._bytes[key] += length
        try:
            yield
        finally:
            self._busy[key] -= 1
            self._bytes[key] -= length
            if not self._busy[key]:
                del self._busy[key], self._bytes[key]

    def _note(self, who: str, name: str, refusal: Refused) -> None:
        """A line in the log about a refusal that is not a matter of course."""
        if refusal.status in (410, 428) or refusal.reason.startswith(AGAIN):
            return
        now, told = time.monotonic(), (who, name, refusal.reason)
        if now - self._told.get(told, -TOLD) >= TOLD:
            self._told[told] = now
            log.warning("refused %s of %s: %s", name, who, refusal.reason)

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

    async def _held(self, sender: Sender, receive: Any) -> bool:
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
        self._door.keys = {fingerprint(key): key for key in self._ids}
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


async def _body(receive: Any, length: int, digest: str) -> bytes:
    """A body of so many bytes and with this hash, which comes without long pauses."""
    parts, seen, patience = bytearray(), hashlib.sha256(), PATIENCE + length / SLOWEST
    try:
        async with asyncio.timeout(patience):
            while True:
                event = await receive()
                if event["type"] == "http.disconnect":
                    raise ConnectionError("the sender has gone")
                part = event.get("body", b"")
                seen.update(part)
                parts += part
                if len(parts) > length:
                    raise Refused(413, "more than was announced")
                if not event.get("more_body"):
                    break
    except TimeoutError:
        raise Refused(408, f"the body did not come within {patience:.0f} s") from None
    if seen.hexdigest() != digest:
        raise Refused(401, "the signature is for another body")
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
