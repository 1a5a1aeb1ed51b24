"""How a served run stands: a file that the server replaces whole, and what reads it.

`DIR/status.json` is for people and monitors. Nothing depends on it: the checkpoint knows all that
must not be forgotten. An operator's wish to take a site back is a file, too, which the server picks
up before its next slot.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkoopman.deploy.server.metrics import metrics_text, serve_metrics
from fedkoopman.durable import write_whole, writing
from fedkoopman.errors import InputError, system_error, unknown_name

if TYPE_CHECKING:
    from fedkoopman.deploy.provisioning.roster import Roster
    from fedkoopman.deploy.server.server_state import ServerState

__all__ = [
    "EXPIRY_DAYS",
    "StatusFile",
    "alive",
    "days_left",
    "granted",
    "metrics_text",
    "now",
    "read_site_status",
    "read_status",
    "request_readmission",
    "serve_metrics",
    "wishes",
]

FILE = "status.json"
FORMAT = 1
WISHES = "readmit"
"""Directory of requests to take sites back, one file each."""
EXPIRY_DAYS = 30
"""Days before a certificate's end from which on it is warned about."""


def now() -> str:
    """The time, as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class StatusFile:
    """What the server shows of itself."""

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        """Arguments:
        folder: the run directory.
        about: what does not change while the server runs.
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
        """Show where the server is.

        Arguments:
            step: what it does now.
            state: after the last finished slot.
            roster: who is enrolled.
            seen: by site, what is known of it since the server was started.
            more: anything else.
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
        text = json.dumps({**content, "sites": sites}, indent=1) + "\n"
        # Not made to last, unlike the checkpoint: after a power cut, the next one is written soon.
        partial = self._path.with_name(f".{FILE}.{os.getpid()}")
        with writing(self._path):
            partial.write_text(text, encoding="utf-8")
            os.replace(partial, self._path)


def _of_site(state: "ServerState", name: str) -> dict[str, Any]:
    about = state.of(name)
    return {
        "online": False,
        "last_seen": about.last_seen,
        "buffered": about.buffered,
        "segments": about.segments,
        "trained_samples": about.trained,
        "updates": about.updates,
        "refused_samples": about.refused,
        "rejected": about.rejected,
        "last_rejection": about.last_rejection,
        "strikes": about.strikes,
        "set_aside": about.set_aside,
        "included": about.included,
        "acknowledged": about.heard,
    }


def read_status(folder: Path) -> dict[str, Any]:
    """The status of a served run.

    Arguments:
        folder: the run directory.
    """
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
    """The status of a site, as its agent wrote it.

    Arguments:
        folder: the site's state directory.
    """
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
        raise InputError(f"{path} is damaged: the service writes it again, wait") from error
    return found


def alive(status: Mapping[str, Any]) -> bool:
    """Whether the server that wrote a status, on this machine, is still at work."""
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
    """Days until a time; None if it is none."""
    try:
        then = datetime.fromisoformat(when)
    except ValueError:
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return (then - datetime.now(UTC)).total_seconds() / 86400


def request_readmission(folder: Path, site: str) -> None:
    """Ask the server to take a site back that it has set aside.

    Arguments:
        folder: the run directory.
        site: its name.
    """
    sites = read_status(folder)["sites"]
    if site not in sites:
        raise unknown_name("site", site, sites)
    if not sites[site]["set_aside"]:
        raise InputError(f"site {site} is not set aside: there is nothing to take back")
    with writing(folder / WISHES):
        (folder / WISHES).mkdir(exist_ok=True)
    name = hashlib.sha256(site.encode()).hexdigest()[:16]
    write_whole(folder / WISHES / f"{name}.json", json.dumps({"site": site}).encode())


def wishes(folder: Path) -> dict[str, Path]:
    """Sites that an operator wants back, and the files that say so."""
    found = {}
    for path in sorted((folder / WISHES).glob("*.json")):
        try:
            found[str(json.loads(path.read_text(encoding="utf-8"))["site"])] = path
        except (OSError, ValueError, KeyError, TypeError):
            path.unlink(missing_ok=True)  # it says nothing
    return found


def granted(files: Mapping[str, Path]) -> None:
    """Forget wishes that were granted, once that is saved."""
    for path in files.values():
        path.unlink(missing_ok=True)
