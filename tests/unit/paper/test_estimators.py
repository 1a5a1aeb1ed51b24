"""Table III: the bootstrap of the spread against SciPy's, and verdicts that follow the numbers."""

import json
from dataclasses import asdict
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

from fedkoopman.errors import ComputationError
from fedkoopman.paper import table_estimators as item
from fedkoopman.paper.estimators_judging import (
    EKF,
    FILTERS,
    PARTICLE,
    RESAMPLED,
    SMOOTHED,
    UKF,
    Score,
)
from fedkoopman.paper.items import AGREES, DEPENDS, FAILS, HIGHER, HOLDS, LOWER, UNDECIDED, Claim
from fedkoopman.systems import Lorenz63

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
    assert found["above"] < 0.001 and found["below"] > 0.999
    [turned] = item.spread_differences({"a": errors["b"], "b": errors["a"]}, "b", seed=1)
    assert turned["above"] > 0.999 and turned["below"] < 0.001
    [same] = item.spread_differences({"a": common, "b": rng.permutation(common)}, "b", seed=1)
    assert 0.1 < same["above"] < 0.9


ONE, TWO = item.TRUTHS


def numbers_of(
    errors: dict[str, float],
    gaps: tuple[float, float, float] = (1.0, 1.0, 1.0),
    seconds: dict[str, float] | None = None,
    count: int = COUNT,
    others: dict[str, float] | None = None,
) -> dict[str, Any]:
    """Made numbers.

    Arguments:
        errors: ε at both levels, 1 where none is given.
        gaps: middle of 𝒱 − 𝒱 of the particle filter for the three others, each ± 0.5.
        seconds: 1 where none are given.
        others: ε with process noise in the truth; as without, where none are given.
    """
    luck = np.random.default_rng(0).normal(scale=0.02, size=(len(item.METHODS), count))
    scores, spreads, cells = [], [], []
    for truth, noise in ((truth, noise) for truth in item.TRUTHS for noise in item.LEVELS):
        mine = errors if others is None or truth == ONE else others
        for name, noises in zip(item.METHODS, luck, strict=True):
            each = mine.get(name, 1.0) + noises - noises.mean()
            cost = (seconds or {}).get(name, 1.0)
            scores.append(Score(truth, name, noise, each.mean(), 1.0, 0.1, cost, each.tolist()))
        for name, gap in zip((UKF, RESAMPLED, EKF), gaps, strict=True):
            above = float(stats.norm.sf(gap / 0.25))
            spreads.append(
                {"truth": truth, "noise": noise, "method": name, "difference": gap,
                 "low": gap - 0.5, "high": gap + 0.5, "above": above, "below": 1 - above}
            )  # fmt: skip
        for interval in (0.01, 0.02):
            for name in FILTERS[: 4 if interval == 0.02 else 3]:
                cells.append(
                    {"interval": interval, "truth": truth, "noise": noise, "method": name,
                     "lost": 0, "error": 1.0, "error_low": 0.7, "error_high": 1.4, "spread": 0.5,
                     "spread_low": 0.3, "spread_high": 0.7}
                )  # fmt: skip
    made = {
        "trajectories": count,
        "seed": 3,
        "scores": [asdict(s) for s in scores],
        "spreads": spreads,
        "cells": cells,
        "largest": {ONE: 57.0, TWO: 63.0},
    }
    read: dict[str, Any] = json.loads(json.dumps(made))
    return read


def claims(*given: Any, **named: Any) -> dict[str, Claim]:
    """Claims of made numbers, by text; see `numbers_of`."""
    numbers = numbers_of(*given, **named)
    found = item.ITEM.findings(numbers)
    assert [label for label, _ in found.sources] == list(item.METHODS)
    told = f"--trajectories {numbers['trajectories']} --seed 3"
    assert all(told in source for _, source in found.sources)
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
        ("worst at Σ = 4I", {}, UNDECIDED),
        ("smoother improves", {SMOOTHED: 0.9}, HOLDS),
        ("smoother improves", {SMOOTHED: 1.1}, FAILS),
        ("smoother improves", {}, UNDECIDED),
    ],
)
def test_verdicts_on_errors(part: str, errors: dict[str, float], expected: str) -> None:
    assert verdict(claims(errors), part) == expected


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ((1, 1, 1), HOLDS),
        ((1, 0.55, 1), UNDECIDED),  # above 0 at 95 %, not at 99 %
        ((1, 0.3, 1), UNDECIDED),
        ((1, 1, -1), FAILS),
        ((0.1, 0.1, -0.8), FAILS),
        ((0.1, 0.1, -0.7), UNDECIDED),  # would fail alone, at 99 %; not as one of three
    ],
)
def test_the_spread_is_judged_by_intervals(gaps: tuple[float, ...], expected: str) -> None:
    assert verdict(claims({}, gaps), "lowest spread 𝒱 at Σ = 4I") == expected
    assert verdict(claims({}, gaps, count=9), "lowest spread 𝒱 at Σ = 4I") == UNDECIDED


def test_costs_are_compared_with_the_dearest_and_the_cheapest() -> None:
    found = claims({}, seconds={PARTICLE: 30.0, RESAMPLED: 2.5})
    assert verdict(found, "costs significantly more") == HOLDS
    assert verdict(found, "the UKF is computationally efficient") == HOLDS
    assert verdict(found, "the extended filter is computationally efficient") == HOLDS
    assert verdict(found, "extra computational overhead") == HOLDS
    found = claims({}, seconds={PARTICLE: 30.0, RESAMPLED: 25.0, EKF: 0.1})
    assert verdict(found, "costs significantly more") == FAILS
    assert verdict(found, "the UKF is computationally efficient") == FAILS
    assert verdict(claims({}, seconds={RESAMPLED: 1.1}), "extra computational") == UNDECIDED
    found = claims({}, seconds={EKF: 5.5, RESAMPLED: 0.8})
    assert verdict(found, "the extended filter is computationally efficient") == FAILS
    assert verdict(found, "extra computational overhead") == FAILS


