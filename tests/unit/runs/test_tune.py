"""Tunings of tiny studies: what is chosen and kept, failures, interruptions, resumption."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.config.study import Study
from fedkoopman.errors import ComputationError, InputError, MachineError
from fedkoopman.federation.sites import held_out
from fedkoopman.runs import tune as tune_module
from fedkoopman.runs.candidates import GIVEN
from fedkoopman.runs.experiment import experiment_of
from fedkoopman.runs.run import run
from fedkoopman.runs.tune import TuneProgress, Tuning, begun, tune

TINY = Study.paper_default(
    slots=8,
    seed=3,
    segments={"steps": 30},
    clients={"count": 2, "probability": 1.0},
    training={"epochs": 1},
    algorithm={"name": "fedavg-m"},  # which learns kinds that compile fast
    policy={"segments": 1},
    evaluation={"trajectories": 2},
)
SLOTS = (2, 4, 8)
SITE = """
name = "lab"
[data]
files = "z.npz"
[sensor]
kind = "identity"
[noise]
observation = 0.01
process = 0.01
"""


def tuned(out: Path, study: Study = TINY, **options: Any) -> Tuning:
    return tune(study, out=out, **{"budget": 4, "seeds": 1} | options)


def found_in(out: Path) -> dict[str, Any]:
    """What `tune.json` says but for times."""
    found = json.loads((out / "tune.json").read_text(encoding="utf-8"))
    for trial in found["trials"]:
        trial.pop("seconds")
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def counting(monkeypatch: pytest.MonkeyPatch, fail: Callable[[Study], None] = lambda _: None):
    """The studies that are run, in order."""
    seen: list[Study] = []

    def counted(study: Study, **options: Any) -> Any:
        seen.append(study)
        fail(study)
        return run(study, **options)

    monkeypatch.setattr(tune_module, "run", counted)
    return seen


def test_the_better_half_goes_on_and_the_best_is_a_study(tmp_path: Path) -> None:
    seen: list[TuneProgress] = []
    out = tmp_path / "out"
    tuning = tuned(out, progress=seen.append)
    rungs = {n: [one for one in tuning.trials if one.slots == n] for n in SLOTS}
    assert (tuning.trials[0].candidate, tuning.trials[0].slots) == (GIVEN, 8)
    assert [len(rungs[n]) for n in SLOTS] == [4, 2, 2]  # the last with the study as given
    for lower, upper in ((rungs[2], rungs[4]), (rungs[4], rungs[8][1:])):
        better = sorted(lower, key=lambda one: one.score)[: len(lower) // 2]
        assert {one.candidate for one in upper} == {one.candidate for one in better}
    assert tuning.given.candidate == GIVEN
    assert tuning.best == min(rungs[8], key=lambda one: one.score)
    assert not tuning.optimistic and not tuning.refused
    for trial in tuning.trials:
        assert trial.score == pytest.approx(np.exp(np.mean(np.log(trial.errors))))
        study = Study.load(out / f"slots-{trial.slots}" / trial.candidate / "study.toml")
        expected = {"seed": 1_000_003, "slots": trial.slots} | trial.values
        assert study == TINY.with_values(expected)
    best = Study.load(out / "best.toml")
    assert best == TINY.with_values(tuning.best.values | {"name": "paper-default-tuned"})
    assert best == tuning.study
    assert found_in(out)["best"] == tuning.best.candidate
    assert seen[-1].passed + 8 == seen[-1].total
    assert len([one for one in seen if one.event is None]) == len(tuning.trials)


def test_a_score_compares_predictions_with_holding(tmp_path: Path) -> None:
    """By hand, from the models in a trial's directory and the test trajectories of their seeds."""
    tuning = tuned(tmp_path, budget=3, seeds=2)
    assert tuning.trial_seeds == (1_000_003, 1_000_004)
    definition = found_in(tmp_path)
    first, [*leads] = definition["first"], definition["leads"]
    assert leads == [1, 2, 5, 10]
    for trial in tuning.trials:
        folder = tmp_path / f"slots-{trial.slots}" / trial.candidate
        study = Study.load(folder / "study.toml")
        ratios = np.ones((2, len(leads)))
        for i, seed in enumerate(tuning.trial_seeds):
            model = fk.load_model(folder / f"seed-{seed}" / "model.safetensors")
            [test] = held_out(experiment_of(study, seed))
            for j, lead in enumerate(leads):
                guesses, truths, starts = [], [], []
                for x in test.trajectories:
                    for k in range(first, len(x) - lead):
                        window = x[k + 1 - study.network.window : k + 1]
                        start = window if len(window) > 1 else window[0]
                        guesses.append(model.simulate(start, lead)[-1])
                        truths.append(x[k + lead])
                        starts.append(x[k])
                square = np.mean(np.subtract(guesses, truths) ** 2, axis=0)
                still = np.mean(np.subtract(starts, truths) ** 2, axis=0)
                ratios[i, j] = np.sqrt(np.mean(square / still))
        assert trial.errors == pytest.approx(np.sqrt(ratios[0] * ratios[1]), rel=1e-6)
        assert trial.score == pytest.approx(np.exp(np.mean(np.log(ratios))), rel=1e-6)


