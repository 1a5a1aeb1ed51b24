"""`fedkoopman serve`: the coordinator's processes, started together and kept running.

The server loop exchanges messages with the sites and makes the model. A reverse proxy faces the
sites, if nginx is installed and not switched off. This process watches both; it loads neither JAX
nor the study's code.
"""

import errno
import json
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedkoopman.deploy.flower.internals import check_version
from fedkoopman.deploy.flower.programs import environment
from fedkoopman.deploy.provisioning.certificates import warning
from fedkoopman.deploy.provisioning.provision import shared_study
from fedkoopman.deploy.provisioning.proxy import find_nginx, nginx_conf
from fedkoopman.deploy.provisioning.roster import Roster
from fedkoopman.deploy.server.metrics import serve_metrics
from fedkoopman.deploy.site.site_socket import socket_path
from fedkoopman.deploy.supervisor import Child, Supervisor
from fedkoopman.durable import held, private_directory, write_private, write_whole
from fedkoopman.errors import InputError, underway
from fedkoopman.signals import stop_requested

FINISHED, WRONG = 0, 2
"""Exit statuses of the loop after which it is not restarted."""
LOOK = 0.2
"""Seconds between looks at the processes."""
RELEASE = 10.0
"""Seconds after which the port of a killed server is certainly free."""


@dataclass(frozen=True)
class Serving:
    """What to serve, and how.

    Attributes:
        study: the study's file.
        out: the run directory; what only the server needs is in its `server/`.
        fleet: the directory that `provision` made.
        port: the proxy's or, without one, the server loop's on loopback.
        proxy: whether to start nginx; None: if it is installed.
        period: seconds from slot to slot; 0 for as soon as possible.
        deadline: seconds that a site may take to answer.
        wait_for: sites that must have answered before the first slot; None for all.
        insecure: without TLS and keys, on this machine alone.
        metrics: port on loopback for Prometheus; None: no metrics.
    """

    study: Path
    out: Path
    fleet: Path
    port: int
    proxy: bool | None = None
    period: float = 0.0
    deadline: float = 300.0
    wait_for: int | None = None
    insecure: bool = False
    metrics: int | None = None


def serve(given: Serving, say: Callable[[str], None]) -> bool:
    """Serve a study until it is finished (True) or this process is asked to stop (False)."""
    check_version()
    _checked(given)
    proxied = _proxied(given)
    place = given.out / "server"
    if not given.out.exists():  # its operator may open it to others
        private_directory(given.out)
    private_directory(place)
    busy = f"{given.out} is being served already: stop that server first, or choose another --out"
    lock = held(place / ".lock", busy)
    with lock, underway(), stop_requested() as stop, Supervisor(say) as children:
        _await_port("" if proxied else "127.0.0.1", given.port)
        behind = socket_path(place) if proxied else None
        settings = {
            "study": str(given.study.absolute()),
            "fleet": str(given.fleet.absolute()),
            "out": str(given.out.absolute()),
            "socket": "" if behind is None else str(behind),
            "port": given.port,
            "secure": not given.insecure,
            "period": given.period,
            "deadline": given.deadline,
            "wait_for": given.wait_for,
        }
        write_whole(place / "serve.json", (json.dumps(settings, indent=1) + "\n").encode())
        if behind is not None:
            children.start(_proxy(given, place, behind))
        if given.metrics is not None:
            server = serve_metrics(given.out / "status.json", given.metrics)
            say(f"metrics: http://127.0.0.1:{server.server_port}/metrics")
        _tell_where(given, proxied, say)
        loop = [sys.executable, "-m", "fedkoopman.deploy.server.loop"]
        children.start(
            Child(
                "server loop", [*loop, "--settings", str(place / "serve.json")],
                place / "logs" / "loop.log", environment(), echo=say,
                final=(FINISHED, WRONG),
            )
        )  # fmt: skip
        say(f"logs: {place / 'logs'}")
        while not stop.wait(LOOK):
            children.poll()
            if children.final("server loop"):
                break
        if not children.final("server loop"):
            say("stopping")
            return False
        if children.status("server loop") != FINISHED:
            raise InputError(children.last_line("server loop").removeprefix("error: "))
        return True


def _checked(given: Serving) -> None:
    study = shared_study(given.study)
    roster = Roster.load(given.fleet)
    again = f"run fedkoopman provision {given.study} --fleet {given.fleet}"
    if roster.digest != study.digest():
        raise InputError(
            f"the kits in {given.fleet} are for another study than {given.study}: {again}, and "
            "hand the new kits to the sites"
        )
    if roster.secure and given.insecure:
        raise InputError(
            f"the fleet in {given.fleet} has keys and certificates: leave out --insecure"
        )
    if not roster.secure and not given.insecure:
        raise InputError(
            f"the fleet in {given.fleet} was made without keys, for one machine: add --insecure, "
            "or provision another one without it"
        )
    if not roster.active:
        raise InputError(f"no site is enrolled in {given.fleet}: {again} --sites NAME,NAME")


def _proxied(given: Serving) -> bool:
    if given.insecure:
        if given.proxy:
            raise InputError("--insecure is for one machine, without a proxy: leave out --proxy")
        return False
    if given.proxy and find_nginx() is None:
        raise InputError("nginx is not installed: install it, or use --no-proxy and your own")
    return find_nginx() is not None if given.proxy is None else given.proxy


def _await_port(host: str, port: int) -> None:
    """Wait for a port that a killed server may still hold; refuse one that stays in use.

    Without this check the proxy would be restarted again and again until the port is free.
    """
    end = time.monotonic() + RELEASE
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > end:
                    raise InputError(
                        f"cannot listen on port {port}: {error.strerror}: stop what listens there, "
                        "or choose another by --port"
                    ) from error
        time.sleep(LOOK)


def _proxy(given: Serving, place: Path, behind: Path) -> Child:
    """nginx in the foreground, with its files in the server's own directory."""
    for name in ("ca.crt", "server.crt", "server.key"):
        link = place / name
        link.unlink(missing_ok=True)
        link.symlink_to((given.fleet / name).absolute())
    private_directory(place / "proxy" / "logs")
    conf = place / "nginx.conf"
    text = nginx_conf(given.fleet, public_port=given.port, upstream=behind, to_stdout=True)
    write_private(conf, text.encode())
    nginx = find_nginx()
    assert nginx is not None
    command = [nginx, "-p", str((place / "proxy").absolute()), "-c", str(conf.absolute())]
    # If this program is killed, nginx gets SIGTERM and ends its workers. Killed itself, it would
    # leave them running, and they would keep the port.
    return Child(
        "proxy", [*command, "-g", "daemon off;"], place / "logs" / "proxy.log",
        orphaned=signal.SIGTERM,
    )  # fmt: skip


def _tell_where(given: Serving, proxied: bool, say: Callable[[str], None]) -> None:
    if told := "" if given.insecure else warning(given.fleet / "server.crt"):
        say(f"warning: {told}")
    if given.insecure:
        say(f"serving on 127.0.0.1:{given.port}, without TLS: this machine only")
    elif proxied:
        say(f"serving on port {given.port}, through nginx; sites reach only the fleet's paths")
    else:
        say(
            f"serving on 127.0.0.1:{given.port} with TLS: this machine only, until a reverse "
            f"proxy is set up (see {given.fleet / 'nginx.conf'})"
        )
