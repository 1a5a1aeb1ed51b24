"""The agent as a process: its settings, its log, its status file, and how it ends.

    python -m fedkoopman.deploy.site.agent_process --state DIR

Exit statuses: 0 it was asked to stop, 1 it failed and may be restarted, 2 the input is wrong.
"""

import argparse
import hashlib
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fedkoopman.config.site_file import SiteFile
from fedkoopman.deploy.provisioning.kit import Kit
from fedkoopman.deploy.site.agent import Agent
from fedkoopman.deploy.site.log_lines import LOG, log_lines
from fedkoopman.deploy.site.site_socket import listening, serve, socket_path
from fedkoopman.deploy.site.worker import worker_for
from fedkoopman.deploy.supervisor import exit_status
from fedkoopman.durable import write_whole
from fedkoopman.errors import ComputationError, InputError, system_error
from fedkoopman.signals import stop_requested

STOPPED = 0
LOOK = 0.5
"""Seconds between two looks at the data folder."""
LOOKING = 0.1
"""The share of time that looking may take, if there are very many files."""
REWIND = "rewind"
"""A file in the state, by which `join --rewind` asks to forget which slots are finished."""
STATUS = 30.0
"""Seconds after which the status is written even if nothing has changed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a site's data until this process is asked to stop."""
    parser = argparse.ArgumentParser(
        prog="fedkoopman.deploy.site.agent_process", description=__doc__
    )
    parser.add_argument("--state", required=True, type=Path, metavar="DIR", help="of the site")
    parser.add_argument(
        "--settle", type=float, default=2.0, metavar="SECONDS",
        help="for which a file must not have changed before it is read",
    )  # fmt: skip
    chosen = parser.parse_args(arguments)
    log_lines()
    return exit_status(
        lambda: _run(chosen.state.absolute(), chosen.settle),
        "out of memory: cut segments by data.longest",
    )


def withheld(state: Path, kit: Kit) -> Callable[[], str]:
    """A function that says why a site does not consent to its kit's study; "" if it does.

    It is called before every answer, so that removing `consent.json` withdraws consent at once.
    """
    path = state / "consent.json"
    wanted = kit.fingerprint
    seen: list[tuple[int, int] | None] = [None]

    def reason() -> str:
        try:
            about = path.stat()
            stamp = about.st_mtime_ns, about.st_size
            if stamp != seen[0]:
                kept = json.loads(path.read_text(encoding="utf-8"))
                seen[0] = stamp if kept["fingerprint"] == wanted else None
        except (OSError, ValueError, KeyError, TypeError):
            seen[0] = None
        if seen[0] is not None:
            return ""
        return f"nobody at {kit.site} has agreed to this study: run fedkoopman join there"

    return reason


def _run(state: Path, settle: float) -> int:
    stop, serving = threading.Event(), threading.Event()

    def end() -> None:
        stop.set()
        if not serving.is_set():
            os._exit(STOPPED)  # nothing is being answered yet, and the store survives it

    with stop_requested(end) as asked_to_stop:
        _answer(state, settle, stop, asked_to_stop, serving)
    LOG.info("stopped")
    return STOPPED


