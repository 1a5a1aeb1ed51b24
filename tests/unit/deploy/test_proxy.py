"""nginx, as it is configured, lets sites through to the fleet's paths, and nobody to the rest."""

import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedkoopman.deploy.provisioning.certificates import authority, server_certificate
from fedkoopman.deploy.provisioning.proxy import (
    LARGEST_MESSAGE,
    UNITS,
    find_nginx,
    nginx_conf,
    service_files,
)
from fedkoopman.deploy.wire import LARGEST
from fedkoopman.errors import InputError

needs_nginx = pytest.mark.skipif(find_nginx() is None, reason="needs nginx")
NOW = datetime.now(UTC)
PULL = "/v1/fleet/pull-messages"


def nginx_command(fleet: Path) -> list[str]:
    """How the proxy is started, in the foreground."""
    (fleet / "proxy/logs").mkdir(parents=True, exist_ok=True)
    fixed = ["-p", str(fleet / "proxy"), "-c", str(fleet / "nginx.conf")]
    return [find_nginx() or "nginx", *fixed, "-g", "daemon off;"]


class Upstream(ThreadingHTTPServer):
    """Stands where the server loop does, and remembers what reached it."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), Recorder)
        self.seen: list[tuple[str, str, dict[str, str], int]] = []
        self.delay = 0.0
        if context is not None:
            self.socket = context.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    def handle_error(self, *_: object) -> None:
        pass


class SocketUpstream(Upstream):
    """The same at a Unix socket."""

    address_family = socket.AF_UNIX

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(None)

    def server_bind(self) -> None:
        self.socket.bind(str(self.path))
        self.server_name, self.server_port = "localhost", 0

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        return self.socket.accept()[0], ("", 0)


class Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        assert isinstance(self.server, Upstream)
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length)
        self.server.seen.append((self.command, self.path, dict(self.headers), len(body)))
        time.sleep(self.server.delay)
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_: object) -> None:
        pass


@dataclass
class Front:
    """nginx before an upstream."""

    fleet: Path
    port: int
    upstream: Upstream | None
    trusted: ssl.SSLContext = field(repr=False)

    @property
    def seen(self) -> list[tuple[str, str, dict[str, str], int]]:
        assert self.upstream is not None
        return self.upstream.seen

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("localhost", self.port, context=self.trusted, timeout=30)

    def ask(self, path: str = PULL, method: str = "POST", body: bytes = b"x", **more: str) -> int:
        connection = self.connect()
        try:
            headers = {name.replace("_", "-"): value for name, value in more.items()}
            connection.request(method, path, body=body, headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def log(self) -> str:
        time.sleep(0.1)
        return (self.fleet / "proxy" / "logs" / "access.log").read_text()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def certified(folder: Path) -> None:
    ca = authority("fedkoopman test", NOW)
    key, crt = server_certificate(*ca, [], NOW)
    for name, content in (("ca.crt", ca[1]), ("server.key", key), ("server.crt", crt)):
        (folder / name).write_bytes(content)


@contextmanager
def running(fleet: Path, secure: bool = True, **options: int) -> Iterator[Front]:
    """nginx as a process, before an upstream in this one: with TLS, or at a Unix socket."""
    certified(fleet)
    if secure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(fleet / "server.crt", fleet / "server.key")
        upstream = Upstream(context)
    else:
        upstream = SocketUpstream(fleet / "server.sock")
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    port = free_port()
    place = upstream.server_port if secure else fleet / "server.sock"
    conf = nginx_conf(fleet, "127.0.0.1", port, place, **options)
    (fleet / "nginx.conf").write_text(conf)
    process = subprocess.Popen(nginx_command(fleet), stderr=subprocess.PIPE)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, process.stderr.read()  # type: ignore[union-attr]
            time.sleep(0.05)
        trusted = ssl.create_default_context(cafile=fleet / "ca.crt")
        yield Front(fleet, port, upstream, trusted)
    finally:
        process.terminate()
        process.wait(20)
        process.stderr.close()  # type: ignore[union-attr]
        upstream.shutdown()
        upstream.server_close()


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with running(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@needs_nginx
@pytest.mark.parametrize("secure", [True, False], ids=["https", "socket"])
def test_nginx_accepts_the_configuration(tmp_path: Path, secure: bool) -> None:
    certified(tmp_path)
    upstream = 22001 if secure else tmp_path / "server.sock"
    conf = nginx_conf(tmp_path, upstream=upstream, public_port=22002)
    (tmp_path / "nginx.conf").write_text(conf)
    command = nginx_command(tmp_path)
    done = subprocess.run([command[0], "-t", *command[1:5]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "{{" not in conf and "warn" not in done.stderr


@needs_nginx
def test_a_fleets_path_reaches_the_server_with_its_headers(front: Front) -> None:
    status = front.ask(PULL, body=b"abc", flwr_public_key="key", flwr_signature="sign")
    assert status == 200
    method, path, headers, length = front.seen[-1]
    assert (method, path, length) == ("POST", PULL, 3)
    told = {name.lower(): value for name, value in headers.items()}
    assert told["flwr-public-key"] == "key" and told["flwr-signature"] == "sign"
    assert told["x-forwarded-for"] == "127.0.0.1"


@needs_nginx
def test_an_upstream_at_a_socket_works_too(tmp_path: Path) -> None:
    with running(tmp_path, secure=False) as front:
        assert front.ask() == 200


CLOSED = (
    "/", "/health", "/v1/control/list-runs", "/v1/control/start-run", "/v1/runtime/acquire-task",
    "/v1/fleet", "/v1/fleet/", "/v1/fleetx/pull-messages", "/docs", "/openapi.json",
    "/v1/fleet/../control/start-run", "/v1/fleet/%2e%2e/control/start-run",
    "/v1/fleet/..%2fcontrol/start-run", "/v1/fleet/%252e%252e/control/start-run",
    "/v1/fleet/pull-messages/../../control/start-run", "/v1/fleet/..;/control/start-run",
    "/v1/fleet//../../v1/control/start-run", "/v1/fleet/pull-messages/", "/v1/fleet/a%00b",
    "/V1/FLEET/pull-messages", "/api/v1/fleet/pull-messages", "/v1/fleet/x%0d%0aX:y",
    "//v1/control/start-run", "/v1/fleet\\..\\control/start-run",
)  # fmt: skip


@needs_nginx
@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_nothing_else_reaches_it(front: Front, path: str, method: str) -> None:
    before = len(front.seen)
    status = front.ask(path, method)
    assert status in (400, 404), path
    assert len(front.seen) == before


@needs_nginx
def test_absolute_and_other_targets_do_not_reach_it(front: Front) -> None:
    """A client may write anything into its request line."""
    before = len(front.seen)
    for line in (
        b"POST http://localhost/v1/control/start-run HTTP/1.1",
        b"CONNECT 127.0.0.1:22 HTTP/1.1",
        b"POST * HTTP/1.1",
        b"PRI * HTTP/2.0",
    ):
        plain = socket.create_connection(("127.0.0.1", front.port))
        with front.trusted.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(line + b"\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
            answer = connection.recv(100)
            assert re.match(rb"HTTP/1.1 4\d\d", answer) or not answer, (line, answer)
    assert len(front.seen) == before


@needs_nginx
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_other_methods_are_refused(front: Front, method: str) -> None:
    before = len(front.seen)
    assert front.ask(PULL, method) == 405
    assert len(front.seen) == before


@needs_nginx
def test_a_query_does_not_go_along(front: Front) -> None:
    assert front.ask(PULL + "?x=../../control/start-run") == 200
    assert front.seen[-1][1] == PULL


@needs_nginx
def test_refusals_are_logged_and_ordinary_requests_are_not(front: Front) -> None:
    front.ask("/v1/control/marked")
    front.ask("/v1/fleet/unmarked")
    log = front.log()
    assert '127.0.0.1 "POST /v1/control/marked HTTP/1.1" 404' in log
    assert "unmarked" not in log


@needs_nginx
def test_a_parent_that_rotates_logs_gets_the_lines(tmp_path: Path) -> None:
    certified(tmp_path)
    port = free_port()
    conf = nginx_conf(tmp_path, "127.0.0.1", port, free_port(), to_stdout=True)
    (tmp_path / "nginx.conf").write_text(conf)
    with subprocess.Popen(
        nginx_command(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        front = Front(tmp_path, port, None, ssl.create_default_context(cafile=tmp_path / "ca.crt"))
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        assert front.ask("/v1/control/start-run") == 404
        assert front.ask() == 502
        process.terminate()
        said = process.communicate(timeout=20)[0]
    assert '"POST /v1/control/start-run HTTP/1.1" 404' in said
    assert "Connection refused" in said
    assert not list((tmp_path / "proxy" / "logs").iterdir())


@needs_nginx
def test_a_message_as_large_as_may_be_passes_and_a_larger_one_does_not(front: Front) -> None:
    assert LARGEST < LARGEST_MESSAGE * 2**20
    assert front.ask(body=bytes(LARGEST + 10_000)) == 200
    assert front.seen[-1][3] == LARGEST + 10_000
    before = len(front.seen)
    connection = front.connect()
    connection.putrequest("POST", PULL)
    connection.putheader("content-length", str(LARGEST_MESSAGE * 2**20 + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    assert len(front.seen) == before


@needs_nginx
def test_plain_http_is_refused(front: Front) -> None:
    before = len(front.seen)
    connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=10)
    connection.request("POST", PULL, body=b"x")
    assert connection.getresponse().status == 400
    connection.close()
    assert len(front.seen) == before


@needs_nginx
def test_a_client_with_another_authority_does_not_connect(front: Front, tmp_path: Path) -> None:
    (tmp_path / "other.crt").write_bytes(authority("other", NOW)[1])
    wrong = ssl.create_default_context(cafile=tmp_path / "other.crt")
    connection = http.client.HTTPSConnection("localhost", front.port, context=wrong, timeout=10)
    with pytest.raises(ssl.SSLCertVerificationError):
        connection.request("POST", PULL, body=b"x")


@needs_nginx
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_tls_is_refused(front: Front) -> None:
    context = ssl.create_default_context(cafile=front.fleet / "ca.crt")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with (
        socket.create_connection(("127.0.0.1", front.port)) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(plain, server_hostname="localhost")


@needs_nginx
def test_a_hundred_sites_behind_one_address_are_let_through(front: Front) -> None:
    """Each makes the twenty requests of a slot at once."""

    def site(_: int) -> list[int]:
        connection = front.connect()
        found = []
        for _ in range(20):
            connection.request("POST", PULL, body=b"x")
            answer = connection.getresponse()
            answer.read()
            found.append(answer.status)
        connection.close()
        return found

    with ThreadPoolExecutor(50) as pool:
        statuses = [status for found in pool.map(site, range(100)) for status in found]
    assert statuses == [200] * 2000


@needs_nginx
def test_a_flood_is_answered_by_try_again(tmp_path: Path) -> None:
    """503 is what a site's node tries again after."""
    with running(tmp_path, rate=5, burst=5) as front:
        statuses = [front.ask() for _ in range(20)]
        assert set(statuses) == {200, 503}
        assert statuses[:5] == [200] * 5
        assert len(front.seen) < 15


