"""`fedkoopman reproduce`: the paper's tables and figures, each by its name.

What is finished is never computed again: runs lie in a directory that all items share, numbers in
a file of each item; the same command goes on where it was interrupted.
"""

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkoopman.cli.closing import Facts
from fedkoopman.cli.options import Bar, argument, option, whole
from fedkoopman.cli.process import keep_compiled
from fedkoopman.errors import InputError, unknown_name
from fedkoopman.paper.items import CATALOGUE, FEW, MANY, About
from fedkoopman.signals import Interrupted, raise_if_interrupted

if TYPE_CHECKING:
    from fedkoopman.paper.files import Saved
    from fedkoopman.paper.items import Item, Options, Reproduced
    from fedkoopman.runs.run import Progress

EXAMPLE = """
fedkoopman reproduce fig-comparison --fast --out trial
"""
ALL = "all"
FAST_SEEDS, MOST_SEEDS = 2, 1000
TRAJECTORIES = 800
SHOWN = 3
"""Up to so many items are printed in full; of more, the verdicts are counted."""
FAST = "made with --fast"


def reproduce(
    items: Annotated[
        list[str] | None,
        argument("ITEM…", "Names of tables and figures, or “all”; --list shows them."),
    ] = None,
    seeds: Annotated[
        int | None,
        option(
            "N",
            f"Seeds of every run, added to those that are there; otherwise {MANY}, fewer where a "
            f"seed takes long (the paper's {FEW} at least), and {FAST_SEEDS} with --fast.",
            parser=whole(1, MOST_SEEDS),
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "DIR",
            "Directory for pages, figures, data and runs; otherwise reproduction, or "
            "reproduction-fast. In one that has them, finished work is not done again.",
        ),
    ] = None,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Few seeds and slots: everything once, nothing to conclude."),
    ] = False,
    data: Annotated[
        Path | None,
        option(
            "PATH",
            "The measured double pendulum: its folder, or the authors' Video_Tracking_Data.zip.",
            envvar="FEDKOOPMAN_DOUBLE_PENDULUM",
        ),
    ] = None,
    trajectories: Annotated[
        int,
        option("COUNT", "Trajectories of table-estimators; the paper takes 10.", parser=whole(2)),
    ] = TRAJECTORIES,
    seed: Annotated[int, option("SEED", "The first seed.", parser=whole(0))] = 0,
    progress: Bar = True,
    list_items: Annotated[
        bool, typer.Option("--list", help="List what can be reproduced and exit.")
    ] = False,
) -> Facts:
    """Reproduce tables and figures of the paper: ours beside the paper's, with verdicts."""
    if list_items:
        for about in CATALOGUE.values():
            typer.echo(f"{about.name:<20} {about.paper:<10} {about.title}")
        return {"items": list(CATALOGUE.values())}
    chosen = _chosen(items or [])
    out = out or Path("reproduction-fast" if fast else "reproduction")
    _check_directory(out)
    if data is None and not _without_data(chosen, items or []):
        return {"items": []}
    keep_compiled()

    from fedkoopman.paper.items import Options

    count = seeds or (FAST_SEEDS if fast else None)
    options = Options(out / "runs", count, seed, fast, data, trajectories)
    again = _again(items or [], options, seeds, out)
    return _reproduce(chosen, options, out, again, progress)


def _chosen(names: Sequence[str]) -> list[About]:
    if not names:
        raise InputError(f"which item? name some of: {', '.join(CATALOGUE)}, or {ALL}")
    for name in names:
        if name != ALL and name not in CATALOGUE:
            raise unknown_name("item", name, [*CATALOGUE, ALL])
    return [about for name, about in CATALOGUE.items() if name in names or ALL in names]


def _check_directory(out: Path) -> None:
    if str(out) in ("", "."):
        raise InputError(f"--out is {str(out)!r}: name a directory for the results alone")
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file: give a directory")
    if not out.absolute().parent.is_dir():
        raise InputError(f"--out {out}: there is no directory {out.parent}, create it first")
    if not os.access(out if out.exists() else out.absolute().parent, os.W_OK):
        raise InputError(f"--out {out}: no permission to write there, choose another directory")


def _without_data(chosen: list[About], names: Sequence[str]) -> bool:
    """Leave out what needs data that was not given, unless it was asked for by name."""
    for about in [about for about in chosen if about.needs_data]:
        from fedkoopman.paper.double_pendulum_data import SOURCE

        need = f"{about.name} needs --data PATH: {SOURCE}"
        if about.name in names:
            raise InputError(need)
        typer.echo(f"left out: {need}", err=True)
        chosen.remove(about)
    return bool(chosen)


