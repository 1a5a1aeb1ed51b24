"""Bands hold what they promise: ±2σ covers 95 of 100 outcomes, lifted once or anew."""

import numpy as np
import pytest

from fedkoopman import simulate, systems
from fedkoopman.koopman import DeepKoopman
from fedkoopman.koopman.bands import SPANS, calibrated, extended, state_errors


@pytest.mark.parametrize("law", ["normal", "laplace", "uniform", "student"])
def test_two_standard_deviations_cover_95_of_100_whatever_the_law(law):
    rng = np.random.default_rng(0)
    draw = {
        "normal": rng.standard_normal,
        "laplace": lambda size: rng.laplace(size=size),
        "uniform": lambda size: rng.uniform(-1, 1, size),
        "student": lambda size: rng.standard_t(3, size),
    }[law]
    hits = []
    for _ in range(300):
        std = np.sqrt(np.diagonal(calibrated(draw((200, 2)))))
        hits.append(np.abs(draw((50, 2))) <= 2 * std)
    assert 0.94 < np.mean(hits) < 0.965


def test_the_quantile_is_numpys_and_correlations_are_kept():
    rng = np.random.default_rng(1)
    error = rng.normal(size=(399, 2)) @ np.array([[1.0, 0.0], [0.8, 0.3]]).T
    found = calibrated(error)
    expected = np.quantile(np.abs(error), 0.95, axis=0, method="higher") / 2
    # The rank is that of 400 outcomes, the forecast's own among them: 380 of 399.
    np.testing.assert_allclose(np.sqrt(np.diagonal(found)), expected, rtol=0.02)
    rank = np.sort(np.abs(error), axis=0)[379] / 2
    np.testing.assert_allclose(np.sqrt(np.diagonal(found)), rank, rtol=1e-12)
    moment = error.T @ error
    corr = moment[0, 1] / np.sqrt(moment[0, 0] * moment[1, 1])
    np.testing.assert_allclose(found[0, 1] / np.sqrt(found[0, 0] * found[1, 1]), corr, rtol=1e-12)


def test_a_component_without_errors_has_none():
    error = np.column_stack([np.zeros(100), np.linspace(-1, 1, 100)])
    found = calibrated(error)
    assert found[0, 0] == found[0, 1] == 0.0 < found[1, 1]


@pytest.fixture(scope="module")
def fitted():
    x = simulate(systems.VanDerPol(), steps=150, seed=0, batch=20)
    noisy = x + np.random.default_rng(0).normal(0, 0.02, x.shape)
    return DeepKoopman(8, dt=0.02, learned=False, features=30, horizon=20).fit(noisy)


@pytest.mark.parametrize("relift", [0, 1, 5])
def test_bands_of_a_learned_model_cover_new_outcomes_at_every_horizon(fitted, relift):
    def trajectories(seed, batch):
        x = simulate(systems.VanDerPol(), steps=150, seed=seed, batch=batch)
        return x + np.random.default_rng(seed).normal(0, 0.02, x.shape)

    steps = 40
    past = trajectories(5, 120)
    found = fitted.forecast(past, steps, relift=relift)
    assert len(state_errors(fitted.learned_, list(past), steps, relift)) == steps
    new, inside = trajectories(6, 200), []
    for start in range(0, 150 - steps, 10):
        ahead = fitted.simulate(new[:, start], steps, relift=relift)
        error = np.abs(ahead - new[:, start + 1 : start + 1 + steps])
        inside.append(error <= 2 * found.std[0])
    share = np.mean(inside, axis=(0, 1, 3))
    assert share.min() > 0.92 and share.max() < 0.97


def test_a_forecasts_mean_goes_the_way_it_is_told(fitted):
    past = simulate(systems.VanDerPol(), steps=80, seed=8, batch=3)
    for relift in (0, 2):
        found = fitted.forecast(past, 12, relift=relift)
        np.testing.assert_allclose(
            found.mean, fitted.simulate(past[:, -1], 12, relift=relift), rtol=1e-10
        )


def test_doubt_in_the_last_state_is_carried_through_lifting_anew(fitted):
    """Against many forecasts from states drawn about the last one."""
    past = simulate(systems.VanDerPol(), steps=200, seed=9, batch=1)[0]
    std = np.full_like(past, 0.02)
    exact, doubtful = (fitted.forecast(past, 10, std=s, relift=2) for s in (None, std))
    carried = doubtful.cov - exact.cov
    drawn = past[-1] + np.random.default_rng(0).normal(0, 0.02, (4000, 2))
    ends = fitted.simulate(drawn, 10, relift=2)
    for h in (0, 4, 9):
        expected = np.cov(ends[:, h].T)
        np.testing.assert_allclose(carried[h], expected, rtol=0.1, atol=0.1 * expected.max())


def test_beyond_what_is_known_bands_grow_as_the_model_says():
    measured = np.array([np.diag([1.0, 4.0]), np.diag([4.0, 16.0])])
    modelled = np.arange(1.0, 5)[None, :, None, None] * np.eye(2) * np.ones((3, 1, 1, 1))
    found = extended(measured, modelled)
    np.testing.assert_array_equal(found[:, :2], np.broadcast_to(measured, (3, 2, 2, 2)))
    # At step 2 the model says 2: from there the measured 4 and 16 grow by 3/2 and 4/2.
    np.testing.assert_allclose(np.diagonal(found[0, 2]), [6.0, 24.0])
    np.testing.assert_allclose(np.diagonal(found[2, 3]), [8.0, 32.0])
    np.testing.assert_array_equal(extended(np.zeros((0, 2, 2)), modelled), modelled)


def test_too_few_spans_say_nothing(fitted):
    x = simulate(systems.VanDerPol(), steps=150, seed=3, batch=4)
    long = state_errors(fitted.learned_, list(x), 30, 0)
    assert len(long) == max(h for h in range(1, 31) if 4 * (150 // h) >= SPANS) < 30
    assert not len(state_errors(fitted.learned_, [x[0, :20]], 30, 0))
