"""What holds for every model kind: ours, and the extension's with and without losses."""

import json
from functools import partial

import jax
import numpy as np
import pytest
from reference.closed_form_kind import LeastSquares
from reference.extension import member

from fedkoopman.errors import InputError
from fedkoopman.evaluation import TestSet, evaluate
from fedkoopman.koopman import DeepKoopman
from fedkoopman.koopman.files import from_bytes, to_bytes
from fedkoopman.koopman.kind import Kind
from fedkoopman.koopman.kinds import KINDS
from fedkoopman.koopman.onnx import to_onnx
from fedkoopman.koopman.staged import Staged

Linear = member("linear", "KIND")
KINDS_HERE = {**{name: KINDS.find(name) for name in KINDS}, "linear": Linear, "exact": LeastSquares}
SHAPES = {"plain": {}, "delays": {"window": 2, "depth": 3}}
CASES = [(kind, shape) for kind in KINDS_HERE for shape in SHAPES]
CASES += [("edmd", "fourier"), ("edmd", "rbf"), ("edmd", "linear"), ("spectral", "random")]
SHAPES |= {
    "fourier": {"dictionary": "fourier", "features": 5},
    "rbf": {"dictionary": "rbf", "features": 5, "window": 2},
    "linear": {"degree": 1},
    "random": {"learned": False, "features": 7},
}


@pytest.fixture(params=CASES, ids="-".join)
def kind(request):
    name, shape = request.param
    return KINDS_HERE[name].of(state_dim=3, components=8, **SHAPES[shape])


def draws(kind):
    """Whether anything in a kind's first weights is random."""
    return not isinstance(kind, Staged) or bool(dict(kind.feature_shapes()))


