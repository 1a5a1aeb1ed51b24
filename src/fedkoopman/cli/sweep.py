"""`fedkoopman sweep`: a grid of studies, run one after another and tabulated."""

import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkoopman.cli.closing import Facts
from fedkoopman.cli.options import Bar, Seeds, Settings, StudyFile, option, read_study, settings
from fedkoopman.cli.process import keep_compiled
from fedkoopman.cli.progress import slot_progress
from fedkoopman.errors import InputError
from fedkoopman.signals import Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fedkoopman.config.study import Study
    from fedkoopman.runs.sweep import Combination, Grid, Result, SweepProgress

EXAMPLE = """
fedkoopman sweep --set slots=30 --out runs/first-sweep \\
  --grid training.epochs=5,10 --grid policy.segments=3,5
"""


def sweep(
    study: StudyFile = None,
    grid: Annotated[
        list[str] | None,
        option(
            "KEY=VALUE,VALUE",
            "Values of a key of the study, as in training.epochs=5,10,20; may be repeated, "
            "and all combinations are run. Lists stand in brackets.",
        ),
    ] = None,
    set_values: Settings = None,
    seeds: Seeds = None,
    out: Annotated[
        Path | None,
        option("DIR", "Directory of the sweep; otherwise runs/ and the study's name with -sweep."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the sweep in DIR: finished combinations are not run again. Without "
            "--grid, as it was begun.",
        ),
    ] = False,
    progress: Bar = True,
) -> Facts:
    """Run all combinations of some keys' values, and tabulate what each of them reaches."""
    from fedkoopman.paths import folder_name
    from fedkoopman.runs.sweep import read_grid

    keep_compiled()
    texts = read_grid(grid or ())
    for key in settings(set_values):
        if key in texts:
            raise InputError(f"--set and --grid both give {key}: give it once")
    if resume and not texts and out is not None:
        base, texts = _begun(out, study, set_values)
    elif texts:
        base = read_study(study, set_values)
    else:
        raise InputError("no --grid: name a key and its values, as --grid training.epochs=5,10,20")
    out = out or Path("runs") / folder_name(f"{base.name}-sweep")
    command = _again(base, study, set_values, out)
    results = _sweep(base, texts, seeds, out, resume, progress, command)

    from fedkoopman.reports.tables import show_sweep

    show_sweep(list(texts), results)
    typer.echo(f"report: {out / 'sweep.html'}")
    rows = [
        {"name": one.combination.name, "values": _values(texts, one), "summary": one.summary}
        for one in results
    ]
    files = {"directory": out, "report": out / "sweep.html", "table": out / "sweep.csv"}
    grid_values = {key: [*map(_value, values)] for key, values in texts.items()}
    return {"grid": grid_values, "combinations": rows, **files}


def _values(keys: "Iterable[str]", result: "Result") -> dict[str, Any]:
    """A combination's values by their keys."""
    return {k: _value(text) for k, text in zip(keys, result.combination.values, strict=True)}


def _value(text: str) -> Any:
    return tomllib.loads(f"value = {text}")["value"]


def _again(study: "Study", path: Path | None, pairs: list[str] | None, out: Path) -> str:
    """The command that goes on with a sweep."""
    words = []
    if ".py:" in study.to_toml():  # files of the user's, which the directory's study cannot find
        words = [*([str(path)] if path else []), *(w for p in pairs or () for w in ("--set", p))]
    return shlex.join(["fedkoopman", "sweep", *words, "--resume", "--out", str(out)])


def _begun(out: Path, study: Path | None, pairs: list[str] | None) -> tuple["Study", "Grid"]:
    """The study and grid of the sweep in a directory."""
    from fedkoopman.runs.sweep import recorded

    definition = recorded(out)
    if definition is None:
        raise InputError(f"{out} holds no sweep to resume: give --grid to begin one, or check DIR")
    return read_study(study or out / "study.toml", pairs), definition.grid


def _sweep(
    base: "Study",
    grid: "Grid",
    seeds: int | None,
    out: Path,
    resume: bool,
    progress: bool,
    command: str,
) -> list["Result"]:
    from fedkoopman.reports.sweep_page import write_sweep
    from fedkoopman.runs.sweep import sweep as run_sweep

    def write(combinations: "Sequence[Combination]", results: "Sequence[Result]") -> None:
        write_sweep(out, list(grid), combinations, results)

    with slot_progress(progress, 1) as (tally, show):

        def tell(event: "SweepProgress") -> None:
            if event.event is None:
                every = [event.seeds * one.study.slots for one in event.combinations]
                tally.total = sum(every)
                place, name = event.place, event.combinations[event.place].name
                tally.following(f"{place + 1} of {len(every)}: {name}", sum(every[:place]))
            else:
                tally.add(event.event)
            show()

        try:
            return run_sweep(
                base, grid, out=out, seeds=seeds, resume=resume, progress=tell, finished=write
            )
        except KeyboardInterrupt:
            if not (out / "sweep.toml").is_file():
                raise
            raise Interrupted(f"saved in {tally.title}; go on with: {command}") from None
