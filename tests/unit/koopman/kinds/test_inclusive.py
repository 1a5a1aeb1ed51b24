"""The kind `inclusive`: the state inside the lift, K from the identity."""

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.errors import InputError
from fedkoopman.koopman.fitting import fitted_weights
from fedkoopman.koopman.kinds.inclusive import Inclusive
from fedkoopman.koopman.training import Training


def decaying(count, seed=0):
    """A turning and decaying pair of states far from 0 and of different size, (count, 40, 2)."""
    random = np.random.default_rng(seed)
    turn = 0.97 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    rows = [random.normal(size=(2, count))]
    for _ in range(39):
        rows.append(turn @ rows[-1])
    return np.moveaxis(np.array(rows), 2, 0) * [1.0, 30.0] + [5.0, -100.0]


def weights_of(kind, states, **training):
    given = Training(**{"precision": "float64", "epochs": 1, **training})
    first = kind.initialise(seed=0, dtype=np.dtype(given.precision))
    return fitted_weights(kind, given, first, list(states), seed=0)


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("hidden_layers", [0, 2])
def test_the_untrained_model_holds_the_state_exactly(window, hidden_layers):
    kind = Inclusive(2, 2 * window + 3, hidden_layers, 5, window=window)
    weights = kind.initialise(seed=3, dtype=np.float64)
    np.testing.assert_array_equal(weights["operator"], np.eye(kind.components))
    x = np.random.default_rng(0).normal(size=(kind.input_dim, 6))
    y = np.asarray(kind.lift(weights, x))
    np.testing.assert_array_equal(kind.decode(weights, weights["operator"] @ y), x)
    model = fk.DeepKoopman.from_weights(kind, weights, dt=1.0)
    start = np.array([[0.3, -4.0]] * window)
    expected = np.tile(start[-1], (5, 1))
    np.testing.assert_array_equal(model.simulate(start if window > 1 else start[0], 5), expected)


def test_reconstruction_is_exact_whatever_is_learned():
    kind, states = Inclusive(2, 6, 1, 7), decaying(4)
    weights = weights_of(kind, states, epochs=3)
    flat = np.concatenate(states)
    np.testing.assert_allclose((weights["mean"], weights["std"]), (flat.mean(0), flat.std(0)))
    for x in (flat.T, 1e6 * flat.T):
        found = kind.decode(weights, kind.lift(weights, x))
        np.testing.assert_allclose(found, x, rtol=1e-13)
    assert np.abs(weights["operator"] - np.eye(6)).max() > 1e-4


def test_the_losses_are_those_of_standardised_states():
    kind, states = Inclusive(2, 4, 1, 3), decaying(3)
    random = np.random.default_rng(2)
    weights = {name: random.normal(size=shape) for name, shape in kind.shapes()}
    x, after = states[0, :-1].T, states[0, 1:].T
    mean, std = weights["mean"][:, None], weights["std"][:, None]
    u, later = (x - mean) / std, (after - mean) / std
    first, second = weights["encoder.0"], weights["encoder.1"]

    def lifted(v):
        hidden = np.maximum(first[:, :-1] @ v + first[:, -1:], 0)
        return np.vstack([v, second[:, :-1] @ hidden + second[:, -1:]])

    moved = weights["operator"] @ lifted(u)
    expected = [np.mean((lifted(later) - moved) ** 2), 0.0, np.mean((later - moved[:2]) ** 2)]
    np.testing.assert_allclose(kind.losses(weights, x, after), expected, rtol=1e-10, atol=1e-20)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_training_improves_on_holding(precision):
    train, test = decaying(6), decaying(3, seed=1)
    kind = Inclusive(2, 5, 1, 8)
    weights = weights_of(kind, train, epochs=60, learning_rate=3e-3, precision=precision)
    model = fk.DeepKoopman.from_weights(kind, weights, dt=1.0)
    scale = train.std(axis=(0, 1))
    holding = np.mean(((test[:, 5:] - test[:, :-5]) / scale) ** 2)
    found = model.predict(test, 5)[:, :-5]
    assert np.mean(((found - test[:, 5:]) / scale) ** 2) < holding / 10


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"components": 2}, "the state alone takes 2 of them: give more than 2"),
        ({"components": 4, "window": 2}, "the state alone takes 4"),
        ({"width": 0}, "width is 0"),
        ({"hidden_layers": -1}, "hidden_layers is -1"),
        ({"activation": "rely"}, "did you mean 'relu'"),
    ],
)
def test_impossible_shapes_are_refused_in_one_line(given, message):
    with pytest.raises(InputError, match=message) as caught:
        Inclusive(**{"state_dim": 2, "components": 6, **given})
    assert "\n" not in str(caught.value)
