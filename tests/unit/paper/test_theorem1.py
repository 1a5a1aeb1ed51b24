"""Quadratic problems, both processes and the item, against draws, enumeration and the theorem."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from fedkoopman import theory
from fedkoopman.paper.items import FAILS, HOLDS, Options
from fedkoopman.paper.quadratics import Quadratics, draw_quadratics, expect, simulate
from fedkoopman.paper.theorem1 import ITEM
from fedkoopman.paper.theorem1_claims import first_violation
from fedkoopman.paper.theorem1_comparison import uneven_errors
from fedkoopman.version import NUMERICS


def problem(seed=0, **changes):
    usual = dict(
        clients=4, dim=2, smoothness=3.0, convexity=0.5, heterogeneity=0.8, initial=2.0,
        gradient_noise=0.4, error=0.7,
    )  # fmt: skip
    return draw_quadratics(np.random.default_rng(seed), **{**usual, **changes})


def steps_for(given: Quadratics, local_steps: int, slots: int):
    return theory.decreasing_steps(given.smoothness, given.convexity, local_steps, slots)


@pytest.mark.parametrize("seed", range(3))
def test_a_drawn_problem_has_the_constants_asked_for(seed):
    drawn = problem(seed)
    assert drawn.smoothness == pytest.approx(3) and drawn.convexity == pytest.approx(0.5)
    assert drawn.heterogeneity == pytest.approx(0.8) and drawn.initial == pytest.approx(2)
    np.testing.assert_allclose(drawn.curvatures, drawn.curvatures.swapaxes(1, 2), atol=1e-14)
    # ω* is the least of the mean loss: nothing near it is lower, and its slope is 0
    rng = np.random.default_rng(seed)
    least = drawn.losses(drawn.target).mean()
    for way in rng.normal(size=(20, 2)):
        assert drawn.losses(drawn.target + way).mean() > least
        slope = drawn.losses(drawn.target + 1e-6 * way) - drawn.losses(drawn.target - 1e-6 * way)
        assert slope.mean() == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(
        drawn.lowest, [drawn.losses(a)[n] for n, a in enumerate(drawn.minima)]
    )


def test_losses_without_differences_share_their_minimum():
    alike = problem(heterogeneity=0.0)
    np.testing.assert_allclose(alike.minima, np.tile(alike.target, (4, 1)), atol=1e-12)
    assert alike.heterogeneity == pytest.approx(0, abs=1e-14)


def enumerated(given: Quadratics, sizes, process, p, steps, never_empty):
    """E‖ω_t − ω*‖² at the ends of rounds without noise, over every sequence of selections."""
    n = given.clients
    chances = {}
    for chosen in product([False, True], repeat=n):
        if any(chosen) or not never_empty:
            chances[chosen] = np.prod([p if one else 1 - p for one in chosen])
    total = sum(chances.values())

    def follow(models, t):
        if t == len(sizes):
            return [[]], [1.0]
        after = models.copy()
        for eta in sizes[t : t + steps]:
            for i in range(n):
                after[i] = after[i] - eta * given.curvatures[i] @ (after[i] - given.minima[i])
        paths, weights = [], []
        for chosen, chance in chances.items():
            if any(chosen):
                mean = np.mean([m for m, one in zip(after, chosen, strict=True) if one], axis=0)
                now = np.tile(mean, (n, 1))
            else:
                now = after if process == "appendix" else models
            apart = np.sum((now.mean(axis=0) - given.target) ** 2)
            for path, weight in zip(*follow(now, t + steps), strict=True):
                paths.append([apart, *path])
                weights.append(weight * chance / total)
        return paths, weights

    paths, weights = follow(np.tile(given.start, (n, 1)), 0)
    return np.array(weights) @ np.array(paths)


@pytest.mark.parametrize("process", ["appendix", "fedavg-m"])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("never_empty", [False, True])
def test_expectations_without_noise_over_all_selections(process, steps, never_empty):
    quiet = problem(clients=3, gradient_noise=0.0, error=0.0)
    sizes = steps_for(quiet, steps, 3 * steps)
    found = expect(quiet, sizes, process, probabilities=[0.3], steps=steps, never_empty=never_empty)
    exact = enumerated(quiet, sizes, process, 0.3, steps, never_empty)
    np.testing.assert_allclose(found.distance[0, steps::steps], exact, rtol=1e-12)


@pytest.mark.parametrize("process", ["appendix", "fedavg-m"])
@pytest.mark.parametrize(
    ("steps", "p", "never_empty"), [(1, 0.3, False), (3, 0.1, False), (3, 0.1, True), (2, 1, False)]
)
def test_means_over_draws_are_what_is_expected(process, steps, p, never_empty):
    given = problem()
    sizes = steps_for(given, steps, 60)
    expected = expect(
        given, sizes, process, probabilities=[p], steps=steps, never_empty=never_empty
    )
    drawn = simulate(
        given, sizes, process, probability=p, steps=steps, draws=3000,
        random=np.random.default_rng(3), never_empty=never_empty,
    )  # fmt: skip
    ends = np.arange(steps, 61, steps)
    off = (drawn.distance - expected.distance[0])[ends] / drawn.uncertainty[ends]
    assert np.abs(off).max() < 5
    assert drawn.gradient_square == pytest.approx(expected.gradient_square[0], rel=0.05)
    inside = np.setdiff1d(np.arange(1, 61), ends)
    assert np.isnan(drawn.distance[inside]).all() == (process == "fedavg-m" or not inside.size)


def test_several_probabilities_at_once_are_each_alone():
    given = problem()
    sizes = steps_for(given, 2, 40)
    both = expect(given, sizes, "appendix", probabilities=[0.7, 0.05], steps=2)
    for place, p in enumerate([0.7, 0.05]):
        alone = expect(given, sizes, "appendix", probabilities=[p], steps=2)
        for name in ("distance", "spread", "gradient_square"):
            values = getattr(both, name)[place], getattr(alone, name)[0]
            np.testing.assert_allclose(*values, rtol=1e-12, atol=1e-15)


def test_without_empty_rounds_both_processes_are_one():
    given = problem()
    sizes = steps_for(given, 3, 60)
    for p, never_empty in ((1.0, False), (0.2, True)):
        one, other = (
            expect(given, sizes, process, probabilities=[p], steps=3, never_empty=never_empty)
            for process in ("appendix", "fedavg-m")
        )
        np.testing.assert_allclose(one.distance[0, ::3], other.distance[0, ::3], rtol=1e-12)


def test_selecting_everybody_without_noise_is_gradient_descent_on_the_mean_loss():
    quiet = problem(gradient_noise=0.0, error=0.0)
    sizes = steps_for(quiet, 1, 50)
    w, apart = quiet.start, [quiet.initial]
    for eta in sizes:
        gradient = np.mean(
            [h @ (w - a) for h, a in zip(quiet.curvatures, quiet.minima, strict=True)], axis=0
        )
        w = w - eta * gradient
        apart.append(np.sum((w - quiet.target) ** 2))
    drawn = simulate(
        quiet, sizes, "fedavg-m", probability=1.0, steps=1, draws=2, random=np.random.default_rng()
    )
    np.testing.assert_allclose(drawn.distance, apart, rtol=1e-10)


def test_without_data_the_server_of_fedavg_m_stays_where_it_is():
    given = problem()
    found = expect(given, steps_for(given, 2, 20), "fedavg-m", probabilities=[0.0], steps=2)
    np.testing.assert_allclose(found.distance[0, ::2], given.initial, rtol=1e-12)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize(("p", "never_empty"), [(1.0, False), (0.2, True)])
@pytest.mark.parametrize(
    "changes", [{}, {"heterogeneity": 20.0}, {"error": 5.0}, {"initial": 50.0}]
)
def test_means_over_draws_are_under_the_bound_where_it_is_proved(steps, p, never_empty, changes):
    """Every round selects somebody: p = 1, or empty rounds are drawn again."""
    given = problem(1, **changes)
    sizes = steps_for(given, steps, 150)
    drawn = simulate(
        given, sizes, "appendix", probability=p, steps=steps, draws=500,
        random=np.random.default_rng(4), never_empty=never_empty,
    )  # fmt: skip
    constants = given.constants(drawn.gradient_square, p, steps, never_empty)
    bound = theory.bound(constants, sizes, given.initial, "derived")
    assert (drawn.distance + 5 * drawn.uncertainty <= bound)[1:].all()


@pytest.mark.parametrize("seed", range(12))
def test_expectations_are_under_the_bound_where_it_is_proved(seed):
    """Of problems of all kinds, with decreasing and with constant steps, and Lemma 1's drift."""
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(1, 6))
    given = problem(
        seed, clients=int(rng.integers(2, 8)), smoothness=0.5 * 10 ** rng.uniform(0, 2),
        heterogeneity=10 ** rng.uniform(-4, 2), initial=10 ** rng.uniform(-4, 2),
        gradient_noise=10 ** rng.uniform(-3, 1), error=10 ** rng.uniform(-3, 1),
    )  # fmt: skip
    small = np.full(200, 10 ** rng.uniform(-2, 0) / (4 * given.smoothness))
    probabilities = [1.0, 0.4, 0.05, 1e-4]
    for sizes in (steps_for(given, steps, 200), small):
        found = expect(
            given, sizes, "appendix", probabilities=probabilities, steps=steps, never_empty=True
        )
        for place, p in enumerate(probabilities):
            constants = given.constants(found.gradient_square[place], p, steps, never_empty=True)
            bound = theory.bound(constants, sizes, given.initial, "derived")
            assert (found.distance[place] <= bound * (1 + 1e-12)).all()
            ends = slice(steps - 1, None, steps)
            drift = constants.gradient_bound**2 + constants.worst_error_variance
            assert (found.spread[place, ends] <= 4 * steps**2 * sizes[ends] ** 2 * drift).all()


