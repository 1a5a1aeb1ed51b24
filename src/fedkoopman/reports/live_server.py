"""The live page on 127.0.0.1: an application of Starlette's, served by uvicorn.

It answers GET for the page, its story and nothing else, and only where the browser asked for this
machine by its own name: a page from elsewhere whose name was pointed here (DNS rebinding) is
refused. Its path has a secret, as other users of this machine can reach the port too. Beside a run
it is a process of its own, of low priority, which ends with the run.
"""

import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedkoopman.errors import InputError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

HOST = "127.0.0.1"
HEADERS = {
    # The page's own policy stands in the page; this one cannot stand there.
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
LAST_WORDS = 2.5
"""Seconds after the run in which an open page fetches how it ended."""


def key() -> str:
    """The secret in the page's path, which processes that this one starts share."""
    return os.environ.setdefault("FEDKOOPMAN_PAGE_KEY", secrets.token_urlsafe(12))


def application(directories: Sequence[Path], asked: "list[float] | None" = None) -> "Starlette":
    """The page of some run directories as an ASGI application.

    Arguments:
        asked: takes the times at which a page asked for a story.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import Response
    from starlette.routing import Route

    from fedkoopman.reports.live import LiveStory

    live = LiveStory(directories)

    # Starlette runs these in threads: a long telling holds nobody else up.
    def page(request: "Request") -> "Response":
        return Response(live.page("story"), headers=HEADERS, media_type="text/html")

    def story(request: "Request") -> "Response":
        if asked is not None:
            asked[:] = [time.monotonic()]
        told = live.now()
        tag = f'"{told.tag}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={**HEADERS, "ETag": tag})
        json = "application/json"
        return Response(told.content, headers={**HEADERS, "ETag": tag}, media_type=json)

    def icon(request: "Request") -> "Response":
        return Response(status_code=204, headers=HEADERS)

    return Starlette(
        routes=[
            Route(f"/{key()}/", page),
            Route(f"/{key()}/story", story),
            Route("/favicon.ico", icon),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"], www_redirect=False)
        ],
    )


def listening(port: int = 0) -> socket.socket:
    """A socket on this machine's own address; port 0 is any free one."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise InputError(
            "a live page needs uvicorn and starlette, which are not installed: "
            "pip install 'fedkoopman[watch]'"
        ) from None
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        own.bind((HOST, port))
        own.listen(128)
    except OSError as error:
        own.close()
        raise InputError(
            f"cannot listen on {HOST}:{port} for the live page ({error.strerror}): choose another "
            "port, or let a free one be taken"
        ) from error
    return own


def address(own: socket.socket) -> str:
    """Where a browser finds the page."""
    return f"http://{HOST}:{own.getsockname()[1]}/{key()}/"


@contextmanager
def serving(
    own: socket.socket, directories: Sequence[Path], asked: list[float] | None = None
) -> Iterator[None]:
    """Serve the page in a thread."""
    import uvicorn

    config = uvicorn.Config(
        application(directories, asked), http="h11", ws="none", loop="asyncio", lifespan="off",
        log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([own],), name="live page", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(timeout=5.0)


def main(arguments: Sequence[str]) -> None:
    """Serve until standard input ends, which it does with the run, however that ends.

    Arguments:
        arguments: the number of a listening socket, and the run's directories.
    """
    os.nice(10)
    own = socket.socket(fileno=int(arguments[0]))
    asked: list[float] = []
    with serving(own, [Path(name) for name in arguments[1:]], asked):
        while sys.stdin.buffer.read(1):
            pass
        end = time.monotonic() + LAST_WORDS
        if asked and end - asked[0] < 2 * LAST_WORDS:
            time.sleep(LAST_WORDS)


if __name__ == "__main__":
    main(sys.argv[1:])
