"""Verdicts: intervals equal SciPy's and NumPy's, hold their level, and decide as they should."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedkoopman.paper.arms import Measured
from fedkoopman.paper.items import DEPENDS, FAILS, HOLDS, UNDECIDED, Claim
from fedkoopman.paper.judging import converges, settled
from fedkoopman.paper.verdicts import (
    LEVEL,
    MARGIN,
    Interval,
    Part,
    all_of,
    by_reading,
    compared,
    dips,
    every,
    fact,
    ratio,
    some,
    surely,
    trend,
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


def test_p_values_are_those_of_the_one_sided_paired_t_test(pairs) -> None:
    a, b = pairs
    part, other = ratio(a, b).above(1.2), ratio(a, b).below(1.2)

    def chance(bound: float, side: str) -> float:
        return float(stats.ttest_rel(np.log(a), np.log(bound * b), alternative=side).pvalue)

    np.testing.assert_allclose(part.holds, chance(1.2 * MARGIN, "greater"))
    np.testing.assert_allclose(part.fails, chance(1.2, "less"))
    np.testing.assert_allclose(other.holds, chance(1.2 / MARGIN, "less"))
    np.testing.assert_allclose(other.fails, chance(1.2, "greater"))


def test_a_verdict_needs_more_than_the_interval_that_is_shown() -> None:
    """A bound just outside the 95 % interval is undecided; outside that of 99 % it is decided."""
    found = Interval(1.5, 1.2, 1.875, 20)
    inner = np.log(1.5 / 1.2) / stats.t.ppf(0.975, 19)
    edge = 1.5 / np.exp(inner * stats.t.ppf(0.995, 19))
    assert found.above(1.199).verdict == UNDECIDED
    assert found.above(edge / MARGIN * 1.0001).verdict == UNDECIDED
    assert found.above(edge / MARGIN * 0.9999).verdict == HOLDS
    assert found.above(1.5**2 / edge * 0.9999).verdict == UNDECIDED
    assert found.above(1.5**2 / edge * 1.0001).verdict == FAILS
    assert found.above(1.0).detail == (
        "20 seeds: interval 1.11 to 2.03 at 99 %, above 1.05 is asked"
    )


def test_a_ratio_is_within_a_factor_or_not() -> None:
    found = Interval(1.5, 1.4, 1.5**2 / 1.4, 20)
    assert [found.within(f).verdict for f in (2.0, 1.52, 1.2)] == [HOLDS, UNDECIDED, FAILS]
    below = Interval(1 / 1.5, 1.4 / 1.5**2, 1 / 1.4, 20)
    assert [below.within(f).verdict for f in (2.0, 1.52, 1.2)] == [HOLDS, UNDECIDED, FAILS]
    part = found.above(1.0)
    assert (part.opposite.verdict, part.opposite.opposite) == (FAILS, part)


def test_one_seed_decides_nothing_and_what_diverged_is_above_all() -> None:
    one = ratio(np.array([3.0]), np.array([1.0]))
    assert one.above(1.0).verdict == UNDECIDED and "one seed" in one.words
    a, b = np.array([3.0, np.nan]), np.array([1.0, 1.0])
    assert ratio(a, b).above(1e9).verdict == HOLDS and "not finite" in ratio(a, b).words
    assert ratio(b, a).above(1e-9).verdict == FAILS
    assert ratio(a, a).above(1.0).verdict == UNDECIDED and "not finite" in ratio(a, a).words
    same = ratio(b, b)
    assert [same.above(x).verdict for x in (0.9, 0.98, 1.1)] == [HOLDS, UNDECIDED, FAILS]
    assert [same.below(x).verdict for x in (0.9, 1.02, 1.1)] == [FAILS, UNDECIDED, HOLDS]


HOLD, FAIL, LEAVE = fact(True, "a"), fact(False, "b"), Part("c", 0.2, 0.8, "5 seeds")


def test_a_claim_needs_all_its_parts() -> None:
    assert all_of("", [HOLD, HOLD]).verdict == HOLDS
    claim = all_of("", [HOLD, LEAVE], why="because")
    assert (claim.told, claim.why) == ("undecided (5 seeds)", "")
    claim = all_of("text", [HOLD, LEAVE, FAIL], why="because")
    assert (claim.told, claim.evidence, claim.why) == (FAILS, "a; c; b", "because")
    assert all_of("", [HOLD], why="because").why == ""


def test_one_part_of_many_needs_more_to_fail_and_none_more_to_hold() -> None:
    near = Part("", 1 - 0.8 * LEVEL, 0.8 * LEVEL)
    assert every([near]).verdict == FAILS
    assert every([HOLD, near]).verdict == UNDECIDED
    assert every([near.opposite] * 9).verdict == HOLDS
    assert some([near.opposite]).verdict == HOLDS
    assert some([near.opposite, FAIL]).verdict == UNDECIDED
    assert some([HOLD, FAIL]).verdict == HOLDS and some([FAIL, FAIL]).verdict == FAILS


def test_holms_correction_goes_on_until_one_does_not_pass() -> None:
    """Worked by hand, as in Holm (Scandinavian Journal of Statistics 6, 1979)."""
    p = np.array([0.2, 0.4, 3, 1.1, 9]) * LEVEL
    found = surely([Part("", float(value), 0.5) for value in p])
    # in rising order: .2 ≤ 1/5, .4 > 1/4, so that nothing after it is rejected
    assert found == [True, False, False, False, False]
    assert surely([Part("", LEVEL / 5, 0.5)] * 5) == [True] * 5


def test_chance_seldom_fails_a_claim_of_many_true_parts() -> None:
    """Of 400 claims with ten parts at their very line, at most about 1 in 200 fails."""
    rng = np.random.default_rng(2)
    values = rng.lognormal(size=(400, 10, 20))
    ones = np.ones(20)
    claims = [every([ratio(part, ones).above(1.0) for part in claim]) for claim in values]
    assert sum(claim.verdict == FAILS for claim in claims) <= 400 * LEVEL + 4 * np.sqrt(400 * LEVEL)


def test_readings_that_differ_are_told_apart() -> None:
    holds, fails = Claim("", HOLDS, "x", ""), Claim("", FAILS, "y", "because")
    open_ = Claim("", UNDECIDED, "z", "", detail="5 seeds")
    one = by_reading("text", {"A": holds, "B": fails})
    assert (one.text, one.verdict, one.why) == ("text", DEPENDS, "because")
    assert one.evidence == f"A: {HOLDS}, x; B: {FAILS}, y"
    assert by_reading("", {"A": holds, "B": open_}).verdict == DEPENDS
    assert by_reading("", {"A": fails, "B": open_}).told == "undecided (5 seeds)"
    same = by_reading("", {"A": holds, "B": replace(holds, evidence="w")})
    assert (same.verdict, same.evidence) == (HOLDS, "A: x; B: w")


def test_a_dip_is_told_from_a_slope() -> None:
    rng = np.random.default_rng(0)

    def verdict(means: list[float], spread: float = 0.01) -> str:
        values = [m * rng.lognormal(sigma=spread, size=20) for m in means]
        return dips("abcdef"[: len(means)], values).verdict

    assert verdict([3, 1, 2, 4]) == HOLDS
    assert verdict([4, 3, 2, 1]) == FAILS
    assert verdict([1, 2, 3, 4]) == FAILS
    assert verdict([3, 1, 1, 1]) == UNDECIDED


@pytest.mark.slow
def test_chance_seldom_digs_a_dip() -> None:
    """Constant values along many settings, whose lowest is chosen: rarely a dip."""
    rng = np.random.default_rng(4)
    found = [dips("a" * 12, list(rng.lognormal(size=(12, 20)))).verdict for _ in range(300)]
    assert found.count(HOLDS) <= 300 * LEVEL + 4 * np.sqrt(300 * LEVEL)


def test_evidence_names_both_and_the_interval(pairs) -> None:
    [part] = compared([("a to b", *pairs)])
    assert part.verdict == ratio(*pairs).above(1.0).verdict
    assert part.evidence.startswith("a to b ×") and " to " in part.evidence[7:]


def arm(curve: list[float], first: float = 1000.0, tail: int = 10, seeds: int = 8) -> Measured:
    luck = np.random.default_rng(1).lognormal(sigma=0.05, size=seeds)
    table = {
        "curves": {"loss": (np.array(curve) * luck[:, None]).tolist()},
        "untrained": {"loss": [first] * seeds},
        "tail_slots": tail,
    }
    return Measured("arm", None, table)


def test_to_converge_is_to_fall_far_and_to_stay_there() -> None:
    def verdict(curve: list[float]) -> str:
        return every(converges(arm(curve))).verdict

    low = [500.0] * 10 + [1.0] * 40
    assert verdict(low) == HOLDS
    assert verdict([500.0] * 10 + [11.0] * 40) == FAILS  # 90 times below the untrained model
    assert verdict([500.0] * 10 + [9.0] * 40) == HOLDS
    assert verdict(low[:-10] + [2.3] * 10) == FAILS  # it rises again
    assert verdict(low[:-10] + [1.8] * 10) == HOLDS


def test_a_model_300_times_worse_than_the_default_has_not_converged() -> None:
    """The default's loss falls about 9,000-fold (docs/paper.md, Fig. 7f at ξ = 1)."""
    default = [500.0] * 10 + [0.11] * 40
    assert every(converges(arm(default))).verdict == HOLDS
    assert every(converges(arm([300 * value for value in default]))).verdict == FAILS


def test_a_curve_has_settled_where_it_stays_near_its_end() -> None:
    assert settled(arm([500.0] * 10 + [1.0] * 40)) == 11
    assert settled(arm([500.0] * 10 + [1.5] * 20 + [1.0] * 20)) == 11
    assert settled(arm([500.0] * 10 + [1.0] * 5 + [3.0] + [1.0] * 34)) == 17