def test_clients_that_never_meet_break_the_theorem():
    """p = 0 and no noise: two scalar losses, each descended alone. Both forms of the bound are one.

    L_1 = 2 (w − 1)², L_2 = ½ w², so ω* = 0.8, and the mean of their minima is 0.5.
    """
    sizes = np.full(4000, 0.005)
    first = 1 - (1 - 4 * 0.005) ** np.arange(4001)  # both start at 0
    apart = (first / 2 - 0.8) ** 2
    given = Quadratics(
        np.array([[[4.0]], [[1.0]]]), np.array([[1.0], [0.0]]), np.zeros(2), np.zeros(1),
        np.zeros(2), np.zeros(2),
    )  # fmt: skip
    assert given.target == pytest.approx(0.8)
    assert given.heterogeneity == pytest.approx(0.5 * (2 * 0.2**2 + 0.5 * 0.8**2))
    found = expect(given, sizes, "appendix", probabilities=[0.0, 1e-4], steps=1)
    np.testing.assert_allclose(found.distance[0], apart, rtol=1e-9)
    for place, p in enumerate([0.0, 1e-4]):
        constants = given.constants(16.0, p, 1)  # the steepest slope on the way is 4, at the start
        assert found.gradient_square[place] == pytest.approx(16)
        for form in ("printed", "derived"):
            bound = theory.bound(constants, sizes, given.initial, form)
            assert found.distance[place, -1] > 3 * bound[-1]


