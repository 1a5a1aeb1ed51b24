"""`fk.run`: a study, one seed or many, in memory or in a directory that survives anything."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from fedkoopman.cell_output import facts
from fedkoopman.config.study import Study
from fedkoopman.errors import InputError, short
from fedkoopman.estimation.estimates import cores
from fedkoopman.federation.experiment import Experiment
from fedkoopman.federation.messages import Arrays, Message
from fedkoopman.federation.privacy import privacy_told
from fedkoopman.federation.simulation import Outcome, simulate_federation
from fedkoopman.federation.slot import State
from fedkoopman.federation.workers import Urgency, Workers
from fedkoopman.koopman.frames import pandas
from fedkoopman.koopman.model import DeepKoopman
from fedkoopman.plot import draw
from fedkoopman.runs.comparison import (
    Holdings,
    answer,
    benefit_entry,
    compared,
    hidden,
    holdings_of,
)
from fedkoopman.runs.evidence import evidence_of, holdings_of_clients
from fedkoopman.runs.experiment import experiment_of
from fedkoopman.runs.progress import told
from fedkoopman.runs.results import METRICS, model_of, rollout_of, site_scores, summarise
from fedkoopman.runs.run_directory import RunDirectory, seconds_told, summary_in
from fedkoopman.runs.seed_directory import SeedDirectory, write_json
from fedkoopman.runs.site_preparation import Sites, prepared_sites
from fedkoopman.signals import signals_as_events
from fedkoopman.systems.checks import check_count, check_seed
from fedkoopman.user_code import interrupt_calls

MOST_SEEDS = 10_000
TOGETHER = 8
"""Seeds that run at a time; each holds the segments of some slots in memory."""


class Progress(NamedTuple):
    """A finished slot, as it is told to a progress bar."""

    seed: int
    slot: int
    slots: int
    record: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        study: what was run.
        seeds: which seeds.
        models: the shared model of each seed; of a run that was loaded, read when asked for.
        all_records: by seed, one record per slot.
        summary: tail means and their spread over seeds.
        out: the directory, if there is one.
        sites: names of real sites, in the order of their numbers in records.
    """

    study: Study
    seeds: tuple[int, ...]
    models: Sequence[DeepKoopman]
    all_records: dict[int, list[dict[str, Any]]]
    summary: dict[str, Any]
    out: Path | None = None
    sites: tuple[str, ...] = ()

    @property
    def model(self) -> DeepKoopman:
        """The model of the first seed."""
        return self.models[0]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records of the first seed."""
        return self.all_records[self.seeds[0]]

    def to_frame(self) -> Any:
        """A DataFrame of the records, one row per seed and slot; numbers that were not finite are
        NaN, and lists, as of the clients that trained, stay lists."""
        rows = [{"seed": s, **record} for s, mine in self.all_records.items() for record in mine]
        frame = pandas().DataFrame(rows, columns=None if rows else ["seed", "slot", *METRICS])
        numbers = [name for name in METRICS if name in frame]
        return frame.astype(dict.fromkeys(numbers, float))

    def plot(self, what: str = "learning_curves", **options: Any) -> Any:
        """Draw the run: "learning_curves" or "raster", or of its first model "spectrum" or "modes".

        Arguments:
            options: of the function of that name in `fk.plot`, as `ax`.
        """
        return draw(what, ("learning_curves", "raster", "spectrum", "modes"), self, **options)

    def __repr__(self) -> str:
        return f"<Run {', '.join(f'{name} {fact}' for name, fact in self._facts)}>"

    def _repr_html_(self) -> str:
        return facts("Run", self._facts)

    @property
    def _facts(self) -> list[tuple[str, Any]]:
        """What is told of it in a line or in a notebook."""
        done, summary = len(self.records), self.summary
        seeds = f"{self.seeds[0]}" if len(self.seeds) == 1 else f"{len(self.seeds)}"
        told = [("study", self.study.name), ("seeds" if len(self.seeds) > 1 else "seed", seeds)]
        slots = f"{done}" if done == self.study.slots else f"{done} of {self.study.slots}"
        told.append(("slots", slots))
        for name, words in (("E", "E"), ("l3", "ℓ3"), ("horizon", "valid steps")):
            entry = summary.get(name) or {}
            if entry.get("mean") is not None:
                spread = f" ± {entry['std']:.2g}" if len(self.seeds) > 1 else ""
                told.append((words, f"{entry['mean']:.4g}{spread}"))
        return told + ([("directory", self.out)] if self.out else [])


@dataclass
class _Seed:
    """What is known of one seed so far."""

    experiment: Experiment
    names: Sequence[str] = ()
    files: SeedDirectory | None = None
    state: State | None = None
    untrained: dict[str, Any] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    before: float = 0.0
    """Seconds that it ran before it was resumed."""
    saved: float = field(default_factory=time.monotonic)
    """When its last checkpoint was written."""

    @property
    def finished(self) -> bool:
        return self.state is not None and self.state.slot == self.experiment.slots

    @property
    def final(self) -> Arrays:
        """The model of the last slot."""
        assert self.state is not None
        problem = self.experiment.problem
        return problem.algorithm.model(problem, self.state.arrays)

    @cached_property
    def private(self) -> dict[str, Any]:
        """The summary's entry on privacy, once the last slot is over."""
        assert self.state is not None
        problem = self.experiment.problem
        names = self.names or [f"client-{n}" for n in range(problem.clients)]
        return privacy_told(problem, self.state.arrays, names)

    def take(self, outcome: Outcome, checkpoint_seconds: float) -> None:
        """Keep a finished slot; an interruption may come between any two lines."""
        record = {name: _storable(value) for name, value in outcome.record.items()}
        if record["slot"] == 0:
            self.untrained = {name: record[name] for name in METRICS}
            if self.files:
                self.files.begin(self.untrained)
        else:
            record["seconds"] = round(record["seconds"] + self.before, 3)
            if self.files:
                self.files.append(record)
            self.records.append(record)
        self.state = outcome.state
        if self.files and time.monotonic() - self.saved >= checkpoint_seconds:
            self.save()

    def save(self) -> None:
        if self.files and self.state:
            self.files.save(self.state)
            self.saved = time.monotonic()


