"""`fedkoopman reproduce`: the paper's tables and figures, each by its name.

What is finished is never computed again: runs lie in a directory that all items share, numbers in
a file of each item; the same command goes on where it was interrupted.
"""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkoopman.cli.closing import Facts
from fedkoopman.cli.options import Bar, Settings, argument, option, settings, whole
from fedkoopman.cli.process import keep_compiled
from fedkoopman.errors import InputError, unknown_name
from fedkoopman.paper.items import CATALOGUE, FEW, MANY, About, item_named
from fedkoopman.paths import folder_name
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
        argument(
            "ITEM…",
            "Names of tables and figures, or their places in the paper, as fig-6 or table-iv; or "
            "“all”. --list shows them.",
        ),
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
            "Directory for pages, figures, data and runs; otherwise reproduction, with -fast and "
            "what is set after it. In one that has them, finished work is not done again.",
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
    set_values: Settings = None,
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
    items = _names(items or [])
    chosen = [about for name, about in CATALOGUE.items() if name in items or ALL in items]
    changes = settings(set_values)
    out = out or _usual(fast, changes)
    _check_directory(out)
    _check_changes(chosen, items, changes)
    if not chosen or (data is None and not _without_data(chosen, items)):
        return {"items": []}
    keep_compiled()

    from fedkoopman.paper.items import Options

    count = seeds or (FAST_SEEDS if fast else None)
    runs, pairs = out / "runs", tuple(changes.items())
    options = Options(runs, count, seed, fast, data, trajectories, pairs)
    again = _again(items, options, seeds, out)
    return _reproduce(chosen, items, options, out, again, progress)


def _names(given: Sequence[str]) -> list[str]:
    """The items' own names of what was asked for."""
    if not given:
        raise InputError(f"which item? name some of: {', '.join(CATALOGUE)}, or {ALL}")
    names = []
    for name in given:
        about = item_named(name)
        if about is None and name.casefold() != ALL:
            raise unknown_name("item", name, [*CATALOGUE, ALL])
        names.append(ALL if about is None else about.name)
    return list(dict.fromkeys(names))


def _usual(fast: bool, changes: Mapping[str, str]) -> Path:
    """The directory of items of one setting, apart from those of others."""
    words = ["reproduction", *(["fast"] if fast else [])]
    return Path(folder_name("-".join([*words, *(f"{k}={v}" for k, v in changes.items())])))


def _check_changes(chosen: list[About], names: Sequence[str], changes: Mapping[str, str]) -> None:
    """Leave out what no study is behind, unless it was asked for by name."""
    for about in [about for about in chosen if changes and not about.runs]:
        if about.name in names:
            raise InputError(f"{about.name} runs no study, so --set changes nothing of it")
        _tell_left_out(f"{about.name}, which runs no study to --set")
        chosen.remove(about)


def _tell_left_out(what: str) -> None:
    typer.echo(f"left out: {what}", err=True)


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
        _tell_left_out(need)
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
        for key, value in options.changes:
            words += ["--set", f"{key}={value}"]
        words += ["--fast"] if options.fast else []
        words += ["--out", str(out)] if here else []
        return shlex.join(words)

    return command


def _reproduce(
    chosen: list[About],
    named: Sequence[str],
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
        if saved.changes != options.told_changes:
            made_with = f"--set {saved.changes}" if saved.changes else "the paper's setting"
            raise InputError(f"{out} holds {name} made with {made_with}: choose another --out")
    # What cannot be computed is refused before anything is.
    known = {}
    for name, item in list(modules.items()):
        try:
            known[name] = item.settings(options)
        except InputError as error:
            if not options.changes or name in named:
                raise
            _tell_left_out(f"{name}: {error}")
            del modules[name]
    total = sum(item.slots(options) for item in modules.values())
    made: dict[str, Reproduced] = {}
    try:
        with _progress(bar, total) as (at, tell):
            for name, item in modules.items():
                at(name, item.slots(options))
                if name not in held or files.read_numbers(out, name, known[name]) is None:
                    found, command = item.compute(options, tell), again([name], False)
                    data = files.write_numbers(
                        out, name, known[name], found, command, options.fast,
                        options.told_changes,
                    )  # fmt: skip
                    held[name] = files.Saved(
                        name, command, options.fast, known[name], data, options.told_changes
                    )
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
    reasons = [FAST] if saved.fast else []
    reasons += [f"made with --set {saved.changes}, not the paper's setting"] * bool(saved.changes)
    if reasons:
        findings = findings.left_open("; ".join(reasons))
    return Reproduced(
        about.name, about.paper, about.title, saved.command, findings, saved.fast, saved.changes
    )


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
