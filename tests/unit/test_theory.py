"""Theorem 1 against exact fractions, enumerated selections and the formula written out."""

import math
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkoopman import theory
from fedkoopman.errors import InputError
from fedkoopman.theory import Constants


def constants(**changes):
    usual = dict(
        smoothness=2.0, convexity=0.5, gradient_bound=3.0, clients=4, probability=0.3,
        local_steps=3, heterogeneity=0.7, gradient_noise=(0.1, 0.2, 0.3, 0.4), error=0.5,
    )  # fmt: skip
    return Constants(**{**usual, **changes})


def exact_coefficient(n, k, p):
    """C_k as printed, of fractions."""
    if n == 1:
        return Fraction(0)
    factorials = Fraction(
        math.factorial(n), (n - 1) * k * math.factorial(k) * math.factorial(n - k)
    )
    return 4 * (n - k) * factorials * p**k * (1 - p) ** (n - k)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 12, 60])
@pytest.mark.parametrize("p", [Fraction(0), Fraction(1, 997), Fraction(1, 3), Fraction(1)])
def test_coefficients_are_those_printed(n, p):
    exact = [float(exact_coefficient(n, k, p)) for k in range(1, n + 1)]
    np.testing.assert_allclose(theory.coefficients(n, float(p)), exact, rtol=1e-12, atol=0)


def test_coefficients_of_thousands_of_clients():
    n, p = 3000, Fraction(1, 4)
    found = theory.coefficients(n, float(p))
    for k in (1, 500, 750, 751, 1000, 2999, 3000):
        exact = exact_coefficient(n, k, p)
        if exact < Fraction(1, 10**300):
            assert found[k - 1] < 1e-290
        else:
            assert found[k - 1] == pytest.approx(float(exact), rel=1e-10)
    assert np.isfinite(theory.coefficients(10**6, 1e-3)).all()


@given(st.integers(1, 400), st.floats(0, 1))
def test_chances_of_selection_are_binomial(n, p):
    chance = theory.selected(n, p)
    k = np.arange(n + 1)
    assert chance.sum() == pytest.approx(1)
    assert chance @ k == pytest.approx(n * p, abs=1e-9)
    assert chance @ (k - n * p) ** 2 == pytest.approx(n * p * (1 - p), abs=1e-7)


def test_rounds_that_are_never_empty_have_conditional_chances():
    usual, never = theory.selected(5, 0.3), theory.selected(5, 0.3, never_empty=True)
    np.testing.assert_allclose(never[1:], usual[1:] / (1 - 0.7**5), rtol=1e-13)
    assert never[0] == 0
    np.testing.assert_allclose(theory.selected(5, 1e-12, never_empty=True)[1], 1, rtol=1e-11)


def test_lemma_1s_identity_over_all_subsets():
    """The mean of k of N models is off the mean of all by (N−k)/(k(N−1)) of their variance."""
    models = np.random.default_rng(0).normal(size=(6, 3))
    mean = models.mean(axis=0)
    variance = ((models - mean) ** 2).sum(axis=1).mean()
    for k in range(1, 7):
        off = [
            ((models[list(chosen)].mean(axis=0) - mean) ** 2).sum()
            for chosen in combinations(range(6), k)
        ]
        assert np.mean(off) == pytest.approx((6 - k) / (k * 5) * variance, abs=1e-14)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("never_empty", [False, True])
def test_coefficients_over_all_selections(p, never_empty):
    """E‖ω − ν‖² over every possible selection is Σ C_k / 4 of the models' variance."""
    models = np.random.default_rng(1).normal(size=(5, 2))
    mean = models.mean(axis=0)
    total = chance_of_any = 0.0
    for chosen in product([False, True], repeat=5):
        chance = math.prod(p if one else 1 - p for one in chosen)
        if any(chosen):
            chance_of_any += chance
            total += chance * ((models[list(chosen)].mean(axis=0) - mean) ** 2).sum()
    if never_empty:
        total /= chance_of_any
    variance = ((models - mean) ** 2).sum(axis=1).mean()
    factor = theory.coefficients(5, p, never_empty).sum() / 4
    assert total == pytest.approx(factor * variance, rel=1e-12)


