"""`fedkoopman ledger`: everything that left a site, when, to whom and how much."""

import csv
import json
import re
import sys
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkoopman.errors import InputError, short

if TYPE_CHECKING:
    from fedkoopman.deploy.site.ledger import LedgerEntry

EXAMPLE = """
fedkoopman ledger lab-a/site.toml --since 7d
"""
WIDE = 140
"""Columns if the output does not go to a terminal."""
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


State = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where the site keeps its state; otherwise .fedkoopman/NAME beside the site file.",
        show_default=False,
    ),
]


def ledger(
    site: Annotated[
        Path, typer.Argument(metavar="SITE.toml", help="The site file.", show_default=True)
    ] = Path("site.toml"),
    state: State = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Leave out what is older: a date, a UTC instant, or 90m, 12h, 7d, 2w ago.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list, all columns.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV, all columns.")] = False,
) -> None:
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
    if as_json:
        typer.echo(json.dumps([asdict(entry) for entry in entries], indent=1))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([field.name for field in fields(LedgerEntry)])
        writer.writerows(asdict(entry).values() for entry in entries)
    elif not entries:
        typer.echo(f"nothing has left this site{' since then' if since else ' yet'}")
    else:
        _show(entries)


def instant(text: str, now: datetime) -> datetime:
    """A date or instant, in UTC unless it has a time zone; or a time before now.

    Arguments:
        text: as "2026-05-01", "2026-05-01T12:00", "12h".
        now: the current time.
    """
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


def _show(entries: "list[LedgerEntry]") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from fedkoopman.deploy.site.ledger import ledger_totals

    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, width=WIDE)
    table = Table("when (UTC)", "to whom", "slot", "bytes", "what", box=box.SIMPLE)
    for column in table.columns[2:4]:
        column.justify = "right"
    for entry in entries:
        when = entry.time[:19].replace("T", " ")
        slot = "–" if entry.slot is None else str(entry.slot)
        table.add_row(when, entry.peer, slot, f"{entry.bytes:,}", entry.words)
    console.print(table)
    totals = Table("in all", "times", "bytes", box=box.SIMPLE)
    for column in totals.columns[1:]:
        column.justify = "right"
    for kinds, (times, amount) in ledger_totals(entries).items():
        totals.add_row(kinds, f"{times:,}", f"{amount:,}")
    console.print(totals)
