"""`fedkoopman check`: is the data sound, and is it what the site files say it is?"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkoopman.cli.compilation import keep_compiled
from fedkoopman.cli.config import Settings, read_study
from fedkoopman.cli.next_step import tell_next
from fedkoopman.cli.progress import site_progress
from fedkoopman.cli.run import Bar

if TYPE_CHECKING:
    from fedkoopman.survey.site_check import SiteCheck

EXAMPLE = """
fedkoopman init swings --example pendulum
fedkoopman check swings/study.toml
"""
WIDE = 140
"""Columns where the output goes into a file."""


def check(
    study: Annotated[
        Path, typer.Argument(metavar="STUDY.toml", help="A study file.", show_default=False)
    ],
    set_values: Settings = None,
    progress: Bar = True,
) -> None:
    """Check a study and all its sites' data before anything runs, with plain verdicts."""
    from fedkoopman.paths import folder_name

    keep_compiled()
    chosen = read_study(study, set_values)
    if not chosen.sites.files:
        typer.echo(f"{study} is sound; its clients are simulated, so there is no data to check")
    else:
        from fedkoopman.survey.site_check import check_sites

        with site_progress(progress) as tell:
            found, parameters = check_sites(chosen, tell)
        for one in found:
            _show(one)
        for name, (value, spread) in parameters.items():
            typer.echo(f"estimated: {name} = {value:.4g} ± {spread:.2g}")
    tell_next("run", study, "--out", Path("runs") / folder_name(chosen.name))


def _show(one: "SiteCheck") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    found = one.survey
    shortest, median, longest = found.lengths
    held = len(found.held_out)
    typer.echo(
        f"{found.site}: {_counted(found.files, 'file')}, "
        f"{_counted(len(found.segments), 'segment')} ({held} held out) of {shortest:,} to "
        f"{longest:,} samples (median {median:,.0f}), {found.samples:,} in all; "
        f"{_counted(found.gaps, 'gap')}"
        + (f", the longest of {_counted(found.longest_gap, 'sample')}" if found.gaps else "")
    )
    table = Table(box=box.SIMPLE)
    noise = ("declared σ", "estimated σ")
    for column in ("channel", "lowest", "highest", "mean", "std", "missing", *noise):
        table.add_column(column, justify="left" if column == "channel" else "right")
    for i, channel in enumerate(found.channels):
        numbers = (channel.low, channel.high, channel.mean, channel.std)
        declared = "auto" if one.declared is None else _short(math.sqrt(one.declared[i]))
        estimated = _short(math.sqrt(one.estimated[i]))
        missing = f"{channel.missing:.1%}"
        table.add_row(channel.name, *map(_short, numbers), missing, declared, estimated)
    console = Console(markup=False)
    if not console.is_terminal:
        console = Console(markup=False, width=WIDE)
    console.print(table)
    typer.echo(f"  filter: {one.consistency}")
    typer.echo(f"  verdict: {one.verdict}")
    for note in (*found.notes, *one.notes):
        typer.echo(f"  note: {note}")
    typer.echo("")


def _counted(amount: int, noun: str) -> str:
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def _short(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "–"
