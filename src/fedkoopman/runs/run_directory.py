"""A run's directory: the study as it was resolved, whose run it is, and where each seed lives."""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedkoopman.config.loader import read_toml
from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.config.user_files import check_lasting, user_files
from fedkoopman.durable import held, write_whole, writing
from fedkoopman.errors import InputError, short, system_error, underway
from fedkoopman.paths import check_name
from fedkoopman.runs.seed_directory import SeedDirectory, write_json
from fedkoopman.systems.checks import check_seed
from fedkoopman.version import NUMERICS

FORMAT = 1
LOCK = ".lock"
OURS = (
    "study.toml",
    "records.jsonl",
    "rollout.json",
    "summary.json",
    "untrained.json",
    "model.safetensors",
    "model.md",
    "report.html",
    "evidence.json",
    "checkpoint",
)
ANOTHER = "choose another --out"
CHOICE = f"resume it with its own, or {ANOTHER}"


@dataclass(frozen=True)
class RunDirectory:
    """Where a run lives.

    Attributes:
        study: as it stands in the directory.
        nested: whether each seed has a directory of its own, as it does where seeds were asked for.
    """

    path: Path
    study: Study
    seeds: tuple[int, ...]
    nested: bool

    @classmethod
    @contextmanager
    def open(
        cls,
        path: Path,
        study: Study,
        seeds: tuple[int, ...] | None,
        resume: bool,
        sites: Sequence[str] | None = None,
    ) -> Iterator["RunDirectory"]:
        """Make the directory of a new run, or take up an old one; nobody else may use it meanwhile.

        Arguments:
            study: what is to be run. In an old directory the same study must stand.
            seeds: which seeds; None means the study's own, or those of the old run.
            sites: names of the sites, where their files lie with them and are not looked at here.
        """
        check_lasting(study)
        study.check(sites=sites is None)
        with writing(path):  # a name may be too long even to look for
            _check_place(path)
            path.mkdir(parents=True, exist_ok=True)
        busy = f"{path} is in use by another process: wait for it, or choose another --out"
        with held(path / LOCK, busy):
            found = cls._found(path, study, seeds, resume, sites is not None)
            found = found or cls._created(path, study, seeds, sites)
            with underway():
                yield found

    @classmethod
    def foresee(cls, path: Path, study: Study, resume: bool) -> None:
        """Refuse what `open` would refuse, without writing, before sites do long work."""
        with writing(path):
            _check_place(path)
            above = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
            if not os.access(above, os.W_OK):
                raise InputError(f"cannot write {path}: no permission to write in {above}")
        cls._found(path, study, None, resume)

    def of_seed(self, seed: int) -> SeedDirectory:
        path = self.path / f"seed-{seed}" if self.nested else self.path
        return SeedDirectory(path, self.study.seeded_digest(seed))

    @classmethod
    def _found(
        cls,
        path: Path,
        study: Study,
        seeds: tuple[int, ...] | None,
        resume: bool,
        elsewhere: bool = False,
    ) -> "RunDirectory | None":
        """The old run in a directory, if it has to be minded."""
        if not (path / "run.json").exists() or not (resume or _recorded(path)):
            return None
        if resume:
            return cls._taken_up(path, study, seeds, elsewhere)
        raise InputError(f"{path} holds a run: go on with it by --resume, or choose another --out")

    def name_sites(self, names: Sequence[str]) -> None:
        """Keep the names of a served run's sites, in the order of their numbers in records."""
        about_run(self.path)  # which tells if it is damaged
        about = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
        if about.get("sites") != list(names):
            write_json(self.path / "run.json", about | {"sites": list(names)})

    @classmethod
    def _created(
        cls,
        path: Path,
        study: Study,
        seeds: tuple[int, ...] | None,
        sites: Sequence[str] | None,
    ) -> "RunDirectory":
        nested, chosen = seeds is not None, seeds or (study.seed,)
        _write_study(path, replace(study, seed=chosen[0]))
        for seed in chosen if nested else ():
            _write_study(path / f"seed-{seed}", replace(study, seed=seed))
        about = {
            "format": FORMAT,
            "versions": _versions(),
            "digest": study.digest(),
            "folder": str(study.root.absolute()),
            "files": file_digests(study, sites is not None),
            "seeds": list(chosen),
            "nested": nested,
            **({} if sites is None else {"sites": list(sites)}),
        }
        write_json(path / "run.json", about)
        return cls(path, study, chosen, nested)

    @classmethod
    def _taken_up(
        cls, path: Path, study: Study, seeds: tuple[int, ...] | None, elsewhere: bool
    ) -> "RunDirectory":
        about = about_run(path)
        # Its files are taken from where this study has them: they may have moved with the run.
        mine = Study.from_dict(read_toml(path / "study.toml"), study.root)
        if about["versions"] != _versions():
            raise InputError(
                f"{path} was begun with {about['versions']} and this is {_versions()}, which may "
                f"round differently: {CHOICE}"
            )
        if about["digest"] != study.digest():
            raise InputError(
                f"{path} holds a run of another study ({_difference(mine, study)}): {CHOICE}"
            )
        if about["served"] != elsewhere:
            which = ("fedkoopman run", "fedkoopman serve")[about["served"]]
            raise InputError(f"{path} holds a run of {which}: go on with that, or {ANOTHER}")
        if about["files"] != file_digests(study, elsewhere):
            raise InputError(
                f"{path} holds a run with other contents of {', '.join(about['files'])}: {CHOICE}"
            )
        asked = list(seeds or ([study.seed] if study.seed != mine.seed else about["seeds"]))
        more = [seed for seed in asked if seed not in about["seeds"]]
        if len(asked) - len(more) < len(about["seeds"]) or (more and not about["nested"]):
            raise InputError(
                f"{path} holds a run of seeds {about['seeds']} but {asked} were asked for: {CHOICE}"
            )
        if more:
            cls._extended(path, mine, more)
        return cls(path, mine, (*about["seeds"], *more), about["nested"])

    @classmethod
    def _extended(cls, path: Path, study: Study, more: Sequence[int]) -> None:
        """Add seeds to a run; its summary is of fewer seeds and goes first."""
        with writing(path):
            (path / "summary.json").unlink(missing_ok=True)
        for seed in more:
            _write_study(path / f"seed-{seed}", replace(study, seed=seed))
        about = json.loads((path / "run.json").read_text(encoding="utf-8"))
        write_json(path / "run.json", about | {"seeds": [*about["seeds"], *more]})