def _again(
    items: Sequence[str], options: "Options", seeds: int | None, out: Path
) -> Callable[[Sequence[str], bool], str]:
    """The command that makes items again, all if none is named; here, or as it stands in a page."""

    def command(names: Sequence[str], here: bool) -> str:
        names = names or items
        words = ["fedkoopman", "reproduce", *names]
        words += ["--seeds", str(seeds)] if seeds else []
        words += ["--seed", str(options.seed)] if options.seed else []
        if options.trajectories != TRAJECTORIES:
            words += ["--trajectories", str(options.trajectories)]
        if options.data and any(n == ALL or CATALOGUE[n].needs_data for n in names):
            words += ["--data", str(options.data) if here else "PATH"]
        words += ["--fast"] if options.fast else []
        words += ["--out", str(out)] if here else []
        return shlex.join(words)

    return command


def _reproduce(
    chosen: list[About],
    options: "Options",
    out: Path,
    again: Callable[[Sequence[str], bool], str],
    bar: bool,
) -> Facts:
    from fedkoopman.paper import files
    from fedkoopman.paper.pages import show, show_counts

    modules: dict[str, Item] = {about.name: import_module(about.module).ITEM for about in chosen}
    held = {name: saved for name in CATALOGUE if (saved := files.read_saved(out, name)) is not None}
    for name, saved in held.items():
        if saved.fast != options.fast:
            how = "with" if saved.fast else "without"
            raise InputError(f"{out} holds {name} made {how} --fast: choose another --out")
    # What cannot be computed is refused before anything is.
    settings = {name: item.settings(options) for name, item in modules.items()}
    total = sum(item.slots(options) for item in modules.values())
    made: dict[str, Reproduced] = {}
    try:
        with _progress(bar, total) as (at, tell):
            for name, item in modules.items():
                at(name, item.slots(options))
                if name not in held or files.read_numbers(out, name, settings[name]) is None:
                    found, command = item.compute(options, tell), again([name], False)
                    data = files.write_numbers(
                        out, name, settings[name], found, command, options.fast
                    )
                    held[name] = files.Saved(name, command, options.fast, settings[name], data)
                made[name] = _judged(held[name])
                files.write_item(out, made[name])
    except KeyboardInterrupt:
        raise Interrupted(f"finished work is kept; go on with: {again([], True)}") from None
    if len(made) > SHOWN:
        show_counts(list(made.values()))
    else:
        for one in made.values():
            show(one)
    # The index has all items of the directory, also those of earlier commands.
    every = [made.get(name) or _judged(held[name]) for name in CATALOGUE if name in held]
    report = files.write_index(out, every)[0]
    typer.echo(f"report: {report}")
    items = [
        {
            "name": one.name,
            "paper": one.paper,
            "title": one.title,
            "fast": one.fast,
            "command": one.command,
            "claims": one.findings.claims,
        }
        for one in made.values()
    ]
    return {"items": items, "directory": out, "report": report}


def _judged(saved: "Saved") -> "Reproduced":
    """What an item's numbers say."""
    from fedkoopman.paper.items import Reproduced

    about = CATALOGUE[saved.item]
    findings = import_module(about.module).ITEM.findings(saved.data)
    if saved.fast:
        findings = findings.left_open(FAST)
    return Reproduced(about.name, about.paper, about.title, saved.command, findings, saved.fast)


@contextmanager
def _progress(
    wanted: bool, total: int
) -> Iterator[tuple[Callable[[str, int], None], Callable[["str | Progress"], None]]]:
    """Show how far all items have come: slots of their runs, and steps of items without runs."""
    from fedkoopman.cli.progress import slot_progress

    with slot_progress(wanted, max(total, 1)) as (tally, show):
        name, passed, slots = "", 0, 0

        def at(item: str, its_slots: int) -> None:
            nonlocal name, passed, slots
            name, passed, slots = item, passed + slots, its_slots
            tally.following(name, passed)
            show()

        def tell(what: "str | Progress", /) -> None:
            raise_if_interrupted()
            if isinstance(what, str):
                tally.following(f"{name}, {what}", tally.done)
            else:
                tally.add(what)
            show()

        yield at, tell
