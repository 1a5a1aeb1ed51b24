"""Areas under curves, true positives and intervals, against definitions and another library."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from fedkoopman.audit.statistics import (
    Measured,
    area_under_curve,
    interval,
    true_positives,
    widened,
)


def cases(seed, ties=False):
    random = np.random.default_rng(seed)
    truth = random.random(60) < 0.4
    scores = random.standard_normal(60) + truth
    return (scores.round() if ties else scores), truth


@pytest.mark.parametrize("ties", [False, True])
def test_the_area_is_that_of_scikit_learn(ties):
    scores, truth = cases(1, ties)
    assert area_under_curve(scores, truth) == pytest.approx(roc_auc_score(truth, scores))


def test_true_positives_are_those_of_the_curve():
    scores, truth = cases(2)
    fpr, tpr, _ = roc_curve(truth, scores, drop_intermediate=False)
    for allowed in (0.05, 0.2, 0.5):
        assert true_positives(scores, truth, allowed) == pytest.approx(tpr[fpr <= allowed].max())


def test_one_sort_of_case_has_no_area():
    assert np.isnan(area_under_curve(np.arange(3.0), np.ones(3, bool)))
    assert np.isnan(true_positives(np.arange(3.0), np.ones(3, bool), 0.05))


def test_an_interval_of_a_mean_is_the_normal_one():
    values = np.random.default_rng(3).standard_normal(400)
    low, high = interval(lambda c: float(values[c].mean()), range(400), seed=0)
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / 20, rel=0.15)
    assert low < values.mean() < high


def test_cases_of_one_group_do_not_narrow_an_interval():
    values = np.random.default_rng(3).standard_normal(50)
    alone = interval(lambda c: float(values[c].mean()), range(50), seed=0)
    four = np.repeat(values, 4)
    grouped = interval(lambda c: float(four[c].mean()), np.repeat(np.arange(50), 4), seed=0)
    assert grouped == pytest.approx(alone)


def test_two_groups_have_no_interval():
    assert np.isnan(interval(lambda c: 1.0, [0, 0, 1], seed=0)).all()


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.7, 0.8, "leaks"), (0.45, 0.55, "hidden"), (0.45, 0.7, "undecided"), (0.51, 0.59, "hidden")],
)
def test_the_verdict_follows_the_interval(low, high, verdict):
    above = Measured((low + high) / 2, low, high, 0.5, 0.6)
    below = Measured(1.5 - (low + high) / 2, 1.5 - high, 1.5 - low, 1.0, 0.9)
    assert above.verdict == below.verdict == verdict
    assert above.excess == pytest.approx(below.excess)


def test_without_an_interval_nothing_is_decided():
    assert Measured(0.99, np.nan, np.nan, 0.5, 0.6).verdict == "undecided"


def test_an_interval_is_no_narrower_than_chance():
    narrow = Measured(0.8, 0.79, 0.81, 0.5, 0.6)
    wide = widened(narrow, np.linspace(0.2, 0.8, 1001))
    assert (wide.low, wide.high) == pytest.approx((0.8 - 0.285, 1.0), abs=1e-3)
    assert widened(narrow, [0.5] * 10) == narrow
