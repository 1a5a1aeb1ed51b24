"""The kind `spectral` against linear systems, and against reduced-rank regression of raw data."""

import warnings
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import dictionaries as twin

import fedkoopman as fk
from fedkoopman.errors import InputError
from fedkoopman.koopman.fitting import fitted_weights
from fedkoopman.koopman.kinds.spectral import Spectral
from fedkoopman.koopman.training import Training, client_update

TRAINING = Training(epochs=2, precision="float64")


def spectral(**changes):
    """A small one with random features, which are quick."""
    given = {"state_dim": 2, "components": 6, "features": 5, "degree": 2, "horizon": 4}
    return Spectral(**{**given, "learned": False, "ridge": 1e-10, **changes})


def solved(kind, segments, balance=None):
    """The weights in closed form, with the features as they are drawn."""
    fixed = kind.fixed(kind.scale_sums(segments))
    if balance is not None:
        fixed["balance"] = balance
    features = kind.first_features(seed=1, dtype=np.float64)
    return kind.solve(fixed, features, kind.sums(fixed, features, segments))


def fitted(kind, segments):
    first = kind.initialise(seed=0, dtype=np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return fitted_weights(kind, TRAINING, first, segments, seed=0)


def model_of(kind, weights):
    return fk.DeepKoopman.from_weights(kind, weights, dt=0.1)


def linear_segments(matrix, offset=0.0, count=6, steps=25, seed=0):
    random, found = np.random.default_rng(seed), []
    for _ in range(count):
        rows = [random.normal(size=len(matrix))]
        for _ in range(steps - 1):
            rows.append(matrix @ rows[-1])
        found.append(np.array(rows) + offset)
    return found


ROTATION = 0.97 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
DECAY = np.array([[0.9, 0.3], [0.0, 0.6]])


@pytest.mark.parametrize("matrix", [ROTATION, DECAY])
@pytest.mark.parametrize("offset", [0.0, 7.0])
def test_a_linear_system_is_found_exactly_whatever_its_offset(matrix, offset):
    segments = linear_segments(matrix, offset)
    kind = spectral(components=3)
    model = model_of(kind, solved(kind, segments))
    expected = np.append(np.linalg.eigvals(matrix), 1)
    distance = np.abs(expected[:, None] - model.eigenvalues_)
    assert distance.min(axis=1).max() < 1e-7 and distance.min(axis=0).max() < 1e-7
    start = np.array([0.3, -0.8])
    states = [start]
    for _ in range(10):
        states.append(matrix @ states[-1])
    np.testing.assert_allclose(
        model.simulate(start + offset, 10, relift=0), np.array(states[1:]) + offset, atol=1e-6
    )


@pytest.mark.parametrize(
    ("window", "depth", "horizon", "discount"), [(1, 1, 4, None), (2, 1, 3, 0.5), (1, 3, 2, 2.0)]
)
@pytest.mark.parametrize("balanced", [False, True])
def test_the_solution_is_reduced_rank_regression_of_the_raw_data(
    window, depth, horizon, discount, balanced
):
    random = np.random.default_rng(3)
    segments = [np.cumsum(random.normal(size=(n, 2)), axis=0) for n in (40, 5, 60, 1)]
    kind = spectral(window=window, depth=depth, horizon=horizon, discount=discount)
    balance = random.normal(size=(kind._low, kind._low)) / 3 if balanced else None
    weights = solved(kind, segments, balance)
    mean, std = twin.scale(segments)
    np.testing.assert_allclose((weights["mean"], weights["std"]), (mean, std), rtol=1e-12)
    scaled = [(one - mean) / std for one in segments]
    u, after, states = twin.windows(scaled, window, depth, horizon)

    def functions(x):
        layers = twin.layers(x, [weights["features.0"], weights["features.1"]])
        return np.hstack([twin.monomials(x, 2), layers])

    now, later = functions(u), functions(after)
    shares = None
    if balanced:
        shares = np.minimum(np.linalg.norm(now[:, : len(balance)] @ balance.T, axis=1), 5.0)
    usual = 2.0 if kind.components < 5 * 2 * window else 1.5
    future = [u, *states.swapaxes(0, 1)]
    expected, operator, decoder, _ = twin.subspace(
        now, later, future, 6, usual if discount is None else discount, shares
    )
    if np.abs(np.linalg.eigvals(operator)).max() > 1:
        np.testing.assert_array_less(np.abs(np.linalg.eigvals(weights["operator"])), 1 + 1e-9)
        return
    # The directions are unique up to their signs, which cancel in predictions.
    lifted, k = now @ weights["lifting"].T, weights["operator"]
    for steps in range(4):
        ours = lifted @ np.linalg.matrix_power(k.T, steps) @ weights["decoder"].T
        theirs = expected @ np.linalg.matrix_power(operator, steps) @ decoder
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    one, other = (np.sort(np.abs(np.linalg.eigvals(m))) for m in (k, operator))
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_the_solution_does_not_depend_on_what_weights_add_up_to():
    segments = linear_segments(ROTATION)
    kind = spectral()
    fixed = kind.fixed(kind.scale_sums(segments))
    features = kind.first_features(seed=1, dtype=np.float64)
    sums = kind.sums(fixed, features, segments)
    small = {name: one * (1 if name == "range" else 1e-4) for name, one in sums.items()}
    x = np.concatenate(segments).T
    models = [kind.solve(fixed, features, one) for one in (sums, small)]
    ahead = [kind.decode(w, w["operator"] @ np.asarray(kind.lift(w, x))) for w in models]
    np.testing.assert_allclose(*ahead, atol=1e-8)


def test_states_far_beyond_the_first_scale_are_not_cut_off():
    # A site that joins late may see much more than those who agreed on the scale.
    kind = spectral(components=3)
    early, late = linear_segments(ROTATION), [300 * one for one in linear_segments(ROTATION)]
    fixed = kind.fixed(kind.scale_sums(early))
    features = kind.first_features(seed=1, dtype=np.float64)
    weights = kind.solve(fixed, features, kind.sums(fixed, features, late))
    x = np.array([[150.0, -20.0], [-90.0, 300.0]])
    ahead = kind.decode(weights, weights["operator"] @ np.asarray(kind.lift(weights, x)))
    np.testing.assert_allclose(ahead, ROTATION @ x, rtol=1e-6, atol=1e-3)


@lru_cache
def random_kind():
    return spectral(components=5, horizon=3)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1000),
    growth=st.floats(0.8, 1.3),
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    offset=st.sampled_from([0.0, 1e6, -3e-3]),
    size=st.sampled_from([1e-9, 1.0, 1e9]),
)
def test_nothing_ever_grows_whatever_the_data(seed, growth, lengths, offset, size):
    random = np.random.default_rng(seed)
    segments = [
        size * np.cumsum(random.normal(size=(n, 2)) * growth ** np.arange(n)[:, None], axis=0)
        + offset
        for n in lengths
    ]
    kind = random_kind()
    if max(lengths) < 4:
        with pytest.raises(InputError, match="give longer trajectories or a shorter horizon"):
            fitted(kind, segments)
        return
    weights = fitted(kind, segments)
    assert all(np.isfinite(leaf).all() for leaf in weights.values())
    assert np.abs(np.linalg.eigvals(weights["operator"])).max() <= 1 + 1e-9