def study_in(path: Path) -> Study:
    """The study of a run that was started in a directory.

    Python files that it names are taken from where they were, as they may read others beside them;
    where they are gone or have changed, from the copies beside the run. Recordings and sites'
    data, which may be large and are private, have no copies.
    """
    if not (path / "run.json").exists():
        raise InputError(f"{path} holds no run: check the path, or start one without --resume")
    about = about_run(path)
    if about["served"]:
        raise InputError(f"{path} holds a run of fedkoopman serve: go on with that, or {ANOTHER}")
    table = read_toml(path / "study.toml")
    study = Study.from_dict(table, Path(about["folder"]))
    try:
        as_it_was = file_digests(study) == about["files"]
    except InputError:
        as_it_was = False
    if not as_it_was and (study.recordings.train or study.sites.files):
        raise InputError(
            f"{path} holds a run on recorded data, and not all of {', '.join(about['files'])} in "
            f"{about['folder']} are as they were: put them back, or start again with another --out"
        )
    if not as_it_was:
        study = Study.from_dict(table, path.absolute())
    study.check()
    return study


def finished_study_in(path: Path) -> Study:
    """The study of a finished run that this version would repeat bit for bit."""
    if not (path / "run.json").exists():
        raise InputError(f"{path} holds no run: give the directory of one, or a study file")
    about = about_run(path)
    if about["served"]:
        raise InputError(
            f"{path} holds a run of fedkoopman serve, whose data are with its sites: audit a study "
            "file on a machine that has their site files"
        )
    if about["versions"] != _versions():
        raise InputError(
            f"{path} was run with {about['versions']} and this is {_versions()}, which may round "
            f"differently: audit its {path / 'study.toml'} instead"
        )
    if seconds_told(path) is None:
        raise InputError(
            f"{path} holds a run that is not finished: fedkoopman run --resume --out {path}"
        )
    return study_in(path)


