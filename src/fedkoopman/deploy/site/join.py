"""`fedkoopman join`: a site's processes, started together and kept running.

The agent holds the data and trains. The node talks to the server with Flower's client, and passes
requests on to the agent. Neither runs code that came over the network: a site runs its own
installation, its own files, and its kit, to which somebody at the site has agreed.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

from fedkoopman.config.site_file import SiteFile
from fedkoopman.deploy.flower.internals import check_version
from fedkoopman.deploy.flower.programs import environment, node_command
from fedkoopman.deploy.provisioning.kit import Kit, open_kit
from fedkoopman.deploy.site.site_socket import socket_path
from fedkoopman.deploy.site.store import state_directory
from fedkoopman.deploy.supervisor import Child, Supervisor
from fedkoopman.durable import private_directory, write_private
from fedkoopman.errors import InputError, short
from fedkoopman.signals import stop_requested
from fedkoopman.version import __version__

LOOK = 0.2
"""Seconds between looks at the processes."""
WRONG = 2
"""The agent's exit status for wrong input, after which it is not restarted."""
REFUSAL = "the server "
"""How a line of the node begins that is shown to the people at a site."""

LEAVES = (
    "leaves   trained network weights, numbers of samples, held-out errors and sums for the",
    "         model's noise; never an observation or an estimated state",
)
LEAVES_MASKED = (
    "leaves   masked network weights, of which the server learns the sum over sites; numbers of",
    "         samples, held-out errors and sums for the model's noise; never an observation or an",
    "         estimated state",
)


@dataclass(frozen=True)
class Joining:
    """A site that is ready to join.

    Attributes:
        site: its file.
        kit: the study, its code and the site's key.
        state: the site's directory.
        server: HOST:PORT.
    """

    site: SiteFile
    kit: Kit
    state: Path
    server: str


def prepare(
    path: Path,
    server: str,
    *,
    kit: Path | None,
    state: Path | None,
    insecure: bool,
    code: Callable[[Path], str],
) -> Joining:
    """Read the site file, and open its kit if that has not been done.

    Arguments:
        kit: the kit's file; None: NAME.kit beside the site file, or the one opened before.
        state: the site's directory; None: `.fedkoopman/NAME` beside the site file.
        insecure: whether to go without TLS and keys, on this machine alone.
        code: gives the code that unlocks a kit's file.
    """
    host = check_server(server)
    site = SiteFile.load(path)
    place = (state or state_directory(path, site.name)).absolute()
    found = _opened(site, place, kit, (lambda _: None) if insecure else code)
    if found.site != site.name:
        raise InputError(
            f"the kit is for {found.site} and {path} is called {site.name}: take the kit that was "
            "made for this site, or give the site file that name"
        )
    found.check_version()
    if found.secure and insecure:
        raise InputError(f"the kit of {site.name} has a key: leave out --insecure")
    if not found.secure and not insecure:
        raise InputError(
            f"the kit of {site.name} has no key, and is for one machine only: add --insecure, or "
            "ask the coordinator for a kit that was provisioned without it"
        )
    if insecure and not _is_loopback(host):
        raise InputError(
            f"--insecure is for this machine only and {host!r} is another: provision the fleet "
            "without it"
        )
    return Joining(site, found, place, server)


def check_server(server: str) -> str:
    """The host of HOST:PORT."""
    host, colon, port = server.rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"--server is {short(server)}: give HOST:PORT, as learn.example.org:8443")
    if any(c.isspace() or c in "/@?#" for c in host):
        raise InputError(f"--server is {short(server)}: give HOST:PORT, without https://")
    return host


