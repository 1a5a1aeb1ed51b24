"""A sweep: a grid of studies, each run in a directory of its own, resumable as a whole.

    sweep(Study.paper_default(), {"training.epochs": [5, 10]}, out="runs/epochs")

`DIR/study.toml` holds the study that the grid varies, `DIR/sweep.toml` the grid; both are written
before the first combination runs, and a sweep is resumed only as it was begun.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedkoopman.config.loader import parse_toml, toml_key, toml_value
from fedkoopman.config.study import Study
from fedkoopman.config.user_files import check_lasting
from fedkoopman.durable import written_whole
from fedkoopman.errors import ComputationError, InputError, system_error
from fedkoopman.paths import folder_name
from fedkoopman.runs.run import Progress, run
from fedkoopman.runs.run_directory import summary_in
from fedkoopman.runs.site_preparation import Sites, prepared_sites
from fedkoopman.systems.checks import check_count

Grid = dict[str, tuple[str, ...]]
"""TOML texts by dotted key, in the order in which they were given."""

_CLOSING = {"[": "]", "{": "}"}
MOST_PREPARED = 4
"""Prepared sites that are kept for later combinations, their states on disk."""


@dataclass(frozen=True)
class Combination:
    """One value of every key of a grid.

    Attributes:
        name: of its directory in that of the sweep, as "training.epochs=5,policy.segments=3".
        values: TOML texts, in the order of the grid's keys.
        study: the study with these values, fully checked.
    """

    name: str
    values: tuple[str, ...]
    study: Study


class SweepProgress(NamedTuple):
    """How far a sweep has come.

    Attributes:
        place: of the one that runs, from 0.
        event: a finished slot; None as a combination begins.
    """

    combinations: Sequence[Combination]
    seeds: int
    place: int
    event: Progress | None


@dataclass(frozen=True)
class Result:
    """A combination and its run's summary."""

    combination: Combination
    summary: dict[str, Any]


@dataclass(frozen=True)
class Definition:
    """What identifies a sweep.

    Attributes:
        digest: of the study that the grid varies.
        seeds: how many each combination runs.
    """

    digest: str
    seed: int
    seeds: int
    grid: Grid

    def to_toml(self) -> str:
        lines = [f"{name} = {toml_value(getattr(self, name))}" for name in _KEYS]
        lines += ["", "[grid]", *(f"{toml_key(k)} = {toml_value(v)}" for k, v in self.grid.items())]
        return "\n".join(lines) + "\n"


_KEYS = ("digest", "seed", "seeds")


def read_grid(words: Sequence[str]) -> Grid:
    """A grid from words KEY=VALUE,VALUE,… as on the command line."""
    grid: Grid = {}
    for word in words:
        key, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not key or not text:
            raise InputError(f"--grid {word!r}: write KEY=VALUE,VALUE, as training.epochs=5,10,20")
        if key in grid:
            raise InputError(f"--grid gives {key} twice: name all its values in one")
        grid[key] = tuple(split_values(text, f"--grid {word!r}"))
    return grid


def split_values(text: str, whose: str = "the list") -> list[str]:
    """Split a text at its commas, except inside brackets, braces and quotes.

    Arguments:
        text: as "[1, 1], [1, 3]", which holds two values.
        whose: begins the message if the text is no list of values.
    """
    values, depth, quote, escaped = [""], list[str](), "", False
    for letter in text:
        if quote:
            quote = "" if letter == quote and not escaped else quote
            escaped = quote == '"' and letter == "\\" and not escaped
        elif letter in "\"'":
            quote = letter
        elif letter in _CLOSING:
            depth.append(_CLOSING[letter])
        elif letter in "]}":
            if not depth or depth.pop() != letter:
                raise InputError(f"{whose} has a {letter} that closes nothing: open it first")
        elif letter == "," and not depth:
            values.append("")
            continue
        values[-1] += letter
    if quote or depth:
        raise InputError(f"{whose} ends before {quote or depth[-1]}: close what is open")
    values = [value.strip() for value in values]
    if "" in values:
        raise InputError(f"{whose} has a comma with no value beside it: give one, or remove it")
    return values


def written(grid: Mapping[str, Sequence[Any]]) -> Grid:
    """A grid with all its values as texts.

    Arguments:
        grid: by dotted key, Python objects, or texts as for `Study.with_values`.
    """
    if not grid:
        raise InputError("the grid is empty: give a key with its values, as training.epochs=5,10")
    texts: Grid = {}
    for key, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise InputError(f"the grid's {key} is {values!r}: give a list of values")
        texts[key] = tuple(v.strip() if isinstance(v, str) else toml_value(v) for v in values)
    return texts


def combinations(base: Study, grid: Grid) -> list[Combination]:
    """The product of a grid, the last key changing fastest; every study of it is checked."""
    found: list[Combination] = []
    by_study: dict[str, str] = {}
    for values in itertools.product(*grid.values()):
        one = combination(base, dict(zip(grid, values, strict=True)))
        same = by_study.setdefault(one.study.to_toml(), one.name)
        if same != one.name or one.name.casefold() in {other.name.casefold() for other in found}:
            raise InputError(
                f"the grid holds {same} twice, the second time as {one.name}: give every value "
                "once, and texts that differ in more than punctuation"
            )
        found.append(one)
    return found


def combination(base: Study, values: Mapping[str, str]) -> Combination:
    """A study with some values replaced, fully checked.

    Arguments:
        values: TOML texts by dotted key.
    """
    study = base.with_values(values)
    study.check()
    name = folder_name(",".join(f"{key}={_bare(value)}" for key, value in values.items()))
    return Combination(name, tuple(values.values()), study)


