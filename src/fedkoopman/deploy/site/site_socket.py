"""The agent's door: a Unix socket that only its own user can reach, one exchange per connection.

A body is eight bytes that say its length, then itself, both ways. Whoever connects says nothing
that is believed; who it is the system says.
"""

import logging
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedkoopman.deploy.wire import LARGEST
from fedkoopman.errors import InputError, PeerError, system_error

__all__ = ["ask", "listening", "serve"]

LOG = logging.getLogger("fedkoopman.agent")
AT_ONCE = 8
"""Connections that are open at the same time; others wait."""
WAITING = 128
"""How many of them."""
PATIENCE = 30.0
"""Seconds in which a body must have come, or have gone."""
HEED = 0.2
"""Seconds within which a wish to stop is heard."""
LENGTH = struct.Struct(">Q")
_CREDENTIALS = struct.Struct("3i")

Answer = Callable[[bytes, str], bytes]


def ask(path: Path, body: bytes, timeout: float | None = None) -> bytes:
    """Ask the agent: one body there, one back.

    Arguments:
        path: of the socket.
        body: what is said.
        timeout: seconds for each step; None waits, as training takes its time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        connection.connect(str(path))
        connection.sendall(LENGTH.pack(len(body)) + body)
        return _receive(connection, None)


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A socket of which nobody but its owner knows more than that it is there.

    Arguments:
        path: where; a socket that is left over there is replaced.
    """
    _own_directory(path.parent)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError):
            path.unlink()
        try:
            listener.bind(str(path))  # in a directory that is closed to others
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
    patience: float = PATIENCE,
) -> None:
    """Answer until told to stop; what is being answered then is answered to its end.

    Arguments:
        listener: from `listening`.
        answer: given a body and whose it is, what to say.
        stop: when it is set, no more connections are taken.
        server: who is behind those who connect, for the ledger.
        patience: seconds in which a body must have come.
    """
    free = threading.Semaphore(AT_ONCE)
    threads: list[threading.Thread] = []
    listener.settimeout(HEED)

    def exchange(connection: socket.socket) -> None:
        try:
            with connection:
                _exchange(connection, answer, server, patience)
        finally:
            free.release()

    while not stop.is_set():
        if not free.acquire(timeout=HEED):
            continue
        try:
            connection, _ = listener.accept()
        except OSError as error:
            free.release()
            if listener.fileno() < 0:
                break
            if not isinstance(error, TimeoutError):
                LOG.warning("cannot take a connection: %s", error.strerror or error)
                stop.wait(HEED)
            continue
        threads = [thread for thread in threads if thread.is_alive()]
        threads.append(threading.Thread(target=exchange, args=(connection,), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _exchange(connection: socket.socket, answer: Answer, server: str, patience: float) -> None:
    try:
        process, user, _ = _peer(connection)
        if user not in (os.getuid(), 0):
            LOG.warning("refused: user %d (process %d) is not who runs this agent", user, process)
            return
        body = _receive(connection, patience)
        reply = answer(body, f"{server} (process {process}, user {user})")
        connection.settimeout(patience)
        connection.sendall(LENGTH.pack(len(reply)) + reply)
    except InputError as error:
        LOG.warning("refused: %s", error)
    except OSError as error:
        LOG.warning("a connection broke: %s", error.strerror or error or type(error).__name__)


def _peer(connection: socket.socket) -> tuple[int, int, int]:
    """Process, user and group at the other end, as the system knows them."""
    if not hasattr(socket, "SO_PEERCRED"):  # not on macOS, where the directory keeps others out
        return 0, os.getuid(), os.getgid()
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, group = _CREDENTIALS.unpack(told)
    return process, user, group


def _receive(connection: socket.socket, patience: float | None) -> bytes:
    """One body; too large ones are refused before they are read."""
    end = None if patience is None else time.monotonic() + patience
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
                raise TimeoutError("the message does not come to its end")
            connection.settimeout(left)
        part = connection.recv(min(length - len(parts), 2**20))
        if not part:
            raise ConnectionError("closed before the end of a message")
        parts += part
    return bytes(parts)


def _own_directory(folder: Path) -> None:
    """Make the directory, or see that nobody else made it."""
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
