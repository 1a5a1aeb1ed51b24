"""What a run left on disk, read back for display, and its means and spreads over seeds.

A run may still be going on.
"""

import json
import re
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedkoopman.config.loader import parse_toml
from fedkoopman.errors import InputError
from fedkoopman.reports.records import METRICS, RecordsFile, SeedRecords


class NothingYet(InputError):
    """A directory holds no finished slot, which may come."""


@dataclass(frozen=True)
class Rollout:
    """A held-out trajectory, its predictions, and the eigenvalues of the operator."""

    dt: float
    names: tuple[str, ...]
    units: tuple[str, ...]
    truth: np.ndarray
    """(T + 1, d); (0, d) where held-out states are not to be seen, as they stay at their sites."""
    one_step: np.ndarray
    """(T, d): each state predicted from the true one before it."""
    free: np.ndarray
    """(T, d): the first state lifted once, then the operator alone."""
    eigenvalues: np.ndarray
    """Complex, in no particular order."""
    relift: int = 0
    """After how many steps the model's own forecasts are lifted anew; 0: never."""
    relifted: np.ndarray | None = None
    """(T, d): such a forecast from the first state."""
    driven_by: tuple[dict[str, Any], ...] = ()
    """The inputs: name, and what one unit of each moves; see `koopman.card.input_rows`."""
    inputs: np.ndarray | None = None
    """(T + 1, m): each from its instant on."""


@dataclass(frozen=True)
class RunFiles:
    """Everything a report is made of."""

    study: dict[str, Any]
    toml: str
    """The study as it stands in the file."""
    seeds: tuple[SeedRecords, ...]
    waiting: tuple[int, ...]
    """Seeds that have a directory but no finished slot."""
    summary: dict[str, Any] | None
    """Of a finished run; None while it goes on."""
    rollout: Rollout | None
    """Of the first seed."""
    evidence: dict[str, Any]
    """What `runs.evidence` found of the first seed's model; empty where there is none."""
    directory: str = ""
    """Its name."""
    served: bool = False
    """Whether sites took part from machines of their own."""
    names: tuple[str, ...] = ()
    """Of real sites, in the order of their numbers in records."""

    @property
    def sites(self) -> dict[str, Any]:
        """By name what a finished run tells of its sites; empty if it had none."""
        found = (self.summary or {}).get("sites")
        return dict(found) if isinstance(found, Mapping) else {}

    @cached_property
    def clients(self) -> int:
        """How many clients the federation has."""
        count = self.study.get("clients", {}).get("count", 0)
        first = self.seeds[0]
        seen = np.concatenate([*first.arrived, *first.active, *first.dropped])
        return int(max(count, 1, seen.max(initial=0) + 1))

    @property
    def slots(self) -> int:
        """How many slots the study asks for."""
        return int(self.study.get("slots", self.seeds[0].slots[-1]))

    @property
    def tail(self) -> int:
        """Over how many of the last slots the summary averages."""
        default = self.study.get("evaluation", {}).get("tail_slots", 50)
        return int((self.summary or {}).get("tail_slots", default))


