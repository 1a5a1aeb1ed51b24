"""The NumPy twin of the learning part is itself checked: by differences, closed forms and hand."""

from itertools import pairwise

import numpy as np
import optax
import pytest
from reference import filters, koopman


def random_model(rng, inputs, components, hidden_layers, width=5):
    def stack(first, last):
        sizes = [first, *[width] * hidden_layers, last]
        return [
            (rng.normal(size=(out, into)) / np.sqrt(into), rng.normal(size=out))
            for into, out in pairwise(sizes)
        ]

    return {
        "encoder": stack(inputs, components),
        "operator": rng.normal(size=(components, components)) / np.sqrt(components),
        "decoder": stack(components, inputs),
    }


def assert_equal_models(first, second, **tolerance):
    for one, other in zip(koopman.leaves(first), koopman.leaves(second), strict=True):
        np.testing.assert_allclose(one, other, **{"rtol": 0, "atol": 0, **tolerance})


def shuffled(seed, epochs):
    def orders(slot, client, starts):
        rng = np.random.default_rng([seed, slot, client])
        return [rng.permutation(starts) for _ in range(epochs)]

    return orders


# x → 2x → 3·2x → 3x, through a ReLU pair on each side, so that negative states pass too.
TRIPLE = {
    "encoder": [(np.array([[1.0], [-1.0]]), np.zeros(2)), (np.array([[2.0, -2.0]]), np.zeros(1))],
    "operator": np.array([[3.0]]),
    "decoder": [(np.array([[1.0], [-1.0]]), np.zeros(2)), (np.array([[0.5, -0.5]]), np.zeros(1))],
}
# Windows of two, lifted as they are; K doubles both entries.
DOUBLE = {
    "encoder": [(np.eye(2), np.zeros(2))],
    "operator": 2 * np.eye(2),
    "decoder": [(np.eye(2), np.zeros(2))],
}
GROWING = np.array([[1.0], [2.0], [3.0], [5.0], [8.0], [13.0]])


SHAPES = [(1, 1, 0), (1, 1, 1), (1, 1, 3), (1, 3, 1), (2, 1, 2), (3, 2, 2)]
WEIGHTS = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1 / 3, 1 / 3, 1 / 3), (0.2, 1.5, 0.7)]


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("mu", "tau", "hidden_layers"), SHAPES)
def test_gradient_is_the_slope_of_the_loss(mu, tau, hidden_layers, weights):
    rng = np.random.default_rng([mu, tau, hidden_layers])
    params = random_model(rng, inputs=2 * mu, components=4, hidden_layers=hidden_layers)
    states = rng.normal(size=(mu + tau + 3, 2))
    starts = koopman.window_starts([len(states)], mu, tau)
    pairs = [koopman.pair(states, start, mu, tau) for start in starts]
    gradient = koopman.leaves(koopman.batch_gradient(params, pairs, weights))

    # Between kinks ℓ is quadratic in any one number, where central differences are exact.
    step = 1e-5
    arrays = koopman.leaves(params)
    for i, array in enumerate(arrays):
        slope = np.zeros_like(array)
        for at in np.ndindex(array.shape):
            values = []
            for sign in (1, -1):
                moved = array.copy()
                moved[at] += sign * step
                model = koopman.rebuild(params, [*arrays[:i], moved, *arrays[i + 1 :]])
                values.append(koopman.batch_loss(model, pairs, weights))
            slope[at] = (values[0] - values[1]) / (2 * step)
        np.testing.assert_allclose(gradient[i], slope, rtol=1e-7, atol=1e-7 * np.abs(slope).max())


