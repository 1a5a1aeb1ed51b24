"""n_components="auto": the folds, the rule, and a choice that is right where the truth is known."""

import numpy as np
import pytest

from fedkoopman.errors import ComputationError, InputError
from fedkoopman.koopman import DeepKoopman
from fedkoopman.koopman.fitted import NotFittedError
from fedkoopman.koopman.selection import candidates, choose, folds, smallest_as_good


def test_candidates_are_multiples_up_to_a_bound():
    assert candidates(1) == [1, 2, 4, 6, 10, 16]
    assert candidates(3) == [3, 6, 12, 18, 30, 48]
    assert candidates(20) == [20, 40]
    assert candidates(100) == [100]


@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_whole_trajectories_are_held_out_each_once(count):
    parts = [np.full((4, 1), float(i)) for i in range(count)]
    pairs = folds(parts, 2)
    assert len(pairs) == min(count, 5)
    held = sorted(part[0, 0] for _, test in pairs for part in test)
    assert held == list(range(count))
    for training, test in pairs:
        numbers = [part[0, 0] for part in training + test]
        assert sorted(numbers) == list(range(count)) and training and test


def test_a_single_trajectory_is_cut_into_blocks_and_nothing_is_joined_across_a_cut():
    rows = np.arange(53.0)[:, None]
    pairs = folds([rows], 2)
    assert len(pairs) == 5
    assert np.concatenate([test[0] for _, test in pairs]).ravel().tolist() == list(range(53))
    for training, test in pairs:
        assert len(test) == 1 and 10 <= len(test[0]) <= 11
        assert all((np.diff(part.ravel()) == 1).all() for part in training)
        assert sum(map(len, training)) + len(test[0]) == 53
    assert len(folds([rows[:9]], 2)) == 2
    message = r'X has 7 samples, but n_components="auto" needs at least 8 or several trajectories'
    with pytest.raises(InputError, match=message):
        folds([rows[:7]], 2)


def test_the_smallest_is_taken_that_is_within_one_standard_error_of_the_best():
    best = np.array([0.9, 0.8, 0.7, 0.6])
    # A shortfall of the mean .02 ± .01: clearly worse. One of .01 ± .02: as good.
    worse, close = best - [0.00, 0.02, 0.02, 0.04], best - [0.06, -0.03, 0.01, 0.00]
    assert smallest_as_good(np.array([worse, best])) == 1
    assert smallest_as_good(np.array([close, best])) == 0
    assert smallest_as_good(np.array([worse, close, best])) == 1
    assert smallest_as_good(np.array([best, best])) == 0


def test_every_candidate_is_tried_on_every_fold_and_recorded():
    calls, lines = [], []
    parts = [np.full((4, 1), float(i)) for i in range(3)]

    def trial(size, training, held):
        calls.append((size, len(training), held[0][0, 0]))
        return {1: 0.1, 2: 0.9, 4: 0.5}[size] + 0.01 * held[0][0, 0]

    found = choose(trial, [1, 2, 4], folds(parts, 2), lines.append)
    assert calls == [(size, 2, fold) for size in (1, 2, 4) for fold in (0, 1, 2)]
    assert found.components == 2
    results = found.results
    assert results["param_n_components"].tolist() == [1, 2, 4]
    assert results["rank_test_score"].tolist() == [3, 1, 2]
    np.testing.assert_allclose(results["mean_test_score"], [0.11, 0.91, 0.51])
    np.testing.assert_allclose(results["std_test_score"], np.std([0, 0.01, 0.02]))
    np.testing.assert_allclose(results["split2_test_score"], [0.12, 0.92, 0.52])
    assert lines[1] == "n_components=2: score 0.9100 ± 0.0082"


def spiral(count=6, length=40):
    """x' = 0.9 x, y' = 0.5 y + x²: linear in (x, y, x²), and not in (x, y)."""
    rng = np.random.default_rng(0)
    rows = [rng.uniform(-1, 1, size=(count, 2))]
    for _ in range(length - 1):
        x, y = rows[-1].T
        rows.append(np.stack([0.9 * x, 0.5 * y + x**2], axis=1))
    return np.stack(rows, axis=1)


OPTIONS = {
    "kind": "paper",
    "n_components": "auto",
    "width": 8,
    "epochs": 30,
    "learning_rate": 3e-3,
}


def test_the_choice_is_recorded_deterministic_and_what_a_loop_would_make(monkeypatch):
    monkeypatch.setattr("fedkoopman.koopman.selection.MULTIPLES", (1, 2, 4))
    x = spiral()
    model = DeepKoopman(**OPTIONS).fit(x)
    results = model.cv_results_
    assert results["param_n_components"].tolist() == [2, 4, 8]
    for i, size in enumerate((2, 4, 8)):
        for k in range(5):
            alone = DeepKoopman(**OPTIONS | {"n_components": size})
            alone.fit([part for j, part in enumerate(x) if j % 5 != k])
            expected = alone.score([part for j, part in enumerate(x) if j % 5 == k])
            assert results[f"split{k}_test_score"][i] == pytest.approx(expected, rel=1e-9)
    assert model.n_components == "auto" and model.n_components_ in (2, 4, 8)
    fixed = DeepKoopman(**OPTIONS | {"n_components": model.n_components_}).fit(x)
    np.testing.assert_array_equal(fixed.operator_, model.operator_)
    again = DeepKoopman(**OPTIONS).fit(x)
    np.testing.assert_array_equal(again.operator_, model.operator_)
    assert model.partial_fit(x).n_components_ == fixed.n_components_
    with pytest.raises(NotFittedError, match='fit with n_components="auto"'):
        _ = fixed.cv_results_
    assert not hasattr(DeepKoopman(kind="paper"), "n_components_")


class Fragile(DeepKoopman):
    """Its training diverges with four components."""

    def _train(self, start, training, given):
        if start.architecture.components == 4:
            raise ComputationError("training diverged")
        return super()._train(start, training, given)


def test_a_candidate_that_diverges_is_the_worst(monkeypatch):
    monkeypatch.setattr("fedkoopman.koopman.selection.MULTIPLES", (1, 2))
    model = Fragile(**OPTIONS).fit(spiral())
    assert model.cv_results_["mean_test_score"][1] == -100
    assert model.n_components_ == 2


def test_rests_too_short_to_train_on_are_left_out(monkeypatch):
    monkeypatch.setattr("fedkoopman.koopman.selection.MULTIPLES", (1, 2))
    monkeypatch.setattr("fedkoopman.koopman.selection.FOLDS", 10)
    [one] = spiral(1, 60)
    # Blocks of six samples: beside the second only one is left before it.
    model = DeepKoopman(**OPTIONS | {"n_delays": 2, "epochs": 2}).fit(one)
    assert "split6_test_score" in model.cv_results_


def test_progress_is_told_on_stderr(monkeypatch, capfd):
    monkeypatch.setattr("fedkoopman.koopman.selection.MULTIPLES", (1, 2))
    DeepKoopman(**OPTIONS | {"verbose": 1, "epochs": 2}).fit(spiral())
    lines = capfd.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "n_components=2", "n_components=4", "epoch 1/2", "epoch 2/2",
    ]  # fmt: skip
