"""People who should have no part in a federation, and what they bring along."""

import json
import secrets
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fedkoopman.deploy.flower import internals as flower
from fedkoopman.deploy.flower.signing import Signer, public_bytes

NOBODY = 65534
"""Another user of the machine."""


def fresh_key() -> ec.EllipticCurvePrivateKey:
    """A key that nobody knows."""
    return ec.generate_private_key(ec.SECP256R1())


def key_of(kit: Path) -> ec.EllipticCurvePrivateKey:
    """A site's key, as whoever stole its opened kit has it."""
    key = load_ssh_private_key((kit / "node.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def shown(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The public half, as it is enrolled."""
    return public_bytes(key.public_key())


def signer(
    key: ec.EllipticCurvePrivateKey, instance: str = "", public: bytes | None = None
) -> Signer:
    """Signs requests, as a site's node does.

    Arguments:
        instance: what the node calls itself; another machine's if empty.
        public: the key that it claims to have; None: its own.
    """
    return Signer(key, public or shown(key), instance or secrets.token_hex(16))


@contextmanager
def fleet_client(port: int, authority: Path | None, signing: Signer | None) -> Iterator[Any]:
    """A node's client, in our own hands.

    Arguments:
        authority: whose certificates are trusted; None: no TLS.
        signing: signs requests, if anyone does.
    """
    trusted = None if authority is None else authority.read_bytes()
    interceptors = [] if signing is None else [signing]
    with flower.FleetHttpClient.from_server_address(
        f"127.0.0.1:{port}", authority is None, trusted, interceptors
    ) as client:
        yield client


def refusal(call: Callable[[], object]) -> int:
    """The status with which a request is refused; 0 if it is not."""
    try:
        call()
    except httpx.HTTPStatusError as error:
        return error.response.status_code
    return 0


def other_authority(folder: Path) -> Path:
    """A certificate authority of somebody else."""
    path = folder / "other.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "1", "-subj", "/CN=other", "-keyout", str(folder / "other.key"),
         "-addext", "subjectAltName=IP:127.0.0.1", "-out", str(path)],
        check=True, capture_output=True,
    )  # fmt: skip
    return path


@contextmanager
def impostor(certificate: Path) -> Iterator[tuple[int, list[bytes]]]:
    """A server with a certificate of its own: its port, and what it gets to hear."""
    context, heard = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), list[bytes]()
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))

    def work() -> None:
        while True:
            try:
                plain, _ = door.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(plain, server_side=True) as link:
                    heard.append(link.recv(1000))
            except OSError:
                plain.close()

    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=work, daemon=True).start()
        yield int(door.getsockname()[1]), heard
        door.shutdown(socket.SHUT_RDWR)


def listening(processes: Iterable[int]) -> set[tuple[str, int]]:
    """Addresses at which some processes listen."""
    owned = set()
    for process in processes:
        for link in Path(f"/proc/{process}/fd").glob("*"):
            try:
                owned.add(str(link.readlink()))
            except OSError:
                continue
    found = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        path = Path(f"/proc/net/{name}")
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in owned:
                host, _, port = words[1].partition(":")
                packed = bytes.fromhex(host)
                order = [packed[i : i + 4][::-1] for i in range(0, len(packed), 4)]
                found.add((socket.inet_ntop(family, b"".join(order)), int(port, 16)))
    return found


TRY = """
import json, socket, sys

for path in json.load(sys.stdin):
    for way in ("rb", "ab", "connect"):
        try:
            if way == "connect":
                with socket.socket(socket.AF_UNIX) as link:
                    link.connect(path)
            else:
                open(path, way).close()
        except OSError:
            continue
        print(way, path)
"""


def reached(paths: Sequence[Path]) -> list[str]:
    """What another user of this machine can open, write to, or connect to."""
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-I", "-c", TRY], cwd="/", check=True, text=True,
        input=json.dumps([str(path) for path in paths]), capture_output=True,
        user=NOBODY, group=NOBODY, extra_groups=[], env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    return done.stdout.splitlines()
