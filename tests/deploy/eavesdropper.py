"""Someone between a site and the server who sees every request, as TLS should make impossible.

Here it is possible because the tests hold the server's own key. What a thief of that key could do
with what he saw is what the tests of replayed replies are about.
"""

import asyncio
import ssl
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHUNK = 2**16


@dataclass(frozen=True)
class Overheard:
    """One request, with every byte of it."""

    path: str
    content: bytes
    body: bytes


class Eavesdropper:
    """Passes on what comes, and keeps a copy of all requests.

    Arguments:
        fleet: the directory with the server's certificate and key.
        port: where the requests are to go, on loopback.
    """

    def __init__(self, fleet: Path, port: int) -> None:
        self.heard: list[Overheard] = []
        self.port = 0
        self._to = port
        self._inner = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._inner.load_cert_chain(fleet / "server.crt", fleet / "server.key")
        self._outer = ssl.create_default_context(cafile=fleet / "ca.crt")
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        """Listen no more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def last(self, path: str) -> Overheard:
        """The newest request to a path."""
        return [one for one in self.heard if one.path == path][-1]

    def _work(self) -> None:
        async def begin() -> None:
            self._door = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._inner)
            self.port = int(self._door.sockets[0].getsockname()[1])
            self._ready.set()

        asyncio.set_event_loop(self._loop)
        self._loop.create_task(begin())
        self._loop.run_forever()
        self._door.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.1))
        self._loop.close()

    async def _serve(self, site: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            server, forth = await asyncio.open_connection(
                "127.0.0.1", self._to, ssl=self._outer, server_hostname="127.0.0.1"
            )
        except OSError:  # there is no server any more
            back.close()
            return
        try:
            await self._pass_on(site, forth, _copy(server, back))
        except asyncio.CancelledError:  # it listens no more
            forth.transport.abort()
            back.transport.abort()

    async def _pass_on(
        self,
        site: asyncio.StreamReader,
        forth: asyncio.StreamWriter,
        back: Coroutine[Any, Any, None],
    ) -> None:
        answers = asyncio.create_task(back)
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await site.readuntil(b"\r\n\r\n")
                first, *lines = head.decode("latin-1").split("\r\n")
                fields = {line.partition(":")[0].lower(): line for line in lines}
                length = int(fields.get("content-length", ":0").partition(":")[2])
                body = await site.readexactly(length)
                forth.write(head + body)
                await forth.drain()
                self.heard.append(Overheard(first.split()[1], head + body, body))
        forth.close()
        await answers


async def _copy(come: asyncio.StreamReader, go: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while part := await come.read(CHUNK):
            go.write(part)
            await go.drain()
    go.close()
