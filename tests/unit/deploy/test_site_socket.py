"""The agent's door: who may come in, how much may be said, and that nobody can block it."""

import os
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedkoopman.deploy.site.site_socket import AT_ONCE, Rate, ask, listening, serve
from fedkoopman.deploy.wire import LARGEST
from fedkoopman.errors import InputError


@contextmanager
def door(
    path: Path, answer: Callable[[bytes, str], bytes], patience: float = 5.0
) -> Iterator[threading.Event]:
    stop = threading.Event()
    with listening(path) as listener:
        thread = threading.Thread(
            target=serve, args=(listener, answer, stop, "server:1", patience), daemon=True
        )
        thread.start()
        try:
            yield stop
        finally:
            stop.set()
            thread.join(30)
        assert not thread.is_alive()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "d" / "a.sock"


def test_a_body_there_and_one_back(path: Path) -> None:
    peers = []

    def answer(body: bytes, peer: str) -> bytes:
        peers.append(peer)
        return body[::-1]

    with door(path, answer):
        assert ask(path, b"abc") == b"cba"
        assert ask(path, b"") == b""
        big = os.urandom(5_000_000)
        assert ask(path, big) == big[::-1]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert peers[0] == f"server:1 (process {os.getpid()}, user {os.getuid()})"
    assert not path.exists()


def test_too_large_a_body_is_refused_before_it_is_read(path: Path) -> None:
    with door(path, lambda body, peer: pytest.fail("answered")):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(struct.pack(">Q", LARGEST + 1))
            assert client.recv(1) == b""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"\xff" * 8)
            assert client.recv(1) == b""


def test_a_client_that_says_nothing_blocks_nobody(path: Path) -> None:
    with door(path, lambda body, peer: body, patience=3.0):
        silent = []
        for _ in range(AT_ONCE - 1):
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(path))
            client.sendall(struct.pack(">Q", 10) + b"half")
            silent.append(client)
        began = time.monotonic()
        assert ask(path, b"x", 30.0) == b"x"
        assert time.monotonic() - began < 2
        late = socket.socket(socket.AF_UNIX)
        late.connect(str(path))
        silent.append(late)
        assert ask(path, b"x", 30.0) == b"x"  # when the first of them are given up
        for client in silent:
            client.settimeout(30)
            assert client.recv(1) == b""
            client.close()


def test_clients_that_go_away_do_no_harm(path: Path) -> None:
    with door(path, lambda body, peer: bytes(1_000_000)):
        for _ in range(20):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(struct.pack(">Q", 1) + b"x")
        assert len(ask(path, b"x", 30.0)) == 1_000_000


def test_what_is_being_answered_is_answered_to_its_end(path: Path) -> None:
    entered, found = threading.Event(), []

    def slow(body: bytes, peer: str) -> bytes:
        entered.set()
        time.sleep(0.5)
        return body

    with door(path, slow) as stop:
        client = threading.Thread(target=lambda: found.append(ask(path, b"x", 30.0)))
        client.start()
        assert entered.wait(30)
        stop.set()
    client.join(30)
    assert found == [b"x"]


def test_a_socket_that_was_left_is_replaced(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with door(path, lambda body, peer: body):
        assert ask(path, b"x") == b"x"


def test_a_directory_of_others_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with (
        pytest.raises(InputError, match=r"is open to other users: remove it"),
        listening(folder / "a.sock"),
    ):
        pass
    (tmp_path / "link").symlink_to(tmp_path / "private")
    (tmp_path / "private").mkdir(mode=0o700)
    with (
        pytest.raises(InputError, match=r"is not this user's own directory"),
        listening(tmp_path / "link" / "a.sock"),
    ):
        pass
    with (
        pytest.raises(InputError, match=r"cannot listen at .*short path"),
        listening(tmp_path / "private" / ("x" * 200)),
    ):
        pass


CLIENT = """
import os, sys
from pathlib import Path
from fedkoopman.deploy.site.site_socket import ask
os.setuid(65534)
try:
    ask(Path(sys.argv[1]), b"let me in", 30.0)
except OSError as error:
    print("kept out", type(error).__name__)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_other_users_are_kept_out(tmp_path: Path, path: Path) -> None:
    with door(path, lambda body, peer: pytest.fail("answered")):
        for widened in (False, True):
            if widened:  # even where the files would let them
                for folder in path.parents[:4]:
                    folder.chmod(0o711)
                path.chmod(0o666)
            done = subprocess.run(
                [sys.executable, "-c", CLIENT, str(path)], capture_output=True, text=True
            )
            assert done.stdout.startswith("kept out"), done.stderr


def test_a_rate_allows_some_at_once_and_then_so_many_a_second() -> None:
    now = 100.0
    rate = Rate(20.0, 40, lambda: now)
    assert sum(rate.allows() for _ in range(100)) == 40
    now += 1.0
    assert sum(rate.allows() for _ in range(100)) == 20
    now += 1000.0
    assert sum(rate.allows() for _ in range(100)) == 40
