"""Automatic choice: successive halving over model kind, dimension, width, delays and noise.

    tune(Study.load("study.toml"), out="tuned")

Candidates are studies that differ from the given one in a few keys. All run for an eighth of its
slots, the better half again for a quarter, and so on; the last are compared with the study as
given. Each trial is a run of its own in `DIR/slots-N/`: an algorithm may divide fewer slots
otherwise, so a short run is not the beginning of a long one. `DIR/tune.json` holds what was found,
`DIR/best.toml` the study that did best.

Trials have other seeds than the study, so that nothing is chosen on the test set of the study's
own run; and several, where sensors and trajectories are drawn. Sites tell what every run tells,
sums of errors on their held-out data, and no data.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.loader import read_toml
from fedkoopman.config.study import Study
from fedkoopman.config.user_files import moved
from fedkoopman.durable import held, write_whole
from fedkoopman.errors import ComputationError, InputError, MachineError, cause_of, system_error
from fedkoopman.evaluation import errors_over_holding
from fedkoopman.federation.sites import held_out
from fedkoopman.koopman.model import DeepKoopman
from fedkoopman.runs.candidates import Candidate, Refused, candidates, rungs_of, sizes_of
from fedkoopman.runs.experiment import experiment_of
from fedkoopman.runs.run import Progress, run
from fedkoopman.runs.run_directory import LOCK, RunDirectory, file_digests
from fedkoopman.runs.seed_directory import write_json
from fedkoopman.runs.site_preparation import Sites
from fedkoopman.runs.sweep import check_same, prepared_once, take_directory
from fedkoopman.systems.checks import check_count, check_seed

FORMAT = 1
LEADS = (1, 2, 5, 10, 20, 50, 100)
"""Applications of K after which predictions are compared, as far as test trajectories reach."""
APART = 1_000_000
"""Between the study's seed and that of the trials."""
BUDGET, LEAST_BUDGET = 10, 3
SEEDS = 3
"""Of each trial, where a seed draws sensors and trajectories: scores differ much between them."""
TINY = 1e-12
"""A smaller error, over that of holding, counts as this."""


@dataclass(frozen=True)
class Trial:
    """A candidate's run in one rung.

    Attributes:
        values: what differs from the study as given.
        score: geometric mean of `errors`; None if the trial failed.
        errors: of held-out states by lead, over those of holding the last state, geometric means
            over seeds; None where no test trajectory is that long.
        failure: why there is no score.
    """

    candidate: str
    values: dict[str, str]
    slots: int
    score: float | None
    errors: list[float | None]
    seconds: float
    failure: str = ""

    @property
    def rank(self) -> float:
        """By which trials of a rung are ordered, the best first."""
        return np.inf if self.score is None else self.score


class TuneProgress(NamedTuple):
    """How far a tuning has come.

    Attributes:
        title: the trial that runs.
        passed: slots of the trials before it.
        total: slots of all trials, each counted for every seed.
        event: a finished slot; None as a trial begins.
    """

    title: str
    passed: int
    total: int
    event: Progress | None


@dataclass(frozen=True)
class Tuning:
    """What a tuning found.

    Attributes:
        trials: in the order in which they ran.
        leads: applications of K to which a trial's errors belong.
        trial_seeds: of each trial.
        best, given: the last trials of the best study and of the study as given.
        study: the best, as it stands in `best.toml`.
        optimistic: whether the data on which it was chosen are those that every run is judged on.
    """

    trials: tuple[Trial, ...]
    refused: tuple[Refused, ...]
    leads: tuple[int, ...]
    trial_seeds: tuple[int, ...]
    best: Trial
    given: Trial
    study: Study
    optimistic: bool


@dataclass(frozen=True)
class _Journal:
    """What `tune.json` holds: the definition of a tuning, and its trials so far."""

    path: Path
    definition: dict[str, Any]
    trials: list[Trial]

    def find(self, candidate: str, slots: int) -> Trial | None:
        same = (one for one in self.trials if (one.candidate, one.slots) == (candidate, slots))
        return next(same, None)

    def add(self, trial: Trial) -> Trial:
        self.trials.append(trial)
        self.write()
        return trial

    def write(self, **more: Any) -> None:
        trials = [asdict(trial) for trial in self.trials]
        write_json(self.path, self.definition | {"trials": trials} | more)