T = np.arange(60.0)
WALK = np.random.default_rng(5).normal(size=(60, 2)).cumsum(axis=0)
POOR = {
    "a constant coordinate": [np.column_stack([np.sin(T), np.full(60, 4.0)])],
    "all constant": [np.full((60, 2), 4.0)],
    "all zero": [np.zeros((60, 2))],
    "a coordinate twice": [np.column_stack([np.sin(T), np.sin(T)])],
    "fewer samples than functions": [WALK[:9]],
    "one window": [WALK[:6]],
    "one segment too short": [WALK[:3], WALK],
    "only segments too short": [WALK[:3], WALK[:2]],
    "a jump": [np.concatenate([WALK, [[1e6, -1e6]], WALK])],
    "growth": [np.column_stack([1.3**T, 1.2**T])],
    "a ramp": [np.column_stack([T, np.ones(60)])],
    "a large offset": [1e9 + WALK],
}


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("name", POOR)
def test_poor_data_make_finite_models_that_stay_where_the_data_were(name, learned):
    kind = spectral(learned=learned)
    if name == "only segments too short":
        with pytest.raises(InputError, match=r"has 3 samples, but .* needs 5 here: give longer"):
            fitted(kind, POOR[name])
        return
    for ridge in (1e-10, 0.0):
        weights = fitted(type(kind).of(**{**vars(kind), "ridge": ridge}), POOR[name])
        assert all(np.isfinite(leaf).all() for leaf in weights.values())
        assert np.abs(np.linalg.eigvals(weights["operator"])).max() <= 1 + 1e-9
    x = np.concatenate(POOR[name])
    low, high = kind.bounds(weights)
    assert (low < high).all()
    assert (low <= x.min(axis=0)).all() and (x.max(axis=0) <= high).all()