def test_gradient_of_a_scalar_model_by_hand():
    # φ = a x, K = k, φ⁻¹ = c y at x = 1, X^τ = 2, a = 3, k = 5, c = 7.
    scalar = [np.array([[3.0]]), np.zeros(1), np.array([[5.0]]), np.array([[7.0]]), np.zeros(1)]
    params = koopman.rebuild({"encoder": [0], "decoder": [0]}, scalar)
    x, x_tau = np.array([1.0]), np.array([2.0])
    # ℓ1 = (k a − 2a)² = 81; ℓ2 = (1 − c a)² = 400; ℓ3 = (c k a − 2)² = 103².
    np.testing.assert_array_equal(koopman.losses(params, x, x_tau), [81, 400, 103**2])
    by_weights = {
        (1, 0, 0): (2 * 9 * (5 - 2), 2 * 9 * 3, 0),  # dℓ1/da = 2 (k a − 2a)(k − 2)
        (0, 1, 0): (2 * 20 * 7, 0, 2 * 20 * 3),
        (0, 0, 1): (2 * 103 * 35, 2 * 103 * 21, 2 * 103 * 15),
    }
    for weights, expected in by_weights.items():
        gradient = koopman.leaves(koopman.sample_gradient(params, x, x_tau, weights))
        np.testing.assert_array_equal([gradient[i].item() for i in (0, 2, 3)], expected)


def test_first_step_of_adam_has_the_length_of_the_rate():
    arrays = [np.array([[1.0, -2.0], [0.5, 3.0]]), np.array([4.0])]
    gradients = [np.array([[1e-3, -5.0], [70.0, -1e-2]]), np.array([2.0])]
    stepped = koopman.Adam(eps=0.0).step(arrays, gradients, 0.01)
    for before, after, gradient in zip(arrays, stepped, gradients, strict=True):
        np.testing.assert_allclose(after - before, -0.01 * np.sign(gradient), rtol=1e-12)


def test_weight_decay_alone_drives_adam():
    # No gradient: the L2 term λθ is all there is, and Adam scales it up to the full rate.
    array = np.array([2.0, -3.0])
    (stepped,) = koopman.Adam(weight_decay=1e-7, eps=0.0).step([array], [np.zeros(2)], 0.01)
    np.testing.assert_allclose(stepped, [1.99, -2.99], rtol=1e-12)


@pytest.mark.parametrize("weight_decay", [0.0, 1e-7, 0.3])
def test_adam_agrees_with_optax(weight_decay):
    rng = np.random.default_rng(0)
    ours = [rng.normal(size=(3, 2)), rng.normal(size=4)]
    theirs = [array.copy() for array in ours]
    adam = koopman.Adam(weight_decay)
    optimiser = optax.chain(optax.add_decayed_weights(weight_decay), optax.adam(0.01))
    state = optimiser.init(theirs)
    for _ in range(50):
        gradients = [rng.normal(size=(3, 2)), rng.normal(size=4)]
        ours = adam.step(ours, gradients, 0.01)
        updates, state = optimiser.update(gradients, state, theirs)
        theirs = optax.apply_updates(theirs, updates)
    for one, other in zip(ours, theirs, strict=True):
        assert other.dtype == np.float64
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_windows_stay_inside_their_segment():
    assert list(koopman.window_starts([4, 3])) == [0, 1, 2, 4, 5]
    assert list(koopman.window_starts([5, 4], mu=2, tau=1)) == [0, 1, 2, 5, 6]
    assert list(koopman.window_starts([5, 4, 7], mu=2, tau=3)) == [0, 9, 10, 11]
    x, x_tau = koopman.pair(np.arange(12.0).reshape(6, 2), 1, mu=2, tau=3)
    np.testing.assert_array_equal(x, [2, 3, 4, 5])
    np.testing.assert_array_equal(x_tau, [8, 9, 10, 11])


