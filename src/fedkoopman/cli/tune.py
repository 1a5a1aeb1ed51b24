"""`fedkoopman tune`: a better study of the same system and data, found by short runs first."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkoopman.cli.closing import Facts
from fedkoopman.cli.options import Bar, Settings, StudyFile, option, read_study, whole
from fedkoopman.cli.process import keep_compiled, tell_next
from fedkoopman.cli.progress import slot_progress
from fedkoopman.errors import InputError
from fedkoopman.signals import Interrupted

if TYPE_CHECKING:
    from fedkoopman.config.study import Study
    from fedkoopman.runs.tune import Trial, TuneProgress, Tuning

EXAMPLE = """
fedkoopman tune --set slots=64 --set system.name=van-der-pol --budget 4 --out tuned
"""


def tune(
    study: StudyFile = None,
    set_values: Settings = None,
    budget: Annotated[
        int | None,
        option(
            "N",
            "All trials together may take as many slots as N runs of the study, with each seed; "
            "otherwise 10.",
            parser=whole(1),
        ),
    ] = None,
    seed: Annotated[
        int | None,
        option(
            "N",
            "First seed of the trials, and of the draw of candidates; otherwise the study's + "
            "1,000,000, so that nothing is chosen on the test set of the study's own run.",
            parser=whole(0),
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        option(
            "N",
            "Run each trial with N seeds; otherwise 3 where clients are simulated, else 1.",
            parser=whole(1),
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option("DIR", "Directory of the tuning; otherwise runs/ and the study's name with -tune."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the tuning in DIR: finished trials are not run again. Without "
            "STUDY.toml, with the study it was begun with.",
        ),
    ] = False,
    progress: Bar = True,
) -> Facts:
    """Choose model kind, dimension, width, delays and noise by successive halving."""
    from fedkoopman.paths import folder_name

    keep_compiled()
    if resume and study is None and out is not None:
        if set_values:
            raise InputError("--set with --resume: name the study file too, or leave --set out")
        from fedkoopman.runs.tune import begun

        chosen = begun(out)
    else:
        chosen = read_study(study, set_values)
    out = out or Path("runs") / folder_name(f"{chosen.name}-tune")
    options = {"budget": budget, "seed": seed, "seeds": seeds}
    found = _tune(chosen, out, options, resume, progress)
    _show(found)
    typer.echo(f"trials: {out / 'tune.json'}")
    typer.echo(f"study: {out / 'best.toml'}")
    tell_next("run", out / "best.toml", "--out", Path("runs") / folder_name(found.study.name))
    return {
        "best": found.best,
        "given": found.given,
        "leads": found.leads,
        "seeds": found.trial_seeds,
        "trials": found.trials,
        "passed_over": len(found.refused),
        "optimistic": found.optimistic,
        "verdict": verdict(found.best, found.given),
        "directory": out,
        "journal": out / "tune.json",
        "study": out / "best.toml",
    }


def _tune(
    study: "Study", out: Path, options: Mapping[str, int | None], resume: bool, progress: bool
) -> "Tuning":
    from fedkoopman.runs.tune import tune as tune_study

    with slot_progress(progress, 1) as (tally, show):

        def tell(at: "TuneProgress") -> None:
            if at.event is None:
                tally.total = at.total
                tally.following(at.title, at.passed)
            else:
                tally.add(at.event)
            show()

        try:
            return tune_study(
                study,
                out=out,
                budget=options["budget"],
                seed=options["seed"],
                seeds=options["seeds"],
                resume=resume,
                progress=tell,
            )
        except KeyboardInterrupt:
            if not (out / "tune.json").is_file():
                raise
            command = shlex.join(["fedkoopman", "tune", "--resume", "--out", str(out)])
            raise Interrupted(f"saved in {tally.title}; go on with: {command}") from None


def _show(found: "Tuning") -> None:
    """Print every candidate as far as it came, the best first, and what follows in words."""
    from fedkoopman.reports.tables import new_table, plain_console
    from fedkoopman.reports.wording import counted

    leads = list(
        dict.fromkeys((found.leads[0], found.leads[len(found.leads) // 2], found.leads[-1]))
    )
    columns = ["slots", "error / holding's", *(f"{counted(n, 'step')}" for n in leads), "seconds"]
    table = new_table("candidate", right=columns)
    last = {trial.candidate: trial for trial in found.trials}
    places = [found.leads.index(lead) for lead in leads]
    for trial in sorted(
        last.values(), key=lambda one: (one.rank == float("inf"), -one.slots, one.rank)
    ):
        errors = [trial.errors[place] if trial.errors else None for place in places]
        numbers = ["–" if one is None else f"{one:.3g}" for one in (trial.score, *errors)]
        table.add_row(
            in_words(trial.values, short=True), f"{trial.slots:,}", *numbers, f"{trial.seconds:.1f}"
        )
    plain_console().print(table)
    for trial in last.values():
        if trial.failure:
            typer.echo(f"failed: {in_words(trial.values)}: {trial.failure}", err=True)
    if found.refused:
        count = counted(len(found.refused), "combination")
        typer.echo(f"passed over: {count} of values without a valid study, see tune.json", err=True)
    typer.echo(verdict(found.best, found.given))
    if found.best.rank >= 1:
        typer.echo(
            "note: holding the last state predicts better: look at the states that it learns from "
            "first, so at noise and estimation"
        )
    if found.optimistic:
        typer.echo(
            "note: it was chosen by the held-out data that every run is judged on, so its score "
            "there is optimistic: judge it on data that were recorded later"
        )
    else:
        seeds = found.trial_seeds
        which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
        typer.echo(f"chosen on {which}; the test set of the study's own seed was not used")


def in_words(values: Mapping[str, str], short: bool = False) -> str:
    """What a candidate changes.

    Arguments:
        short: leave out the keys' sections.
    """
    names = {key: key.rpartition(".")[2] if short else key for key in values}
    return ", ".join(f"{names[k]} = {v}" for k, v in values.items()) or "the study as given"


def verdict(best: "Trial", given: "Trial") -> str:
    """The winner, and what it gains over the study as given, in one sentence."""
    assert best.score is not None  # a tuning without any score has failed
    words = f"best: {in_words(best.values)}; its held-out error is {best.score:.3g} of holding's"
    if best.candidate == given.candidate:
        return f"{words}, and no candidate came below it"
    if given.score is None:
        return f"{words}; the study as given failed: {given.failure}"
    less = 1 - best.score / given.score
    return f"{words}, {less:.0%} less than with the study as given ({given.score:.3g})"
