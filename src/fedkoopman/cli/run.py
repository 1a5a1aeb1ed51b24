"""`fedkoopman run`: a study in, a run directory with model, records and report out."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkoopman.cli.closing import Facts
from fedkoopman.cli.companion import companion
from fedkoopman.cli.options import Bar, Seeds, Settings, StudyFile, Watch, option, read_study
from fedkoopman.cli.process import keep_compiled, tell_next
from fedkoopman.cli.progress import site_progress, slot_progress
from fedkoopman.cli.watch import watching
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.signals import Interrupted, raise_if_interrupted

if TYPE_CHECKING:
    from fedkoopman.config.study import Study

EXAMPLE = """
fedkoopman run --set slots=50 --seeds 2 --out runs/two-seeds
"""

ROWS = {
    "l1": "ℓ1  linear dynamics",
    "l2": "ℓ2  reconstruction",
    "l3": "ℓ3  prediction",
    "E": "E   prediction error",
    "horizon": "horizon  valid steps",
}
SHOWN = 10
"""Dropped segments that are named, per site."""


def run(
    study: StudyFile = None,
    set_values: Settings = None,
    seeds: Seeds = None,
    recommended: Annotated[
        bool,
        typer.Option(
            "--recommended",
            help="Learn the model kind, and estimate states the way, that we recommend; otherwise "
            "as the study says, or as the paper does.",
        ),
    ] = False,
    out: Annotated[
        Path | None, option("DIR", "Directory of the run; otherwise runs/ and the study's name.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the run in DIR; without STUDY.toml, with the study it was begun with.",
        ),
    ] = False,
    beside: Annotated[
        Path | None,
        option("DIR", "Another run, whose numbers and forecast the report shows beside."),
    ] = None,
    watch: Watch = False,
    track: Annotated[
        str | None,
        option(
            "tensorboard|mlflow",
            "Log every slot's numbers there too, and after --resume only what is new.",
        ),
    ] = None,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone",
            help="Also learn what each simulated client would by itself, for the report: it takes "
            "about as long as one seed. Of real sites it is always told.",
        ),
    ] = False,
    progress: Bar = True,
) -> Facts:
    """Learn one shared model from all clients' observations, and report on it."""
    from fedkoopman.paths import folder_name

    if beside is not None and not (beside / "study.toml").is_file():
        raise InputError(f"--beside {beside} is no run directory: give one that a run has made")
    if track is not None:
        from fedkoopman.reports.tracking import check_tracker

        check_tracker(track)
    keep_compiled()
    if resume and study is None and out is not None:
        chosen = _resumed(out, set_values)
    else:
        chosen = read_study(study, set_values, recommended)
    out = out or Path("runs") / folder_name(chosen.name)
    with watching(watch, out), _tracked(track, out):
        summary = _run(chosen, seeds, out, resume, progress, alone)

        from fedkoopman.reports.run import write_report

        report = write_report(out, beside)
        _show(summary)
    nested = out / f"seed-{summary['seeds'][0]}"
    model = (nested if nested.is_dir() else out) / "model.safetensors"
    typer.echo(f"model: {model}")
    typer.echo(f"report: {report}")
    _check_outcome(summary)
    if summary.get("sites"):
        tell_next("inspect", model)
    return {**summary, "directory": out, "model": model, "report": report}


def _tracked(name: str | None, out: Path) -> AbstractContextManager[None]:
    """Let another process log what the run records."""
    if name is None:
        return nullcontext()
    module = "fedkoopman.reports.tracking"
    return companion(f"logging to {name}", module, name, str(out.absolute()), ends=60.0)


def _check_outcome(summary: Mapping[str, Any]) -> None:
    """Report a model that is useless: untrained, or diverged."""
    refused, rounds = summary["refused"], summary["rounds"] * len(summary["seeds"])
    if refused and refused >= rounds:
        raise ComputationError(
            f"all {refused} updates were refused, not being finite, so the model is the untrained "
            "one: lower training.learning_rate, or look at the data"
        )
    if summary["loss"]["mean"] is None:
        raise ComputationError(
            "the model diverged, its losses in the last slots are not finite: lower "
            "training.learning_rate, or look at the data"
        )
    if not rounds:
        typer.echo(
            "note: no client ever trained, so the model is the untrained one: more slots, a larger "
            "clients.probability or a smaller policy.segments would change that",
            err=True,
        )


