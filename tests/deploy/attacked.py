"""A federation for attackers: two honest sites, one that lies, and everything they can get at."""

import json
import os
import re
import shutil
import socket
import ssl
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from fedkoopman.config.study import Study
from fedkoopman.deploy.flower.signing import Signer
from fedkoopman.deploy.server.status import request_readmission
from fedkoopman.deploy.site.site_socket import socket_path

from .eavesdropper import Eavesdropper
from .federation import COMPILER, Federation, free_port, own_clock, small_study, wait_until
from .liar import Liar, Lie
from .outsiders import fleet_client, key_of, signer

HONEST, LYING = ("lab-a", "lab-c"), "lab-x"
WATCH = """
import os, sys

WATCHED = {"socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"}

def note(*words):
    with open(os.path.join(os.path.dirname(__file__), f"{os.getpid()}.txt"), "a") as file:
        print(*words, file=file)

def heard(event, arguments):
    if event in WATCHED:
        whom = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments[0]
        note(event, repr(whom), *sys.orig_argv)

sys.addaudithook(heard)
note("begins", *sys.orig_argv)
"""
"""Loaded by every Python process that finds it; socket events are raised by Python itself."""
BEHIND = -5 * 3600
"""Seconds by which the clock of lab-c is off."""
PATIENCE = 240.0
"""Seconds in which a slot ends, on the slowest of machines."""


def attacked_study(folder: Path, slots: int) -> Path:
    """The pendulum with two honest sites and one that holds nothing out; its study's path."""
    path = small_study(folder, slots=slots, aggregation__guard="auto")
    shutil.copytree(folder / "lab-a", folder / LYING)
    site = folder / LYING / "site.toml"
    text = (
        site.read_text()
        .replace('"lab-a"', f'"{LYING}"')
        .replace("held_out = 0.2", "held_out = 0.0")
    )
    site.write_text(text)
    return _rewritten(path, path, (*HONEST, LYING))


def honest_study(path: Path) -> Path:
    """The same without the liar."""
    return _rewritten(path, path.with_name("honest.toml"), HONEST)


def _rewritten(path: Path, to: Path, labs: tuple[str, ...]) -> Path:
    files = [f"{lab}/site.toml" for lab in labs]
    values = {"sites.files": files, "clients.count": len(labs)}
    to.write_text(Study.load(path, values).to_toml())
    return to


