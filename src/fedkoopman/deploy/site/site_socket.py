"""The agent's Unix socket, which only its own user can reach; one exchange per connection.

In both directions a body is sent as its length in eight bytes, and then its content. The peer's
identity comes from the operating system, not from what it sends.
"""

import hashlib
import logging
import os
import socket
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedkoopman.deploy.wire import LARGEST
from fedkoopman.errors import InputError, PeerError, system_error

LOG = logging.getLogger("fedkoopman.agent")
AT_ONCE = 8
"""Connections that are served at the same time; others wait."""
WAITING = 128
"""Connections that may wait."""
TIMEOUT = 30.0
"""Seconds in which a body must be received, or sent."""
STOP_CHECK = 0.2
"""Seconds between looks at the stop event."""
LENGTH = struct.Struct(">Q")
_CREDENTIALS = struct.Struct("3i")

Answer = Callable[[bytes, str], bytes]


def socket_path(state: Path) -> Path:
    """Where the agent's socket is. Not in the state directory, as a socket's path must be short."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    short = hashlib.sha256(os.path.abspath(state).encode("utf-8", "surrogateescape")).hexdigest()
    return Path(base) / f"fedkoopman-{os.getuid()}" / f"{short[:16]}.sock"


class Rate:
    """A limit on how often something may happen (a token bucket). Threads may share it."""

    def __init__(
        self, per_second: float, most: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Arguments:
        per_second: how often in the long run.
        most: how often at once, after a pause.
        """
        self._per_second, self._most, self._clock = per_second, float(most), clock
        self._left, self._seen = self._most, clock()
        self._guard = threading.Lock()

    def allows(self) -> bool:
        """Whether it may happen now; if so, that is counted."""
        with self._guard:
            now = self._clock()
            self._left = min(self._most, self._left + (now - self._seen) * self._per_second)
            self._seen = now
            if self._left < 1:
                return False
            self._left -= 1
            return True


def ask(path: Path, body: bytes, timeout: float | None = None) -> bytes:
    """Send the agent one body, and receive one.

    Arguments:
        timeout: seconds for each step; None: no limit, as training takes long.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        connection.connect(str(path))
        connection.sendall(LENGTH.pack(len(body)) + body)
        return _receive(connection, None)


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A listening socket that only its owner can connect to.

    Arguments:
        path: of the socket; an old one is replaced.
    """
    _own_directory(path.parent)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError):
            path.unlink()
        try:
            listener.bind(str(path))  # in a directory that others cannot enter
            path.chmod(0o600)
            listener.listen(WAITING)
        except OSError as error:
            raise InputError(
                f"cannot listen at {path}: {error.strerror or error}; set XDG_RUNTIME_DIR to a "
                "short path that may be written"
            ) from error
        yield listener
    finally:
        listener.close()
        with suppress(OSError):
            path.unlink()


def serve(
    listener: socket.socket,
    answer: Answer,
    stop: threading.Event,
    server: str = "server",
    timeout: float = TIMEOUT,
) -> None:
    """Answer until `stop` is set; answers that have begun are finished.

    Arguments:
        answer: given a body and the peer's description, the reply.
        server: who the peer stands for, for the ledger.
        timeout: seconds in which a body must be received.
    """
    free = threading.Semaphore(AT_ONCE)
    threads: list[threading.Thread] = []
    listener.settimeout(STOP_CHECK)

    def exchange(connection: socket.socket) -> None:
        try:
            with connection:
                _exchange(connection, answer, server, timeout)
        finally:
            free.release()

    while not stop.is_set():
        if not free.acquire(timeout=STOP_CHECK):
            continue
        try:
            connection, _ = listener.accept()
        except OSError as error:
            free.release()
            if listener.fileno() < 0:
                break
            if not isinstance(error, TimeoutError):
                LOG.warning("cannot accept a connection: %s", error.strerror or error)
                stop.wait(STOP_CHECK)
            continue
        threads = [thread for thread in threads if thread.is_alive()]
        threads.append(threading.Thread(target=exchange, args=(connection,), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _exchange(connection: socket.socket, answer: Answer, server: str, timeout: float) -> None:
    try:
        process, user, _ = _peer(connection)
        if user not in (os.getuid(), 0):
            LOG.warning("refused: user %d (process %d) does not run this agent", user, process)
            return
        body = _receive(connection, timeout)
        reply = answer(body, f"{server} (process {process}, user {user})")
        connection.settimeout(timeout)
        connection.sendall(LENGTH.pack(len(reply)) + reply)
    except InputError as error:
        LOG.warning("refused: %s", error)
    except OSError as error:
        LOG.warning("a connection broke: %s", error.strerror or error or type(error).__name__)


def _peer(connection: socket.socket) -> tuple[int, int, int]:
    """Process, user and group at the other end, from the operating system."""
    if not hasattr(socket, "SO_PEERCRED"):  # on macOS the directory keeps others out
        return 0, os.getuid(), os.getgid()
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, group = _CREDENTIALS.unpack(told)
    return process, user, group


def _receive(connection: socket.socket, timeout: float | None) -> bytes:
    """One body; one that is too large is refused before it is read."""
    end = None if timeout is None else time.monotonic() + timeout
    (length,) = LENGTH.unpack(_exactly(connection, LENGTH.size, end))
    if length > LARGEST:
        raise PeerError(f"a message of {length:,} bytes is announced, more than {LARGEST:,}")
    return _exactly(connection, length, end)


def _exactly(connection: socket.socket, length: int, end: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        if end is not None:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("the message is incomplete")
            connection.settimeout(left)
        part = connection.recv(min(length - len(parts), 2**20))
        if not part:
            raise ConnectionError("closed before the end of a message")
        parts += part
    return bytes(parts)


def _own_directory(folder: Path) -> None:
    """Make the directory, or check that it belongs to this user."""
    remedy = "remove it, or set XDG_RUNTIME_DIR to a directory of your own"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.lstat()
    except OSError as error:
        raise system_error(f"cannot use {folder}", error, remedy) from error
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
        raise InputError(f"{folder} is not this user's own directory: {remedy}")
    if stat.S_IMODE(about.st_mode) & 0o077:
        raise InputError(f"{folder} is open to other users: {remedy}")
