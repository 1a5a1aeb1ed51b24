"""What a run left on disk, read back for display, and its means and spreads over seeds.

A run may still be going on.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedkoopman.config.loader import parse_toml
from fedkoopman.errors import InputError, system_error

METRICS = ("l1", "l2", "l3", "E", "horizon")
"""The numbers of a record that a report shows."""


@dataclass(frozen=True)
class SeedRecords:
    """The records of one seed, one entry per finished slot, ascending."""

    seed: int
    slots: np.ndarray
    """Slot numbers; 0 is the untrained model."""
    metrics: dict[str, np.ndarray]
    """One value per slot and metric; NaN where it was not finite."""
    arrived: tuple[np.ndarray, ...]
    """Clients whose observation succeeded."""
    active: tuple[np.ndarray, ...]
    """Clients that trained."""
    dropped: tuple[np.ndarray, ...]
    """Clients whose estimate diverged, so that the segment was left out."""
    samples: int
    seconds: float
    trust: tuple[dict[str, Any], ...] = ()
    """Of slots in which updates were judged, what the record says of that."""


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
    served: bool = False
    """Whether sites took part from machines of their own."""
    names: tuple[str, ...] = ()
    """Of real sites, in the order of their numbers in records."""

    @property
    def sites(self) -> dict[str, Any]:
        """By name what a finished run tells of its sites; empty if it had none."""
        found = (self.summary or {}).get("sites")
        return dict(found) if isinstance(found, Mapping) else {}

    @property
    def clients(self) -> int:
        """How many clients the federation has."""
        count = self.study.get("clients", {}).get("count", 0)
        first = self.seeds[0]
        lists = (*first.arrived, *first.active, *first.dropped)
        return int(max([count, 1, *(ids.max() + 1 for ids in lists if ids.size)]))

    @property
    def slots(self) -> int:
        """How many slots the study asks for."""
        return int(self.study.get("slots", self.seeds[0].slots[-1]))

    @property
    def tail(self) -> int:
        """Over how many of the last slots the summary averages."""
        default = self.study.get("evaluation", {}).get("tail_slots", 50)
        return int((self.summary or {}).get("tail_slots", default))


def read_run(directory: Path) -> RunFiles:
    """Read what `fedkoopman run --out` wrote, finished or not: one seed or several `seed-K/`."""
    if not directory.is_dir():
        raise InputError(f"there is no run directory {directory}: give what --out named")
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
        path = folder / "records.jsonl"
        first_model = _read_json(folder / "untrained.json")
        records = _read_records(path, number, first_model) if path.is_file() else None
        if records is None:
            waiting.append(number)
        else:
            seeds.append(records)
            first = first or folder
    if first is None:
        raise InputError(
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
        raise InputError(
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


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records of a file in turn; a last line cut off by a crash is passed over."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
                if not isinstance(record, dict) or not isinstance(record.get("slot"), int):
                    raise ValueError("no object with a slot number")
            except (ValueError, RecursionError) as error:
                if not line.endswith("\n"):
                    return
                raise InputError(
                    f"line {number} of {path} is no record ({error}): resume the run to mend it"
                ) from error
            yield number, record


def _read_records(path: Path, seed: int, untrained: dict[str, Any] | None) -> SeedRecords | None:
    by_slot: dict[int, dict[str, Any]] = {}
    try:
        for number, record in _lines(path):
            record.pop("buffered", None)  # per client and slot: by far the largest part
            try:
                for key in ("arrived", "active", "dropped"):
                    record[key] = np.asarray(record.get(key) or (), dtype=np.int32)
                for key in METRICS:
                    record[key] = _finite(record.get(key))
            except (TypeError, ValueError, OverflowError) as error:
                raise InputError(f"line {number} of {path} is no record ({error})") from error
            by_slot[record["slot"]] = record
    except OSError as error:
        raise system_error(f"cannot read {path}", error) from error
    if not by_slot:
        return None
    if untrained is not None:
        nothing = {key: np.zeros(0, np.int32) for key in ("arrived", "active", "dropped")}
        scores = {key: _finite(untrained.get(key)) for key in METRICS}
        by_slot[0] = {"slot": 0, **nothing, **scores}
    records = [by_slot[slot] for slot in sorted(by_slot)]
    return SeedRecords(
        seed=seed,
        slots=np.array([record["slot"] for record in records]),
        metrics={key: np.array([record[key] for record in records]) for key in METRICS},
        arrived=tuple(record["arrived"] for record in records),
        active=tuple(record["active"] for record in records),
        dropped=tuple(record["dropped"] for record in records),
        samples=_samples(records),
        seconds=max(_finite(record.get("seconds") or 0.0) for record in records),
        trust=tuple(
            {name: record[name] for name in ("slot", "trust", "rolled_back") if name in record}
            for record in records
            if "trust" in record or "rolled_back" in record
        ),
    )


def _samples(records: Sequence[Mapping[str, Any]]) -> int:
    """Samples that the model was learned from; see `runs.results.samples_of`."""
    solved = [record for record in records if record.get("stage") == "sums"]
    return sum(record.get("samples") or 0 for record in solved or records)


def _finite(value: float | None) -> float:
    number = np.nan if value is None else float(value)
    return number if np.isfinite(number) else np.nan


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
    slots = np.unique(np.concatenate([seed.slots for seed in seeds]))
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


def _tail_mean(seed: SeedRecords, metric: str, tail: int) -> float:
    """The mean over a seed's last slots, as `runs.results.summarise` takes it; NaN if any is not
    finite."""
    values = seed.metrics[metric]
    if seed.slots[0] != 0:
        return float(np.mean(values[-tail:]))
    changed = [~np.isclose(v, v[0], rtol=0, atol=0, equal_nan=True) for v in seed.metrics.values()]
    trained = np.logical_or.reduce(changed)
    first = int(trained.argmax()) if trained.any() else min(1, len(values) - 1)
    return float(np.mean(values[first:][-tail:]))


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
        seed.seed: int(np.isnan(np.array(list(seed.metrics.values()))).any(axis=0).sum())
        for seed in run.seeds
    }
    return {seed: count for seed, count in counts.items() if count}