def test_the_expected_distance_is_linear_in_every_error_variance():
    """So the worst one has no part in it but through the average."""
    given = problem(gradient_noise=0.0)
    sizes = steps_for(given, 2, 60)

    def end(variances):
        changed = replace(given, error=np.sqrt(variances))
        return expect(changed, sizes, "appendix", probabilities=[0.3], steps=2).distance[0, -1]

    none, rng = end(np.zeros(4)), np.random.default_rng(0)
    single = np.array([end(row) - none for row in np.eye(4)])
    variances = rng.random(4)
    assert end(variances) == pytest.approx(none + single @ variances, rel=1e-10)


def rows(*pairs):
    return [{"p": p, "ratio": ratio} for p, ratio in pairs]


def test_the_first_violation_lies_between_neighbours():
    assert first_violation(rows((1, 0.5), (0.1, 0.1), (0.01, 10.0), (0.001, 0.2)), "ratio") == (
        pytest.approx(10**-1.5)
    )
    assert first_violation(rows((0.01, 2.0), (1, 0.5)), "ratio") == pytest.approx(0.1)
    assert first_violation(rows((1, 1.5), (0.1, 3.0)), "ratio") == 1
    assert first_violation(rows((1, 0.5), (0.1, 1.0), (0, 7.0)), "ratio") is None


@pytest.fixture(scope="module")
def computed():
    told = []
    numbers = ITEM.compute(Options(Path("unused"), fast=True), told.append)
    assert told and all(isinstance(one, str) for one in told)
    return json.loads(json.dumps(numbers, allow_nan=False))


def test_the_item_runs_no_studies_and_names_its_settings():
    options = Options(Path("unused"), seed=3)
    assert ITEM.slots(options) == 0
    settings = ITEM.settings(options)
    assert json.loads(json.dumps(settings)) == settings
    assert settings["seed"] == 3 and settings["version"] == NUMERICS
    assert ITEM.settings(replace(options, fast=True)) != settings


