"""Studies of the items: equal experiments are equal studies, and --fast makes them small."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedkoopman.config.study import Study
from fedkoopman.errors import InputError
from fedkoopman.federation.sites import held_out
from fedkoopman.koopman.model import DeepKoopman
from fedkoopman.paper.arms import Arm, Measured, Runs, variant
from fedkoopman.paper.items import Findings, Options, Table
from fedkoopman.runs.experiment import experiment_of


def test_a_variant_is_named_after_what_differs() -> None:
    assert variant({}) == variant({"training.epochs": 10}) == Study.paper_default()
    study = variant({"training.epochs": 20, "clients.count": 5})
    assert study.name == "paper: training.epochs=20"
    assert study.training.epochs == 20


def test_runs_are_collected_and_resumed(tmp_path: Path) -> None:
    """Two arms, two seeds, through the real engine; again, with the runs there."""
    small = {"segments.steps": 12, "policy.segments": 1, "training.epochs": 1}
    arms = (
        Arm("a", variant({**small, "slots": 20})),
        Arm("b", variant({**small, "slots": 3, "scheme": "observations"}), 3.0),
    )
    seen: list[dict[str, Measured]] = []

    def judge(found: dict[str, Measured]) -> Findings:
        seen.append(found)
        return Findings((), Table((), ()), ())

    def one_step(study: Study, seed: int, model: DeepKoopman) -> dict[str, float]:
        tests = [test.trajectories for test in held_out(experiment_of(study, seed))]
        error = [np.mean((model.predict(x)[:, :-1] - x[:, 1:]) ** 2) for x in tests]
        held = [np.mean((x[:, :-1] - x[:, 1:]) ** 2) for x in tests]
        return {"error": float(np.mean(error)), "held": float(np.mean(held))}

    item, told = Runs(lambda _: arms, judge, rollouts=True, models=one_step), []
    options = Options(tmp_path / "runs", seeds=2, seed=4, fast=True)
    assert item.slots(options) == 2 * (12 + 3)
    numbers = item.compute(options, told.append)
    assert [what for what in told if isinstance(what, str)] == ["1 of 2: a", "2 of 2: b"]
    item.findings(json.loads(json.dumps(numbers)))
    a, b = seen[0]["a"], seen[0]["b"]
    assert a.table["seeds"] == [4, 5] and b.value == 3.0
    assert a.curves("E").shape == (2, 12) and b.slots == 3
    np.testing.assert_allclose(a.tail("loss"), a.curves("loss")[:, -4:].mean(axis=1))
    assert (a.untrained("loss") > 0).all() and (a.persistence("E") > 0).all()
    assert len(a.table["rollouts"]) == 2
    # ℓ₃ of the last slot is the final model's one-step error on all test trajectories
    for one in (a, b):
        final, held = ([seed[name] for seed in one.table["models"]] for name in ("error", "held"))
        np.testing.assert_allclose(one.last("l3"), final, rtol=1e-5)
        np.testing.assert_allclose(one.persistence("l3"), held)
    records = {p: p.read_bytes() for p in tmp_path.rglob("records.jsonl")}
    assert len(records) == 4
    assert item.compute(options, lambda _: None) == numbers
    assert {p: p.read_bytes() for p in tmp_path.rglob("records.jsonl")} == records
    # More seeds are added; fewer, or others, are taken from all that are there.
    more = item.compute(replace(options, seeds=3), lambda _: None)["arms"]
    assert [one["seeds"] for one in more] == [[4, 5, 6]] * 2
    assert more[0]["curves"]["E"][:2] == numbers["arms"][0]["curves"]["E"]
    assert {p: p.read_bytes() for p in records} == records
    [first, _] = item.compute(replace(options, seeds=1, seed=3), lambda _: None)["arms"]
    assert first["seeds"] == [3]
    again = item.compute(options, lambda _: None)["arms"]
    assert [one["curves"] for one in again] == [one["curves"] for one in numbers["arms"]]


def test_settings_tell_studies_and_seeds_apart() -> None:
    item = Runs(lambda _: (Arm("a", variant({})),), lambda _: Findings((), Table((), ()), ()))
    options = Options(Path(), seeds=2)
    same = item.settings(options)
    assert same == item.settings(Options(Path("elsewhere"), seeds=2))
    assert same != item.settings(Options(Path(), seeds=3))
    assert same != item.settings(Options(Path(), seeds=2, fast=True))


def test_a_changed_setting_holds_for_every_arm_and_is_told_apart() -> None:
    arms = (Arm("a", variant({})), Arm("b", variant({"training.batch": 32})))
    item = Runs(lambda _: arms, lambda _: Findings((), Table((), ()), ()))
    options = Options(Path(), seeds=2, changes=(("slots", "50"), ("training.epochs", "3")))
    a, b = (arm.study for arm in item.chosen(options))
    assert (a.slots, a.training.epochs, b.training.epochs) == (50, 3, 3)
    assert (a.training.batch, b.training.batch) == (64, 32)
    assert a.name == "paper-default; slots=50, training.epochs=3"
    assert item.settings(options) != item.settings(Options(Path(), seeds=2))
    assert item.slots(options) == 2 * 2 * 50
    for key, words in (
        ("training.batch", "compares values of training.batch itself"),
        ("seed", "by --seed"),
        ("slotss", "did you mean 'slots'"),
    ):
        with pytest.raises(InputError, match=words):
            item.settings(Options(Path(), changes=((key, "16"),)))