def _answer(
    state: Path,
    settle: float,
    stop: threading.Event,
    asked_to_stop: threading.Event,
    serving: threading.Event,
) -> None:
    """Open the site's data, and answer until `stop` is set.

    Arguments:
        stop: ends the answering.
        asked_to_stop: whether a signal asked for that.
        serving: is set when the data are open.
    """
    kit = Kit.load(state / "kit")
    kit.check_version()
    agreed = withheld(state, kit)
    if reason := agreed():
        raise InputError(reason)
    site = SiteFile.load(_written(state / "site.path"))
    if site.name != kit.site:
        raise InputError(
            f"the kit is for {kit.site} and {site.path} is called {site.name}: take the kit that "
            "was made for this site"
        )
    _keep_compiled(state)
    began = time.monotonic()
    LOG.info("reading the data of %s", site.name)
    study, place = kit.study, (kit.identity, kit.clients)
    with Agent(
        site, study, *place, state,
        work=worker_for(site, study, *place, site.worker.idle),
        settle=settle, agreed=agreed, progress=_reported(),
    ) as agent:  # fmt: skip
        if (state / REWIND).exists():
            agent.buffer.rewind()
            LOG.warning("finished slots are forgotten, as --rewind asks")
            (state / REWIND).unlink()
        with listening(socket_path(state)) as listener:
            serving.set()
            LOG.info("ready after %.1f s", time.monotonic() - began)
            for work in (_watch, _warm, _receive):
                threading.Thread(target=work, args=(agent, state, stop), daemon=True).start()
            serve(listener, agent.answer, stop, _server(state))
            if not asked_to_stop.is_set():
                raise ComputationError(
                    f"{socket_path(state)} is gone, as its directory was cleared: set "
                    "XDG_RUNTIME_DIR to another directory"
                )


def _watch(agent: Agent, state: Path, stop: threading.Event) -> None:
    """Read new files, and keep the status file up to date."""
    trouble, written, last = "", 0.0, ""
    pause = 0.0
    while not stop.wait(min(pause, STATUS)):
        if not socket_path(state).exists():
            stop.set()  # nobody can connect any more; a restarted agent makes a new one
            return
        began, problem, pause = time.monotonic(), "", LOOK
        agent.work.rest()
        try:
            changed = agent.scan()
            if not changed:
                pause = max(LOOK, (time.monotonic() - began) / LOOKING)
            told = agent.status()
            now = json.dumps(told)
            if now != last or began - written > STATUS:
                write_whole(state / "status.json", json.dumps(told, indent=1).encode())
                last, written = now, began
        except Exception as error:  # a full disk, for example, may pass
            if stop.is_set():
                return
            problem = " ".join(f"{error}".split()) or type(error).__name__
            if problem != trouble:
                known = isinstance(error, InputError | ComputationError)
                LOG.warning("looking at the data failed: %s", problem, exc_info=not known)
        if trouble and not problem:
            LOG.info("looking at the data works again")
        trouble = problem


def _warm(agent: Agent, state: Path, stop: threading.Event) -> None:
    """Compile before the first request."""
    try:
        agent.warm()
    except Exception as error:
        if not stop.is_set():
            LOG.warning("could not compile ahead: %s", error)


def _receive(agent: Agent, state: Path, stop: threading.Event) -> None:
    """Receive from MQTT, where the site file says so."""
    if agent.receiver is not None:
        agent.receiver.run(stop)


def _reported() -> Callable[[int, int], None]:
    """Logs every few seconds how far reading is."""
    last = [time.monotonic()]

    def progress(done: int, total: int) -> None:
        if time.monotonic() - last[0] > 5:
            last[0] = time.monotonic()
            LOG.info("%d of %d segments are read", done, total)

    return progress


def _keep_compiled(state: Path) -> None:
    """Have JAX keep compiled functions, so that a restart is fast, unless it is told where.

    They are code, so they are in the site's own directory, where nobody else can write. They are
    made for one kind of processor, so each machine has its own directory.
    """
    if "jax" in sys.modules or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    machine = hashlib.sha256(f"{platform.node()} {platform.machine()}".encode()).hexdigest()
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(state / "compiled" / machine[:12])
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


def _written(path: Path) -> Path:
    """A path that is the content of a file."""
    try:
        return Path(path.read_text(encoding="utf-8").strip())
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: run fedkoopman join, which writes it") from error
    except OSError as error:
        remedy = "run fedkoopman join, which writes it"
        raise system_error(f"cannot read {path}", error, remedy) from error


def _server(state: Path) -> str:
    """The server's address, for the ledger."""
    try:
        return (state / "server").read_text(encoding="utf-8").strip()[:200] or "server"
    except (OSError, UnicodeDecodeError):
        return "server"


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # do not wait for background compilations and estimates
