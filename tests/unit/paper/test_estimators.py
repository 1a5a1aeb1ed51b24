"""Table III: the bootstrap of the spread against SciPy's, and verdicts that follow the numbers."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from fedkoopman.paper import table_estimators as item
from fedkoopman.paper.estimators_judging import EKF, PARTICLE, RESAMPLED, UKF, Score
from fedkoopman.paper.items import FAILS, HOLDS, UNDECIDED, Claim

COUNT = 40


def test_differences_of_spread_are_the_paired_percentile_bootstrap() -> None:
    rng = np.random.default_rng(2)
    common = rng.gamma(2.0, size=(60, 20))
    errors = {"a": common * 1.4 + rng.random((60, 20)), "b": common}
    [found] = item.spread_differences(errors, "b", seed=1)

    def gap(a: np.ndarray, b: np.ndarray, axis: int = 0) -> np.ndarray:
        return a.std(axis=axis).mean() - b.std(axis=axis).mean()

    def of_places(places: np.ndarray) -> float:
        return float(gap(errors["a"][places], errors["b"][places]))

    assert found["difference"] == pytest.approx(gap(errors["a"], errors["b"]))
    twin = stats.bootstrap(
        (np.arange(60),), of_places, vectorized=False, n_resamples=4000, method="percentile",
        rng=np.random.default_rng(5),
    ).confidence_interval  # fmt: skip
    width = twin.high - twin.low
    assert abs(found["low"] - twin.low) < 0.1 * width
    assert abs(found["high"] - twin.high) < 0.1 * width


def claims(
    errors: dict[str, float],
    gaps: tuple[float, float, float] = (1.0, 1.0, 1.0),
    seconds: dict[str, float] | None = None,
    count: int = COUNT,
) -> dict[str, Claim]:
    """Claims of made numbers, by text.

    Arguments:
        errors: ε at both levels, 1 where none is given.
        gaps: middle of 𝒱 − 𝒱 of the particle filter for the three others, each ± 0.5.
        seconds: 1 where none are given.
    """
    luck = np.random.default_rng(0).normal(scale=0.02, size=(len(item.METHODS), count))
    scores = []
    for noise in item.LEVELS:
        for name, noises in zip(item.METHODS, luck, strict=True):
            each = errors.get(name, 1.0) + noises - noises.mean()
            cost = (seconds or {}).get(name, 1.0)
            scores.append(Score(name, noise, each.mean(), 1.0, 0.1, cost, each.tolist()))
    spreads = [
        {"noise": noise, "method": n, "difference": g, "low": g - 0.5, "high": g + 0.5}
        for noise in item.LEVELS
        for n, g in zip((UKF, RESAMPLED, EKF), gaps, strict=True)
    ]
    numbers = {
        "trajectories": count,
        "seed": 3,
        "scores": [asdict(s) for s in scores],
        "spreads": spreads,
    }
    found = item.ITEM.findings(json.loads(json.dumps(numbers)))
    assert [label for label, _ in found.sources] == list(item.METHODS)
    assert all(f"--trajectories {count} --seed 3" in source for _, source in found.sources)
    return {claim.text: claim for claim in found.claims}


def verdict(found: dict[str, Claim], part: str) -> str:
    [claim] = [claim for text, claim in found.items() if part in text]
    return claim.verdict


@pytest.mark.parametrize(
    ("part", "errors", "expected"),
    [
        ("UKF has the lowest error at Σ = I", {UKF: 0.9}, HOLDS),
        ("UKF has the lowest error at Σ = I", {EKF: 0.9}, FAILS),
        ("UKF has the lowest error at Σ = I", {}, UNDECIDED),
        ("no additional benefit", {RESAMPLED: 1.1}, HOLDS),
        ("no additional benefit", {RESAMPLED: 0.9}, FAILS),
        ("no additional benefit", {}, UNDECIDED),
        ("comparably", {}, HOLDS),
        ("comparably", {PARTICLE: 1.05}, HOLDS),
        ("comparably", {PARTICLE: 1.1}, UNDECIDED),
        ("comparably", {PARTICLE: 1.2}, FAILS),
        ("comparably", {PARTICLE: 0.8}, FAILS),
        ("competitive", {PARTICLE: 0.5}, HOLDS),
        ("competitive", {PARTICLE: 1.05}, HOLDS),
        ("competitive", {EKF: 0.8}, FAILS),
        ("marginal", {RESAMPLED: 0.95}, HOLDS),
        ("marginal", {RESAMPLED: 0.8}, FAILS),
        ("marginal", {RESAMPLED: 1.1}, FAILS),
        ("marginal", {}, UNDECIDED),
        ("worst at Σ = 4I", {EKF: 1.2}, HOLDS),
        ("worst at Σ = 4I", {EKF: 0.9}, FAILS),
    ],
)
def test_verdicts_on_errors(part: str, errors: dict[str, float], expected: str) -> None:
    assert verdict(claims(errors), part) == expected


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [((1, 1, 1), HOLDS), ((1, 0.3, 1), UNDECIDED), ((1, 1, -1), FAILS), ((0.1, 0.1, -0.6), FAILS)],
)
def test_the_spread_is_judged_by_intervals(gaps: tuple[float, ...], expected: str) -> None:
    assert verdict(claims({}, gaps), "lowest spread 𝒱 at Σ = 4I") == expected
    assert verdict(claims({}, gaps, count=9), "lowest spread 𝒱 at Σ = 4I") == UNDECIDED


def test_costs_are_compared_with_the_dearest_and_the_cheapest() -> None:
    found = claims({}, seconds={PARTICLE: 30.0, RESAMPLED: 2.5})
    assert verdict(found, "costs significantly more") == HOLDS
    assert verdict(found, "computationally efficient") == HOLDS
    found = claims({}, seconds={PARTICLE: 30.0, RESAMPLED: 25.0, EKF: 0.3})
    assert verdict(found, "costs significantly more") == FAILS
    assert verdict(found, "computationally efficient") == FAILS


def test_evidence_says_whose_difference_it_is_and_what_may_decide() -> None:
    found = claims({EKF: 1.2})
    claim = found["the extended filter is the worst at Σ = I"]
    assert "− EKF −0.2" in claim.evidence
    claim = found["resampling offers no additional benefit at Σ = I"]
    assert claim.evidence.startswith("paired difference UKF − resampled UKF ")
    assert claim.verdict == UNDECIDED and "--trajectories" in claim.why