def _resumed(out: Path, pairs: Sequence[str] | None) -> "Study":
    """The study of the run in a directory; without one, a new study if the settings make one."""
    from fedkoopman.runs.run_directory import study_in

    if not pairs:
        return study_in(out)
    path = out / "study.toml"
    return read_study(path if path.is_file() else None, pairs)


def _run(
    study: "Study", seeds: int | None, out: Path, resume: bool, progress: bool, alone: bool
) -> dict[str, Any]:
    from fedkoopman.runs.run import Progress
    from fedkoopman.runs.run import run as run_study

    sites = None
    if study.sites.files:
        from fedkoopman.runs.run_directory import RunDirectory
        from fedkoopman.runs.site_preparation import prepared_sites

        RunDirectory.foresee(out, study, resume)
        with site_progress(progress) as tell_sites:
            sites = prepared_sites(study, tell_sites)
        for note in sites.notes:
            typer.echo(f"note: {note}", err=True)
    raise_if_interrupted()
    count = seeds or (len(list(out.glob("seed-*"))) if resume else 0) or 1
    with slot_progress(progress, study.slots * count) as (tally, show):

        def tell(event: Progress) -> None:
            tally.add(event)
            show()

        try:
            return run_study(
                study,
                seeds=seeds,
                out=out,
                resume=resume,
                progress=tell,
                sites=sites,
                alone=alone,
            ).summary
        except KeyboardInterrupt:
            if not (out / "run.json").is_file():
                raise
            command = shlex.join(["fedkoopman", "run", "--resume", "--out", str(out)])
            at = f" at slot {min(tally.reached.values())}" if tally.reached else ""
            raise Interrupted(f"saved{at}; go on with: {command}") from None


def _show(summary: Mapping[str, Any]) -> None:
    """Print what was reached."""
    from fedkoopman.reports.tables import new_table, plain_console
    from fedkoopman.reports.wording import spread_text

    seeds = summary["seeds"]
    several = len(seeds) > 1
    tail = f"last {summary['tail_slots']} slots, mean{' ± std' if several else ''}"
    table = new_table(f"{len(seeds)} seeds" if several else f"seed {seeds[0]}", right=(tail,))
    for name, row in ROWS.items():
        table.add_row(row, spread_text(summary[name], several))
    for name, row in (
        ("dropped", "segments dropped, their estimates having diverged"),
        ("left_out", "samples left out, being too uncertain"),
        ("refused", "updates refused, not being finite"),
    ):
        if summary.get(name):
            table.add_row(row, f"{summary[name]:g}")
    table.add_row("seconds", f"{summary['seconds']:.1f}")
    plain_console().print(table)
    for sentence in summary.get("trust", {}).get("sentences", ()):
        typer.echo(sentence)
    if "privacy" in summary:
        from fedkoopman.federation.privacy import privacy_sentence

        typer.echo(f"privacy: {privacy_sentence(summary['privacy'])}")
    if summary.get("sites"):
        _show_sites(summary)
    from fedkoopman.reports.benefit import show_benefit

    show_benefit(summary)


def _show_sites(summary: Mapping[str, Any]) -> None:
    """Print how well held-out observations are predicted, and what was estimated on the way."""
    from fedkoopman.reports.tables import new_table, plain_console, site_errors

    steps = len(next(iter(summary["sites"].values()))["observation_error"])
    table = new_table(
        "site",
        right=("1 step ahead", f"{steps} steps", f"{steps} steps, holding", "noise"),
        title="held-out observations, root mean square error",
        title_justify="left",
        title_style="",
    )
    for name, site in summary["sites"].items():
        table.add_row(name, *site_errors(site))
    plain_console().print(table)
    for name, site in summary["sites"].items():
        for key, words in (("dropped", "dropped"), ("left_out", "left out")):
            reasons = site.get(key, [])
            for reason in reasons[:SHOWN]:
                typer.echo(f"{words} at {name}: {reason}", err=True)
            if len(reasons) > SHOWN:
                more = len(reasons) - SHOWN
                typer.echo(f"{words} at {name}: {more} more, see summary.json", err=True)
    for name, value in summary["parameters"].items():
        typer.echo(f"estimated: {name} = {value['mean']:.4g} ± {value['std']:.2g}")