def read_run(directory: Path, kept: MutableMapping[Path, RecordsFile] | None = None) -> RunFiles:
    """Read what `fedkoopman run --out` wrote, finished or not: one seed or several `seed-K/`.

    Arguments:
        kept: records files as the last reading left them, so that only new records are read.
    """
    kept = {} if kept is None else kept
    if not directory.is_dir():
        raise NothingYet(f"there is no run directory {directory}: give what --out named")
    named = {path: re.fullmatch(r"seed-(-?\d+)", path.name) for path in directory.iterdir()}
    found = {int(match[1]): path for path, match in named.items() if match and path.is_dir()}
    folders: dict[int | None, Path] = {seed: found[seed] for seed in sorted(found)}
    if (directory / "records.jsonl").is_file() or not folders:
        folders = {None: directory}
    toml_path = directory / "study.toml"
    if not toml_path.is_file():
        toml_path = next(iter(folders.values())) / "study.toml"
    toml = _read_text(toml_path)
    try:
        study = parse_toml(toml)
    except ValueError as error:
        raise InputError(f"{toml_path} is not TOML ({error}): restore the file") from error

    seeds, waiting, first = [], [], None
    for seed, folder in folders.items():
        number = int(study.get("seed", 0)) if seed is None else seed
        file = kept.setdefault(folder, RecordsFile(folder / "records.jsonl"))
        records = file.read(number, _read_json(folder / "untrained.json"))
        if records is None:
            waiting.append(number)
        else:
            seeds.append(records)
            first = first or folder
    if first is None:
        raise NothingYet(
            f"{directory} holds no finished slot yet (no complete line in any records.jsonl): "
            "wait for the run's first slot, or give another directory"
        )
    summary = _read_json(directory / "summary.json")
    return RunFiles(
        study=study,
        toml=toml,
        seeds=tuple(seeds),
        waiting=tuple(waiting),
        summary=summary if summary and summary.get("finished") else None,
        rollout=_read_rollout(first / "rollout.json"),
        evidence=_read_evidence(first / "evidence.json"),
        directory=directory.absolute().name,
        served=(directory / "status.json").is_file(),
        names=_names(directory) or tuple((summary or {}).get("sites") or ()),
    )


def _names(directory: Path) -> tuple[str, ...]:
    """Who is meant by the numbers in records, where sites are real."""
    found = (_read_json(directory / "run.json") or {}).get("sites") or ()
    return tuple(map(str, found)) if isinstance(found, list) else ()


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NothingYet(
            f"there is no {path}: give the directory of a run, as --out named it"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error


def _read_json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:  # ValueError: also a number of too many digits
        raise InputError(f"{path} is not JSON ({error}): resume the run to write it") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object: resume the run to write it")
    return content


def _read_rollout(path: Path) -> Rollout | None:
    content = _read_json(path)
    if content is None:
        return None
    try:
        truth, one_step, free = (_matrix(content[key]) for key in ("truth", "one_step", "free"))
        eigenvalues = _matrix(content["eigenvalues"]).reshape(-1, 2)
        dt, names, units = float(content["dt"]), content["names"], content["units"]
        if not content["truth"]:
            truth = one_step = free = np.empty((0, len(names)))
        elif not len(truth) - 1 == len(one_step) == len(free) > 0:
            raise ValueError("the predictions do not have the length of the truth")
        relift = int(content.get("relift", 0))
        relifted = _matrix(content["relifted"]) if relift and len(truth) else None
        if relifted is not None and relifted.shape != free.shape:
            raise ValueError("the predictions do not have the length of the truth")
        driven_by = tuple(
            {"name": str(row["name"]), "moves": {str(k): float(v) for k, v in row["moves"].items()}}
            for row in content.get("driven_by", ())
        )
        inputs = _matrix(content["inputs"]) if driven_by and len(truth) else None
        if inputs is not None and inputs.shape != (len(truth), len(driven_by)):
            raise ValueError("the inputs do not have the length of the truth")
        if not len(names) == len(units) == truth.shape[1]:
            raise ValueError("there is not one name and one unit per state")
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError) as error:
        raise InputError(f"{path} is no rollout ({error}): resume the run to write it") from error
    return Rollout(
        dt=dt,
        names=tuple(map(str, names)),
        units=tuple(map(str, units)),
        truth=truth,
        one_step=one_step,
        free=free,
        eigenvalues=eigenvalues[:, 0] + 1j * eigenvalues[:, 1],
        relift=relift,
        relifted=relifted,
        driven_by=driven_by,
        inputs=inputs,
    )


