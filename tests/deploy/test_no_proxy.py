"""Without a proxy, any user of the machine can reach the server's port on loopback, to no avail."""

import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from .attacked import status_of
from .federation import Federation, small_study, wait_until
from .outsiders import listening

pytestmark = pytest.mark.deploy
MIB = 2**20


def test_without_a_proxy_a_key_is_needed_all_the_same(tmp_path: Path) -> None:
    study = small_study(tmp_path / "field", slots=3)
    with Federation(study) as federation:
        federation.options = ["--no-proxy"]
        federation.serve()
        loop = federation.pid("serve", "loop")
        door = {("127.0.0.1", federation.port)}
        wait_until(lambda: listening(federation.tree("serve")) == door, 120, federation.logs)
        trusting = ssl.create_default_context(cafile=federation.fleet / "ca.crt")

        def answer(content: bytes) -> int:
            plain = socket.create_connection(("127.0.0.1", federation.port), timeout=20)
            with trusting.wrap_socket(plain, server_hostname="127.0.0.1") as link:
                with suppress(OSError):
                    link.sendall(content)
                try:
                    return status_of(link.recv(1000))
                except OSError:
                    return 0

        head = "POST /v1/fleet/{} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n"
        for name in ("activate-node", "pull-messages", "push-object"):
            assert answer(head.format(name, 1).encode() + b"x") == 412
        before = memory(loop)
        for _ in range(4):
            assert answer(head.format("push-object", 60 * MIB).encode() + bytes(60 * MIB)) == 412
            assert answer(b"POST / HTTP/1.1\r\nA: " + b"a" * 20 * MIB) in (0, 400)
        assert memory(loop) - before < 40
        for lab in federation.labs:
            federation.join(lab)
        federation.finish()


def memory(process: int) -> float:
    """MiB that a process has had at most."""
    status = Path(f"/proc/{process}/status").read_text()
    [peak] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peak.split()[1]) / 1024
