"""The node of a site: carries messages between the server and the site's agent, and nothing else.

    python -m fedkoopman.deploy.flower.node --server HOST:PORT --socket PATH --memory FILE …

It asks the server for a message with Flower's own client of the Fleet API, hands the bytes to the
agent's socket, and sends the agent's answer back. It installs and imports no app, reads no data,
and needs no JAX. A message of any other form is refused.

A lost message needs no care here: the server asks again, and the agent answers a repeated request
as it did before.
"""

import argparse
import json
import logging
import secrets
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from fedkoopman.deploy.flower import internals as flower
from fedkoopman.deploy.flower.parcels import (
    Parcel,
    body_of,
    packed,
    part_names,
    reply_to,
    unpacked,
)
from fedkoopman.deploy.flower.programs import AdaptiveInterval
from fedkoopman.deploy.flower.signing import Signer, public_bytes
from fedkoopman.deploy.wire import LARGEST
from fedkoopman.durable import write_whole
from fedkoopman.errors import InputError

log = logging.getLogger(__name__)
REFUSAL = "the server "
"""How a line begins that `join` shows to the people at a site (`site.join.REFUSAL`)."""
HEARTBEAT = 15.0
"""Seconds between two signs of life; the server waits for two of them."""
AGAIN = 20.0
"""Seconds for which a request is made again when the server does not answer."""
REPEAT = 30.0
"""Seconds after which the same refusal is told again."""
_LENGTH = struct.Struct(">Q")
"""A body on the socket: its length in eight bytes, then itself."""

Answer = Callable[[bytes], bytes]