def run(
    study: Study | str | Path | None = None,
    *,
    seeds: int | Sequence[int] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[Progress], None] | bool | None = None,
    checkpoint_seconds: float = 1.0,
    sites: Sites | None = None,
    evidence: bool = True,
    alone: bool = False,
) -> Run:
    """Run a study.

    Arguments:
        study: what to run, or the path of a study file; None is the paper's default experiment.
        seeds: how many, counted from the study's own, or which; None means one, or those of the
            run that is resumed.
        out: a directory for records, checkpoints, models and the summary; None keeps all in memory.
        resume: go on with the run in `out`, if there is one.
        progress: True shows a bar, on a terminal or in a notebook; a function is called after
            every slot of every seed, from the calling thread.
        checkpoint_seconds: how often a seed's state is saved.
        sites: what `prepared_sites` made of the study's site files, if that is done already.
        evidence: whether the directory gets `evidence.json`, which reports show (`runs.evidence`);
            it takes some seconds at the end.
        alone: whether the shared model is compared with what every simulated client would have
            learned by itself, which takes about as long as one seed; of real sites it always is.

    An interruption (Ctrl-C) saves the state of every seed before it is raised.
    """
    if study is None:
        study = Study.paper_default()
    elif isinstance(study, str | Path):
        study = Study.load(study)
    if not isinstance(study, Study):
        raise InputError(
            f"study is {short(study)}: give a fedkoopman.Study, or a study file's path"
        )
    chosen = _seeds(study, seeds)
    if out is not None and not str(out):
        raise InputError("out is empty: give the name of a directory")
    if study.sites.files and sites is None:
        sites = prepared_sites(study)  # whose errors come before anything is written
    if out is None:
        study.check()
        own = chosen or (study.seed,)
        return _run(study, own, sites, None, progress, checkpoint_seconds, False, alone)
    with RunDirectory.open(Path(out), study, chosen, resume) as found:
        return _run(
            found.study, found.seeds, sites, found, progress, checkpoint_seconds, evidence, alone
        )


def _run(
    study: Study,
    seeds: tuple[int, ...],
    sites: Sites | None,
    directory: RunDirectory | None,
    wanted: Callable[[Progress], None] | bool | None,
    checkpoint_seconds: float,
    evidence: bool,
    alone: bool,
) -> Run:
    with told(wanted, study.slots * len(seeds)) as progress:
        return _run_all(
            study, seeds, sites, directory, progress, checkpoint_seconds, evidence, alone
        )