def without_flower() -> dict[str, str]:
    """Our environment without variables of Flower's: what must be switched off, the programs
    switch off themselves."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}


def watched(folder: Path) -> dict[str, str]:
    """Such an environment, in which all of our processes write down whom they contact."""
    folder.mkdir()
    startup = Path(__file__).parents[1] / "startup" / "sitecustomize.py"
    (folder / "sitecustomize.py").write_text(startup.read_text() + WATCH)
    found = without_flower()
    path = os.pathsep.join([str(folder), found.get("PYTHONPATH", "")]).strip(os.pathsep)
    return {**found, "PYTHONPATH": path}


class Field:
    """A running federation, whose slots end only as the tests want them to.

    Attributes:
        federation: its programs.
        eavesdropper: between lab-a and the server.
        liar: in the place of lab-x's agent.
    """

    def __init__(self, folder: Path, slots: int) -> None:
        self.federation = Federation(attacked_study(folder, slots), labs=(*HONEST, LYING))
        self.contacts = folder / "contacts"
        self._run = Path(tempfile.mkdtemp(prefix="fk-"))  # a socket's path is short
        self.federation.env = {**watched(self.contacts), "XDG_RUNTIME_DIR": str(self._run)}
        self.metrics = free_port()
        self.federation.options = ["--metrics", str(self.metrics)]
        self.port, self.fleet = self.federation.port, self.federation.fleet
        self.authority = self.fleet / "ca.crt"
        self.folder, self.out = folder, self.federation.out
        self.eavesdropper = Eavesdropper(self.fleet, self.port)
        self.liar: Liar

    def __enter__(self) -> "Field":
        try:
            return self._started()
        except BaseException as error:
            self.__exit__(type(error))
            raise

    def _started(self) -> "Field":
        federation = self.federation.__enter__()
        federation.serve()
        federation.port = self.eavesdropper.port
        federation.join("lab-a")
        federation.port = self.port
        federation.join("lab-c", env=own_clock(self.folder, BEHIND)[1] if COMPILER else None)
        federation.join(LYING)
        door = self.agent_socket(LYING)
        wait_until(door.exists, PATIENCE, "the liar's agent")
        self.liar = Liar(door)
        wait_until(lambda: self.liar.slot, PATIENCE, "the first request")
        return self

    def __exit__(self, *cause: object) -> None:
        if hasattr(self, "liar"):
            self.liar.close()
        self.eavesdropper.close()
        self.federation.__exit__(*cause)
        shutil.rmtree(self._run)

    def site(self, name: str) -> dict[str, Any]:
        """What the server's status says of a site."""
        about: dict[str, Any] = self.federation.status()["sites"][name]
        return about

    def go_on(self, slots: int = 1, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Let slots end, with an update of every honest site in each.

        Arguments:
            meanwhile: done as soon as they may.
        """
        before = {name: self.site(name)["updates"] for name in HONEST}
        last = self.liar.allow(slots)
        meanwhile()
        self.federation.reach(last, PATIENCE)
        wait_until(lambda: self.liar.slot > last, PATIENCE, f"slot {last + 1}")
        for name in HONEST:
            assert self.site(name)["updates"] == before[name] + slots, name
            self.site_logged(name, f"poll of slot {last + 1} ")

    def lie(self, lie: Lie, early: bool = False) -> str:
        """Have the liar lie once; why that was rejected."""
        before = self.site(LYING)
        if before["set_aside"]:
            self.liar.early = False
            request_readmission(self.out, LYING)
            self.go_on()  # it is taken back before the next slot, and this one has begun
        self.liar.lie, self.liar.early = lie, early
        self.go_on()
        after = self.site(LYING)
        assert after["rejected"] == before["rejected"] + 1
        assert after["updates"] == 0 and after["trained_samples"] == 0
        reason = after["last_rejection"]
        self.logged(f"site {LYING} {reason}", "loop")
        return str(reason)

    def log(self, name: str) -> str:
        """A log of the coordinator's: loop or proxy."""
        return (self.out / "server" / "logs" / f"{name}.log").read_text(errors="replace")

    def logged(self, what: str, log: str = "proxy", seconds: float = 10.0) -> None:
        """Wait until a log of the coordinator's has something."""
        wait_until(lambda: what in self.log(log), seconds, f"{what!r} in {log}.log")

    def site_log(self, lab: str, name: str = "agent") -> str:
        """A log of a site's: agent or node."""
        path = self.federation.state(lab) / "logs" / f"{name}.log"
        return path.read_text(errors="replace")

    def site_logged(self, lab: str, what: str, log: str = "agent", seconds: float = 10.0) -> None:
        """Wait until a log of a site's has something."""
        wait_until(lambda: what in self.site_log(lab, log), seconds, f"{what!r} in {log}.log")

    @property
    def settings(self) -> dict[str, Any]:
        """What the server loop was given."""
        settings: dict[str, Any] = json.loads((self.out / "server" / "serve.json").read_text())
        return settings

    @property
    def server_socket(self) -> Path:
        """Where nginx reaches the server loop."""
        return Path(self.settings["socket"])

    def node(self, lab: str) -> int:
        """The number of a site's node, since the server was last started."""
        return int(re.findall(r"admitted as node (-?\d+)", self.site_log(lab, "node"))[-1])

    def signer(self, lab: str, copied: bool = True) -> Signer:
        """Signs as a site does.

        Arguments:
            copied: whether also the site's name for its own machine is known.
        """
        memory = json.loads((self.federation.state(lab) / "node.json").read_text())
        return signer(key_of(self.kit(lab)), memory["instance"] if copied else "")

    def client(self, signing: Signer | None) -> AbstractContextManager[Any]:
        """A client of the public port."""
        return fleet_client(self.port, self.authority, signing)

    def memory(self, reset: bool = False) -> float:
        """MiB of memory that the server loop has had at most, since that was reset."""
        return most_memory(self.federation.pid("serve", "loop"), reset)

    def agent_socket(self, lab: str) -> Path:
        """Of a site."""
        known = socket_path(self.federation.state(lab))
        return self._run / known.parent.name / known.name

    def kit(self, lab: str) -> Path:
        """A site's opened kit."""
        return self.federation.state(lab) / "kit"

    def trusting(self) -> ssl.SSLContext:
        """TLS that trusts the fleet's authority."""
        return ssl.create_default_context(cafile=self.fleet / "ca.crt")

    def tls(self, seconds: float = 10.0) -> ssl.SSLSocket:
        """A connection to the public port, as anyone can have who knows the authority."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=seconds)
        return self.trusting().wrap_socket(plain, server_hostname="127.0.0.1")

    def send(self, content: bytes, first: bool = False) -> bytes:
        """Bytes to the public port, under TLS, and what comes back.

        Arguments:
            first: whether the first part of it will do; otherwise, until it is closed.
        """
        with self.tls() as link:
            link.sendall(content)
            return link.recv(2**16) if first else _all(link)

    def head(self, length: int | None, more: str = "", signed: Mapping[str, str] = {}) -> bytes:
        """The head of a request that sends something.

        Arguments:
            length: of the body; None for one in chunks.
            more: lines.
            signed: headers.
        """
        more += "".join(f"{name}: {value}\r\n" for name, value in signed.items())
        lines = "POST /v1/fleet/push-object HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        lines += f"Content-Type: application/protobuf\r\n{more}"
        end = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        return f"{lines}{end}\r\n\r\n".encode()

    def post(self, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> int:
        """A request to the public port, its path as it stands; the status of the answer."""
        known = {"Content-Type": "application/protobuf", "Content-Length": str(len(body))}
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in {**known, **(headers or {})}.items()]
        return status_of(self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body))


def _all(link: socket.socket) -> bytes:
    """What comes until the other side closes."""
    parts = []
    try:
        while part := link.recv(2**16):
            parts.append(part)
    except OSError:
        pass  # it does not say goodbye
    return b"".join(parts)


def status_of(answer: bytes) -> int:
    """Of an HTTP answer; 0 if there is none."""
    words = answer.split(b" ", 2)
    return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") else 0


def most_memory(process: int, reset: bool = False) -> float:
    """MiB that a process has had at most, since that was reset."""
    place = Path(f"/proc/{process}")
    if reset:
        (place / "clear_refs").write_text("5")
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", (place / "status").read_text())
    return int(peak) / 1024