class Node:
    """One site's connection to the server.

    Arguments:
        client: Flower's, with a `Signer` among its interceptors.
        public: the site's public key, as it is enrolled.
        answer: the agent's answer to a body; raises InputError or OSError.
        say: is called with lines for the people at the site.
    """

    def __init__(
        self,
        client: Any,
        public: bytes,
        answer: Answer,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._client, self._public, self._answer, self._say = client, public, answer, say
        self._id = 0
        self._told, self._told_at = "", 0.0

    def work(self, stop: threading.Event) -> None:
        """Carry messages until `stop` is set."""
        pause = AdaptiveInterval(0.2, 5.0)
        while not stop.is_set():
            try:
                if not self._id:
                    self._activate()
                self._carry(stop)
                pause.refresh()
                self._told = ""
            except (httpx.HTTPError, ValueError) as error:
                self._refused(error)
                stop.wait(pause.seconds())

    def beat(self, stop: threading.Event) -> None:
        """Send signs of life until `stop` is set, also while the agent works.

        A server that was started anew hears of this node again at once, and not when the agent,
        which may be training for an hour, has answered what the server asked before.
        """
        while not stop.wait(HEARTBEAT):
            if not (node := self._id):
                continue
            request = flower.SendNodeHeartbeatRequest(
                node=flower.Node(node_id=node), heartbeat_interval=HEARTBEAT
            )
            try:
                try:
                    self._client.SendNodeHeartbeat(request)
                except httpx.HTTPStatusError as error:
                    if _status(error) != httpx.codes.PRECONDITION_REQUIRED:
                        raise
                    self._activate()
            except (httpx.HTTPError, ValueError) as error:
                log.info("no sign of life was delivered: %s", error)

    def sign_off(self) -> None:
        """Tell the server that this node goes away."""
        if self._id:
            try:
                self._client.DeactivateNode(flower.DeactivateNodeRequest(node_id=self._id))
            except (httpx.HTTPError, ValueError) as error:
                log.info("could not sign off: %s", error)

    def _activate(self) -> None:
        request = flower.ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT)
        self._id = self._client.ActivateNode(request).node_id
        log.info("admitted as node %d", self._id)

    def _carry(self, stop: threading.Event) -> None:
        """Wait for a message, answer it, and send the answer."""
        node = flower.Node(node_id=self._id)
        found = self._client.PullMessages(flower.PullMessagesRequest(node=node))
        if not found.messages_list:
            return
        header, tree = found.messages_list[0], found.message_object_trees[0]
        run, names = header.metadata.run_id, part_names(tree)
        if names is None:
            log.warning("dropped a message of other parts than expected")
            return
        parts = {}
        for name in names:
            wanted = flower.PullObjectRequest(node=node, run_id=run, object_id=name)
            got = self._persisted(partial(self._client.PullObject, wanted), stop)
            if not got.object_found or not got.object_available:
                return  # it has expired
            parts[name] = got.object_content
        received = flower.ConfirmMessageReceivedRequest(
            node=node, run_id=run, message_object_id=tree.object_id
        )
        self._persisted(partial(self._client.ConfirmMessageReceived, received), stop)
        try:
            message = unpacked(tree.object_id, parts)
        except InputError as error:
            log.warning("dropped a message: %s", error)
            return
        reply = packed(reply_to(message, self._answered(message)))
        self._offer(reply, node, run, stop)

    def _answered(self, message: Any) -> bytes | str:
        """The agent's answer, or why there is none."""
        began = time.monotonic()
        try:
            body = body_of(message.content)
            answer = self._answer(body)
        except InputError as error:
            log.warning("refused a message: %s", error)
            return str(error)
        except OSError as error:
            reason = f"the site agent does not answer: {error.strerror or error}"
            log.warning("%s", reason)
            return reason
        took = time.monotonic() - began
        log.info("%d bytes to the agent, %d bytes from it, %.3f s", len(body), len(answer), took)
        return answer

    def _offer(self, reply: Parcel, node: Any, run: int, stop: threading.Event) -> None:
        """Send a reply, if somebody still waits for it."""
        try:
            self._persisted(partial(self._pushed, reply, node, run), stop)
        except httpx.HTTPStatusError as error:
            if _status(error) != httpx.codes.GONE:
                raise
            log.info("nobody waits for this reply: it is asked for again if need be")

    def _persisted(self, call: Callable[[], Any], stop: threading.Event) -> Any:
        """What a call gives; again for a while if the server does not answer, or is too busy.

        A message of which a part was given up would be asked for again after a minute only.
        """
        end, pause = time.monotonic() + AGAIN, AdaptiveInterval(0.1, 2.0)
        while True:
            try:
                return call()
            except (httpx.HTTPStatusError, httpx.TransportError) as error:
                status = _status(error)
                away = not status or status >= httpx.codes.INTERNAL_SERVER_ERROR
                if not away or time.monotonic() > end or stop.wait(pause.seconds()):
                    raise

    def _pushed(self, reply: Parcel, node: Any, run: int) -> None:
        request = flower.PushMessagesRequest(
            node=node,
            messages_list=[flower.message_to_proto(reply.message)],
            message_object_trees=[reply.tree],
        )
        told = self._client.PushMessages(request)
        for name in told.objects_to_push:
            self._client.PushObject(
                flower.PushObjectRequest(
                    node=node, run_id=run, object_id=name,
                    object_content=reply.parts[name], session_id=told.session_id,
                )
            )  # fmt: skip

    def _refused(self, error: Exception) -> None:
        """Note a failure, and tell the people at the site what they can do about it."""
        status = _status(error)
        if status in (401, 403, 412, 428):
            self._id = 0  # the server was started anew, or has shut this site out
        if status == httpx.codes.PRECONDITION_REQUIRED:
            return
        line = refusal(error)
        if line and (line != self._told or time.monotonic() - self._told_at > REPEAT):
            self._told, self._told_at = line, time.monotonic()
            self._say(line)


def _status(error: Exception) -> int:
    """Of the answer that an error is about; 0 if there is none."""
    return error.response.status_code if isinstance(error, httpx.HTTPStatusError) else 0