def _bare(text: str) -> str:
    """A TOML text without quotes and spaces, to stand in a name."""
    return "".join(text.replace('"', "").replace("'", "").split())


def recorded(out: Path) -> Definition | None:
    """The sweep that a directory holds, if there is one."""
    path = out / "sweep.toml"
    try:
        if not path.is_file():
            return None
        table = parse_toml(path.read_text(encoding="utf-8"))
        grid = {key: tuple(map(str, values)) for key, values in table["grid"].items()}
        return Definition(**{name: table[name] for name in _KEYS}, grid=grid)
    except OSError as error:
        raise system_error(f"cannot read {path}", error) from error
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise InputError(
            f"{path} is no sweep's definition ({error!r}): choose another --out"
        ) from error


def sweep(
    base: Study,
    grid: Mapping[str, Sequence[Any]],
    *,
    out: str | Path,
    seeds: int | None = None,
    resume: bool = False,
    progress: Callable[[SweepProgress], None] | None = None,
    finished: Callable[[Sequence[Combination], Sequence[Result]], None] | None = None,
) -> list[Result]:
    """Run every combination of a grid, one after another; all are checked before the first runs.

    Arguments:
        base: the study that the grid varies.
        grid: values by dotted key, Python objects or TOML texts.
        out: a directory; each combination has its own in it.
        seeds: how many each combination runs; None means one, or what the resumed sweep began with.
        resume: go on with the sweep in `out`, if there is one: finished combinations are not run
            again.
        progress: called as a combination begins, and after every slot.
        finished: called after every combination, with all of them and the results so far.
    """
    out = Path(out)
    check_lasting(base)
    texts = written(grid)
    chosen = combinations(base, texts)
    before = recorded(out)
    if seeds is None:
        seeds = before.seeds if before and resume else 1
    count = check_count(seeds, "seeds")
    _claim(out, base, Definition(base.digest(), base.seed, count, texts), before, resume)
    results: list[Result] = []
    sites: dict[str, Sites] = {}
    for place, combination in enumerate(chosen):

        def tell(event: Progress | None, place: int = place) -> None:
            if progress:
                progress(SweepProgress(chosen, count, place, event))

        tell(None)
        results.append(Result(combination, _summary(combination, out, count, tell, sites)))
        if finished:
            finished(chosen, results)
    return results


def _summary(
    combination: Combination,
    out: Path,
    seeds: int,
    progress: Callable[[Progress], None],
    sites: dict[str, Sites],
) -> dict[str, Any]:
    """The summary of a combination, which is run unless it is finished."""
    directory = out / combination.name
    if (found := summary_in(directory)).get("finished"):
        return found
    try:
        prepared = prepared_once(combination.study, sites)
        return run(
            combination.study, seeds=seeds, out=directory, resume=True, progress=progress,
            sites=prepared, evidence=False,
        ).summary  # fmt: skip
    except ComputationError as error:
        raise ComputationError(f"{combination.name}: {error}") from error


def prepared_once(study: Study, known: dict[str, Sites]) -> Sites | None:
    """What a study's sites prepare, once for all combinations that change nothing of it.

    Arguments:
        known: what was prepared before; what is prepared now is added.
    """
    if not study.sites.files:
        return None
    lengths = study.network.window, study.network.depth  # which segments are too short
    key = repr((study.system, study.sites, study.estimation, lengths, study.evaluation, study.root))
    if key not in known:
        if len(known) == MOST_PREPARED:
            del known[next(iter(known))]
        known[key] = prepared_sites(study)
    return known[key]


def _claim(
    out: Path, base: Study, wanted: Definition, before: Definition | None, resume: bool
) -> None:
    """Make the directory and record the sweep in it, or find that it holds this very sweep."""
    if before is not None:
        pairs = {
            "study": ((before.digest, before.seed), (wanted.digest, wanted.seed)),
            "number of seeds": (before.seeds, wanted.seeds),
            "grid": (list(before.grid.items()), list(wanted.grid.items())),
        }
        check_same(out, "sweep", "sweep.toml", pairs, resume)
        return
    take_directory(out, "sweep")
    with written_whole(out / "study.toml", out / "sweep.toml") as [study, definition]:
        study.write_text(base.to_toml(), encoding="utf-8")
        definition.write_text(wanted.to_toml(), encoding="utf-8")


def check_same(
    out: Path, noun: str, file: str, pairs: Mapping[str, tuple[Any, Any]], resume: bool
) -> None:
    """Refuse to go on with a directory's sweep, or the like, if it is another one.

    Arguments:
        noun: what the directory holds, as "sweep".
        file: in which its definition is recorded.
        pairs: by name, what it was begun with and what is asked for now.
        resume: whether to go on was asked for.
    """
    if not resume:
        raise InputError(
            f"{out} holds a {noun} already: go on with --resume, or choose another --out"
        )
    for name, (has, asked) in pairs.items():
        if has != asked:
            raise InputError(
                f"{out} holds a {noun} with another {name}: --resume goes on only with what "
                f"{out / file} records; choose another --out"
            )


def take_directory(out: Path, noun: str) -> None:
    """Make a directory for a sweep, or the like; one with other files in it is refused."""
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            kind = "is a directory with other files" if out.is_dir() else "is a file"
            raise InputError(f"{out} {kind} and no {noun}: choose another --out")
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write to {out}: {error.strerror or error}; choose another --out"
        ) from error
