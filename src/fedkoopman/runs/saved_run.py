"""`fk.load_run`: a run directory as a `Run`, while the run goes on, when it is over, or served."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

from fedkoopman.config.loader import read_toml
from fedkoopman.config.study import Study
from fedkoopman.errors import InputError, system_error
from fedkoopman.koopman.model import DeepKoopman, load_model
from fedkoopman.runs.results import summarise
from fedkoopman.runs.run import Run
from fedkoopman.runs.run_directory import about_run, summary_in
from fedkoopman.user_code import is_reference


def load_run(path: str | Path) -> Run:
    """The run in a directory, as `fk.run(…, out=DIR)`, `fedkoopman run` or `serve` left it.

    It may be unfinished: records are those written so far, the summary is of these, and asking for
    a model that is not there says so. Models are read when they are first asked for.

    Arguments:
        path: what `out` named, also copied from another machine; or one seed's directory in it.
    """
    path = Path(path)
    if not path.is_dir():
        raise InputError(f"there is no run directory {path}: give what out named")
    if not (path / "study.toml").is_file():
        raise InputError(f"{path} holds no run: give the directory that out named")
    table = read_toml(path / "study.toml")
    if (path / "run.json").is_file():
        about = about_run(path)
        folder, nested, names = Path(about["folder"]), about["nested"], about["sites"]
    else:  # one seed of several
        about, folder, nested, names = {}, path, False, ()
    study = Study.from_dict(table, folder if folder.is_dir() else path.absolute())
    seeds = tuple(about.get("seeds", (study.seed,)))
    folders = {seed: path / f"seed-{seed}" if nested else path for seed in seeds}
    records = {seed: _records(folder) for seed, folder in folders.items()}
    summary = summary_in(path)
    if not summary.get("finished"):
        summary = _so_far(study, records, folders, names)
    return Run(
        study, seeds, SavedModels(study, folders, path), records, summary, path,
        tuple(names) or tuple(summary.get("sites", ())),
    )  # fmt: skip


class SavedModels(Sequence[DeepKoopman]):
    """The models of a run, each read from its file when it is first asked for."""

    def __init__(self, study: Study, folders: dict[int, Path], run: Path) -> None:
        self._study, self._folders, self._run = study, tuple(folders.values()), run
        self._read: dict[int, DeepKoopman] = {}

    def __len__(self) -> int:
        return len(self._folders)

    @overload
    def __getitem__(self, place: int) -> DeepKoopman: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[DeepKoopman, ...]: ...
    def __getitem__(self, place: int | slice) -> DeepKoopman | tuple[DeepKoopman, ...]:
        """The model of one seed, counted from 0, or of several."""
        if isinstance(place, slice):
            return tuple(self[i] for i in range(*place.indices(len(self))))
        at = range(len(self))[place]
        if at not in self._read:
            self._read[at] = self._load(self._folders[at] / "model.safetensors")
        return self._read[at]

    def _load(self, file: Path) -> DeepKoopman:
        if not file.is_file():
            raise InputError(
                f"there is no {file}: the run is not finished; go on with fk.run(resume=True, "
                f"out={str(self._run)!r}) and its study, or with the command that began it"
            )
        return load_model(file, self._kind)

    @cached_property
    def _kind(self) -> str | None:
        """Where a kind of the user's own is, if the study names one."""
        name = self._study.network.kind
        return str(self._study.root / name) if is_reference(name) else None


def _records(folder: Path) -> list[dict[str, Any]]:
    """The records of one seed, by slot; a last line that is still being written is left out."""
    file = folder / "records.jsonl"
    if not file.is_file():
        return []
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise system_error(f"cannot read {file}", error) from error
    whole = text[: text.rfind("\n") + 1]
    found: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            record = json.loads(line)
            found[int(record["slot"])] = record
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError(
                f"line {number} of {file} is no record ({error}): resume the run to mend it"
            ) from error
    return [found[slot] for slot in sorted(found)]


def _so_far(
    study: Study,
    records: dict[int, list[dict[str, Any]]],
    folders: dict[int, Path],
    names: Sequence[str],
) -> dict[str, Any]:
    """The summary of an unfinished run, of the seeds that have records."""
    begun = {seed: mine for seed, mine in records.items() if mine}
    untrained = {seed: _json(folders[seed] / "untrained.json") for seed in begun}
    if not begun or not all(untrained.values()):
        return {"name": study.name, "seeds": list(records), "finished": False}
    return summarise(study, begun, untrained, names=names) | {"finished": False}


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