@pytest.mark.parametrize("form", ["printed", "derived"])
def test_the_recursion_written_out(form):
    L, mu, G, N, p, E, gamma = 2.0, 0.5, 3.0, 4, 0.3, 3, 0.7
    deltas, sigmas = [0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.1, 0.0]
    steps = [0.1 / (1 + 0.05 * t) for t in range(40)]
    expected = [7.0]
    for eta in steps:
        variance = sum(d**2 + s**2 for d, s in zip(deltas, sigmas, strict=True)) / N**2
        selection = sum(
            float(exact_coefficient(N, k, Fraction(3, 10))) * E**2 * eta**2 * (G**2 + 0.36)
            for k in range(1, N + 1)
        )
        expected.append(
            (1 - mu * eta) * expected[-1]
            + eta**2 * (8 * (E - 1) ** 2 * G**2 + 6 * L * gamma)
            + (variance if form == "printed" else eta**2 * variance)
            + selection
        )
    given = constants(gradient_noise=deltas, error=sigmas, probability=p)
    found = theory.bound(given, steps, 7.0, form)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    one = theory.next_bound(given, expected[3], steps[3], form)
    assert one == pytest.approx(expected[4], rel=1e-13)


rising = st.sampled_from(
    ["gradient_bound", "heterogeneity", "local_steps", "gradient_noise", "error", "initial"]
)


@given(rising, st.floats(0, 1), st.sampled_from(["printed", "derived"]), st.integers(0, 3))
def test_more_of_anything_bad_is_a_larger_bound(name, p, form, client):
    base = constants(probability=p)
    steps = theory.decreasing_steps(2.0, 0.5, 6, 50)
    before = theory.bound(base, steps, 1.0, form)
    if name == "initial":
        after = theory.bound(base, steps, 1.5, form)
    elif name == "local_steps":
        after = theory.bound(replace(base, local_steps=6), steps, 1.0, form)
    elif name in ("gradient_noise", "error"):
        values = list(getattr(base, name))
        values[client] += 0.5
        after = theory.bound(replace(base, **{name: values}), steps, 1.0, form)
    else:
        after = theory.bound(replace(base, **{name: getattr(base, name) + 1}), steps, 1.0, form)
    assert (after[1:] > before[1:]).all()


@given(st.floats(0, 1), st.sampled_from(["printed", "derived"]))
def test_without_noise_and_differences_it_contracts_as_gradient_descent(p, form):
    quiet = constants(
        probability=p, heterogeneity=0, gradient_noise=0, error=0, local_steps=1, gradient_bound=0
    )
    steps = theory.decreasing_steps(2.0, 0.5, 1, 30)
    expected = 4.0 * np.cumprod(np.concatenate([[1], 1 - 0.5 * steps]))
    np.testing.assert_allclose(theory.bound(quiet, steps, 4.0, form), expected, rtol=1e-13)


def test_selecting_everybody_adds_nothing():
    everybody = constants(probability=1.0)
    assert everybody.selection == 0
    worse = replace(everybody, error=(0.5, 0.5, 0.5, 0.5))
    moved = replace(everybody, error=(1.0, 0.0, 0.0, 0.0))  # the same average, a larger maximum
    steps = theory.decreasing_steps(2.0, 0.5, 3, 20)
    np.testing.assert_allclose(theory.bound(worse, steps, 1), theory.bound(moved, steps, 1))
    assert constants(probability=0.9).selection > 0


@given(st.floats(0.26, 50), st.floats(1e-3, 1), st.integers(1, 20), st.floats(0, 1))
def test_the_printed_form_is_the_looser_for_steps_up_to_1(smoothness, share, local_steps, p):
    given_constants = constants(
        smoothness=smoothness, convexity=smoothness * share, probability=p, local_steps=local_steps
    )
    steps = theory.decreasing_steps(smoothness, smoothness * share, local_steps, 40)
    assert (steps <= 1).all()
    printed = theory.bound(given_constants, steps, 1.0, "printed")
    derived = theory.bound(given_constants, steps, 1.0, "derived")
    assert (printed >= derived * (1 - 1e-12)).all()


