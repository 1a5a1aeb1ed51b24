"""Printed numbers: Student's prediction interval, coverage, other statistics, verdicts."""

import csv
import io

import numpy as np
import pytest
from scipy import stats

from fedkoopman.paper.files import _comma_separated
from fedkoopman.paper.items import AGREES, HIGHER, LOWER, OPEN, Printed
from fedkoopman.paper.printed import printed_numbers, small_sample_range, verdict_on


@pytest.mark.parametrize(("count", "size", "tolerance"), [(20, 5, 0.15), (200, 10, 0.06)])
def test_of_normal_values_it_is_students_prediction_interval(
    count: int, size: int, tolerance: float
) -> None:
    ours = np.random.default_rng(1).normal(3.0, 2.0, count)
    low, high = small_sample_range(ours, size, seed=0)
    spread = ours.std(ddof=1) * np.sqrt(1 / count + 1 / size)
    half = stats.t.ppf(0.975, count - 1) * spread
    assert low == pytest.approx(ours.mean() - half, abs=tolerance * half)
    assert high == pytest.approx(ours.mean() + half, abs=tolerance * half)


@pytest.mark.parametrize(
    ("count", "size", "least"),
    # With five of our own, the largest of them limit the range: it is too short, and we say so.
    [(5, 5, 0.78), (20, 5, 0.89), (200, 10, 0.92)],
)
@pytest.mark.parametrize("law", ["normal", "lognormal"])
def test_it_covers_means_of_small_samples(
    monkeypatch, law: str, count: int, size: int, least: float
) -> None:
    monkeypatch.setattr("fedkoopman.paper.printed.RESAMPLES", 1000)
    random = np.random.default_rng(2)
    hits = 0
    for seed in range(300):
        drawn = getattr(random, law)(size=count + size)
        low, high = small_sample_range(drawn[:count], size, seed=seed)
        hits += low <= drawn[count:].mean() <= high
    error = np.sqrt(0.05 * 0.95 / 300)
    assert least - 3 * error < hits / 300 < 0.95 + 3 * error


def test_another_statistic_of_rows() -> None:
    """The spread of samples of 4 rows, against samples that are drawn directly."""
    ours = np.random.default_rng(3).normal(size=(400, 6))

    def spread(samples: np.ndarray) -> np.ndarray:
        return samples.std(axis=1).mean(axis=1)

    low, high = small_sample_range(ours, 4, seed=0, statistic=spread)
    drawn = spread(np.random.default_rng(4).normal(size=(20_000, 4, 6)))
    np.testing.assert_allclose((low, high), np.quantile(drawn, [0.025, 0.975]), rtol=0.06)


def test_the_range_is_the_same_again_and_needs_two_values() -> None:
    ours = np.random.default_rng(5).random(20)
    assert small_sample_range(ours, 5, seed=1) == small_sample_range(ours, 5, seed=1)
    assert np.isnan(small_sample_range(ours[:1], 5, seed=1)).all()


def test_what_diverged_counts_as_infinite() -> None:
    ours = np.array([1.0] * 19 + [np.nan])
    low, high = small_sample_range(ours, 5, seed=0)
    assert low == 1 and high == np.inf
    assert small_sample_range(np.full(20, np.nan), 5, seed=0) == (np.inf, np.inf)


@pytest.mark.parametrize(
    ("paper", "expected"), [(0.99, HIGHER), (1.0, AGREES), (2.0, AGREES), (2.01, LOWER)]
)
def test_ours_is_higher_where_the_papers_lies_below_the_range(paper: float, expected: str) -> None:
    assert verdict_on(paper, 1.0, 2.0) == expected
    assert verdict_on(paper, np.nan, np.nan) == OPEN
    assert verdict_on(paper, 1.0, 2.0, rounding=0.02) == AGREES


def test_they_stand_in_a_table_of_their_own() -> None:
    printed = (Printed("ε, a", 0.5, 1.0, 0.4, 1.2, AGREES, fitted=True),)
    numbers = printed_numbers(printed)
    [row] = csv.DictReader(io.StringIO(_comma_separated(numbers)))
    assert numbers.name == "printed" and row["what"] == "ε, a" and row["verdict"] == AGREES
    assert float(row["low"]) == 0.4 and row["fitted"] == "True"
