"""What the figure of the measured double pendulum says, from numbers on both sides of its lines."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.evaluation import TestSet, evaluate
from fedkoopman.koopman.files import write_model
from fedkoopman.paper import double_pendulum_arms as arms
from fedkoopman.paper import double_pendulum_limits as limits
from fedkoopman.paper import fig_double_pendulum as item
from fedkoopman.paper.arms import METRICS
from fedkoopman.paper.double_pendulum_parts import HELD, MOVING, parts_of, scored
from fedkoopman.paper.items import DEPENDS, FAILS, HOLDS, UNDECIDED, Claim, Options

LIMITS = ("HOLD", "VELOCITY", "EQUATION", "TRUE", "ESTIMATED", "TWO", "TWO_ESTIMATED")
FIT = {"links": [-3.0, -9.0], "both": -5.0, "measured": 10.0, "left": 30.0}
MOTION = {
    "begins": 1100, "release": 2600, "used": [8.0, 16.0], "after": [2.0, 4.0], "last": 11000,
    "before": FIT, "free": FIT | {"both": 0.94}, "energies": [1.7, 2.5],
    "trace": {
        "seconds": [-1.0, 0.0, 1.0], "energy": [0.0, 1.7, 1.8],
        "block_seconds": [-1.0, 1.0], "share": [None, 0.2],
    },
}  # fmt: skip


def numbers(**scores: dict[str, float]) -> dict[str, Any]:
    """Numbers of five seeds in which every arm has scores 1, or as given by label.

    `risen` is how many times the last slots are above those before; `held` and `free` are the
    final model's scores on the parts. Persistence has 0.5 everywhere.
    """
    luck = np.random.default_rng(0).lognormal(sigma=0.01, size=5)
    tables = []
    studies = {arm.label: arm.study.to_toml() for arm in item.arms(Options(Path("unused")))}
    for label in arms.ARMS:
        values = {m: 1.0 for m in METRICS} | scores.get(
            label.replace(" ", "_").replace(",", ""), {}
        )
        risen = values.pop("risen", 1.0)
        parts = {HELD: values.pop("held", 1.0), MOVING: values.pop("free", 1.0)}
        shape = np.array([9, 1 / risen, 1 / risen, 1, 1])
        table = {
            "label": label, "value": None, "folder": "f", "study": studies[label],
            "seeds": list(range(5)), "tail_slots": 2, "seconds": 1.0, "rounds": 9.0,
            "renewals": 4.0, "samples": 4.0,
            "curves": {m: np.outer(v * luck, shape).tolist() for m, v in values.items()},
            "untrained": {m: (300 * luck).tolist() for m in METRICS},
            "persistence": {"l3": [0.5] * 5, "E": [0.5] * 5},
            "variance": [1.0] * 5,
            "parts": {
                name: {
                    "windows": 7, "models": {m: (value * luck).tolist() for m in METRICS},
                    "persistence": {"l3": 0.5, "E1": 0.5},
                }
                for name, value in parts.items()
            },
        }  # fmt: skip
        if label in item.LIMITED:
            errors = {getattr(limits, name): [1e-4, 2e-4, 3e-4, 4e-4] for name in LIMITS}
            table["limits"] = {
                "names": ["a", "b", "c", "d"], "errors": errors, "estimates": [0.1] * 4,
                "test": [4, 90],
            }  # fmt: skip
        tables.append(table)
    tables[0]["motion"] = [MOTION, {**MOTION, "begins": 990, "used": [8.1, 16.3]}, MOTION]
    tables[0]["inside"] = {"papers": 0.5, "after": 0.1}
    return json.loads(json.dumps({"arms": tables}))


def claims_of(made: dict[str, Any]) -> dict[str, Claim]:
    return {claim.text: claim for claim in item.ITEM.findings(made).claims}


def verdicts(made: dict[str, Any], *words: str) -> list[str]:
    """Verdicts of the claims whose text holds all the words."""
    return [c.verdict for text, c in claims_of(made).items() if all(w in text for w in words)]


class TestConvergence:
    def test_a_fall_of_less_than_a_hundred_in_one_reading_is_not_low(self) -> None:
        low = "converges to a low level"
        assert verdicts(numbers(), low) == [HOLDS] * 4
        assert verdicts(numbers(consecutive_windows={"loss": 5.0}), low) == [
            HOLDS, FAILS, HOLDS, HOLDS,
        ]  # fmt: skip
        assert verdicts(numbers(random_windows={"E": 5.0}), low)[2] == FAILS
        assert verdicts(numbers(random_windows={"E": 3.0}), low)[2] == UNDECIDED

    def test_what_rises_after_its_best_slots_has_not_converged(self) -> None:
        low = "converges to a low level"
        made = numbers(consecutive_windows={"risen": 3.0})
        assert verdicts(made, low) == [HOLDS, FAILS, HOLDS, FAILS]
        found = claims_of(made)["the test loss converges to a low level: consecutive windows"]
        assert "best 2 slots before ×3 " in found.evidence and "rises again" in found.why
        assert verdicts(numbers(random_windows={"risen": 1.5}), low)[0] == HOLDS

    def test_to_learn_is_to_converge_or_to_predict(self) -> None:
        learns, better = "effectively learns", {"l3": 0.1, "E1": 0.1}
        assert verdicts(numbers(), learns) == [DEPENDS]
        assert verdicts(numbers(random_windows=better), learns) == [HOLDS]
        assert verdicts(numbers(random_windows={"loss": 5.0}), learns) == [FAILS]

    def test_on_free_motion_both_scores_must(self) -> None:
        both = "test loss and prediction error converge"
        assert verdicts(numbers(), both) == [HOLDS, HOLDS]
        assert verdicts(numbers(free_motion={"E": 5.0}), both) == [FAILS, HOLDS]
        matched = {"free_motion_matched_velocities": {"risen": 3.0}}
        assert verdicts(numbers(**matched), both) == [HOLDS, FAILS]


class TestSamples:
    @pytest.mark.parametrize(
        ("begins", "release", "verdict"),
        [(1100, 2600, DEPENDS), (1100, 1200, HOLDS), (1300, 2600, FAILS), (None, 2600, FAILS)],
    )
    def test_they_begin_to_move_by_a_hand_or_freely(
        self, begins: int | None, release: int, verdict: str
    ) -> None:
        made = numbers()
        for trial in made["arms"][0]["motion"]:
            trial |= {"begins": begins, "release": release}
        [found] = [c for text, c in claims_of(made).items() if "begin to move" in text]
        assert found.verdict == verdict and f"{release:,}" in found.evidence
        assert ("never, never" in found.evidence) == (begins is None)

    def test_one_trial_is_enough_to_fail(self) -> None:
        made = numbers()
        for trial in made["arms"][0]["motion"]:
            trial["release"] = 1200
        made["arms"][0]["motion"][1]["release"] = 1251
        assert verdicts(made, "begin to move") == [DEPENDS]

    def test_motion_has_subsided_if_its_speed_has_halved(self) -> None:
        made = numbers()
        made["arms"][0]["motion"][1]["used"] = [8.1, 16.1]
        assert verdicts(made, "subsided") == [HOLDS]
        for trial in made["arms"][0]["motion"]:
            trial["after"] = [7.0, 4.0]
        assert verdicts(made, "subsided") == [FAILS]
        [found] = [c for text, c in claims_of(made).items() if "subsided" in text]
        assert "from the release to sample 6000 against 6000 to 11000" in found.evidence

    def test_excluded_samples_are_harmful_if_all_are_worse_than_the_papers(self) -> None:
        harmful = "the excluded samples are harmful"
        assert verdicts(numbers(trained_on_all_samples={"loss": 1.1}), harmful) == [HOLDS]
        assert verdicts(numbers(trained_on_all_samples={"loss": 0.9}), harmful) == [FAILS]
        assert verdicts(numbers(), harmful) == [UNDECIDED]

    def test_excluded_samples_are_informative_if_the_loss_falls_tenfold(self) -> None:
        nothing = "the excluded samples are noninformative"
        alone = "trained_on_samples_after_6000"
        assert verdicts(numbers(**{alone: {"loss": 31.0}}), nothing) == [HOLDS]
        assert verdicts(numbers(**{alone: {"loss": 29.0}}), nothing) == [FAILS]

    def test_the_equation_explains_if_more_than_half_in_every_trial(self) -> None:
        made = numbers()
        assert verdicts(made, "explains the accelerations") == [FAILS, HOLDS]
        for trial in made["arms"][0]["motion"]:
            trial["before"]["both"] = 0.51
        made["arms"][0]["motion"][2]["free"]["both"] = 0.49
        assert verdicts(made, "explains the accelerations") == [HOLDS, FAILS]

    def test_one_step_of_the_equation_must_be_better_in_every_state(self) -> None:
        made = numbers()
        step = "one step of the paper's equation"
        assert verdicts(made, step) == [FAILS, FAILS]
        by_label = {table["label"]: table for table in made["arms"]}
        errors = by_label[arms.FREE_MATCHED]["limits"]["errors"]
        errors[limits.EQUATION] = [0.9 * value for value in errors[limits.HOLD]]
        assert verdicts(made, step) == [FAILS, HOLDS]
        errors[limits.EQUATION][3] = 1.1 * errors[limits.HOLD][3]
        assert verdicts(made, step) == [FAILS, FAILS]


class TestPersistence:
    def test_both_scores_must_beat_it(self) -> None:
        better = {"l3": 0.1, "E1": 0.1}
        random = "a linear network predicts better than persistence, random windows"
        assert verdicts(numbers(), "better than persistence,") == [FAILS] * 10
        assert verdicts(numbers(linear_network=better), random) == [HOLDS]
        assert verdicts(numbers(linear_network={"l3": 0.1}), random) == [FAILS]
        assert verdicts(numbers(linear_network_perfect_data=better), "perfect data") == [HOLDS]

    @pytest.mark.parametrize("part", ["held", "free"])
    @pytest.mark.parametrize("network", ["the paper's", "a linear"])
    def test_parts_of_the_test_are_told_apart(self, part: str, network: str) -> None:
        first = "linear_network" if network == "a linear" else "random_windows"
        second = f"{first}_consecutive_windows" if "linear" in first else "consecutive_windows"
        made = numbers(**{first: {part: 0.1}, second: {part: 0.1}})
        wanted = [HOLDS, FAILS] if part == "held" else [FAILS, HOLDS]
        assert verdicts(made, f"{network} network", "test samples") == wanted
        other = numbers(**{first: {part: 0.1}})  # not in both readings
        assert verdicts(other, f"{network} network", "test samples") == [FAILS, FAILS]

    def test_on_free_motion_with_both_velocities(self) -> None:
        better = {"l3": 0.1, "E1": 0.1}
        matched = {"linear_network_free_motion_matched_velocities": better}
        free = "a linear network predicts better than persistence, free motion only"
        assert verdicts(numbers(**matched), free) == [FAILS]
        assert verdicts(numbers(**matched, linear_network_free_motion=better), free) == [HOLDS]
        mine = {"free_motion": better, "free_motion_matched_velocities": better}
        papers = "the paper's network predicts better than persistence, free motion only"
        assert verdicts(numbers(**mine), papers) == [HOLDS]


class TestShown:
    def test_the_paper_s_claims_are_told_from_ours(self) -> None:
        claims = item.ITEM.findings(numbers()).claims
        papers = [claim.text for claim in claims if not claim.ours]
        assert len(papers) == 9 and not any("persistence" in text for text in papers)
        assert [claim.ours for claim in claims] == [False] * 9 + [True] * (len(claims) - 9)

    def test_notes_are_of_the_runs(self) -> None:
        notes = " ".join(item.ITEM.findings(numbers()).notes)
        assert "as 4 trajectories of 90 steps" in notes
        assert all(f"{key} = {value:g}" in notes for key, value in arms.BETTER.items())
        assert "at samples 2,600, 2,600 and 2,600 of trials 1 to 3" in notes
        assert "about 80 % of the test samples and 32 % of the training samples" in notes
        assert "is −5, −5 and −5 before and 0.94, 0.94 and 0.94 after the release" in notes

    def test_figure_table_and_files_have_every_part(self) -> None:
        found = item.ITEM.findings(numbers())
        rows = [row[0] for row in found.table.rows]
        assert rows[-6:] == [
            "paper's network, untrained", "persistence", "persistence, before the release",
            "persistence, after the release", "persistence, free motion",
            "persistence, free motion, matched velocities",
        ]  # fmt: skip
        for label in ("random windows", "linear network"):
            assert {f"{label}, {part} (final model)" for part in (HELD, MOVING)} < set(rows)
        assert all(len(row) == len(found.table.columns) for row in found.table.rows)
        names = ["", "slots", "limits", "parts", "motion", "traces"]
        assert [one.name for one in found.numbers] == names
        assert all(len(row) == len(one.columns) for one in found.numbers for row in one.rows)
        *curves, joules, residual, parts = found.panels
        for panel in curves:
            assert "untrained" in [line.label for line in panel.series if line.muted]
        for panel in (joules, residual):
            assert [line.label for line in panel.series] == [
                "trial 1", "trial 2", "trial 3", "release",
            ]  # fmt: skip
            assert list(panel.series[-1].x) == [0, 0]
        assert parts.names == ("held", "free")
        assert len(found.sources) == len(arms.ARMS)


class TestParts:
    def test_meet_at_the_release(self) -> None:
        test = np.arange(2001 * 4.0).reshape(2001, 4)
        parts = parts_of(test, 2439)
        np.testing.assert_array_equal(np.concatenate([parts[HELD], parts[MOVING]]), test)
        assert len(parts[HELD]) == 1439

    def test_scores_are_those_of_the_model_in_the_run(self, tmp_path: Path) -> None:
        """By windows cut here, and persistence by its definition."""
        states = np.cumsum(np.random.default_rng(0).normal(size=(305, 4)), axis=0)
        model = fk.DeepKoopman(3, kind="paper", hidden_layers=0, epochs=1).fit(states)
        (tmp_path / "seed-7").mkdir()
        write_model(tmp_path / "seed-7" / "model.safetensors", model)
        study = item.arms(Options(tmp_path))[0].study
        found = scored(study, tmp_path, [7], {"some": states})["some"]
        windows = np.stack([states[k : k + 101] for k in (0, 100, 200)])
        learned = model.learned_
        expected = evaluate(learned.architecture, learned.weights, TestSet(windows))
        assert found["windows"] == 3 and found["models"]["l3"] == [pytest.approx(expected.l3)]
        assert found["models"]["E1"] == [pytest.approx(expected.e1)]
        held = np.mean(np.diff(windows, axis=1) ** 2)
        assert found["persistence"]["l3"] == pytest.approx(held)


class TestLimits:
    def test_least_squares_find_a_linear_system(self, tmp_path: Path) -> None:
        """Of x_{k+1} = A x_k the map of one state is exact, persistence is (A − I) x."""
        turn = np.array([[0.98, 0.1, 0, 0], [-0.1, 0.98, 0, 0], [0, 0, 0.99, 0], [0, 0, 0, 0.9]])
        start = np.array([1.0, -1.0, 0.5, 2.0])
        states = np.stack([np.linalg.matrix_power(turn, k) @ start for k in range(201)])
        np.save(tmp_path / "states.npy", states)
        study = replace(item.arms(Options(tmp_path))[0].study, folder=tmp_path).with_values(
            {
                "slots": 4,
                "evaluation.trajectories": 2,
                "recordings": {"train": ["states.npy"], "test": ["states.npy"]},
            }
        )
        found = limits.limits(study, 0)
        assert found["test"] == [2, 100]
        held = np.mean(np.diff(states, axis=0) ** 2, axis=0)
        np.testing.assert_allclose(found["errors"][limits.HOLD], held, rtol=1e-12)
        assert max(found["errors"][limits.TRUE]) < 1e-20
        assert max(found["errors"][limits.TWO]) < 1e-20


def test_the_page_has_the_same_words(as_on_the_page) -> None:
    as_on_the_page("fig-double-pendulum", item.ITEM.findings(numbers()))