def tune(
    study: Study,
    *,
    out: str | Path,
    budget: int | None = None,
    seed: int | None = None,
    seeds: int | None = None,
    resume: bool = False,
    progress: Callable[[TuneProgress], None] = lambda _: None,
) -> Tuning:
    """Find a better study of the same system and data.

    Arguments:
        study: as given; it is among the candidates.
        out: a directory for all trials and what they found.
        budget: how many runs of the study all trials may take together, counted in slots, with
            each seed; None means 10, or what the resumed tuning began with.
        seed: the first of every trial, and of the draw of candidates; None means the study's
            + 1,000,000, or what the resumed tuning began with.
        seeds: with how many each trial is run; None means 3 where clients are simulated and 1
            elsewhere, or what the resumed tuning began with.
        resume: go on with the tuning in `out`, if there is one: no finished trial is run again.
        progress: called as a trial begins, and after every slot.
    """
    out = Path(out)
    study.check()
    before = _recorded(out)
    old = before if before and resume else {}
    limit = check_count(old.get("budget", BUDGET) if budget is None else budget, "budget")
    if limit < LEAST_BUDGET:
        raise InputError(f"budget is {limit}: give at least {LEAST_BUDGET}, in runs of the study")
    count = old.get("seeds", _usual_seeds(study)) if seeds is None else seeds
    chosen_seeds = _trial_seeds(study, old.get("trial_seed") if seed is None else seed, count)
    trial_seed = chosen_seeds[0]
    rungs = rungs_of(study)
    sizes = sizes_of(rungs, limit)
    tried, refused = candidates(study, sizes[0], trial_seed)
    first = max(one.study.network.window for one in tried) - 1
    definition: dict[str, Any] = {
        "format": FORMAT,
        "study": study.name,
        "digest": study.digest(),
        "seed": study.seed,
        "trial_seed": trial_seed,
        "seeds": len(chosen_seeds),
        "budget": limit,
        "rungs": list(rungs),
        "first": first,
        "leads": _leads(study, first),
        "folder": str(study.root.absolute()),
        "files": file_digests(study),
        "candidates": {one.name: one.values for one in tried},
        "refused": [asdict(one) for one in refused],
    }
    _claim(out, study, definition, before, resume)
    with held(
        out / LOCK, f"{out} is in use by another process: wait for it, or choose another --out"
    ):
        trials = [Trial(**one) for one in (_recorded(out) or {"trials": []})["trials"]]
        journal = _Journal(out / "tune.json", definition, trials)
        last = _climb(journal, tried, rungs, sizes, progress)
        best, given = min(last, key=lambda trial: trial.rank), last[0]
        if best.score is None:
            raise ComputationError(
                f"none of {len(tried)} candidates could be scored, see {journal.path}; the study "
                f"as given: {given.failure}"
            )
        chosen = next(one.study for one in tried if one.name == best.candidate)
        chosen = replace(moved(chosen, out), name=f"{study.name}-tuned")
        write_whole(out / "best.toml", chosen.to_toml(comments=True).encode())
        journal.write(best=best.candidate)
    return Tuning(
        tuple(journal.trials), tuple(refused), tuple(definition["leads"]), chosen_seeds, best,
        given, chosen, bool(study.sites.files or study.recordings.test),
    )  # fmt: skip


def begun(out: Path) -> Study:
    """The study that the tuning in a directory was begun with; its files are where they were."""
    found = _recorded(out)
    if found is None:
        raise InputError(f"{out} holds no tuning to resume: check DIR, or begin without --resume")
    study = Study.from_dict(read_toml(out / "study.toml"), Path(found["folder"]))
    study.check()
    return study


def _recorded(out: Path) -> dict[str, Any] | None:
    """The tuning that a directory holds, if there is one."""
    path = out / "tune.json"
    damaged = f"{path} is damaged: choose another --out"
    try:
        if not path.is_file():
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
        its_format = found["format"]
        for trial in found["trials"]:
            Trial(**trial)
    except OSError as error:
        raise system_error(f"cannot read {path}", error) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(damaged) from error
    if its_format != FORMAT:
        raise InputError(f"{path} is of format {its_format!r}, not {FORMAT}: choose another --out")
    return found


def _claim(
    out: Path, study: Study, wanted: dict[str, Any], before: dict[str, Any] | None, resume: bool
) -> None:
    """Make the directory and record the tuning in it, or find that it holds this very tuning."""
    if before is None:
        take_directory(out, "tuning")
        _Journal(out / "tune.json", wanted, []).write()
        write_whole(out / "study.toml", study.to_toml().encode())
        return
    names = {
        "study": ("digest", "seed"),
        "seed": ("trial_seed",),
        "number of seeds": ("seeds",),
        "budget": ("budget",),
        "content of the files that the study names": ("files",),
        "choice of candidates, by another version": ("rungs", "first", "leads", "candidates"),
    }
    pairs = {
        name: ([before.get(key) for key in keys], [wanted[key] for key in keys])
        for name, keys in names.items()
    }
    check_same(out, "tuning", "tune.json", pairs, resume)


def _usual_seeds(study: Study) -> int:
    """With sites or recordings, a seed changes neither what is learned from nor what is scored."""
    return 1 if study.sites.files or study.recordings.train else SEEDS