def _read_evidence(path: Path) -> dict[str, Any]:
    """Checked as far as a page relies on it: a part that does not fit is as if it were missing."""
    found = _read_json(path) or {}
    leads, errors = found.get("leads"), found.get("errors")
    if not isinstance(leads, list) or not isinstance(errors, dict):
        some = ("sites", "spectrum", "names", "units", "dt", "depth")
        return {name: found[name] for name in some if name in found}
    try:
        for rows in (*errors.values(), found["std"]):
            if _matrix(rows).shape != (len(leads), len(found["names"])):
                raise ValueError("errors and steps do not have one length")
        _matrix(found["shown"]["truth"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is no evidence ({error}): delete it, or resume the run"
        ) from error
    return found


def _matrix(rows: Sequence[Sequence[float | None]]) -> np.ndarray:
    """Rows of numbers, with null as NaN."""
    matrix = np.array(rows, dtype=float)
    return np.where(np.isfinite(matrix), matrix, np.nan)


@dataclass(frozen=True)
class Curve:
    """A metric over slots, averaged over seeds."""

    slots: np.ndarray
    mean: np.ndarray
    """NaN where any seed's value was not finite: a mean of the rest would hide it."""
    low: np.ndarray
    high: np.ndarray
    """One standard deviation to either side; equal to the mean where there is one seed."""


def learning_curve(seeds: tuple[SeedRecords, ...], metric: str) -> Curve:
    """The mean of a metric in each slot over the seeds that have reached it.

    The losses and errors are never negative and are drawn on a logarithmic axis, so the band is
    not let fall below the lowest seed: there mean − std can be anywhere down to below zero.
    """
    first, *others = (seed.slots for seed in seeds)
    alike = all(np.array_equal(first, one) for one in others)
    slots = first if alike else np.unique(np.concatenate([first, *others]))
    values = np.full((len(seeds), len(slots)), np.nan)
    reached = np.zeros(values.shape, bool)
    for row, seed in enumerate(seeds):
        columns = np.searchsorted(slots, seed.slots)
        values[row, columns] = seed.metrics[metric]
        reached[row, columns] = True
    count = reached.sum(axis=0)
    mean = np.where(reached, values, 0).sum(axis=0) / count
    squares = np.where(reached, (values - mean) ** 2, 0).sum(axis=0)
    std = np.sqrt(squares / np.maximum(count - 1, 1))
    lowest = np.where(reached, values, np.inf).min(axis=0)
    return Curve(slots=slots, mean=mean, low=np.maximum(mean - std, lowest), high=mean + std)


MOST_BINS = 600
"""Points of a curve; of more slots, consecutive ones are drawn together."""


def thinned(curve: Curve) -> Curve:
    """A curve of no more points than are seen: means, lowest lows and highest highs of bins."""
    if len(curve.slots) <= MOST_BINS:
        return curve
    first = np.arange(0, len(curve.slots), -(-len(curve.slots) // MOST_BINS))
    count = np.diff(np.append(first, len(curve.slots)))
    return Curve(
        slots=curve.slots[np.append(first[1:], len(curve.slots)) - 1],
        mean=np.add.reduceat(curve.mean, first) / count,
        low=np.fmin.reduceat(curve.low, first),
        high=np.fmax.reduceat(curve.high, first),
    )


def _tail_mean(seed: SeedRecords, metric: str, tail: int) -> float:
    """The mean over a seed's last slots, without the untrained model; NaN if any is not finite."""
    trained = seed.slots > 0
    values = seed.metrics[metric]
    return float(np.mean(values[trained][-tail:] if trained.any() else values))


def _over_seeds(values: list[float]) -> dict[str, float]:
    """Mean and standard deviation (n − 1; 0 for one seed)."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "std": std}


def tail_spread(run: RunFiles, metric: str) -> Mapping[str, float | None]:
    """What the run's summary says of a metric; of an unfinished run, what its records say."""
    if run.summary is not None and isinstance(told := run.summary.get(metric), Mapping):
        return told
    return _over_seeds([_tail_mean(seed, metric, run.tail) for seed in run.seeds])


def untrained(run: RunFiles, metric: str) -> Mapping[str, float | None] | None:
    """The metric of the untrained models; None if a run has no slot 0."""
    if any(seed.slots[0] != 0 for seed in run.seeds):
        return None
    return _over_seeds([float(seed.metrics[metric][0]) for seed in run.seeds])


def not_finite(run: RunFiles) -> dict[int, int]:
    """Slots per seed in which some metric was not finite, where there are any."""
    counts = {
        seed.seed: int(np.isnan([seed.metrics[name] for name in METRICS]).any(axis=0).sum())
        for seed in run.seeds
    }
    return {seed: count for seed, count in counts.items() if count}
