"""Forecasts lifted once or anew, and which way held-out data prefer."""

import numpy as np
import pytest
from reference.koopman import rolled_by_hand

from fedkoopman import simulate, systems
from fedkoopman.errors import InputError
from fedkoopman.koopman import DeepKoopman
from fedkoopman.koopman.rollout import (
    HORIZONS,
    WAYS,
    better_way,
    rollout,
    starts_of,
    way_errors,
)


@pytest.fixture(scope="module")
def model():
    x = simulate(systems.VanDerPol(), steps=120, seed=0, batch=12)
    return DeepKoopman(6, dt=0.02, learned=False, features=20, horizon=10).fit(x), x


@pytest.mark.parametrize("relift", [0, 1, 3])
def test_simulate_decodes_and_lifts_as_often_as_it_is_told(model, relift):
    fitted, x = model
    expected = rolled_by_hand(fitted, x[:, 0], 8, relift)
    np.testing.assert_allclose(
        fitted.simulate(x[:, 0], 8, relift=relift), expected, rtol=1e-9, atol=1e-12
    )
    for h in (1, 4, 8):
        np.testing.assert_allclose(
            fitted.predict(x[:, 0], n_steps=h, relift=relift), expected[:, h - 1], rtol=1e-9
        )


def test_a_model_that_reconstructs_exactly_and_is_linear_is_the_same_either_way():
    turn = 0.99 * np.array([[np.cos(0.2), -np.sin(0.2)], [np.sin(0.2), np.cos(0.2)]])
    x = [np.random.default_rng(0).normal(size=(9, 2))]
    for _ in range(60):
        x.append(x[-1] @ turn.T)
    fitted = DeepKoopman(2, kind="edmd", degree=1).fit(np.stack(x, axis=1))
    once = fitted.simulate([1.0, 0.5], 40, relift=0)
    np.testing.assert_allclose(fitted.simulate([1.0, 0.5], 40, relift=1), once, atol=1e-10)


def test_the_default_is_the_models_own_way(model):
    fitted, x = model
    own = fitted.simulate(x[0, 0], 30)
    np.testing.assert_array_equal(own, fitted.simulate(x[0, 0], 30, relift=fitted.relift_))
    assert fitted.relift_ in WAYS


@pytest.mark.parametrize("relift", [-1, 1.5, "often"])
def test_other_numbers_are_refused(model, relift):
    fitted, x = model
    with pytest.raises(InputError, match=r"relift is .*: give a whole number of at least 0"):
        fitted.simulate(x[0, 0], 3, relift=relift)


def test_starts_come_from_every_trajectory_and_know_what_follows():
    parts = [np.arange(5.0)[:, None], np.arange(2.0)[:, None], 10 + np.arange(7.0)[:, None]]
    windows, last, left = starts_of(parts, 2, 2)
    rows = np.concatenate(parts)[:, 0]
    np.testing.assert_array_equal(windows[:, 1], rows[last])
    np.testing.assert_array_equal(windows[:, 0], rows[last - 1])
    ends = {4.0: 4, 16.0: 16}
    for start, k, n in zip(windows[:, 1], last, left, strict=True):
        end = 4.0 if start < 10 else 16.0
        assert n == (ends[end] - start) // 2 >= 1
        assert rows[k + 2 * n] <= end
    assert len(starts_of(parts[1:2], 2, 2)[0]) == 0


def test_errors_of_each_way_are_those_of_its_forecasts_and_add_up(model):
    fitted, x = model
    scale = np.array([2.0, 0.5])
    squares, counts = way_errors(fitted.learned_, list(x[:3]), scale)
    for i, way in enumerate(WAYS):
        for j, h in enumerate(HORIZONS):
            errors = []
            for path in x[:3]:
                ahead = np.asarray(fitted.predict(path, n_steps=h, relift=way))[:-h]
                errors.append((ahead - path[h:]) / scale)
            joined = np.concatenate(errors)
            assert counts[j] == joined.size
            np.testing.assert_allclose(squares[i, j], (joined**2).sum(), rtol=1e-9)
    parts = [way_errors(fitted.learned_, [path], scale)[0] for path in x[:3]]
    np.testing.assert_allclose(sum(parts), squares, rtol=1e-9)


def test_the_better_way_has_the_least_geometric_mean():
    counts = np.full(len(HORIZONS), 10.0)
    squares = np.ones((len(WAYS), len(HORIZONS)))
    squares[2] = 0.5
    squares[3, 0] = 1e-2  # one good horizon: a mean of 0.52, against 0.5
    assert better_way(squares, counts) == WAYS[2]
    squares[3, 0] = 1e-3
    assert better_way(squares, counts) == WAYS[3]
    assert better_way(np.ones_like(squares), counts) == 0
    assert better_way(squares, np.zeros_like(counts)) == 0
    only_near = counts * (np.arange(len(HORIZONS)) < 1)
    assert better_way(squares, only_near) == WAYS[3]


def test_a_way_that_diverges_is_not_chosen(model):
    fitted, x = model
    squares, counts = way_errors(fitted.learned_, list(x), np.full(2, 1e-200))
    assert np.isfinite(squares).all() and better_way(squares, counts) in WAYS


def test_fit_chooses_the_way_that_is_better_on_data_it_did_not_see():
    """Of the Duffing oscillator, a lift of limited rank is lifted anew with gain."""
    x = simulate(systems.VanDerPol(), steps=200, seed=1, batch=30)
    new = simulate(systems.VanDerPol(), steps=200, seed=2, batch=10)
    fitted = DeepKoopman(4, dt=0.02, kind="edmd", degree=3).fit(x)
    squares, counts = way_errors(fitted.learned_, list(new), new.std(axis=(0, 1)))
    assert fitted.relift_ == better_way(squares, counts) != 0


def test_rollout_of_delays_starts_from_windows():
    x = simulate(systems.VanDerPol(), steps=120, seed=0, batch=6)
    fitted = DeepKoopman(n_delays=2, kind="edmd", degree=2, dt=0.02).fit(x)
    windows = np.stack([path[:3].ravel() for path in x])
    *_, ahead = rollout(fitted.learned_, windows, [1, 5], 1)
    np.testing.assert_allclose(ahead, fitted.simulate(x[:, :3], 5, relift=1)[:, -1], rtol=1e-9)
    assert np.abs(ahead - x[:, 7]).max() < 0.05
