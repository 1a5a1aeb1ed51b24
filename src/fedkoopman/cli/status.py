"""`fedkoopman status`: the state of a federation; `fedkoopman ledger`: all that left a site."""

import csv
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkoopman.cli.closing import Facts, Json
from fedkoopman.cli.options import State, argument, option
from fedkoopman.errors import InputError, short

if TYPE_CHECKING:
    from fedkoopman.deploy.site.ledger import LedgerEntry

STATUS_EXAMPLE = """
fedkoopman status runs/pendulum
"""
LEDGER_EXAMPLE = """
fedkoopman ledger lab-a/site.toml --since 7d
"""
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

SITE = {
    "site": "site",
    "updated": "written",
    "started": "agent started",
    "last_request": "last request",
    "last_intake": "last new data",
    "buffered": "samples that wait",
    "segments": "segments that wait",
    "delivered": "samples that arrived",
    "trained": "samples trained on",
    "unacknowledged": "samples sent and not acknowledged",
    "acknowledged": "last acknowledged slot",
    "recorded": "segments to train on",
    "held_out": "segments held out",
    "mqtt": "MQTT",
    "mqtt_samples": "samples from MQTT",
    "mqtt_open": "of them in segments that go on",
    "mqtt_known": "sent again since the start, not counted",
    "mqtt_set_aside": "messages set aside",
    "privacy": "privacy spent",
    "private_trainings": "answers with noise, ever",
    "privacy_budget": "privacy budget",
    "privacy_stopped": "takes part",
}
"""What is shown of a site, by the keys of its status."""


def status(
    where: Annotated[
        Path,
        argument(
            "DIR|SITE.toml",
            "The run directory of fedkoopman serve; or a site file, or a site's state.",
        ),
    ],
    readmit: Annotated[
        str | None, option("NAME", "Ask the server to readmit a site that it has set aside.")
    ] = None,
) -> Facts:
    """Show the state of a federation: its slot, its sites, what waits and what was rejected."""
    folder, found = _found(where)
    of_site = "site" in found
    if readmit is not None:
        from fedkoopman.deploy.server.status import request_readmission

        if of_site:
            raise InputError(f"{where} is a site's: --readmit is for the server's run directory")
        request_readmission(folder, readmit)
        typer.echo(f"the server readmits {readmit} before its next slot")
        return {"readmits": readmit}
    if of_site:
        _show_site(found)
        return {**found, "directory": folder}
    _show_server(found, folder)
    return {**_with_standings(found), "directory": folder}


def _with_standings(found: Mapping[str, Any]) -> dict[str, Any]:
    """A server's status with whether it runs, and the state of each site in a word."""
    from fedkoopman.deploy.server.status import alive

    running = alive(found)
    sites = {
        name: {**about, "state": _standing(about, running).lower()}
        for name, about in found["sites"].items()
    }
    return {**found, "running": running, "sites": sites}


def _found(where: Path) -> tuple[Path, dict[str, Any]]:
    """The directory with a status file, and what that says."""
    from fedkoopman.deploy.server.status import read_site_status, read_status

    if where.suffix == ".toml":
        from fedkoopman.config.site_file import SiteFile
        from fedkoopman.deploy.site.store import state_directory

        folder = state_directory(where, SiteFile.load(where).name)
        return folder, read_site_status(folder)
    if (where / "store.sqlite").is_file() or (where / "kit").is_dir():
        return where, read_site_status(where)
    return where, read_status(where)


def _show_server(found: Mapping[str, Any], folder: Path) -> None:
    from fedkoopman.deploy.server.status import EXPIRY_DAYS, alive, days_left
    from fedkoopman.reports.tables import new_table, plain_console

    running = alive(found)
    step = found["step"]
    if not running and step not in ("finished", "stopped"):
        step = f"NOT RUNNING (it was {step})"
    typer.echo(
        f"{found['study']}: slot {found['slot']:,} of {found.get('slots', 0):,}, {step}, "
        f"as of {_clock(found['updated'])}"
    )
    table = new_table("site", "", "seen", right=("waiting", "trained", "rejected", "slot"))
    for column in table.columns:
        column.no_wrap = True
    for name, about in found["sites"].items():
        table.add_row(
            name,
            _standing(about, running),
            _ago(about["last_seen"]),
            *(f"{about[k]:,}" for k in ("buffered", "trained_samples", "rejected", "included")),
        )
    plain_console().print(table)
    typer.echo("waiting and trained are in samples; slot is the last that trained on its data")
    for name, about in found["sites"].items():
        if about["last_rejection"]:
            typer.echo(f"last rejection: {name} {about['last_rejection']}")
        if about.get("suspect"):
            typer.echo(
                f"{name} is suspect since slot {about['suspect']}, and its updates do not count: "
                f"the last one {_judgement(about['trust'])}; three good ones bring it back"
            )
        elif about.get("trust"):
            typer.echo(f"{name}: its last update {_judgement(about['trust'])}")
        if about["set_aside"]:
            typer.echo(
                f"{name} is set aside since slot {about['set_aside']}; when it is repaired: "
                f"fedkoopman status {folder} --readmit {name}"
            )
        if about.get("trouble", "silent") not in ("", "silent"):
            typer.echo(f"{name}: {about['trouble']}")
    if found.get("late") or found.get("duplicates"):
        typer.echo(f"replies too late: {found['late']:,}, duplicate: {found['duplicates']:,}")
    left = days_left(found.get("certificate_expires", ""))
    if left is not None and left < EXPIRY_DAYS:
        when = f"expires in {left:.0f} days" if left > 0 else "HAS EXPIRED"
        typer.echo(f"warning: the server's certificate {when}: renew it with fedkoopman provision")


