"""Verbs on a study before it runs: `fedkoopman init`, `fedkoopman config`, `fedkoopman check`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkoopman.cli.closing import Facts
from fedkoopman.cli.options import Bar, Settings, StudyFile, argument, option, read_study
from fedkoopman.cli.process import keep_compiled, tell_next
from fedkoopman.cli.progress import site_progress
from fedkoopman.errors import InputError

if TYPE_CHECKING:
    from fedkoopman.survey.site_check import SiteCheck

INIT_EXAMPLE = """
fedkoopman init swings --example pendulum
"""
CHECK_EXAMPLE = """
fedkoopman init swings --example pendulum
fedkoopman check swings/study.toml
"""
CONFIG_EXAMPLE = """
fedkoopman config --set slots=50 --set training.epochs=5 > study.toml
"""
SITES = "site-a,site-b,site-c"


def init(
    directory: Annotated[Path, argument("DIR", "The new directory.")],
    example: Annotated[
        str | None,
        option(
            "NAME", "Fill it with a worked example and made-up data: pendulum, regimes or swing-up."
        ),
    ] = None,
    sites: Annotated[
        str | None, option("NAME,NAME", f"Names of the sites; otherwise {SITES}.")
    ] = None,
) -> None:
    """Begin a study of data from several sites: study.toml, a site.toml per site, dynamics.py."""
    if example is not None and sites is not None:
        raise InputError("--example brings its own sites: leave out --sites")

    from fedkoopman.config.scaffold import example_files, plain_files, write_scaffold

    if example is not None:
        content = example_files(example)
    else:
        names = [name.strip() for name in (sites or SITES).split(",")]
        content = plain_files(directory.resolve().name, names)
    write_scaffold(directory, content)
    typer.echo(f"wrote {directory}: {len(content)} files, study.toml among them")
    if example is None:
        typer.echo(
            f"next: put data beside each site.toml and describe it, see {directory}/README.md"
        )
    tell_next("check", directory / "study.toml")


def config(study: StudyFile = None, set_values: Settings = None) -> None:
    """Print a study with every key, what it means and what it may be; the default, or yours."""
    typer.echo(read_study(study, set_values).to_toml(comments=True), nl=False)


def check(
    study: Annotated[Path, argument("STUDY.toml", "A study file.")],
    set_values: Settings = None,
    progress: Bar = True,
) -> Facts:
    """Check a study and all its sites' data before anything runs, with plain verdicts."""
    from fedkoopman.paths import folder_name

    keep_compiled()
    chosen = read_study(study, set_values)
    facts: dict[str, Any] = {"study": study, "name": chosen.name, "sites": [], "parameters": {}}
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
            facts["parameters"][name] = {"mean": value, "std": spread}
        facts["sites"] = list(map(_facts, found))
    tell_next("run", study, "--out", Path("runs") / folder_name(chosen.name))
    return facts


def _facts(one: "SiteCheck") -> Facts:
    found = one.survey
    return {
        "site": found.site,
        "files": found.files,
        "segments": len(found.segments),
        "held_out": len(found.held_out),
        "samples": found.samples,
        "lengths": dict(zip(("shortest", "median", "longest"), found.lengths, strict=True)),
        "gaps": found.gaps,
        "longest_gap": found.longest_gap,
        "channels": found.channels,
        "declared_variances": one.declared,
        "estimated_variances": one.estimated,
        "filter": str(one.consistency),
        "verdict": str(one.verdict),
        "notes": [*found.notes, *one.notes],
    }


def _show(one: "SiteCheck") -> None:
    from fedkoopman.reports.tables import new_table, plain_console
    from fedkoopman.reports.wording import counted

    found = one.survey
    shortest, median, longest = found.lengths
    held = len(found.held_out)
    typer.echo(
        f"{found.site}: {counted(found.files, 'file')}, "
        f"{counted(len(found.segments), 'segment')} ({held} held out) of {shortest:,} to "
        f"{longest:,} samples (median {median:,.0f}), {found.samples:,} in all; "
        f"{counted(found.gaps, 'gap')}"
        + (f", the longest of {counted(found.longest_gap, 'sample')}" if found.gaps else "")
    )
    columns = ("lowest", "highest", "mean", "std", "missing", "declared σ", "estimated σ")
    table = new_table("channel", right=columns)
    for i, channel in enumerate(found.channels):
        numbers = (channel.low, channel.high, channel.mean, channel.std)
        declared = "auto" if one.declared is None else _short(math.sqrt(one.declared[i]))
        estimated = _short(math.sqrt(one.estimated[i]))
        missing = f"{channel.missing:.1%}"
        table.add_row(channel.name, *map(_short, numbers), missing, declared, estimated)
    plain_console().print(table)
    typer.echo(f"  filter: {one.consistency}")
    typer.echo(f"  verdict: {one.verdict}")
    for note in (*found.notes, *one.notes):
        typer.echo(f"  note: {note}")
    typer.echo("")


def _short(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "–"
