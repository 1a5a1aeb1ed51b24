"""What people can see of a served run while it runs: `status.json` and `report.html`.

The server does not depend on these files: the checkpoint holds all that it needs to continue. An
operator's request to readmit a site is a file too, which the server reads before its next slot.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkoopman.deploy.site.store import now
from fedkoopman.durable import write_whole, writing
from fedkoopman.errors import InputError, system_error, unknown_name

if TYPE_CHECKING:
    from fedkoopman.deploy.provisioning.roster import Roster
    from fedkoopman.deploy.server.server_state import ServerState

FILE = "status.json"
FORMAT = 1
REQUESTS = "readmit"
"""Directory of requests to readmit sites, one file each."""
RENAMED = {"trained": "trained_samples", "refused": "refused_samples", "heard": "acknowledged"}
"""Entries of the file that are called otherwise than fields of `Standing`."""
EXPIRY_DAYS = 30
"""Days before a certificate expires from which on there is a warning."""
PAGE_SECONDS = 60.0
"""Seconds from one report.html to the next."""


class StatusFile:
    """`status.json` of a run directory."""

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        """Arguments:
        folder: the run directory.
        about: entries that do not change while the server runs.
        """
        self._path = folder / FILE
        self._about = {"format": FORMAT, **about, "pid": os.getpid(), "started": now()}

    def write(
        self,
        step: str,
        state: "ServerState",
        roster: "Roster",
        seen: Mapping[str, Mapping[str, Any]],
        more: Mapping[str, Any],
    ) -> None:
        """Replace the file.

        Arguments:
            state: after the last finished slot.
            seen: by site, `Rounds.seen`.
        """
        sites = {
            site.name: {
                **_of_site(state, site.name),
                **seen.get(site.name, {}),
                "revoked": site.revoked,
            }
            for site in roster.sites
        }
        content = {**self._about, "updated": now(), "step": step, "slot": state.slot, **more}
        # A line per site: with thousands of them, indented entries take most of a slot's time.
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(sites[name])}" for name in sites)
        head = json.dumps(content, indent=1).removesuffix("\n}")
        text = head + ',\n "sites": {\n' + rows + "\n }\n}\n"
        # Not synced to the disk, unlike the checkpoint: after a power cut the next one comes soon.
        partial = self._path.with_name(f".{FILE}.{os.getpid()}")
        with writing(self._path):
            partial.write_text(text, encoding="utf-8")
            os.replace(partial, self._path)


class LivePage:
    """`report.html` of a run directory, rewritten every minute beside the slots.

    One thread writes all pages. With a new thread for each page the C library would keep the 15 MB
    of a page in the memory arena of every such thread.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self._last = time.monotonic()
        self._writer = ThreadPoolExecutor(1, "page")
        self._page: Future[None] | None = None
        self._failed = ""

    def refresh(self) -> None:
        """Begin a new page if the last one is old."""
        busy = self._page is not None and not self._page.done()
        if busy or time.monotonic() - self._last < PAGE_SECONDS:
            return
        self._last = time.monotonic()
        self._page = self._writer.submit(self._write)

    def finish(self) -> Path:
        """Write the last page."""
        from fedkoopman.reports.run import write_report

        if self._page is not None:
            wait([self._page])
        return write_report(self._folder)

    def _write(self) -> None:
        try:
            from fedkoopman.reports.run import write_report

            write_report(self._folder)
            self._failed = ""
        except Exception as error:  # a failed page must not end the run
            if str(error) != self._failed:
                self._failed = str(error)
                self._say(f"report.html was not written: {error}")


def _of_site(state: "ServerState", name: str) -> dict[str, Any]:
    about = vars(state.of(name))
    return {"online": False} | {RENAMED.get(key, key): value for key, value in about.items()}


def read_status(folder: Path) -> dict[str, Any]:
    """The status of a served run."""
    found = _read(
        folder / FILE,
        "name the directory that fedkoopman serve was given by --out, or a site file",
    )
    if found.get("format") != FORMAT:
        raise InputError(
            f"{folder / FILE} is of another version of fedkoopman: use the server's own"
        )
    return found


def read_site_status(folder: Path) -> dict[str, Any]:
    """The status of a site, as its agent wrote it."""
    found = _read(folder / FILE, "its agent writes it: start it with fedkoopman join")
    return {"site": folder.name, **found}


def _read(path: Path, remedy: str) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("no table")
    except FileNotFoundError:
        raise InputError(f"there is no {path}: {remedy}") from None
    except OSError as error:
        raise system_error(f"cannot read {path}", error) from error
    except ValueError as error:
        raise InputError(
            f"{path} is damaged: it is replaced as soon as its server or agent runs"
        ) from error
    return found


def alive(status: Mapping[str, Any]) -> bool:
    """Whether the server that wrote a status still runs, on this machine."""
    if status.get("step") in ("finished", "stopped"):
        return False
    try:
        os.kill(int(status["pid"]), 0)
    except PermissionError:
        return True
    except (OSError, OverflowError, KeyError, TypeError, ValueError):
        return False
    return True


def days_left(when: str) -> float | None:
    """Days until an ISO 8601 time; None if the text is not one."""
    try:
        then = datetime.fromisoformat(when)
    except ValueError:
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return (then - datetime.now(UTC)).total_seconds() / 86400


def request_readmission(folder: Path, site: str) -> None:
    """Ask the server to readmit a site that it has set aside."""
    sites = read_status(folder)["sites"]
    if site not in sites:
        raise unknown_name("site", site, sites)
    if not sites[site]["set_aside"]:
        raise InputError(f"site {site} is not set aside: it needs no readmission")
    with writing(folder / REQUESTS):
        (folder / REQUESTS).mkdir(exist_ok=True)
    name = hashlib.sha256(site.encode()).hexdigest()[:16]
    write_whole(folder / REQUESTS / f"{name}.json", json.dumps({"site": site}).encode())


def readmission_requests(folder: Path) -> dict[str, Path]:
    """Sites that an operator wants to readmit, and the files that say so."""
    found = {}
    for path in sorted((folder / REQUESTS).glob("*.json")):
        try:
            found[str(json.loads(path.read_text(encoding="utf-8"))["site"])] = path
        except (OSError, ValueError, KeyError, TypeError):
            path.unlink(missing_ok=True)  # it cannot be read
    return found


def delete_requests(files: Mapping[str, Path]) -> None:
    """Delete requests that were fulfilled, once the new state is saved."""
    for path in files.values():
        path.unlink(missing_ok=True)
