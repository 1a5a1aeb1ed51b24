"""Forecasts: their means are the model's, their bands hold what they promise."""

import numpy as np
import pytest
from reference.filters import central_jacobian

from fedkoopman.errors import ComputationError, InputError
from fedkoopman.koopman import DeepKoopman
from fedkoopman.koopman import forecast as forecasts
from fedkoopman.koopman.forecast import SPANS, lifted_noise, spread
from fedkoopman.koopman.kinds.paper import Layer, PaperNetwork, Weights

TURN = 0.97 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
NOISE = np.array([[0.04, 0.01], [0.01, 0.09]])
LIFT = np.array([[1.0, 0.5], [-0.3, 2.0]])


def linear(operator=TURN, lift=LIFT, noise=None):
    """The exact model of x' = A x, in slanted coordinates."""
    dim = len(operator)
    architecture = PaperNetwork(dim, dim, hidden_layers=0)

    def layer(matrix):
        return (Layer(np.column_stack([matrix, np.zeros(dim)])),)

    inverse = np.linalg.inv(lift)
    weights = Weights(layer(lift), lift @ operator @ inverse, layer(inverse))
    return DeepKoopman.from_weights(architecture, weights, dt=0.1, noise=noise)


def paths(count, steps, seed=0):
    """Trajectories of x' = A x + w, from the stationary law."""
    rng = np.random.default_rng(seed)
    x = [np.zeros((count, 2))]
    for _ in range(steps + 200):
        x.append(x[-1] @ TURN.T + rng.multivariate_normal(np.zeros(2), NOISE, size=count))
    return np.stack(x[-steps:], axis=1)


def accumulated(steps):
    """Σ A^j Q A^jᵀ for 1 … steps."""
    total, found = np.zeros((2, 2)), []
    for _ in range(steps):
        total = TURN @ total @ TURN.T + NOISE
        found.append(total)
    return np.array(found)


def test_bands_cover_as_often_as_they_say():
    """Known noise: 68 and 95 of 100 futures lie within one and two standard deviations, at every
    step, although the noise was measured on as little as five past trajectories."""
    model = linear()
    x = paths(4000, 160)
    hits = []
    for group in np.split(x, 40)[:20]:
        found = model.forecast(group[:5, :100], 60)
        # the same forecast's bands for many futures: the model is exact, so only noise is left
        errors = group[:, 100:] - model.forecast(group[:, :100], 60).mean
        hits.append(np.abs(errors[..., None]) < found.std[0][..., None] * [1, 2])
    share = np.concatenate(hits).mean(axis=0)
    assert np.abs(share[..., 0] - 0.683).max() < 0.05
    assert np.abs(share[..., 1] - 0.954).max() < 0.03


def test_the_spread_of_a_linear_system_is_the_sum_of_its_noise():
    x, expected = paths(400, 250), accumulated(40)
    found = spread(linear().learned_, list(x), 40)
    lifted = LIFT @ expected @ LIFT.T
    scale = np.sqrt(lifted[:, 0, 0] * lifted[:, 1, 1])
    assert (np.abs(found - lifted).max(axis=(1, 2)) < 0.08 * scale).all()
    np.testing.assert_allclose(
        lifted_noise(linear().learned_, list(x)), LIFT @ NOISE @ LIFT.T, rtol=0.03, atol=0.003
    )


def test_beyond_the_data_the_spread_grows_by_the_lifted_dynamics():
    model, x = linear(), paths(1, 100)
    reach = 99 // SPANS  # longer spans are too few
    found = spread(model.learned_, list(x), 40)
    noise = lifted_noise(model.learned_, list(x))
    for h in range(1, 40):
        grown = model.operator_ @ found[h - 1] @ model.operator_.T + noise
        assert np.allclose(found[h], grown, rtol=1e-12) == (h >= reach)


def test_much_data_is_sampled_from_all_over(monkeypatch):
    model, x = linear(), paths(30, 40)
    whole = spread(model.learned_, list(x), 1)
    monkeypatch.setattr(forecasts, "ENOUGH", 400)
    np.testing.assert_array_equal(
        spread(model.learned_, list(x), 1), spread(model.learned_, list(x[::3]), 1)
    )
    monkeypatch.setattr(forecasts, "LONG", 10)
    some = spread(model.learned_, list(x), 1)
    np.testing.assert_array_equal(some, spread(model.learned_, list(x[:, :13]), 1))
    assert not np.array_equal(some, whole)