def summary_in(path: Path) -> dict[str, Any]:
    """The summary of a finished run; empty where it is missing or damaged."""
    try:
        found = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def seconds_told(path: Path) -> float | None:
    """How long a finished run said it took."""
    try:
        told = float(summary_in(path)["seconds"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    return told if math.isfinite(told) else None


def _check_place(path: Path) -> None:
    """Refuse a path that is a file, or that holds files of a user's own with our names."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file: give a directory")
    # Whoever was here before left a lock file; without one, such files are a user's own.
    foreign = [] if (path / LOCK).exists() else [n for n in OURS if (path / n).exists()]
    if foreign:
        raise InputError(
            f"{path} holds {foreign[0]}, which a run would replace: give another directory"
        )


def _recorded(path: Path) -> bool:
    """Whether any slot of the run in a directory was finished; if none was, nothing is lost."""
    files = [path / "records.jsonl", *path.glob("seed-*/records.jsonl")]
    return any(file.exists() and file.stat().st_size for file in files)


def _write_study(folder: Path, study: Study) -> None:
    """A study, and beside it the Python files that it names beside itself."""
    with writing(folder):
        folder.mkdir(exist_ok=True)
    for file in user_files(study):
        if not file.is_absolute() and ".." not in file.parts:
            with writing(folder / file):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                content = (study.root / file).read_bytes()
            write_whole(folder / file, content)
    write_whole(folder / "study.toml", study.to_toml().encode())


def about_run(path: Path) -> dict[str, Any]:
    """What `run.json` of a run directory says, checked."""
    damaged = f"{path / 'run.json'} is damaged: start again with another --out"
    try:
        about = json.loads((path / "run.json").read_text(encoding="utf-8"))
        its_format = about["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(damaged) from error
    if its_format != FORMAT:
        raise InputError(
            f"{path} was written in format {short(its_format)}, this is format {FORMAT}: use the "
            "version of fedkoopman that began it"
        )
    try:
        if not about["seeds"]:
            raise ValueError("no seeds")
        check_name(about["folder"])
        os.fsencode(about["folder"])  # a name that the system can have
        return {
            "versions": str(about["versions"]),
            "digest": str(about["digest"]),
            "folder": str(about["folder"]),
            "files": dict(about["files"]),
            "seeds": [check_seed(seed) for seed in about["seeds"]],
            "nested": bool(about["nested"]),
            "served": "sites" in about,
            "sites": tuple(map(str, about.get("sites") or ())),
        }
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(damaged) from error


def _versions() -> str:
    """What the bits of a model depend on."""
    return f"fedkoopman {NUMERICS}, jaxlib {version('jaxlib')}"


def _difference(old: Study, new: Study) -> str:
    """The first key in which two studies differ, with both values."""

    def flat(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
        for name, value in table.items():
            if isinstance(value, dict) and not above:
                yield from flat(value, f"{name}.")
            else:
                yield above + name, value

    before, after = dict(flat(old.to_dict())), dict(flat(new.to_dict()))
    for name, value in after.items():
        if name != "seed" and before.get(name) != value:
            return f"{name} is {value!r} here and {before.get(name)!r} there"
    return "written by hand since"


def _site_data(study: Study) -> list[Path]:
    """Site files, and the files that they name."""
    found = []
    for name in study.sites.files:
        site = SiteFile.load(study.root / name)
        code = str(site.sensor.get("function", ""))
        files = [*site.files(), *([site.folder / code.rpartition(":")[0]] if code else [])]
        found += [Path(name), *(Path(os.path.relpath(path, study.root)) for path in files)]
    return found


def file_digests(study: Study, elsewhere: bool = False) -> dict[str, str]:
    """The contents of a study's Python files, recordings and sites' data, in short: they decide
    the result as the study does.

    Arguments:
        elsewhere: whether sites' data are with the sites, and so cannot be read.
    """
    found = {}
    recordings = sorted({Path(name) for name in study.recordings.train + study.recordings.test})
    private = [] if elsewhere else _site_data(study)
    for file in user_files(study) + recordings + private:
        try:
            with (study.root / file).open("rb") as content:
                found[file.as_posix()] = hashlib.file_digest(content, "sha256").hexdigest()
        except OSError as error:
            raise system_error(f"cannot read {file}", error) from error
    return found