def _judgement(row: Mapping[str, Any]) -> str:
    """What the other sites say of a site's last update, after its name."""
    said = {
        "harm": "changed the others' loss {:.3g} times",
        "distance": "lay {:.2g} usual lengths from theirs",
        "cosine": "had a cosine of {:.2f} to them",
    }
    words = [text.format(row[key]) for key, text in said.items() if row.get(key) is not None]
    if row.get("why"):
        words.insert(0, row["why"])
    return f"(slot {row['slot']}) {', '.join(words) or 'was judged by nobody'}"


def _standing(about: Mapping[str, Any], running: bool) -> str:
    if about["revoked"]:
        return "revoked"
    if about["set_aside"]:
        return "SET ASIDE"
    if about.get("suspect"):
        return "SUSPECT"
    if not running:
        return ""
    if not about["online"]:
        return "away"
    return "silent" if about.get("missed") else "online"


def _show_site(found: Mapping[str, Any]) -> None:
    from fedkoopman.reports.tables import new_table, plain_console

    table = new_table(show_header=False)
    for key, words in SITE.items():
        if key in found and (found[key] or key != "privacy_stopped"):
            value = found[key]
            shown = f"{value:,}" if isinstance(value, int) else _clock(str(value))
            table.add_row(words, shown)
    plain_console().print(table)
    told = {
        "dropped": "not used",
        "left_out": "not all used",
        "set_aside": "file set aside",
        "messages_set_aside": "message set aside",
    }
    for key, words in told.items():
        lines = found.get(key) or []
        if isinstance(lines, Mapping):
            lines = [f"{name}: {why}" for name, why in lines.items()]
        for line in lines:
            typer.echo(f"{words}: {line if isinstance(line, str) else json.dumps(line)}")


def _ago(text: str) -> str:
    """How long ago a time was."""
    try:
        seconds = (datetime.now().astimezone() - datetime.fromisoformat(text)).total_seconds()
    except (TypeError, ValueError):
        return "never"
    for length, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds // length:,.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"


def _clock(text: str) -> str:
    """A time in local form; other texts unchanged."""
    try:
        return f"{datetime.fromisoformat(text).astimezone():%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return text or "–"


def ledger(
    site: Annotated[Path, argument("SITE.toml", "The site file.")] = Path("site.toml"),
    state: State = None,
    since: Annotated[
        str | None,
        option("WHEN", "Leave out what is older: a date, a UTC instant, or 90m, 12h, 7d, 2w ago."),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV, all columns.")] = False,
    as_json: Json = False,
) -> Facts:
    """Show everything that left this site; the site may be taking part meanwhile."""
    from fedkoopman.config.site_file import SiteFile
    from fedkoopman.deploy.site.ledger import LedgerEntry, ledger_entries
    from fedkoopman.deploy.site.store import state_directory

    if as_json and as_csv:
        raise InputError("both --json and --csv are given: give one of them")
    first = None if since is None else instant(since, datetime.now(UTC))
    if state is None:
        state = state_directory(site, SiteFile.load(site).name)
    entries = ledger_entries(state, first)
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([field.name for field in fields(LedgerEntry)])
        writer.writerows(asdict(entry).values() for entry in entries)
    elif not entries:
        typer.echo(f"nothing has left this site{' since then' if since else ' yet'}")
    else:
        _show_entries(entries)
    return {"state": state, "entries": entries}


def instant(text: str, now: datetime) -> datetime:
    """A date or instant, in UTC unless it has a time zone; or a time before now, as "12h"."""
    ago = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip())
    try:
        if ago:
            return now - timedelta(**{UNITS[ago[2]]: int(ago[1])})
        found = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise InputError(
            f"--since is {short(text)}: give a date as 2026-05-01, an instant as 2026-05-01T12:00, "
            "or so long ago as 90m, 12h, 7d or 2w"
        ) from None
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def _show_entries(entries: "list[LedgerEntry]") -> None:
    from fedkoopman.deploy.site.ledger import ledger_totals
    from fedkoopman.reports.tables import new_table, plain_console

    table = new_table("when (UTC)", "to whom", right=("slot", "bytes"))
    table.add_column("what")
    for entry in entries:
        when = entry.time[:19].replace("T", " ")
        slot = "–" if entry.slot is None else str(entry.slot)
        table.add_row(when, entry.peer, slot, f"{entry.bytes:,}", entry.words)
    totals = new_table("in all", right=("times", "bytes"))
    for kinds, (times, amount) in ledger_totals(entries).items():
        totals.add_row(kinds, f"{times:,}", f"{amount:,}")
    plain_console().print(table, totals)