def test_errors_that_agree_add_up_faster():
    """A walk of constant speed and a model that stands still: after h steps it is off by h c."""
    model = linear(np.eye(1), np.eye(1))
    walk = [0.5 * np.arange(400.0)[:, None]]
    h = np.arange(1, 20)
    np.testing.assert_allclose(spread(model.learned_, walk, 19)[:, 0, 0], (0.5 * h) ** 2)
    # variances add up to h² c² instead of h c²: the ratio is h, averaged over 1, 2, 4, 8, 16
    np.testing.assert_allclose(lifted_noise(model.learned_, walk), [[0.25 * 31 / 5]])


def test_an_exact_model_is_certain():
    x = [np.array([2.0, 1.0])]
    for _ in range(50):
        x.append(TURN @ x[-1])
    found = linear().forecast(np.array(x), 30)
    assert found.std.max() < 1e-12


def test_where_data_tell_too_little_the_models_own_noise_is_taken():
    lifted = LIFT @ NOISE @ LIFT.T
    model, x = linear(noise=lifted), paths(1, 200)[0]
    few = model.forecast(x[:SPANS], 10)
    np.testing.assert_allclose(few.cov, accumulated(10), rtol=1e-9)
    np.testing.assert_array_equal(model.forecast(x[-1:], 10).cov[:1], few.cov[:1])
    many = model.forecast(x, 1)
    errors = x[1:] - x[:-1] @ TURN.T
    half = np.sort(np.abs(errors), axis=0)[189] / 2  # 190 of 200 outcomes: 95 of 100
    np.testing.assert_allclose(many.std[0], half, rtol=1e-9)


@pytest.fixture(scope="module")
def bent():
    """A network that bends, with delays and depth; what it learned does not matter here."""
    rng = np.random.default_rng(3)
    x = np.cumsum(rng.normal(size=(6, 80, 2)), axis=1) / 4
    model = DeepKoopman(
        5, n_delays=1, depth=2, dt=0.5, activation="tanh", epochs=3, width=8, kind="paper"
    )
    return model.fit(x), x


def test_the_mean_is_the_models_simulation_from_the_last_window(bent):
    model, x = bent
    found = model.forecast(x, 4)
    np.testing.assert_allclose(found.mean, model.simulate(x[:, -2:], 4), rtol=1e-12)
    np.testing.assert_allclose(found.time, [1.0, 2.0, 3.0, 4.0])
    assert found.cov.shape == (6, 4, 2, 2) and found.std.shape == (6, 4, 2)


def test_one_trajectory_a_stack_and_a_list(bent):
    model, x = bent
    one = model.forecast(x[0], 4)
    assert one.mean.shape == (4, 2) and one.cov.shape == (4, 2, 2)
    ragged = model.forecast([x[0], x[1, :30]], 4)
    assert ragged.mean.shape == (2, 4, 2)
    np.testing.assert_allclose(ragged.mean[0], one.mean, rtol=1e-12)
    np.testing.assert_allclose(ragged.mean[1], model.simulate(x[1, 28:30], 4), rtol=1e-12)


def test_covariances_go_through_both_jacobians(bent):
    """Against derivatives by central differences of the whole way from a window to a forecast."""
    model, x = bent
    std = np.full_like(x, 0.2)
    added = model.forecast(x, 3).cov
    found = model.forecast(x, 3, std=std).cov - added
    for h in (1, 3):

        def ahead(window, h=h):
            return model.simulate(window.reshape(2, 2), h)[-1]

        slope = central_jacobian(ahead)(x[2, -2:].ravel())
        np.testing.assert_allclose(found[2, h - 1], 0.04 * slope @ slope.T, rtol=1e-5, atol=1e-9)


def test_what_does_not_fit_is_refused(bent):
    model, x = bent
    with pytest.raises(InputError, match="n_steps is 0"):
        model.forecast(x, 0)
    with pytest.raises(InputError, match="X has 1 sample, but a forecast needs at least 2"):
        model.forecast(x[0, :1], 1)
    with pytest.raises(InputError, match="std has another shape than X"):
        model.forecast(x, 1, std=x[:3])
    with pytest.raises(InputError, match="std has numbers below 0"):
        model.forecast(x, 1, std=-np.ones_like(x))
    with pytest.raises(InputError, match="X has NaN"):
        model.forecast(np.full((9, 2), np.nan), 1)


def test_one_sample_says_nothing_of_the_error():
    with pytest.raises(InputError, match="no trajectory has the 2 samples"):
        linear().forecast(paths(1, 1)[0], 1)


def test_a_model_that_explodes_is_told_so():
    model = linear(100 * np.eye(2))
    with pytest.raises(ComputationError, match="no longer finite after 76 of 500 steps"):
        model.forecast(paths(1, 50)[0], 500)
