"""Verdicts: intervals equal SciPy's and NumPy's, hold their level, and decide as they should."""

import numpy as np
import pytest
from scipy import stats

from fedkoopman.paper.items import FAILS, HOLDS, OPEN
from fedkoopman.paper.judging import (
    Interval,
    all_of,
    compared,
    dips,
    opposite,
    ratio,
    trend,
    within,
)


@pytest.fixture
def pairs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    b = rng.lognormal(size=7)
    return b * rng.lognormal(0.4, 0.3, size=7), b


def test_a_ratio_is_the_paired_t_interval_of_logarithms(pairs) -> None:
    a, b = pairs
    found = ratio(a, b)
    twin = stats.ttest_rel(np.log(a), np.log(b)).confidence_interval(0.95)
    np.testing.assert_allclose([found.low, found.high], np.exp([twin.low, twin.high]))
    np.testing.assert_allclose(found.middle, stats.gmean(a / b))


def test_a_trend_is_the_mean_slope_of_lines_through_each_seed() -> None:
    rng = np.random.default_rng(5)
    x = np.array([1, 3, 10, 40])
    values = x[:, None] ** 0.7 * rng.lognormal(sigma=0.1, size=(4, 6))
    slopes = np.polyfit(np.log10(x), np.log(values), 1)[0]
    twin = stats.ttest_1samp(slopes, 0).confidence_interval(0.95)
    found = trend(x.tolist(), list(values))
    np.testing.assert_allclose([found.low, found.high], np.exp([twin.low, twin.high]))
    assert found.low < 10**0.7 < found.high


def test_intervals_hold_their_level() -> None:
    """95 of 100 cover the truth, to within four standard errors of that share."""
    rng = np.random.default_rng(11)
    a, b = rng.lognormal(0.5, 0.4, (2000, 5)), rng.lognormal(0.0, 0.4, (2000, 5))
    found = [ratio(*pair) for pair in zip(a, b, strict=True)]
    covered = np.mean([one.low < np.exp(0.5) < one.high for one in found])
    assert abs(covered - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 2000)


def test_a_bound_is_passed_missed_or_left_open() -> None:
    found = Interval(1.5, 1.2, 1.9)
    assert [found.above(b) for b in (1.0, 1.5, 2.0)] == [HOLDS, OPEN, FAILS]
    assert within("", found, 2.0)[0] == HOLDS
    assert within("", found, 1.5)[0] == OPEN
    assert within("", found, 1.1)[0] == FAILS
    assert [opposite(v) for v in (HOLDS, OPEN, FAILS)] == [FAILS, OPEN, HOLDS]


def test_one_seed_decides_nothing_and_what_diverged_is_above_all() -> None:
    one = ratio(np.array([3.0]), np.array([1.0]))
    assert one.above(1.0) == OPEN and "one seed" in one.words
    a, b = np.array([3.0, np.nan]), np.array([1.0, 1.0])
    assert ratio(a, b).above(1e9) == HOLDS and "not finite" in ratio(a, b).words
    assert ratio(b, a).above(1e-9) == FAILS
    assert ratio(a, a).above(1.0) == OPEN and "not finite" in ratio(a, a).words


def test_a_claim_needs_all_its_parts() -> None:
    hold, fail, leave = (HOLDS, "a"), (FAILS, "b"), (OPEN, "c")
    assert all_of("", [hold, hold]).verdict == HOLDS
    assert all_of("", [hold, leave]).verdict == OPEN
    claim = all_of("text", [hold, leave, fail], why="because")
    assert (claim.verdict, claim.evidence, claim.why) == (FAILS, "a; c; b", "because")
    assert all_of("", [hold], why="because").why == ""


def test_a_dip_is_told_from_a_slope() -> None:
    rng = np.random.default_rng(0)

    def verdicts(means: list[float]) -> list[str]:
        values = [m * rng.lognormal(sigma=0.01, size=5) for m in means]
        return [verdict for verdict, _ in dips("abcd"[: len(means)], values)]

    assert verdicts([3, 1, 2, 4]) == [HOLDS, HOLDS]
    assert verdicts([4, 3, 2, 1]) == [HOLDS, FAILS]
    assert verdicts([1, 2, 3, 4]) == [FAILS, HOLDS]


def test_evidence_names_both_and_the_interval(pairs) -> None:
    [(verdict, words)] = compared([("a to b", *pairs)])
    assert verdict == ratio(*pairs).above(1.0)
    assert words.startswith("a to b ×") and " to " in words[7:]