def test_a_state_far_away_stays_bounded_when_it_is_lifted_again_and_again():
    segments = linear_segments(ROTATION, count=20)
    kind = spectral(degree=3)
    weights = solved(kind, segments)
    x = np.array([[1e12, -1e12, 0.1], [1e12, 3.0, 0.1]])
    largest = np.abs(np.concatenate(segments)).max()
    for _ in range(60):
        x = np.asarray(
            kind.decode(weights, weights["operator"] @ np.asarray(kind.lift(weights, x)))
        )
        assert np.abs(x).max() < 20 * largest


def test_the_untrained_model_holds_the_state():
    for kind in (spectral(), spectral(learned=True, window=2)):
        weights = kind.initialise(seed=0, dtype=np.float64)
        x = np.random.default_rng(0).normal(size=(kind.input_dim, 5))
        y = weights["operator"] @ np.asarray(kind.lift(weights, x))
        np.testing.assert_allclose(kind.decode(weights, y), x, atol=1e-14)


def test_heads_begin_with_no_change_and_training_makes_their_loss_small():
    kind = spectral(state_dim=2, components=4, degree=1, features=8, horizon=3, learned=True)
    segments = [np.sin(one) for one in linear_segments(ROTATION, count=8)]
    fixed = kind.fixed(kind.scale_sums(segments))
    first = kind.first_features(seed=0, dtype=np.float64)

    def loss(features):
        """Over all windows that training looks at."""
        joined = [np.lib.stride_tricks.sliding_window_view(one, 4, axis=0) for one in segments]
        x, *ahead = np.moveaxis(np.concatenate(joined), (2, 1, 0), (0, 1, 2))
        return float(kind.loss(features, fixed, x, tuple(ahead), None, (1.0, 1.0, 1.0)))

    assert kind.leads == (1, 2, 3)
    # Moves are measured in their own size, so that every lead and state weighs the same.
    assert loss(first) == pytest.approx(1, rel=0.1)
    training = Training(epochs=60, batch=16, learning_rate=1e-2, precision="float64")
    trained = client_update(kind, training, first, segments, seed=0, fixed=fixed)
    assert trained.keys() == first.keys()
    assert loss(trained) < 0.05


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"components": 1}, "give a whole number from 2 to 16"),
        ({"components": 17}, "give a whole number from 2 to 16"),
        ({"horizon": 0}, "horizon is 0"),
        ({"degree": 0}, "degree is 0"),
        ({"degree": 2.5}, "degree is 2.5"),
        ({"features": 0}, "features is 0"),
        ({"features": 2000}, "has 4006 functions"),
        ({"learned": "yes"}, "learned is 'yes': give true or false"),
        ({"ridge": 1.0}, "at least 0 and below 1"),
        ({"ridge": -1e-3}, "ridge is -0.001"),
        ({"ridge": "small"}, "ridge is 'small'"),
        ({"discount": -1}, "discount is -1"),
        ({"discount": float("nan")}, "discount is nan"),
        ({"margin": -0.1}, "margin is -0.1: it must be at least 0"),
    ],
)
def test_impossible_shapes_are_refused_in_one_line(given, message):
    with pytest.raises(InputError, match=message) as caught:
        spectral(**given)
    assert "\n" not in str(caught.value)
