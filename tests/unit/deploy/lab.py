"""A SuperLink, SuperNodes, couriers and stand-ins for site agents, all real and on loopback."""

import json
import socketserver
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fedkoopman.deploy.flower import control, programs
from fedkoopman.deploy.provisioning.certificates import authority, node_keys, server_certificate
from fedkoopman.deploy.provisioning.roster import Enrolled, Roster
from fedkoopman.deploy.supervisor import Child, Process
from fedkoopman.errors import InputError

Answer = Callable[[bytes], bytes]
HELLO = json.dumps({"say": "hello"}).encode()


def site_of(body: bytes) -> str:
    """The site that an echo claims to come from."""
    try:
        return str(json.loads(body)["site"])
    except (ValueError, KeyError) as error:
        raise InputError("not an echo") from error


class EchoAgent:
    """Answers every body with itself, under the site's name; what it was asked is remembered.

    While its gate is closed it works, as on a long training.
    """

    def __init__(self, site: str, path: Path) -> None:
        self.site = site
        self.path = path
        self.gate = threading.Event()
        self.gate.set()
        self.answer: Answer = self.echo
        self.asked: list[bytes] = []
        self._server: socketserver.ThreadingUnixStreamServer | None = None
        self.start()

    def echo(self, body: bytes) -> bytes:
        return json.dumps({"site": self.site, "echo": body.decode()}).encode()

    def start(self) -> None:
        agent = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                (length,) = struct.unpack(">Q", self.rfile.read(8))
                body = self.rfile.read(length)
                agent.asked.append(body)
                agent.gate.wait(120)
                answer = agent.answer(body)
                self.wfile.write(struct.pack(">Q", len(answer)) + answer)

        self.path.unlink(missing_ok=True)
        server = socketserver.ThreadingUnixStreamServer(str(self.path), Handler)
        server.daemon_threads = True
        server.handle_error = lambda *about: None  # type: ignore[method-assign]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self._server = server

    def calm(self) -> None:
        self.answer = self.echo
        self.gate.set()

    def stop(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self.path.unlink(missing_ok=True)


@dataclass
class Site:
    """A site's processes."""

    name: str
    agent: EchoAgent
    node: list[str]
    courier: list[str]
    directory: Path
    runtime: str
    env: dict[str, str]
    running: dict[str, Process] = field(default_factory=dict)

    def start(self, *names: str) -> None:
        for name in names or ("node", "courier"):
            command = self.node if name == "node" else self.courier
            log = self.directory / f"{name}.log"
            self.running[name] = Process(Child(name, command, log, self.env))

    def kill(self, name: str) -> None:
        self.running.pop(name).reap()

    def stop(self) -> None:
        for name in list(self.running):
            self.running.pop(name).end()

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()


@dataclass
class Lab:
    """A federation without a federation: processes, keys and addresses."""

    directory: Path
    secure: bool
    sites: dict[str, Site] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.port = programs.free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.env = programs.environment(self.directory / "flower")
        self.secret = programs.make_secret(self.directory / "secret")
        self.keys: dict[str, str] = {}
        self.certificate: programs.ServerCertificate | None = None
        self.authority: Path | None = None
        if self.secure:
            now = datetime.now(UTC)
            ca_key, ca = authority("lab", now)
            key, crt = server_certificate(ca_key, ca, ["localhost"], now)
            for name, content in {"ca.crt": ca, "server.key": key, "server.crt": crt}.items():
                (self.directory / name).write_bytes(content)
            self.authority = self.directory / "ca.crt"
            self.certificate = programs.ServerCertificate(
                self.authority, self.directory / "server.crt", self.directory / "server.key"
            )

    def superlink(self) -> None:
        command = programs.superlink_command(
            port=self.port,
            database=self.directory / "superlink.db",
            secret=self.secret,
            certificate=self.certificate,
        )
        self.link = Process(Child("superlink", command, self.directory / "superlink.log", self.env))

    def ready(self) -> None:
        programs.wait_ready(
            self.address, certificates=self.authority, alive=lambda: not self.link.dead
        )

    def site(self, name: str, launcher: bool = True, server: str = "") -> Site:
        directory = self.directory / name
        directory.mkdir(mode=0o700)
        secret = programs.make_secret(directory / "secret")
        port = programs.free_port()
        key = None
        if self.secure:
            private, public = node_keys(name)
            key = directory / "node.key"
            key.write_bytes(private)
            self.keys[name] = public.decode()
        node = programs.supernode_command(
            server=server or self.address,
            port=port,
            secret=secret,
            certificates=self.authority,
            key=key,
            memory=directory / "node.json" if launcher else None,
        )
        path = directory / "a.sock"
        courier = programs.courier_command(port=port, secret=secret, socket=path)
        env = programs.environment(directory / "flower")
        site = Site(name, EchoAgent(name, path), node, courier, directory, f"127.0.0.1:{port}", env)
        self.sites[name] = site
        return site

    def roster(self) -> Roster:
        enrolled = [
            Enrolled(
                name, place, self.keys.get(name, ""), "", "now" if name in self.revoked else ""
            )
            for place, name in enumerate(self.sites)
        ]
        return Roster("0" * 64, self.secure, tuple(enrolled))

    def log(self) -> str:
        return (self.directory / "superlink.log").read_text()

    def stop(self) -> None:
        for site in self.sites.values():
            site.stop()
            site.agent.stop()
        self.link.end()


@contextmanager
def laboratory(
    secure: bool, names: list[str], launcher: bool = True, idle: Sequence[str] = ()
) -> Iterator[Lab]:
    """A SuperLink with sites, which are started unless idle, but may not be online yet."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fk")))
        lab = Lab(directory, secure)
        lab.superlink()
        stack.callback(lab.stop)
        for name in names:
            lab.site(name, launcher)
        lab.ready()
        if secure:
            control.enrol(lab.address, lab.keys, certificates=lab.authority)
        for site in lab.sites.values():
            if site.name not in idle:
                site.start()
        yield lab


def until(condition: Callable[[], bool], seconds: float = 20.0) -> float:
    """Wait for something; gives how long it took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, "it did not happen in time"
        time.sleep(0.05)
    return time.monotonic() - started