@needs_nginx
def test_a_server_that_is_away_is_answered_by_try_again(tmp_path: Path) -> None:
    with running(tmp_path) as front:
        front.upstream.shutdown()
        front.upstream.socket.close()
        assert front.ask() == 502


@needs_nginx
def test_a_false_server_gets_nothing(tmp_path: Path) -> None:
    """Who took the server's port on the machine has not the fleet's certificate."""
    with running(tmp_path) as front:
        other = tmp_path / "other"
        other.mkdir()
        certified(other)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(other / "server.crt", other / "server.key")
        false = Upstream(context)
        threading.Thread(target=false.serve_forever, daemon=True).start()
        text = (tmp_path / "nginx.conf").read_text()
        port = front.upstream.server_port
        (tmp_path / "nginx.conf").write_text(text.replace(f":{port} ", f":{false.server_port} "))
        pid = int((tmp_path / "proxy" / "nginx.pid").read_text())
        os.kill(pid, 1)
        time.sleep(1)
        assert front.ask() == 502
        assert false.seen == []
        false.shutdown()
        false.server_close()


@needs_nginx
def test_a_renewed_certificate_is_used_after_a_reload(tmp_path: Path) -> None:
    with running(tmp_path) as front:
        before = ssl.get_server_certificate(("127.0.0.1", front.port))
        assert front.ask() == 200
        certified(tmp_path)
        os.kill(int((tmp_path / "proxy" / "nginx.pid").read_text()), 1)
        time.sleep(1)
        assert ssl.get_server_certificate(("127.0.0.1", front.port)) != before