def test_client_update_keeps_the_short_batch_and_decays_per_epoch():
    rng = np.random.default_rng(1)
    params = random_model(rng, inputs=2, components=3, hidden_layers=1)
    segments = [rng.normal(size=(4, 2)), rng.normal(size=(3, 2))]
    orders = [[5, 0, 4, 2, 1], [1, 2, 0, 5, 4]]
    weights = (0.2, 0.3, 0.5)
    options = {"weights": weights, "batch": 2, "eta": 0.01, "weight_decay": 0.1, "decay": 0.5}
    trained = koopman.client_update(params, segments, orders, **options)

    def at(start):
        segment, row = (segments[0], start) if start < 4 else (segments[1], start - 4)
        return segment[row], segment[row + 1]

    adam = koopman.Adam(weight_decay=0.1)
    by_hand = [((5, 0), 0.01), ((4, 2), 0.01), ((1,), 0.01), ((1, 2), 0.005), ((0, 5), 0.005)]
    expected = params
    for starts, rate in [*by_hand, ((4,), 0.005)]:
        gradient = koopman.batch_gradient(expected, [at(start) for start in starts], weights)
        arrays = adam.step(koopman.leaves(expected), koopman.leaves(gradient), rate)
        expected = koopman.rebuild(params, arrays)
    assert_equal_models(trained, expected)


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 1, 1, 2], [0, 1, 2, 4]])
def test_client_update_refuses_an_order_that_is_no_permutation(order):
    with pytest.raises(ValueError, match="permutation"):
        koopman.client_update(TRIPLE, [np.ones((5, 1))], [order])


def test_training_lowers_the_loss():
    rng = np.random.default_rng(2)
    angles = 0.3 * np.arange(60)
    states = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    params = random_model(rng, inputs=4, components=4, hidden_layers=1, width=8)
    orders = shuffled(0, epochs=30)(1, 0, koopman.window_starts([60], 2, 2))
    trained = koopman.client_update(params, [states], orders, mu=2, tau=2, batch=8, eta=0.01)
    before, after = (koopman.mean_losses(model, [states], 2, 2) for model in (params, trained))
    assert np.all(after < 0.1 * before)


def test_fedavg_laws():
    rng = np.random.default_rng(3)
    models = [random_model(rng, 2, 3, 1) for _ in range(3)]
    assert_equal_models(koopman.fedavg(models[:1], [7]), models[0])
    assert_equal_models(koopman.fedavg(models, [0, 5, 0]), models[1])
    assert_equal_models(koopman.fedavg([models[0]] * 3, [300, 600, 100]), models[0], atol=1e-14)
    there = koopman.fedavg(models, [1, 2, 5])
    assert_equal_models(there, koopman.fedavg(models[::-1], [5, 2, 1]), atol=1e-14)
    assert_equal_models(there, koopman.fedavg(models, [100, 200, 500]), atol=1e-14)
    weighted = (models[0]["operator"] + 2 * models[1]["operator"] + 5 * models[2]["operator"]) / 8
    np.testing.assert_allclose(there["operator"], weighted, rtol=1e-14, atol=1e-14)


def test_federation_waits_trains_averages_and_empties():
    rng = np.random.default_rng(4)
    params = random_model(rng, 2, 3, 1)
    a, b, c, d = (rng.normal(size=(length, 2)) for length in (6, 9, 6, 4))
    training = {"batch": 4, "weights": (0.5, 0.25, 0.25)}
    orders = shuffled(7, epochs=2)
    arrivals = [{0: a}, {}, {0: c, 1: b}, {0: d}]
    rounds = koopman.federate(
        params, arrivals, orders, clients=3, threshold=[12, 9, 0], eta=[0.1, 0.2, 0.3], **training
    )
    buffered = [[6, 0, 0], [6, 0, 0], [12, 9, 0], [4, 0, 0]]
    assert [record["buffered"] for record in rounds] == buffered
    assert [record["active"] for record in rounds] == [[], [], [0, 1], []]
    assert [record["samples"] for record in rounds] == [0, 0, 21, 0]
    assert_equal_models(rounds[1]["model"], params)

    orders_0 = orders(3, 0, koopman.window_starts([6, 6]))
    orders_1 = orders(3, 1, koopman.window_starts([9]))
    model_0 = koopman.client_update(params, [a, c], orders_0, eta=0.1, **training)
    model_1 = koopman.client_update(params, [b], orders_1, eta=0.2, **training)
    expected = (12 * model_0["operator"] + 9 * model_1["operator"]) / 21
    np.testing.assert_allclose(rounds[2]["model"]["operator"], expected, rtol=1e-13, atol=1e-13)
    assert_equal_models(rounds[3]["model"], rounds[2]["model"])