def refusal(error: Exception) -> str:
    """Why a server does not admit a site, in a line for the people there; "" if unknown."""
    answer = error.response if isinstance(error, httpx.HTTPStatusError) else None
    if answer is not None and answer.status_code == httpx.codes.PRECONDITION_FAILED:
        why = (
            f"turns this site away ({_said(answer)}): ask the coordinator whether the site was "
            "revoked, and whether its kit is in use on another machine"
        )
    elif answer is not None and answer.status_code in (401, 403):
        why = f"turns this site away ({_said(answer)}): ask the coordinator for a new kit"
    elif answer is not None:
        why = f"cannot take this site's messages now ({answer.status_code}): trying again"
    elif "CERTIFICATE_VERIFY_FAILED" in str(error):
        why = (
            "is not the one of the kit, as its certificate shows (another server, another name, or "
            "out of date): check the address and this machine's clock, or ask for a new kit"
        )
    elif isinstance(error, httpx.TransportError):
        why = f"does not answer ({error}): trying again until it does"
    else:
        return ""
    return f"{REFUSAL}{why}"


def _said(answer: httpx.Response) -> str:
    text = " ".join(answer.text.split())[:200]
    return "".join(c if c.isprintable() else "?" for c in text) or str(answer.status_code)


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
    parts = bytearray()
    while len(parts) < length:
        part = link.recv(min(length - len(parts), 2**20))
        if not part:
            raise ConnectionError("the agent closed the connection")
        parts += part
    return bytes(parts)


def connected(
    server: str, site: str, memory: Path, *, authority: Path | None, key: Path | None
) -> tuple[Any, bytes]:
    """Flower's client for a server, and the public key that it signs with.

    Arguments:
        server: HOST:PORT.
        site: its name, which takes the place of a key where there are none.
        memory: the file that keeps what this node calls itself. A second machine with a copy of
            the kit has another, and is refused while this one is there.
        authority: the certificate of the authority that signed the server's; None: no TLS.
        key: the site's private key, in OpenSSH's form.
    """
    private: Any = None
    public = site.encode()
    if key is not None:
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key

        private = load_ssh_private_key(key.read_bytes(), None)
        public = public_bytes(private.public_key())
    signer = Signer(private, public, _instance(memory))
    certificates = None if authority is None else authority.read_bytes()
    client = flower.FleetHttpClient.from_server_address(
        server, authority is None, certificates, [signer]
    )
    return client, public


def _instance(memory: Path) -> str:
    """What this node calls itself, the same after a restart."""
    try:
        found = json.loads(memory.read_bytes())["instance"]
        if isinstance(found, str) and len(found) == 32:
            return found
    except (OSError, ValueError, KeyError, TypeError):
        pass
    made = secrets.token_hex(16)
    try:
        write_whole(memory, json.dumps({"instance": made}).encode())
    except InputError as error:
        print(error, file=sys.stderr)
    return made


def main(arguments: list[str] | None = None) -> int:
    """Carry messages until told to stop."""
    name = "fedkoopman.deploy.flower.node"
    parser = argparse.ArgumentParser(prog=name, description=__doc__)
    parser.add_argument("--server", required=True, metavar="HOST:PORT")
    parser.add_argument("--site", required=True, metavar="NAME")
    parser.add_argument("--socket", required=True, type=Path, help="of the site agent")
    parser.add_argument("--memory", required=True, type=Path, help="what outlasts a restart")
    parser.add_argument("--authority", type=Path, help="the certificate that the server's is by")
    parser.add_argument("--key", type=Path, help="the site's private key")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    stop = threading.Event()

    def end(*_: object) -> None:
        stop.set()
        raise KeyboardInterrupt  # also out of a poll that is held

    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, end)
    try:
        flower.check_version()
        client, public = connected(
            chosen.server, chosen.site, chosen.memory, authority=chosen.authority, key=chosen.key
        )
    except (InputError, OSError, ValueError) as error:
        log.error("%s", error)
        return 2

    for loud in ("httpx", "flwr"):  # it is set when it is imported
        logging.getLogger(loud).setLevel(logging.WARNING)

    def answer(body: bytes) -> bytes:
        return ask_agent(chosen.socket, body)

    node = Node(client, public, answer, lambda line: print(line, file=sys.stderr, flush=True))
    threading.Thread(target=node.beat, args=(stop,), daemon=True).start()
    log.info("messages of %s go to the agent at %s", chosen.server, chosen.socket)
    try:
        node.work(stop)
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    node.sign_off()
    return 0


if __name__ == "__main__":
    sys.exit(main())