def drawn(kind, dtype=np.float64, seed=0):
    """Weights without any structure, so that no part of them can be mistaken for another."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: (0.3 * rng.normal(size=np.shape(leaf))).astype(dtype), kind.template
    )


def model_of(kind, dtype=np.float64):
    return DeepKoopman.from_weights(kind, drawn(kind, dtype), dt=0.1)


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert (a.dtype, np.shape(a)) == (b.dtype, np.shape(b))
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", KINDS.names)
def test_a_kind_has_the_name_by_which_it_is_found(name):
    assert KINDS.find(name).name == name


def test_a_kind_is_equal_to_itself_and_to_no_other(kind):
    same = type(kind).of(**vars(kind))
    assert (same, hash(same)) == (kind, hash(kind))
    assert type(kind).of(**{**vars(kind), "depth": 5}) != kind
    others = [other for other in KINDS_HERE.values() if other is not type(kind)]
    assert all(other.of(**vars(kind)) != kind for other in others)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_first_weights_have_the_shapes_of_the_template(kind, dtype):
    first = kind.initialise(seed=1, dtype=dtype)
    assert jax.tree.structure(first) == jax.tree.structure(kind.template)
    for leaf, like in zip(jax.tree.leaves(first), jax.tree.leaves(kind.template), strict=True):
        assert (leaf.shape, leaf.dtype) == (like.shape, dtype)
        assert np.isfinite(leaf).all()


def test_the_seed_decides_the_first_weights(kind):
    assert_same(kind.initialise(seed=1), kind.initialise(seed=1))
    one, other = (jax.tree.leaves(kind.initialise(seed=seed)) for seed in (1, 2))
    assert draws(kind) == any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_names_and_back_in_any_order(kind):
    weights = drawn(kind)
    named = kind.named(weights)
    assert {name: np.shape(leaf) for name, leaf in named.items()} == dict(kind.shapes())
    assert sum(map(np.size, named.values())) == sum(map(np.size, jax.tree.leaves(weights)))
    assert_same(kind.from_named(named), weights)
    assert_same(kind.from_named(dict(reversed(named.items()))), weights)
    assert list(kind.named(kind.from_named(dict(reversed(named.items()))))) == list(named)


def test_other_names_and_shapes_are_refused_in_one_line(kind):
    named = kind.named(drawn(kind))
    for name, leaf in named.items():
        cases = [
            ({key: value for key, value in named.items() if key != name}, "is missing"),
            ({**named, name: np.concatenate([leaf, leaf])}, "has shape"),
            ({**named, f"{name} ": leaf}, "is not among"),
        ]
        for tensors, message in cases:
            with pytest.raises(InputError, match=message) as caught:
                kind.from_named(tensors)
            assert name in str(caught.value) and "\n" not in str(caught.value)


def test_the_files_tensors_and_back(kind):
    weights = drawn(kind)
    tensors = kind.to_file(weights)
    assert {name: np.shape(leaf) for name, leaf in tensors.items()} == dict(kind.file_shapes())
    assert not {"reference", "noise"} & tensors.keys()
    assert_same(kind.from_file(tensors), weights)


def test_the_settings_and_back_through_json(kind):
    settings = json.loads(json.dumps(kind.settings(), allow_nan=False))
    assert type(kind).from_settings(settings) == kind


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_model_file_and_back(kind, dtype):
    model = model_of(kind, dtype)
    own = None if kind.name in KINDS else type(kind)
    back = from_bytes(to_bytes(model), own)
    assert back.architecture == kind
    assert_same(back.weights, model.weights_)
    assert to_bytes(DeepKoopman._of(back)) == to_bytes(model)


def test_lift_operator_and_decode_have_their_shapes_column_by_column(kind):
    weights, x = drawn(kind), np.random.default_rng(1).normal(size=(kind.input_dim, 7))
    y = np.asarray(kind.lift(weights, x))
    assert y.shape == (kind.components, 7)
    assert np.shape(kind.operator(weights)) == (kind.components, kind.components)
    decoded = np.asarray(kind.decode(weights, y))
    assert decoded.shape == x.shape
    for i in range(7):
        alone = kind.lift(weights, x[:, i : i + 1])
        np.testing.assert_allclose(alone[:, 0], y[:, i], rtol=1e-12, atol=1e-12)
        lowered = kind.decode(weights, alone)
        np.testing.assert_allclose(lowered[:, 0], decoded[:, i], rtol=1e-12, atol=1e-12)


def test_every_weight_is_used_and_can_be_differentiated(kind):
    x = np.random.default_rng(1).normal(size=(kind.input_dim, 7))

    def ahead(weights):
        y = kind.operator(weights) @ kind.lift(weights, x)
        return (y**2).sum() + (kind.decode(weights, y) ** 2).sum()

    for leaf in jax.tree.leaves(jax.grad(ahead)(drawn(kind))):
        assert np.isfinite(leaf).all() and np.abs(leaf).max() > 0


def test_a_share_of_zero_leaves_a_sample_out_of_the_losses(kind):
    weights, rng = drawn(kind), np.random.default_rng(1)
    x, target = rng.normal(size=(2, kind.input_dim, 7))
    losses = partial(kind.losses, weights)
    if type(kind).losses is Kind.losses:
        with pytest.raises(InputError, match="has no loss, so it cannot be trained by gradients"):
            losses(x, target)
        return
    share = np.array([1, 1, 1, 1, 1, 0, 0]) / 5
    np.testing.assert_allclose(losses(x, target, share), losses(x[:, :5], target[:, :5]))


def test_scores_are_finite_where_the_model_is_right(kind):
    rng = np.random.default_rng(1)
    metrics = evaluate(kind, drawn(kind), TestSet(rng.normal(size=(2, 30, 3))))
    assert np.isfinite(metrics).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.float64, 1e-12)])
def test_the_onnx_graph_gives_the_models_numbers(kind, dtype, tolerance):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model = model_of(kind, dtype)
    x = np.random.default_rng(1).normal(size=(5, kind.input_dim)).astype(dtype)
    content = to_onnx(model, steps=3)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    lifted, following, ahead = session.run(["lifted", "next", "ahead"], {"x": x})
    learned = model.learned_
    y = learned.lift(x.astype(np.float64))
    expected = learned.advance(y, 3).swapaxes(0, 1)
    states = learned.lower(expected.reshape(15, -1)).reshape(5, 3, 3)
    close = {"rtol": tolerance, "atol": tolerance}
    np.testing.assert_allclose(lifted, y, **close)
    np.testing.assert_allclose(following, states[:, 0], **close)
    np.testing.assert_allclose(ahead, states, **close)
    assert lifted.dtype == following.dtype == ahead.dtype == dtype