def test_prediction_error_by_hand():
    states = np.array([[1.0], [-2.0], [4.0]])
    # Predictions of one step: 3, −6 (errors 25, 100); of two: 9 (error 25). Lifted: times 4.
    np.testing.assert_allclose(koopman.prediction_errors(TRIPLE, [states], 1), [62.5, 250])
    np.testing.assert_allclose(koopman.prediction_errors(TRIPLE, [states], 2), [25, 100])
    measures = koopman.evaluate(TRIPLE, [states], horizon=2)
    expected = {"l1": 250, "l2": 0, "l3": 62.5, "E1": 43.75, "E2": 175, "E": 109.375, "horizon": 0}
    assert measures == pytest.approx(expected)


def test_prediction_error_of_windows_and_depth_by_hand():
    # [1 2] → [3 5], [2 3] → [5 8], [3 5] → [8 13] against twice the window: 1, 2.5, 6.5;
    # two applications, four samples: [1 2] → [8 13] against [4 8]: (16 + 25) / 2.
    once = koopman.prediction_errors(DOUBLE, [GROWING], 1, mu=2, tau=2)
    np.testing.assert_allclose(once, [10 / 3, 10 / 3])
    twice = koopman.prediction_errors(DOUBLE, [GROWING], 2, mu=2, tau=2)
    np.testing.assert_allclose(twice, [20.5, 20.5])
    np.testing.assert_allclose(koopman.mean_losses(DOUBLE, [GROWING], 2, 2), [10 / 3, 0, 10 / 3])


# The spread is 4.11; the newest entry errs by |4 − 5| / 4.11 = 0.24, then |8 − 13| / 4.11 = 1.22.
@pytest.mark.parametrize(("valid_error", "samples"), [(0.2, 0), (0.4, 2), (1.1, 2), (1.3, 4)])
def test_valid_horizon_by_hand(valid_error, samples):
    assert koopman.valid_horizon(DOUBLE, [GROWING], valid_error, mu=2, tau=2) == samples


def test_valid_horizon_ends_at_the_first_error_and_averages():
    # K = 1 holds the first state; the second trajectory errs at h = 2 and comes back at h = 3.
    hold = {**TRIPLE, "operator": np.eye(1)}
    steady, leaving = np.ones((5, 1)), np.array([[1.0], [1.0], [9.0], [1.0], [1.0]])
    assert koopman.valid_horizon(hold, [steady, leaving]) == (4 + 1) / 2


def test_a_rollout_that_is_not_a_number_is_not_valid():
    broken = {**DOUBLE, "operator": np.full((2, 2), np.nan)}
    assert koopman.valid_horizon(broken, [GROWING], mu=2) == 0


def test_smoothed_segments_without_process_noise_are_the_exact_smoother_of_a_linear_system():
    # With Q > 0 the form without resampling is not exact, by construction.
    rng = np.random.default_rng(5)
    a, c = np.array([[0.9, 0.2], [-0.1, 0.8]]), np.array([[1.0, 0.5]])
    given = np.zeros((2, 2)), np.array([[0.3]]), np.zeros(2), np.eye(2)
    observations = [rng.normal(size=(12, 1)), rng.normal(size=(7, 1))]
    segments = koopman.smoothed_segments(
        lambda x: a @ x, lambda x: c @ x, observations, *given, alpha=0.9
    )
    for z, segment in zip(observations, segments, strict=True):
        exact = filters.linearised(
            lambda x: a @ x, lambda x: c @ x, z, *given, lambda x: a, lambda x: c
        )
        np.testing.assert_allclose(segment, exact[2][1:], rtol=1e-9, atol=1e-9)