def _trial_seeds(study: Study, first: int | None, count: int) -> tuple[int, ...]:
    if first is None:
        first = study.seed + (APART if study.seed < 2**62 else -APART)
    last = check_seed(check_seed(first) + check_count(count, "seeds") - 1)
    if first <= study.seed <= last:
        raise InputError(
            f"seeds {first} to {last} include the study's own, {study.seed}, whose test set a run "
            "is judged on: give another --seed"
        )
    return tuple(range(first, last + 1))


def _leads(study: Study, first: int) -> list[int]:
    """Leads for which at least half of a trajectory's samples can start a prediction."""
    reach = (study.segments.steps - first) // 2
    return [lead for lead in LEADS if lead == 1 or lead * study.network.depth <= reach]


def _climb(
    journal: _Journal,
    tried: Sequence[Candidate],
    rungs: Sequence[int],
    sizes: Sequence[int],
    progress: Callable[[TuneProgress], None],
) -> list[Trial]:
    """Run the study as given, then rung after rung; the trials with all slots, its own first."""
    given, *left = tried
    seeds = journal.definition["seeds"]
    sites: dict[str, Sites] = {}
    passed = 0

    def attempt(one: Candidate, slots: int, where: str, total: int) -> Trial:
        nonlocal passed
        before, title = passed, f"{where}: {one.name}"

        def tell(event: Progress | None) -> None:
            progress(TuneProgress(title, before, total, event))

        tell(None)
        trial = journal.find(one.name, slots)
        trial = trial or journal.add(_trial(journal, one, slots, sites, tell))
        passed += slots * seeds
        return trial

    def ahead(rung: int) -> int:
        plan = zip(sizes[rung:], rungs[rung:], strict=True)
        return sum(min(size, len(left)) * slots * seeds for size, slots in plan)

    last = [attempt(given, rungs[-1], "first", rungs[-1] * seeds + ahead(0))]
    for rung, slots in enumerate(rungs):
        total, where = passed + ahead(rung), f"rung {rung + 1} of {len(rungs)}"
        found = [
            attempt(one, slots, f"{where}, {place} of {len(left)}", total)
            for place, one in enumerate(left, 1)
        ]
        if slots == rungs[-1]:
            last += found
            break
        scored = sorted((one for one in found if one.score is not None), key=lambda one: one.rank)
        better = {one.candidate for one in scored[: sizes[rung + 1]]}
        left = [one for one in left if one.name in better]
    return last


def _trial(
    journal: _Journal,
    candidate: Candidate,
    slots: int,
    sites: dict[str, Sites],
    tell: Callable[[Progress], None],
) -> Trial:
    """Run a candidate and score its model; a failure is an outcome too."""
    about = journal.definition
    study = replace(candidate.study, seed=about["trial_seed"], slots=slots)
    seeds = tuple(range(study.seed, study.seed + about["seeds"]))
    out = journal.path.parent / f"slots-{slots}" / candidate.name
    if (out / "run.json").exists():  # damage is no failure of the candidate
        with RunDirectory.open(out, study, seeds, True) as directory:
            for seed in seeds:
                directory.of_seed(seed).restore()
    seconds, errors, failure = 0.0, list[float | None](), ""
    try:
        prepared = prepared_once(study, sites)
        done = run(
            study, seeds=seeds, out=out, resume=True, progress=tell, sites=prepared, evidence=False
        )
        seconds = done.summary["seconds"]
        ratios = np.array(
            [
                errors_over_holding(
                    _prediction(model),
                    [one.trajectories for one in held_out(experiment_of(study, seed, prepared))],
                    about["leads"],
                    first=about["first"],
                    depth=study.network.depth,
                    inputs=len(study.network.inputs),
                )
                for seed, model in zip(seeds, done.models, strict=True)
            ]
        )
        means = np.exp(np.mean(np.log(np.maximum(ratios, TINY)), axis=0))
        errors = [float(mean) if np.isfinite(mean) else None for mean in means]
        if not done.summary["rounds"]:
            failure = f"nobody trained in its {slots} slots"
        elif np.isinf(ratios).any() or done.summary["loss"]["mean"] is None:
            failure = "it diverged: its losses or forecasts are not finite"
        elif np.isnan(means).all():
            failure = "no held-out trajectory is long enough to compare predictions on"
    except MachineError:
        raise
    except (ComputationError, InputError) as error:
        failure = str(error)
    except np.linalg.LinAlgError as error:
        failure = cause_of(error)
    known = [error for error in errors if error is not None]
    score = None if failure else float(np.exp(np.mean(np.log(known))))
    return Trial(candidate.name, candidate.values, slots, score, errors, seconds, failure)


def _prediction(model: DeepKoopman) -> Callable[[NDArray, int], NDArray]:
    """From rows of states and inputs to the states so many applications of K later."""
    dim = model.architecture_.state_dim

    def predict(rows: NDArray, lead: int) -> NDArray:
        U = rows[..., dim:] if model.n_inputs_ else None
        return np.asarray(model.predict(rows[..., :dim], lead, U=U))

    return predict
