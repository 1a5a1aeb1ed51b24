"""HTTP before the link: which requests reach it, and their answers.

Flower's HTTP layer takes 8 ms of processor for a request, as it runs nine middlewares and hands
each request over to other threads five times; this one takes less than one. It looks at the
signature before it reads a body (`signing`), and serves the paths that sites need and no others.
"""

import asyncio
import hashlib
import json
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedkoopman.deploy.flower import internals as flower
from fedkoopman.deploy.flower.link import Link
from fedkoopman.deploy.flower.parcels import OVERHEAD
from fedkoopman.deploy.flower.signing import AGAIN, Refused, Sender
from fedkoopman.deploy.wire import LARGEST
from fedkoopman.errors import ComputationError, InputError

log = logging.getLogger(__name__)
SMALL = 2**20
"""Bytes of a request that is no part of a message, at most."""
AT_ONCE = 8
"""Requests of one site that are served at the same time."""
SLOWEST, PATIENCE = 2**18, 30.0
"""Bytes per second with which a body must come, and seconds that are given beyond that."""
LINGER = 5.0
"""Seconds for which the rest of a refused body is thrown away, so that its sender hears of it."""
TOLD = 10.0
"""Seconds after which a refusal that happens again is logged again."""
BACKLOG = 1024
"""Connections that may wait to be accepted."""
RELEASE = 10.0
"""Seconds after which the port of a killed server is certainly free."""


class Front:
    """The requests of sites, as an ASGI application.

    Attributes:
        requests: how many were served, by the last part of their path.
    """

    def __init__(self, link: Link) -> None:
        self.requests: Counter[str] = Counter()
        self._link = link
        self._busy: Counter[bytes] = Counter()
        self._bytes: Counter[bytes] = Counter()
        self._told: dict[tuple[str, str, str], float] = {}

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
            *self._link.door.answer_headers(),
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
        if name not in self._link.paths or path != f"/v1/fleet/{name}":
            raise Refused(404, "no such path")
        who = "somebody"
        try:
            sender = self._link.door.check(path, headers)
            who = self._link.site_of(sender)
            length = _length(headers, LARGEST + OVERHEAD if name == "push-object" else SMALL)
            with self._room(sender, name, length):
                body = await _body(receive, length, sender.digest)
                return await self._told_by(sender, name, body, receive)
        except Refused as refusal:
            self._note(who, name, refusal)
            raise

    async def _told_by(self, sender: Sender, name: str, body: bytes, receive: Any) -> bytes:
        """The answer to a body that its sender has signed."""
        kind, handler = self._link.paths[name]
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
            and await self._link.held(sender, receive)
        ):
            answer = handler(sender, request)
        return bytes(answer.SerializeToString())

    @contextmanager
    def _room(self, sender: Sender, name: str, length: int) -> Iterator[None]:
        """Room for one more request of a sender; refuses what nobody needs before it is read."""
        key = sender.key
        if self._busy[key] >= AT_ONCE or self._bytes[key] + length > LARGEST + OVERHEAD + SMALL:
            raise Refused(503, f"more than {AT_ONCE} requests, or {LARGEST:,} bytes, at once")
        if length > SMALL and not self._link.awaits_parts(sender):
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


@contextmanager
def serving(
    link: Link, listener: socket.socket, certificate: tuple[Path, Path] | None = None
) -> Iterator[Front]:
    """Serve requests in a thread.

    Arguments:
        listener: a bound socket.
        certificate: the files with the certificate and its key; None: no TLS.
    """
    import uvicorn

    front, (crt, key) = Front(link), certificate or (None, None)
    # The faster parser takes heads of any length; without a proxy nobody else limits them.
    config = uvicorn.Config(
        front, http="h11" if certificate else "auto", lifespan="off", ws="none",
        log_config=None, log_level="critical",
        access_log=False, server_header=False, timeout_keep_alive=75, proxy_headers=False,
        timeout_graceful_shutdown=1, backlog=BACKLOG, ssl_certfile=crt, ssl_keyfile=key,
    )  # fmt: skip
    server, started, failed = uvicorn.Server(config), threading.Event(), list[BaseException]()

    async def serve() -> None:
        link.begin(asyncio.get_running_loop())
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
            cause = str(failed[0]) if failed else "the thread has ended"
            link.end("" if server.should_exit else cause)
            started.set()

    thread = threading.Thread(target=run, name="link", daemon=True)
    thread.start()
    started.wait()
    if failed:
        raise ComputationError(f"cannot serve sites: {failed[0]}") from failed[0]
    try:
        yield front
    finally:
        link.release()
        server.should_exit = True
        thread.join(timeout=5.0)


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
