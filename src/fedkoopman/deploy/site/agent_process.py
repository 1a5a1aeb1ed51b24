"""The agent as a process: its settings, its log, its status file, and how it ends.

Exit codes: 0 told to stop, 1 it failed and may be started again, 2 the input is wrong.
"""

import argparse
import hashlib
import json
import logging
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fedkoopman.config.site_file import SiteFile
from fedkoopman.deploy.heeding import heeded
from fedkoopman.deploy.provisioning.kit import Kit
from fedkoopman.deploy.site.agent import Agent
from fedkoopman.deploy.site.site_socket import listening, serve
from fedkoopman.deploy.site.store import socket_path
from fedkoopman.durable import write_whole
from fedkoopman.errors import ComputationError, InputError, system_error
from fedkoopman.user_code import blamed

__all__ = ["main", "withheld"]

LOG = logging.getLogger("fedkoopman.agent")
STOPPED, FAILED = 0, 1
LOOK = 0.5
"""Seconds between two looks at the data folder."""
LOOKING = 0.1
"""The share of time that looking may take, where there are so many files that it takes long."""
REWIND = "rewind"
"""A file in the state by which `join --rewind` asks once to forget which slots are over."""
STATUS = 30.0
"""Seconds after which the status is written though nothing happened."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a site's data until told to stop."""
    parser = argparse.ArgumentParser(prog="fedkoopman.deploy.site.agent", description=__doc__)
    parser.add_argument("--state", required=True, type=Path, metavar="DIR", help="of the site")
    parser.add_argument(
        "--settle", type=float, default=2.0, metavar="SECONDS",
        help="for which a file must not have changed before it is read",
    )  # fmt: skip
    chosen = parser.parse_args(arguments)
    _log_lines()
    try:
        _run(chosen.state.absolute(), chosen.settle)
    except (InputError, ComputationError) as error:
        return _fail(error, error.exit_code)
    except OSError as error:
        return _fail(f"the machine failed: {error}", FAILED)
    except MemoryError:
        return _fail("out of memory: cut segments by data.longest", FAILED)
    except Exception as error:
        if (users := blamed(error)) is None:
            raise
        return _fail(users, users.exit_code)
    LOG.info("stopped")
    return STOPPED


def withheld(state: Path, kit: Kit) -> Callable[[], str]:
    """Tells why a site does not consent to its kit's study, or nothing.

    It is asked before every answer: who removes `consent.json` ends the site's part at once.
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


def _run(state: Path, settle: float) -> None:
    stop, serving = threading.Event(), threading.Event()

    def end() -> None:
        stop.set()
        if not serving.is_set():
            os._exit(STOPPED)  # nothing is being answered, and the store bears it

    with heeded(end) as asked:
        _answer(state, settle, stop, asked, serving)


def _answer(
    state: Path,
    settle: float,
    stop: threading.Event,
    asked: threading.Event,
    serving: threading.Event,
) -> None:
    """Open the site's data, and answer until it is time to stop.

    Arguments:
        stop: ends the answering.
        asked: whether somebody asked for that.
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
    with Agent(
        site, kit.study, kit.identity, kit.clients, state,
        settle=settle, agreed=agreed, progress=_reported(),
    ) as agent:  # fmt: skip
        if (state / REWIND).exists():
            agent.buffer.rewind()
            LOG.warning("which slots are over is forgotten, as was asked for")
            (state / REWIND).unlink()
        with listening(socket_path(state)) as door:
            serving.set()
            LOG.info("ready after %.1f s", time.monotonic() - began)
            for work in (_watch, _warm):
                threading.Thread(target=work, args=(agent, state, stop), daemon=True).start()
            serve(door, agent.answer, stop, _server(state))
            if not asked.is_set():
                raise ComputationError(
                    f"{socket_path(state)} is gone: somebody clears its directory, set "
                    "XDG_RUNTIME_DIR to another"
                )


def _watch(agent: Agent, state: Path, stop: threading.Event) -> None:
    """Take in new files, and keep the status file true."""
    trouble, written, last = "", 0.0, ""
    pause = 0.0
    while not stop.wait(min(pause, STATUS)):
        if not socket_path(state).exists():
            stop.set()  # nobody could ask any more; who is started anew makes another
            return
        began, problem, pause = time.monotonic(), "", LOOK
        try:
            changed = agent.scan()
            if not changed:
                pause = max(LOOK, (time.monotonic() - began) / LOOKING)
            told = agent.status()
            now = json.dumps(told)
            if now != last or began - written > STATUS:
                write_whole(state / "status.json", json.dumps(told, indent=1).encode())
                last, written = now, began
        except Exception as error:  # as a full disk: it goes on when there is room
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
    """Compile before anybody asks."""
    try:
        agent.warm()
    except Exception as error:
        if not stop.is_set():
            LOG.warning("could not compile ahead: %s", error)


def _reported() -> Callable[[int, int], None]:
    """Tells every few seconds how far reading is."""
    last = [time.monotonic()]

    def progress(done: int, total: int) -> None:
        if time.monotonic() - last[0] > 5:
            last[0] = time.monotonic()
            LOG.info("%d of %d segments are read", done, total)

    return progress


def _keep_compiled(state: Path) -> None:
    """Let JAX keep compiled functions, unless it is told where; so that a restart is warm.

    They lie in the site's own directory, as they are code: nobody else may write them. Code is for
    one kind of processor, so each machine has its own.
    """
    if "jax" in sys.modules or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    machine = hashlib.sha256(f"{platform.node()} {platform.machine()}".encode()).hexdigest()
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(state / "compiled" / machine[:12])
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


def _written(path: Path) -> Path:
    """A path that stands in a file."""
    try:
        return Path(path.read_text(encoding="utf-8").strip())
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: run fedkoopman join, which writes it") from error
    except OSError as error:
        remedy = "run fedkoopman join, which writes it"
        raise system_error(f"cannot read {path}", error, remedy) from error


def _server(state: Path) -> str:
    """Who is asked for by name at the other end, for the ledger."""
    try:
        return (state / "server").read_text(encoding="utf-8").strip()[:200] or "server"
    except (OSError, UnicodeDecodeError):
        return "server"


class _OneLine(logging.Formatter):
    """A record is one line, whatever is in it."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        text = " ".join(super().format(record).split())
        return "".join(c if c.isprintable() else "?" for c in text)


def _log_lines() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("%(asctime)sZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    LOG.handlers[:] = [handler]
    LOG.setLevel(logging.INFO)
    LOG.propagate = False


def _fail(message: object, code: int) -> int:
    print(f"error: {' '.join(str(message).split())}", file=sys.stderr, flush=True)
    return code