def _run_all(
    study: Study,
    seeds: tuple[int, ...],
    sites: Sites | None,
    directory: RunDirectory | None,
    progress: Callable[[Progress], None] | None,
    checkpoint_seconds: float,
    evidence: bool,
    alone: bool,
) -> Run:
    names = [] if sites is None else [site.name for site in sites.sites]
    runs = {seed: _Seed(experiment_of(study, seed, sites), names) for seed in seeds}
    if directory:
        for seed, one in runs.items():
            one.files = directory.of_seed(seed)
            one.state, one.untrained, one.records = one.files.restore()
            if one.records:
                last = one.records[-1]
                one.before = last["seconds"]
                if progress is not None:
                    progress(Progress(seed, last["slot"], study.slots, last))
    began = time.monotonic()
    old = seconds_told(directory.path) if directory else None
    before: dict[str, Any] = {}
    if directory and old is not None and all(one.finished for one in runs.values()):
        seconds, before = old, summary_in(directory.path)
    else:
        _drive(runs, progress, checkpoint_seconds)
        seconds = max(one.before for one in runs.values()) + time.monotonic() - began
    models, names = [], [site.name for site in sites.sites] if sites else []
    for seed, one in runs.items():
        model = model_of(study, one.experiment, one.final, one.records, one.private)
        models.append(model)
        if one.files:
            rollout = rollout_of(one.experiment, model)
            told = summarise(study, {seed: one.records}, {seed: one.untrained}, names=names)
            told |= one.private
            one.files.finish(model, rollout, told)
    records = {seed: one.records for seed, one in runs.items()}
    untrained = {seed: one.untrained for seed, one in runs.items()}
    summary = summarise(study, records, untrained, seconds, names)
    summary |= runs[seeds[0]].private
    # What sites learn alone takes as long as the run: it is not learned again.
    known = {"benefit": before["benefit"]} if "benefit" in before else None
    first = runs[seeds[0]]
    if sites is not None:
        summary["sites"] = site_scores(sites, models[0], study.evaluation.horizon)
        summary["parameters"] = {n: {"mean": m, "std": s} for n, (m, s) in sites.parameters.items()}
        if study.privacy.mode != "site":  # to compare, sites would send sums of their states
            holdings = holdings_of(first.experiment, sites)
            summary |= known or _benefit(first, holdings, models[0].relift_)
    elif known or alone:
        summary |= known or _benefit(
            first, holdings_of_clients(first.experiment), models[0].relift_
        )
    if evidence and first.files:
        first.files.show(evidence_of(first.experiment, models[0], sites))
    if directory:
        write_json(directory.path / "summary.json", summary)
    out = directory.path if directory else None
    return Run(study, seeds, tuple(models), records, summary, out, tuple(names))


def _benefit(one: _Seed, holdings: Mapping[str, Holdings], relift: int) -> dict[str, Any]:
    """The first seed's model beside what it should beat; sites are asked as a server asks them."""
    problem = one.experiment.problem
    with Workers(cores()) as workers:

        def exchange(request: Message) -> dict[str, Message]:
            replies = workers.map(
                Urgency.TRAIN, lambda own: answer(problem, request, own), holdings.values()
            )
            return hidden(problem, request, dict(zip(holdings, replies, strict=True)))

        return benefit_entry(problem, compared(problem, one.final, relift, exchange))


def _seeds(study: Study, seeds: int | Sequence[int] | None) -> tuple[int, ...] | None:
    if seeds is None:
        return None
    if not isinstance(seeds, Sequence | np.ndarray):
        count = check_count(seeds, "seeds")
        if count > MOST_SEEDS:
            raise InputError(f"seeds is {count}: give at most {MOST_SEEDS}")
        check_seed(study.seed + count - 1)
        return tuple(range(study.seed, study.seed + count))
    chosen = tuple(check_seed(seed) for seed in seeds)
    if not chosen or len(set(chosen)) < len(chosen):
        raise InputError(f"seeds is {short(seeds)}: give a count, or distinct seeds")
    return chosen


def _drive(
    runs: dict[int, _Seed], progress: Callable[[Progress], None] | None, checkpoint_seconds: float
) -> None:
    """Run all seeds at once; this thread alone keeps records and tells progress."""
    waiting = {seed: one for seed, one in runs.items() if not one.finished}
    if not waiting:
        return
    events: SimpleQueue[tuple[int, Outcome | BaseException | None]] = SimpleQueue()
    stop = threading.Event()
    workers = Workers(cores())
    drivers = ThreadPoolExecutor(min(len(waiting), TOGETHER), "seed")

    def drive(seed: int, one: _Seed) -> None:
        try:
            for outcome in simulate_federation(one.experiment, workers, one.state):
                events.put((seed, outcome))
                if stop.is_set():
                    return
            events.put((seed, None))
        except BaseException as error:
            events.put((seed, error))

    with signals_as_events(lambda: events.put((-1, KeyboardInterrupt()))):
        try:
            for seed, one in waiting.items():
                drivers.submit(drive, seed, one)
            left = len(waiting)
            while left:
                seed, event = events.get()
                if isinstance(event, BaseException):
                    raise event
                if event is None:
                    runs[seed].save()
                    left -= 1
                    continue
                runs[seed].take(event, checkpoint_seconds)
                if progress is not None and runs[seed].records:
                    record = runs[seed].records[-1]
                    progress(Progress(seed, record["slot"], runs[seed].experiment.slots, record))
        except KeyboardInterrupt:
            for one in waiting.values():
                one.save()
            raise
        finally:
            # Jobs first: a driver that waits for one goes on to its end only when they are gone.
            stop.set()
            interrupt_calls()
            workers.close()
            drivers.shutdown(cancel_futures=True)


def _storable(value: Any) -> Any:
    """What is not finite is null, in memory as on disk."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