@pytest.mark.parametrize(
    "stop_at", [(2, 1), *(pytest.param(at, marks=pytest.mark.slow) for at in ((0, 3), (7, 5)))]
)
def test_interrupted_and_resumed_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: tuple[int, int]
) -> None:
    """Stopped in a slot of some trial: what is finished stays, byte for byte, and is not run."""
    whole = tuned(tmp_path / "whole")
    begins = 0

    def stop(at: TuneProgress) -> None:
        nonlocal begins
        begins += at.event is None
        if at.event is not None and (begins - 1, at.event.slot) == stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "out", progress=stop)
    trials = found_in(tmp_path / "out")["trials"]
    assert len(trials) == stop_at[0]
    folders = [tmp_path / "out" / f"slots-{one['slots']}" / one["candidate"] for one in trials]
    before = [contents(folder) for folder in folders]
    seen = counting(monkeypatch)
    resumed = tune(TINY, out=tmp_path / "out", resume=True)  # with the budget that it had
    assert len(seen) == len(whole.trials) - stop_at[0]
    assert [contents(folder) for folder in folders] == before
    assert found_in(tmp_path / "out") == found_in(tmp_path / "whole")
    assert (resumed.best.values, resumed.best.score) == (whole.best.values, whole.best.score)
    for trial in whole.trials:
        model = f"slots-{trial.slots}/{trial.candidate}/seed-1000003/model.safetensors"
        assert (tmp_path / "out" / model).read_bytes() == (tmp_path / "whole" / model).read_bytes()
    assert (tmp_path / "out/best.toml").read_bytes() == (tmp_path / "whole/best.toml").read_bytes()
    seen.clear()
    after = contents(tmp_path / "out")
    assert tune(TINY, out=tmp_path / "out", resume=True) == resumed
    assert not seen and contents(tmp_path / "out") == after


def test_a_trial_that_ended_unrecorded_is_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after a run and before its score was written: the run's files give the score."""
    tuned(tmp_path / "whole", budget=3)
    write = tune_module._Journal.write

    def killed(journal: Any, **more: Any) -> None:
        if len(journal.trials) == 2:
            raise SystemExit
        write(journal, **more)

    monkeypatch.setattr(tune_module._Journal, "write", killed)
    with pytest.raises(SystemExit):
        tuned(tmp_path / "out", budget=3)
    monkeypatch.setattr(tune_module._Journal, "write", write)
    [folder] = (tmp_path / "out" / "slots-2").iterdir()
    records = (folder / "seed-1000003/records.jsonl").stat()
    events: list[TuneProgress] = []
    tuned(tmp_path / "out", budget=3, resume=True, progress=events.append)
    assert (folder / "seed-1000003/records.jsonl").stat().st_ino == records.st_ino
    mine = [one.event.slot for one in events if one.event and one.title.endswith(folder.name)]
    assert mine[0] == 2  # its last slot, told as done
    assert found_in(tmp_path / "out") == found_in(tmp_path / "whole")


def test_a_candidate_that_fails_is_recorded_and_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(study: Study) -> None:
        if study.network.window == 4:
            raise ComputationError("its filter diverged")
        if study.network.window == 2:
            raise np.linalg.LinAlgError("Singular matrix")

    seen = counting(monkeypatch, fail)
    tuning = tuned(tmp_path, budget=8)
    failures = {one.failure for one in tuning.trials if one.score is None}
    assert failures == {"its filter diverged", "LinAlgError: Singular matrix"}
    for trial in tuning.trials:
        window = int(trial.values.get("network.window", 1))
        assert (window > 1) == bool(trial.failure) == (trial.score is None)
        assert trial.slots == 2 or not trial.failure
    count = len(seen)
    assert tune(TINY, out=tmp_path, resume=True) == tuning
    assert len(seen) == count


def test_a_study_that_fails_itself_may_be_improved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(study: Study) -> None:
        if study.network == TINY.network:
            raise ComputationError("it is the one as given")

    counting(monkeypatch, fail)
    tuning = tuned(tmp_path, budget=3)
    assert tuning.given.failure == "it is the one as given"
    assert tuning.best.score is not None


def test_models_that_diverged_or_never_trained_are_failures(tmp_path: Path) -> None:
    wild = TINY.with_values({"training.learning_rate": 1e12, "slots": 1})
    with pytest.raises(ComputationError, match="none of 3 candidates could be scored"):
        tuned(tmp_path / "wild", wild, budget=3)
    for trial in found_in(tmp_path / "wild")["trials"]:
        assert "nobody trained" in trial["failure"] or "diverged" in trial["failure"]
    idle = TINY.with_values({"policy.segments": 100, "slots": 1})
    with pytest.raises(ComputationError, match="nobody trained in its 1 slots"):
        tuned(tmp_path / "idle", idle, budget=3)
    assert not (tmp_path / "idle/best.toml").exists()