def test_listening_addresses(tmp_path: Path) -> None:
    assert "listen 127.0.0.1:22003 ssl;" in nginx_conf(tmp_path, "127.0.0.1", 22003)
    assert "listen [::1]:22003 ssl;" in nginx_conf(tmp_path, "::1", 22003)
    assert "listen 0.0.0.0:8443 ssl;" in nginx_conf(tmp_path)


@pytest.mark.parametrize("name", ["a{b", "a;b", "a$b", 'a"b', "a\nb"])
def test_names_that_nginx_would_misread_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="give a --fleet without"):
        nginx_conf(tmp_path / name)
    with pytest.raises(InputError, match="give a --fleet without"):
        service_files(tmp_path, tmp_path / name, "h:1", 2)


def parsed(unit: str) -> dict[str, list[str]]:
    """The settings of a unit by section and name."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in unit.splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section = line.strip("[]")
            continue
        name, equals, value = line.partition("=")
        assert equals and section, line
        found.setdefault(f"{section}.{name}", []).append(value)
    return found


@pytest.mark.parametrize("unit", UNITS)
def test_units_run_as_a_user_of_their_own_and_are_confined(tmp_path: Path, unit: str) -> None:
    text = service_files(tmp_path, tmp_path / "study.toml", "learn.example.org:8443", 9092)
    found = parsed(text[f"systemd/{unit}"])
    assert "{{" not in text[f"systemd/{unit}"]
    assert found["Service.User"] == ["fedkoopman"]
    assert found["Service.ProtectSystem"] == ["strict"]
    assert found["Service.NoNewPrivileges"] == ["yes"]
    assert found["Service.Restart"] == ["on-failure"]
    assert found["Service.UMask"] == ["0077"]
    assert found["Install.WantedBy"] == ["multi-user.target"]
    if "site" in unit:
        assert "--server learn.example.org:8443" in found["Service.ExecStart"][0]
    if "server" in unit:
        assert found["Service.IPAddressDeny"] == ["any"]
        assert "--no-proxy --port 9092" in found["Service.ExecStart"][0]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("folder", ["fleet", "a fleet", "100% fleet"])
def test_systemd_accepts_the_units(tmp_path: Path, folder: str) -> None:
    fleet = tmp_path / folder
    for name, text in service_files(fleet, fleet / "study.toml", "h:1", 2).items():
        if name.startswith("systemd/"):
            (fleet / name).parent.mkdir(parents=True, exist_ok=True)
            # Programs have to be there for the check.
            text = re.sub(r"(?m)^(ExecStart=)\S+", r"\1/bin/true", text)
            (fleet / name).write_text(text)
    paths = [str(fleet / "systemd" / unit) for unit in UNITS]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True
    )
    told = [line for line in done.stderr.splitlines() if "fedkoopman" in line]
    assert done.returncode == 0 and not told, done.stderr


@pytest.mark.skipif(shutil.which("logrotate") is None, reason="needs logrotate")
def test_logrotate_accepts_its_file(tmp_path: Path) -> None:
    text = service_files(tmp_path, tmp_path / "study.toml", "h:1", 2)["logrotate.conf"]
    (tmp_path / "proxy" / "logs").mkdir(parents=True)
    (tmp_path / "proxy" / "logs" / "access.log").write_text("refused\n" * 100)
    owner = f"su {os.geteuid()} {os.getegid()}"
    conf = tmp_path / "logrotate.conf"
    conf.write_text(text.replace("su fedkoopman fedkoopman", owner))
    conf.chmod(0o600)
    command = ["logrotate", "--force", "--state", str(tmp_path / "state"), str(conf)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert (tmp_path / "proxy" / "logs" / "access.log.1.gz").exists()