def asked_for(joining: Joining) -> list[str]:
    """Lines that tell what a site is asked to agree to."""
    kit, study = joining.kit, joining.kit.study
    code = ", ".join(kit.code) or "none"
    mqtt = joining.site.mqtt
    broker = f"; MQTT {', '.join(mqtt.topics)} of {mqtt.host}:{mqtt.port}" if mqtt.host else ""
    own = str(joining.site.sensor.get("function", "")).rpartition(":")[0]
    return [
        f"site     {joining.site.name}, place {kit.identity + 1} of {kit.clients}",
        f"study    {study.name}, seed {study.seed}: {kit.fingerprint[:32]}",
        f"server   {joining.server}" + ("" if kit.secure else ", without TLS"),
        f"code     of the kit: {code}" + (f"; of this site: {own}" if own else ""),
        f"data     {', '.join(joining.site.data.files)} in {joining.site.folder}" + broker,
        f"work     up to {study.slots} slots, {study.training.epochs} epochs of training in each",
        *(LEAVES_MASKED if study.aggregation.secure else LEAVES),
    ]


def agreed(joining: Joining) -> bool:
    """Whether somebody at the site has agreed to exactly this."""
    try:
        kept = json.loads((joining.state / "consent.json").read_text(encoding="utf-8"))
        return bool(kept["fingerprint"] == joining.kit.fingerprint)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def consent(joining: Joining) -> None:
    """Write down that somebody has agreed."""
    private_directory(joining.state)
    kept = {
        "fingerprint": joining.kit.fingerprint,
        "study": joining.kit.digest,
        "seed": joining.kit.study.seed,
        "version": __version__,
        "server": joining.server,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_private(joining.state / "consent.json", (json.dumps(kept, indent=1) + "\n").encode())


def join(joining: Joining, say: Callable[[str], None], rewind: bool = False) -> None:
    """Take part until this process is asked to stop.

    Arguments:
        rewind: whether to forget which slots are finished, after the server was restored.
    """
    check_version()
    state, kit = joining.state, joining.kit
    private_directory(state)
    write_private(state / "site.path", f"{joining.site.path.absolute()}\n".encode())
    write_private(state / "server", f"{joining.server}\n".encode())
    if rewind:
        write_private(state / "rewind", b"")
    logs, env = state / "logs", environment()
    node = node_command(
        server=joining.server,
        site=kit.site,
        socket=socket_path(state),
        memory=state / "node.json",
        authority=kit.ca if kit.secure else None,
        key=kit.node_key if kit.secure else None,
    )
    agent = [sys.executable, "-m", "fedkoopman.deploy.site.agent_process", "--state", str(state)]
    with stop_requested() as stop, Supervisor(say) as children:
        children.start(Child("agent", agent, logs / "agent.log", env, echo=say, final=(WRONG,)))
        children.start(Child("node", node, logs / "node.log", env, echo=_refusals(say)))
        say(f"joining {joining.server} as {kit.site}; logs: {logs}")
        while not stop.wait(LOOK):
            children.poll()
            if children.final("agent"):
                raise InputError(children.last_line("agent").removeprefix("error: "))
        say("stopping")


def _refusals(say: Callable[[str], None]) -> Callable[[str], None]:
    """Pass on only those lines of a node that say why it is refused."""

    def receive(line: str) -> None:
        if line.startswith(REFUSAL):
            say(line)

    return receive


def _opened(
    site: SiteFile, place: Path, kit: Path | None, code: Callable[[Path], str | None]
) -> Kit:
    into, beside = place / "kit", site.folder / f"{site.name}.kit"
    given = kit or (beside if beside.is_file() else None)
    if given is None:
        if into.is_dir():
            return Kit.load(into)
        raise InputError(
            f"there is no kit for {site.name}: put {beside.name}, which the coordinator made with "
            f"fedkoopman provision, into {site.folder}, or name it by --kit"
        )
    stamp = place / "kit.stamp"
    about = given.stat() if given.is_file() else None
    mark = "" if about is None else f"{given.absolute()} {about.st_mtime_ns} {about.st_size}"
    if mark and into.is_dir() and stamp.is_file() and stamp.read_text() == mark:
        return Kit.load(into)
    private_directory(place)
    found = open_kit(given, into, code(given))
    write_private(stamp, mark.encode())
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