def test_a_failing_machine_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Study) -> None:
        raise MachineError("the disk is full")

    counting(monkeypatch, full)
    with pytest.raises(MachineError):
        tuned(tmp_path)
    assert found_in(tmp_path)["trials"] == []


def test_a_damaged_run_stops_it(tmp_path: Path) -> None:
    """What happened to a file says nothing about the candidate."""

    def stop(at: TuneProgress) -> None:
        if at.event is not None and at.event.slot == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path, progress=stop)
    checkpoint = tmp_path / "slots-8" / GIVEN / "seed-1000003/checkpoint/state.safetensors"
    checkpoint.write_bytes(b"nonsense")
    with pytest.raises(InputError, match="is damaged"):
        tune(TINY, out=tmp_path, resume=True)
    assert found_in(tmp_path)["trials"] == []


def test_another_tuning_is_refused(tmp_path: Path) -> None:
    tuned(tmp_path, budget=3)
    before = contents(tmp_path)
    with pytest.raises(InputError, match="holds a tuning already: go on with --resume"):
        tuned(tmp_path, budget=3)
    for study, options, says in (
        (TINY.with_values({"slots": 9}), {}, "another study"),
        (TINY.with_values({"seed": 1}), {}, "another study"),
        (TINY, {"budget": 4}, "another budget"),
        (TINY, {"seed": 5}, "another seed"),
        (TINY, {"seeds": 2}, "another number of seeds"),
    ):
        with pytest.raises(InputError, match=says):
            tune(study, out=tmp_path, resume=True, **options)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"budget": 2}, "budget is 2: give at least 3"),
        ({"budget": 0}, "budget"),
        ({"seed": 3}, "seeds 3 to 3 include the study's own, 3"),
        ({"seed": 1, "seeds": 5}, "seeds 1 to 5 include the study's own, 3"),
        ({"seed": 2**63 - 1, "seeds": 2}, "seed is"),
        ({"seeds": 0}, "seeds is 0"),
        ({"seed": -1}, "seed"),
        ({"study": TINY.with_values({"network.components": 2})}, "network.components is 2"),
    ],
    ids=str,
)
def test_all_is_checked_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        tuned(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "trials": [{}]}', '{"format": 9}'])
def test_a_damaged_journal_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tune.json").write_text(text, encoding="utf-8")
    for resume in (False, True):
        with pytest.raises(InputError, match=r"tune\.json is .*choose another --out"):
            tuned(tmp_path, resume=resume)
    assert contents(tmp_path) == {"tune.json": text.encode()}


def test_a_study_of_sites(tmp_path: Path) -> None:
    """Its files are found from `best.toml` too; what it is chosen by, every run is judged on; and
    with other data it is not gone on with."""
    home, out = tmp_path / "home", tmp_path / "out"
    (home / "lab").mkdir(parents=True)
    swings = fk.simulate(fk.systems.VanDerPol(), steps=20, batch=4)
    np.savez(home / "lab/z.npz", **{f"s{i}": x for i, x in enumerate(swings)})
    (home / "lab/site.toml").write_text(SITE, encoding="utf-8")
    (home / "own.py").write_text("from fedkoopman.systems import VanDerPol as Own\n")
    table = {
        "slots": 2,
        "system": {"name": "own.py:Own"},
        "sites": {"files": ["lab/site.toml"]},
        "clients": {"count": 1, "probability": 1.0},
        "segments": {"steps": 20},
        "network": {"components": 3, "width": 4},
        "training": {"epochs": 1},
        "algorithm": {"name": "fedavg-m"},
        "policy": {"segments": 1},
        "evaluation": {"horizon": 2},
    }
    study = Study.from_dict(table, home)
    tuning = tuned(out, study, budget=3, seeds=None)
    assert tuning.optimistic and tuning.trial_seeds == (1_000_000,)
    assert not any("clients.process_noise" in one.values for one in tuning.trials)
    best = Study.load(out / "best.toml")
    assert best.sites.files == ("../home/lab/site.toml",)
    assert best.system.name == "../home/own.py:Own"
    assert run(best).summary["sites"]["lab"]["held_out_segments"] == 1
    assert begun(out) == study
    assert tomllib.loads((out / "study.toml").read_text())["sites"]["files"] == ["lab/site.toml"]
    np.savez(home / "lab/z.npz", **{f"s{i}": 2 * x for i, x in enumerate(swings)})
    with pytest.raises(InputError, match="another content of the files"):
        tune(study, out=out, resume=True)
