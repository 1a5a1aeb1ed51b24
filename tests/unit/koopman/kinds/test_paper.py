"""The network's parts: initialisation, activations, layers, shapes."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from reference import koopman as twin

from fedkoopman.errors import InputError
from fedkoopman.koopman.activations import ACTIVATIONS
from fedkoopman.koopman.kinds.paper import Layer, PaperNetwork


def weights_of(architecture, seed=0, dtype=np.float64):
    return architecture.initialise(seed=seed, dtype=dtype)


def assert_normal(sample, std):
    """Mean, variance and the share within one standard deviation, each within 5 of its own."""
    values, n = np.ravel(sample) / std, sample.size
    assert abs(values.mean()) < 5 / math.sqrt(n)
    assert abs(values.var() - 1) < 5 * math.sqrt(2 / n)
    share = math.erf(1 / math.sqrt(2))
    assert abs((np.abs(values) < 1).mean() - share) < 5 * math.sqrt(share * (1 - share) / n)


WIDE = PaperNetwork(state_dim=40, components=150, hidden_layers=2, width=120, window=2)


@pytest.mark.parametrize("part", ["encoder", "decoder"])
@pytest.mark.parametrize("i", [0, 1, 2])
def test_he_initialisation(part, i):
    layer = getattr(weights_of(WIDE), part)[i]
    fan_in = {"encoder": (80, 120, 120), "decoder": (150, 120, 120)}[part][i]
    assert layer.weight.shape[1] == fan_in
    assert_normal(layer.weight, math.sqrt(2 / fan_in))
    np.testing.assert_array_equal(layer.bias, 0)


def test_the_operator_starts_with_a_variance_of_one_in_ten_thousand():
    assert_normal(weights_of(WIDE).operator, 0.01)


def test_no_two_parts_of_the_network_share_their_draws():
    weights = weights_of(PaperNetwork(6, 6, hidden_layers=1, width=6))
    squares = [layer.weight for layer in (*weights.encoder, *weights.decoder)]
    scaled = [square * math.sqrt(3) for square in squares] + [weights.operator * 100]
    for i, one in enumerate(scaled):
        for other in scaled[:i]:
            assert not np.isclose(one, other).any()


def test_both_precisions_start_from_the_same_numbers():
    architecture = PaperNetwork(3, 12)
    wide, narrow = weights_of(architecture), weights_of(architecture, dtype=np.float32)
    for one, other in zip(jax.tree.leaves(wide), jax.tree.leaves(narrow), strict=True):
        assert (one.dtype, other.dtype) == (np.float64, np.float32)
        np.testing.assert_array_equal(one.astype(np.float32), other)


def test_the_seed_decides():
    architecture = PaperNetwork(3, 12)
    same = zip(
        *map(jax.tree.leaves, (weights_of(architecture), weights_of(architecture))), strict=True
    )
    assert all(np.array_equal(one, other) for one, other in same)
    assert not np.array_equal(
        weights_of(architecture).operator, weights_of(architecture, 1).operator
    )


def test_a_layer_is_w_x_plus_b():
    rng = np.random.default_rng(0)
    matrix, x = rng.normal(size=(4, 6)), rng.normal(size=(5, 7))
    layer = Layer(matrix)
    np.testing.assert_array_equal(layer.weight, matrix[:, :5])
    np.testing.assert_array_equal(layer.bias, matrix[:, 5])
    expected = layer.weight @ x + layer.bias[:, None]
    np.testing.assert_allclose(layer(jnp.asarray(x)), expected, rtol=1e-13, atol=1e-13)


FORMULAE = {
    "relu": lambda x: np.where(x > 0, x, 0),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "celu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "gelu": lambda x: (
        x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    ),  # the usual approximation of x Φ(x)
    "silu": lambda x: x * scipy.special.expit(x),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "tanh": np.tanh,
    "sigmoid": scipy.special.expit,
    "softplus": lambda x: np.log1p(np.exp(x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "sin": np.sin,
    "identity": lambda x: x,
}


def test_every_activation_has_a_formula_here():
    assert FORMULAE.keys() == ACTIVATIONS.keys()


def test_a_study_may_name_every_activation():
    from fedkoopman.config.sections import ACTIVATIONS as named

    assert named == tuple(ACTIVATIONS)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    x = np.linspace(-4, 4, 81)
    found = PaperNetwork(1, 1, activation=name).activate(jnp.asarray(x))
    np.testing.assert_allclose(found, FORMULAE[name](x), rtol=1e-12, atol=1e-14)


def test_an_activation_of_ones_own():
    x = np.linspace(-1, 1, 5)
    found = PaperNetwork(1, 1, activation=jnp.sin).activate(jnp.asarray(x))
    np.testing.assert_allclose(found, np.sin(x))


def test_an_unknown_activation_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"unknown activation 'rely': did you mean 'relu'"):
        PaperNetwork(3, 12, activation="rely")


@pytest.mark.parametrize(
    ("name", "value"),
    [("state_dim", 0), ("components", -1), ("width", 2.5), ("window", 0), ("depth", "1")],
)
def test_impossible_shapes_are_refused(name, value):
    with pytest.raises(InputError, match=f"{name} is "):
        PaperNetwork(**{"state_dim": 3, "components": 12, name: value})


@pytest.mark.parametrize("hidden_layers", [0, 1, 3])
@pytest.mark.parametrize("window", [1, 3])
def test_encoder_and_decoder_agree_with_the_twin(hidden_layers, window):
    architecture = PaperNetwork(2, 5, hidden_layers, width=7, window=window)
    rng = np.random.default_rng(1)
    weights = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), architecture.template)
    params = {
        part: [(layer.weight, layer.bias) for layer in getattr(weights, part)]
        for part in ("encoder", "decoder")
    }
    x, y = rng.normal(size=(2 * window, 9)), rng.normal(size=(5, 9))
    lifted = np.stack([twin.encode(params, column) for column in x.T], axis=1)
    np.testing.assert_allclose(architecture.lift(weights, x), lifted, rtol=1e-10, atol=1e-10)
    lowered = np.stack([twin.decode(params, column) for column in y.T], axis=1)
    np.testing.assert_allclose(architecture.decode(weights, y), lowered, rtol=1e-10, atol=1e-10)
