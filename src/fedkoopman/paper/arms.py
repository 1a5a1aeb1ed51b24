"""Items that compare runs: some studies, the same seeds for all, and what their records say.

A study is run once, in a directory that all items share: eight of them use the paper's default
experiment.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.study import Study
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.paper.items import MANY, Findings, Options, Tell
from fedkoopman.paths import folder_name
from fedkoopman.version import NUMERICS

if TYPE_CHECKING:
    from fedkoopman.koopman.model import DeepKoopman

METRICS = ("loss", "l1", "l2", "l3", "E", "E1")
FAST = {"slots": 12, "evaluation.tail_slots": 4, "evaluation.trajectories": 4}
"""Upper limits of these keys with --fast."""


@dataclass(frozen=True)
class Arm:
    """One of the studies that an item compares.

    Attributes:
        label: of its line in the figure and its row in the table.
        study: what is run; its seed is ignored.
        value: its place on an axis, where the item varies a number.
    """

    label: str
    study: Study
    value: float | None = None


def variant(changes: Mapping[str, Any]) -> Study:
    """The paper's default experiment with some values changed, named after them.

    Changes that change nothing are left out, so that equal experiments are equal studies.
    """
    default = Study.paper_default()
    same = default.digest()
    real = {k: v for k, v in changes.items() if default.with_values({k: v}).digest() != same}
    if not real:
        return default
    name = ", ".join(f"{key}={json.dumps(value)}" for key, value in real.items())
    return default.with_values({**real, "name": f"paper: {name}"})


@dataclass(frozen=True)
class Measured:
    """What the runs of one arm gave, as it is read from an item's numbers."""

    label: str
    value: float | None
    table: dict[str, Any]

    @cached_property
    def slots(self) -> int:
        """Slots of a run (M)."""
        return len(self.table["curves"]["loss"][0])

    def curves(self, metric: str) -> NDArray[np.float64]:
        """(seeds, slots); NaN where a score was not finite."""
        return np.array(self.table["curves"][metric], float)

    def tail(self, metric: str) -> NDArray[np.float64]:
        """Mean over the last slots, by seed."""
        return self.curves(metric)[:, -self.table["tail_slots"] :].mean(axis=1)

    def last(self, metric: str) -> NDArray[np.float64]:
        """Score of the final model, by seed."""
        return self.curves(metric)[:, -1]

    def fluctuation(self, metric: str) -> NDArray[np.float64]:
        """Standard deviation over the last slots, by seed."""
        return self.curves(metric)[:, -self.table["tail_slots"] :].std(axis=1, ddof=1)

    def untrained(self, metric: str) -> NDArray[np.float64]:
        """Score of the first model, by seed."""
        return np.array(self.table["untrained"][metric], float)

    def persistence(self, metric: str) -> NDArray[np.float64]:
        """Score of holding the last state, by seed: of `l3` or `E`."""
        return np.array(self.table["persistence"][metric], float)


Keep = Callable[[Study, int, "DeepKoopman"], dict[str, Any]]
"""What to keep of a study, a seed and its final model."""


@dataclass(frozen=True)
class Runs:
    """An item whose numbers are the records of runs.

    Attributes:
        arms: the studies, from the options.
        judge: what the runs say; takes what `Measured` reads, by label.
        rollouts: whether the first seed's one-step predictions are kept as well.
        models: what else is kept of every seed's final model.
        seeds: how many it takes unless told: `MANY` where they are cheap, as few as the paper
            where they are not.
    """

    arms: Callable[[Options], tuple[Arm, ...]]
    judge: Callable[[dict[str, Measured]], Findings]
    rollouts: bool = False
    models: Keep | None = None
    seeds: int = MANY

    def chosen(self, options: Options) -> tuple[Arm, ...]:
        """The studies as the options want them."""
        arms = self.arms(options)
        if options.fast:
            arms = tuple(Arm(a.label, _shortened(a.study), a.value) for a in arms)
        return _changed(arms, options) if options.changes else arms

    def slots(self, options: Options) -> int:
        """Slots of all seeds and arms together."""
        return len(self._seeds(options)) * sum(arm.study.slots for arm in self.chosen(options))

    def settings(self, options: Options) -> dict[str, Any]:
        """Seeds and studies."""
        return {
            "version": NUMERICS,
            "seeds": self._seeds(options),
            "studies": {arm.label: arm.study.digest() for arm in self.chosen(options)},
        }

    def compute(self, options: Options, tell: Tell) -> dict[str, Any]:
        """Run what is not finished yet, and collect the records of all."""
        arms = self.chosen(options)
        found = []
        for place, arm in enumerate(arms):
            tell(f"{place + 1} of {len(arms)}: {arm.label}")
            found.append(_measure(arm, options, self._seeds(options), tell, self))
        return {"arms": found}

    def _seeds(self, options: Options) -> list[int]:
        return options.all_seeds(self.seeds)

    def findings(self, numbers: dict[str, Any]) -> Findings:
        """What the records say."""
        read = [Measured(a["label"], a["value"], a) for a in numbers["arms"]]
        return self.judge({one.label: one for one in read})