def test_the_items_numbers_depend_on_the_seed_alone(computed):
    again = ITEM.compute(Options(Path("elsewhere"), seeds=2, fast=True), lambda _: None)
    assert json.loads(json.dumps(again)) == computed
    other = ITEM.compute(Options(Path("unused"), seed=1, fast=True), lambda _: None)
    assert other["simulated"] != again["simulated"] and other["grid"] != again["grid"]


def test_the_items_verdicts(computed):
    """With few slots too, the bound is kept where it is proved and broken at small p."""
    verdicts = [claim.verdict for claim in ITEM.findings(computed).claims]
    assert verdicts == [HOLDS, FAILS, FAILS, HOLDS, FAILS, FAILS, FAILS]


def test_verdicts_follow_the_numbers(computed):
    kept = json.loads(json.dumps(computed))
    for row in kept["grid"] + kept["others"]:
        for key in row:
            if key.endswith("_worst"):
                row[key] = min(row[key], 0.9)
    kept["never_empty"][-1]["appendix_derived_worst"] = 1.1
    verdicts = [claim.verdict for claim in ITEM.findings(kept).claims]
    assert verdicts[:3] == [FAILS, HOLDS, HOLDS]


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(
    ("average", "worst", "verdict"), [(0.9, 1.2, HOLDS), (0.995, 1.2, FAILS), (0.9, 1.005, FAILS)]
)
def test_both_forms_and_the_process_have_one_limit_of_what_matters(
    computed, place, average, worst, verdict
):
    changed = json.loads(json.dumps(computed))
    name = ("printed", "derived", "process")[place]
    ends = {"even": 1.0, "same_average": [worst] * 5, "same_worst": [average] * 5}
    changed["uneven"][name] = ends
    was, now = (ITEM.findings(numbers).claims[4:] for numbers in (computed, changed))
    assert now[place].verdict == verdict and bool(now[place].why) == (verdict == FAILS)
    assert [c for i, c in enumerate(now) if i != place] == [
        c for i, c in enumerate(was) if i != place
    ]


def test_the_forms_of_the_bound_fail_for_opposite_reasons(computed):
    """The printed form by the worst case, the derived one by the average; the reasons say so."""
    printed, derived, process = ITEM.findings(computed).claims[4:]
    assert (
        "the worst case changes it by no more than" in printed.why and "lacks η_t²" in printed.why
    )
    assert "the average changes it by no more than" in derived.why
    assert "the worst case changes it by no more than" in process.why


def test_uneven_errors_are_those_of_the_theorem():
    """Both forms after the last slot, against the recursion written out."""
    given = problem()
    sizes = steps_for(given, 1, 30)
    found = uneven_errors(given, 30, 0.4)
    first = expect(given, sizes, "appendix", probabilities=[0.4], steps=1)
    n, square = given.clients, first.gradient_square[0]
    lone = given.error * np.eye(n)[0]
    for name, error in (("even", given.error), ("same_worst", lone)):
        weight = theory.coefficients(n, 0.4).sum() * (square + error.max() ** 2)
        variance = np.sum(given.gradient_noise**2 + error**2) / n**2
        printed = derived = given.initial
        for eta in sizes:
            added = eta**2 * (6 * given.smoothness * given.heterogeneity + weight)
            printed = (1 - given.convexity * eta) * printed + added + variance
            derived = (1 - given.convexity * eta) * derived + added + eta**2 * variance
        for form, value in (("printed", printed), ("derived", derived)):
            end = found[form][name]
            assert (end if name == "even" else end[0]) == pytest.approx(value, rel=1e-12)


def test_the_source_is_the_command_of_these_numbers(computed):
    [(_, command)] = ITEM.findings(computed).sources
    assert command == "fedkoopman reproduce theorem1 --seed 0 --fast"
    [(_, command)] = ITEM.findings({**computed, "fast": False}).sources
    assert command == "fedkoopman reproduce theorem1 --seed 0"


def test_what_the_item_shows(computed):
    found = ITEM.findings(computed)
    assert len(found.table.rows) == len(computed["sizes"]["probabilities"])
    assert {len(row) for row in found.table.rows} == {len(found.table.columns)}
    for numbers in found.numbers:
        assert numbers.rows and {len(row) for row in numbers.rows} == {len(numbers.columns)}
    assert [numbers.name for numbers in found.numbers] == ["", "slots", "draws"]
    assert len(found.panels) == 3
    for series in (series for panel in found.panels for series in panel.series):
        assert len(series.x) == len(series.y)


def test_the_page_has_the_same_words(computed, as_on_the_page):
    as_on_the_page("theorem1", ITEM.findings(computed))
