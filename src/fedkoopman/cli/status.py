"""`fedkoopman status`: the state of a served run, at its server or at a site."""

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from fedkoopman.errors import InputError

EXAMPLE = """
fedkoopman status runs/pendulum
"""

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
}
"""What is shown of a site, by the keys of its status."""


def status(
    where: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|SITE.toml",
            help="The run directory of fedkoopman serve; or a site file, or a site's state.",
            show_default=False,
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole status as JSON.")
    ] = False,
    readmit: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Ask the server to readmit a site that it has set aside.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the state of a federation: its slot, its sites, what waits and what was rejected."""
    folder, found = _found(where)
    of_site = "site" in found
    if readmit is not None:
        from fedkoopman.deploy.server.status import request_readmission

        if of_site:
            raise InputError(f"{where} is a site's: --readmit is for the server's run directory")
        request_readmission(folder, readmit)
        typer.echo(f"the server readmits {readmit} before its next slot")
        return
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    elif of_site:
        _show_site(found)
    else:
        _show_server(found, folder)


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
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from fedkoopman.deploy.server.status import EXPIRY_DAYS, alive, days_left

    running = alive(found)
    step = found["step"]
    if not running and step not in ("finished", "stopped"):
        step = f"NOT RUNNING (it was {step})"
    typer.echo(
        f"{found['study']}: slot {found['slot']:,} of {found.get('slots', 0):,}, {step}, "
        f"as of {_clock(found['updated'])}"
    )
    table = Table(box=box.SIMPLE)
    for column in ("site", "", "seen"):
        table.add_column(column, no_wrap=True)
    for column in ("waiting", "trained", "rejected", "slot"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, about in found["sites"].items():
        table.add_row(
            name,
            _standing(about, running),
            _ago(about["last_seen"]),
            f"{about['buffered']:,}",
            f"{about['trained_samples']:,}",
            f"{about['rejected']:,}",
            f"{about['included']:,}",
        )
    Console(markup=False).print(table)
    typer.echo("waiting and trained are in samples; slot is the last that trained on its data")
    for name, about in found["sites"].items():
        if about["last_rejection"]:
            typer.echo(f"last rejection: {name} {about['last_rejection']}")
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


def _standing(about: Mapping[str, Any], running: bool) -> str:
    if about["revoked"]:
        return "revoked"
    if about["set_aside"]:
        return "SET ASIDE"
    if not running:
        return ""
    if not about["online"]:
        return "away"
    return "silent" if about.get("missed") else "online"


def _show_site(found: Mapping[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_header=False)
    for key, words in SITE.items():
        if key in found:
            value = found[key]
            shown = f"{value:,}" if isinstance(value, int) else _clock(str(value))
            table.add_row(words, shown)
    Console(markup=False).print(table)
    for key, words in (("dropped", "not used"), ("set_aside", "file set aside")):
        for line in found.get(key) or []:
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
