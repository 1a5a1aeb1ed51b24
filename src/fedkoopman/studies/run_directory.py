"""A run's directory: the study as it was resolved, whose run it is, and a directory per seed."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedkoopman.errors import InputError
from fedkoopman.koopman.network import Architecture
from fedkoopman.studies.config import Study
from fedkoopman.studies.seed_directory import SeedDirectory, write_json, write_whole, writing
from fedkoopman.version import __version__

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["RunDirectory", "study_in"]

FORMAT = 1
OURS = ("run.json", "study.toml", "records.jsonl", "summary.json", "model.safetensors")


@dataclass(frozen=True)
class RunDirectory:
    """Where a run lives.

    Attributes:
        path: the directory.
        study: as it stands in the directory.
        seeds: all seeds of the run.
    """

    path: Path
    study: Study
    seeds: tuple[int, ...]

    @classmethod
    @contextmanager
    def open(
        cls, path: Path, study: Study, seeds: tuple[int, ...] | None, resume: bool
    ) -> Iterator["RunDirectory"]:
        """Make the directory of a new run, or take up an old one; nobody else may use it meanwhile.

        Arguments:
            path: the directory; made if missing, with its parents.
            study: what is to be run. In an old directory the same study must stand.
            seeds: which seeds; None means the study's own, or those of the old run.
            resume: whether an old run may be taken up.
        """
        study.check()
        with writing(path):  # a name may be too long even to look for
            if path.exists() and not path.is_dir():
                raise InputError(f"{path} is a file: give a directory")
            old = (path / "run.json").exists()
        if old and not resume:
            raise InputError(
                f"{path} holds a run: go on with it by --resume, or choose another --out"
            )
        taken = [] if old else [name for name in OURS if (path / name).exists()]
        if taken and not resume:
            raise InputError(f"{path} holds {taken[0]}, which a run would replace: give another")
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if old:
                yield cls._taken_up(path, study, seeds)
            else:
                yield cls._created(path, study, seeds or (study.seed,))

    def of_seed(self, seed: int, architecture: Architecture) -> SeedDirectory:
        """The directory of one seed: this one, if it is the only seed."""
        path = self.path if len(self.seeds) == 1 else self.path / f"seed-{seed}"
        return SeedDirectory(path, architecture, f"{self.study.digest()}:{seed}")

    @classmethod
    def _created(cls, path: Path, study: Study, seeds: tuple[int, ...]) -> "RunDirectory":
        for file in _user_files(study):
            target = path / file
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile((study.folder or Path.cwd()) / file, target)
        write_whole(path / "study.toml", study.to_toml().encode())
        for seed in seeds if len(seeds) > 1 else ():
            with writing(path):
                (path / f"seed-{seed}").mkdir(exist_ok=True)
            own = replace(study, seed=seed).to_toml()
            write_whole(path / f"seed-{seed}" / "study.toml", own.encode())
        about = {
            "format": FORMAT,
            "version": __version__,
            "digest": study.digest(),
            "seeds": list(seeds),
        }
        write_json(path / "run.json", about)
        return cls(path, study_in(path), seeds)

    @classmethod
    def _taken_up(cls, path: Path, study: Study, seeds: tuple[int, ...] | None) -> "RunDirectory":
        about = _about(path)
        if about["digest"] != study.digest():
            raise InputError(
                f"{path} holds a run of another study ({_difference(study_in(path), study)}): "
                "resume it with its own, or choose another --out"
            )
        if seeds is not None and list(seeds) != about["seeds"]:
            raise InputError(
                f"{path} holds a run of seeds {about['seeds']} but {list(seeds)} were asked for: "
                "resume it with its own, or choose another --out"
            )
        return cls(path, study_in(path), tuple(about["seeds"]))


def study_in(path: Path) -> Study:
    """The study of a run that was started in a directory."""
    if not (path / "run.json").exists():
        raise InputError(f"{path} holds no run: check the path, or start one without --resume")
    return Study.load(path / "study.toml")


def _about(path: Path) -> dict[str, Any]:
    try:
        about = json.loads((path / "run.json").read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise InputError(
                f"{path} was written in format {about['format']} by fedkoopman "
                f"{about['version']}, this is format {FORMAT}: use that version"
            )
        return {"digest": str(about["digest"]), "seeds": [int(s) for s in about["seeds"]]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path / 'run.json'} is damaged: start again with another --out"
        ) from error


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
    return "its files differ"


def _user_files(study: Study) -> list[Path]:
    """Python files that a study names beside itself; copied, so that the run is whole."""
    sensors = study.clients.sensor
    tables = sensors if isinstance(sensors, tuple) else (sensors,)
    names = [study.system.name, study.policy.name, *(t.get("function", "") for t in tables)]
    files = {Path(name.rpartition(":")[0]) for name in names if ".py:" in name}
    return sorted(f for f in files if not f.is_absolute() and ".." not in f.parts)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes out of a directory."""
    with writing(path), (path / ".lock").open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(
                    f"{path} is in use by another process: wait for it, or choose another --out"
                ) from None
        yield