def _held_seeds(out: Path) -> list[int]:
    """The seeds of the run in a directory."""
    try:
        found = json.loads((out / "run.json").read_text(encoding="utf-8"))["seeds"]
        return [int(seed) for seed in found]
    except (OSError, ValueError, KeyError, TypeError):
        return []  # none yet, or damaged, which the run itself tells


def _measure(
    arm: Arm, options: Options, seeds: list[int], tell: Tell, item: Runs
) -> dict[str, Any]:
    from fedkoopman.evaluation import combined, persistence
    from fedkoopman.federation.sites import held_out
    from fedkoopman.runs.experiment import experiment_of
    from fedkoopman.runs.run import run

    study = arm.study.with_values({"seed": options.seed})
    out = options.runs / folder_name(study.name)
    # Another item, or an earlier command, may have run more seeds, or fewer.
    held = _held_seeds(out)
    every = [*held, *(seed for seed in seeds if seed not in held)]
    try:
        done = run(study, seeds=every, out=out, resume=True, progress=tell, evidence=False)
    except ComputationError as error:
        raise ComputationError(f"{arm.label}: {error}") from error
    tests = [held_out(experiment_of(study, seed)) for seed in seeds]
    constant = [combined([(persistence(t), len(t.trajectories)) for t in each]) for each in tests]
    untrained = [_read(out / f"seed-{seed}" / "untrained.json") for seed in seeds]
    summaries = [_read(out / f"seed-{seed}" / "summary.json") for seed in seeds]
    records = [done.all_records[seed] for seed in seeds]
    found = {
        "label": arm.label,
        "value": arm.value,
        "folder": out.name,
        "study": study.to_toml(),
        "seeds": seeds,
        "tail_slots": done.summary["tail_slots"],
        "seconds": done.summary["seconds"] * len(seeds) / len(every),
        "rounds": float(np.mean([one["rounds"] for one in summaries])),
        "samples": float(np.mean([one["samples"] for one in summaries])),
        "renewals": float(np.mean([sum(bool(r["active"]) for r in mine) for mine in records])),
        "curves": {m: [[record[m] for record in mine] for mine in records] for m in METRICS},
        "untrained": {m: [first[m] for first in untrained] for m in METRICS},
        "persistence": {"l3": [c.l3 for c in constant], "E": [c.e for c in constant]},
        "variance": [
            float(np.mean([t.spread**2 / t.trajectories.shape[-1] for t in each])) for each in tests
        ],
    }
    if item.rollouts:
        found["rollouts"] = [_read(out / f"seed-{seed}" / "rollout.json") for seed in seeds]
    if item.models is not None:
        models = dict(zip(done.seeds, done.models, strict=True))
        found["models"] = [item.models(study, seed, models[seed]) for seed in seeds]
    return found


def _changed(arms: tuple[Arm, ...], options: Options) -> tuple[Arm, ...]:
    """The studies with the user's values in place of the paper's, named after them."""
    values = dict(options.changes)
    if "seed" in values:
        raise InputError("--set seed: the seeds are given by --seed and --seeds")
    found = tuple(
        Arm(
            arm.label,
            arm.study.with_values({**values, "name": f"{arm.study.name}; {options.told_changes}"}),
            arm.value,
        )
        for arm in arms
    )
    alike = {"name": "arm"}
    different = {arm.study.with_values(alike).digest() for arm in arms}
    for key, value in values.items():
        left = {arm.study.with_values({**alike, key: value}).digest() for arm in arms}
        if len(left) < len(different):
            raise InputError(f"--set {key}={value}: this item compares values of {key} itself")
    for arm in found:
        arm.study.check()
    return found


def _shortened(study: Study) -> Study:
    now: dict[str, Any] = {"": study.to_dict(), **study.to_dict()}
    least = {}
    for key, most in FAST.items():
        section, _, name = key.rpartition(".")
        least[key] = min(most, now[section][name])
    return study.with_values({**least, "name": f"fast {study.name}"})


def _read(path: Path) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return table