def test_one_of_several_parts_must_fail_after_holms_correction() -> None:
    """The same difference decides a claim of one part, and not one of three."""
    assert verdict(claims({}, (-0.7, 1, 1)), "lower spread 𝒱 than the UKF") == FAILS
    assert verdict(claims({}, (-0.7, 1, 1)), "lowest spread 𝒱 at Σ = I") == UNDECIDED


@pytest.mark.parametrize(
    ("without", "with_noise", "expected"),
    [
        ({UKF: 0.9}, {UKF: 0.9}, HOLDS),
        ({UKF: 0.9}, {EKF: 0.9}, DEPENDS),
        ({EKF: 0.9}, {UKF: 0.9}, DEPENDS),
        ({UKF: 0.9}, {}, DEPENDS),
        ({EKF: 0.9}, {EKF: 0.9}, FAILS),
        ({EKF: 0.9}, {}, UNDECIDED),
    ],
)
def test_a_claim_that_holds_under_one_reading_depends_on_it(
    without: dict[str, float], with_noise: dict[str, float], expected: str
) -> None:
    claim = claims(without, others=with_noise)["UKF has the lowest error at Σ = I"]
    assert claim.verdict == expected
    assert "truth by eq. (1): " in claim.evidence and "truth by eq. (2): " in claim.evidence
    if expected == DEPENDS:
        assert HOLDS in claim.evidence


def test_printed_numbers_are_judged_under_each_reading() -> None:
    """0.6755 and 2.1662 lie outside 0.7 to 1.4, 1.3686 within; 0.3397 in 0.3 to 0.7, 0.8122 not."""
    found = {one.what: one for one in item.ITEM.findings(numbers_of({})).printed}
    assert len(found) == 2 * 2 * 2 * 4
    for truth in item.TRUTHS:
        for what, expected in (
            (f"ε of UKF, Σ = I, truth by {truth}", HIGHER),
            (f"ε of UKF, Σ = 4I, truth by {truth}", AGREES),
            (f"ε of Extended Kalman filter, Σ = I, truth by {truth}", LOWER),
            (f"𝒱 of UKF, Σ = I, truth by {truth}", AGREES),
            (f"𝒱 of Extended Kalman filter, Σ = I, truth by {truth}", LOWER),
        ):
            assert found[what].verdict == expected, what


def test_other_intervals_have_a_table_and_a_note() -> None:
    numbers = numbers_of({})
    for cell in numbers["cells"]:
        if cell["interval"] == 0.01 and cell["truth"] == ONE:
            cell["lost"], cell["error_low"] = 2, 0.6
    found = item.ITEM.findings(numbers)
    [(_, table)] = found.tables
    assert len(table.rows) == 2 + 2 * 2 * 2
    [row] = [row for row in table.rows if row[:3] == ("0.01", ONE, "I")]
    assert row[3] == "1.0000 ± 0.5000 (ε agrees, 𝒱 agrees; 2 lost)"
    [note] = [note for note in found.notes if note.startswith("Sampling intervals")]
    assert "for the UKF: ν = 0.01 (truth by eq. (1)); for the extended filter: nowhere." in note
    text = " ".join(found.notes)
    assert "1,000 particles" in text and "largest |x_i| is 63, without it 57" in text


def test_both_readings_share_initial_states_sensors_and_observation_noise() -> None:
    """With eq. (2) the states are those of the filter's own model, and stay near the attractor."""
    system = Lorenz63()
    one, two = (item._observed(system, 3, 4, 1.0, noisy=noisy) for noisy in (False, True))
    np.testing.assert_array_equal(one.x[:, 0], two.x[:, 0])
    with jax.enable_x64(True):
        for b, sensor in enumerate(one.sensors):
            noises = [s.z[b] - np.asarray(jax.vmap(sensor)(s.x[b, 1:])) for s in (one, two)]
            np.testing.assert_allclose(*noises, atol=1e-9)
        ahead = np.asarray(jax.vmap(jax.vmap(system.step))(two.x[:, :-1]))
    noise = two.x[:, 1:] - ahead
    assert abs(noise.var() - 1) < 0.1 and abs(noise.mean()) < 0.05
    assert np.abs(two.x).max() < 80


def test_a_filter_that_diverges_is_counted_and_left_out() -> None:
    errors = np.vstack([np.ones((4, 7)), np.full((2, 7), np.nan)])
    cell = item._cell(errors, 0)
    assert cell["lost"] == 2 and cell["error"] == 1 and cell["spread"] == 0
    with pytest.raises(ComputationError, match="UKF diverged on 2 trajectories"):
        item._check(UKF, errors, 1.0)


def test_evidence_says_whose_difference_it_is_and_what_may_decide() -> None:
    found = claims({EKF: 1.2})
    claim = found["the extended filter is the worst at Σ = I"]
    assert "− EKF −0.2" in claim.evidence
    claim = found["resampling offers no additional benefit at Σ = I"]
    assert claim.evidence.startswith("truth by eq. (1): paired difference UKF − resampled UKF ")
    assert claim.verdict == UNDECIDED and "--trajectories" in claim.why
    assert claim.told.startswith("undecided (40 trajectories: interval ")


def test_the_page_has_the_same_words(as_on_the_page) -> None:
    as_on_the_page("table-estimators", item.ITEM.findings(numbers_of({})))