def test_with_noise_the_printed_form_grows_as_steps_shrink():
    steps = theory.decreasing_steps(2.0, 0.5, 3, 200_000)
    printed, derived = (theory.bound(constants(), steps, 1.0, f) for f in ("printed", "derived"))
    assert printed[-1] > 1.9 * printed[100_000] > 1
    assert derived[-1] < 0.51 * derived[100_000]


@pytest.mark.parametrize("form", ["printed", "derived"])
def test_the_limit_is_where_the_recursion_goes_and_stays(form):
    given = constants()
    limit = theory.limit(given, 0.1, form)
    assert theory.next_bound(given, limit, 0.1, form) == pytest.approx(limit, rel=1e-13)
    assert theory.bound(given, np.full(2000, 0.1), 0.0, form)[-1] == pytest.approx(limit)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1), st.integers(1, 50))
def test_decreasing_steps_meet_all_conditions(smoothness, share, local_steps):
    steps = theory.decreasing_steps(smoothness, smoothness * share, local_steps, 200)
    given_constants = constants(
        smoothness=smoothness, convexity=smoothness * share, local_steps=local_steps
    )
    assert theory.failed_conditions(given_constants, steps) == ()


def test_every_failed_condition_is_named():
    steps = [0.2, 0.1, 0.11, 0.05]
    found = theory.failed_conditions(constants(), steps)
    assert [words.split(":")[0] for words in found] == [
        "η_0 = 0.2 is above 1/(4L) = 0.125",
        "η_2 = 0.11 is larger than η_1 = 0.1",
        "η_0 = 0.2 is more than twice η_3 = 0.05, E = 3 slots later",
    ]
    for refused in (theory.bound, lambda c, s, _: theory.limit(c, s[0])):
        with pytest.raises(InputError, match=r"Theorem 1 does not apply: η_0 = 0.2 is above"):
            refused(constants(), steps, 1.0)


def test_a_constant_step_is_not_increasing():
    assert theory.failed_conditions(constants(), [0.125] * 10) == ()
    assert theory.failed_conditions(constants(), []) == ()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"convexity": 3.0}, "convexity μ = 3 with smoothness L = 2: 0 < μ ≤ L"),
        ({"convexity": 0.0}, "0 < μ ≤ L"),
        ({"smoothness": math.inf}, "smoothness is inf: give finite numbers"),
        ({"gradient_bound": -1.0}, "gradient_bound is -1.0"),
        ({"gradient_bound": "much"}, "gradient_bound is 'much'"),
        ({"heterogeneity": math.nan}, "heterogeneity is nan"),
        ({"probability": 1.2}, "probability is 1.2: give a number from 0 to 1"),
        ({"probability": -0.1}, "probability is -0.1"),
        ({"probability": 0.0, "never_empty": True}, "probability is 0: somebody"),
        ({"probability": [0.1, 0.2]}, "probability is .*: give one number"),
        ({"clients": 0}, "clients is 0: give a whole number of at least 1"),
        ({"clients": 2.0}, "clients is 2.0"),
        ({"local_steps": True}, "local_steps is True"),
        ({"error": (1.0, 2.0)}, r"error has the shape \(2,\) but there are 4 clients"),
        ({"gradient_noise": -1.0}, "gradient_noise is -1.0"),
    ],
)
def test_impossible_constants_are_refused(changes, told):
    with pytest.raises(InputError, match=told):
        constants(**changes)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: theory.bound(constants(), [0.1, 0.0], 1.0), "step_sizes is .*: give a list"),
        (lambda: theory.bound(constants(), 0.1, 1.0), "step_sizes is 0.1"),
        (lambda: theory.bound(constants(), [0.1], -1.0), "initial is -1.0"),
        (lambda: theory.bound(constants(), [0.1], 1.0, "print"), "did you mean 'printed'"),
        (lambda: theory.coefficients(3, 2.0), "probability is 2"),
        (lambda: theory.selected(0, 0.5), "clients is 0"),
    ],
)
def test_wrong_arguments_are_refused(call, told):
    with pytest.raises(InputError, match=told):
        call()


def test_it_is_public_and_needs_no_jax():
    code = (
        "import sys, fedkoopman as fk; fk.theory.coefficients(5, 0.5); print('jax' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
