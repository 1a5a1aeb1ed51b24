"""The exported graph gives, in onnxruntime, the numbers that the model gives."""

import builtins
import json
import sys

import jax
import numpy as np
import pytest

from fedkoopman.errors import InputError
from fedkoopman.koopman import DeepKoopman
from fedkoopman.koopman import onnx as export
from fedkoopman.koopman.activations import ACTIVATIONS
from fedkoopman.koopman.kinds.paper import PaperNetwork

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)


def made(dtype=np.float32, seed=0, **shape):
    architecture = PaperNetwork(**{"state_dim": 3, "components": 5, "width": 8, **shape})
    rng = np.random.default_rng(seed)
    weights = jax.tree.map(
        lambda leaf: (rng.normal(size=leaf.shape) / np.sqrt(leaf.shape[1])).astype(dtype),
        architecture.template,
    )
    return DeepKoopman.from_weights(architecture, weights, dt=0.1, names=["a", "b", "c"])


def run(content, x):
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(["lifted", "next", "ahead"], {"x": x})


def check(model, x, tolerance, steps=4):
    content = export.to_onnx(model, steps=steps)
    window, dim = model.architecture_.window, model.architecture_.state_dim
    lifted, following, ahead = run(content, x)
    assert lifted.dtype == following.dtype == ahead.dtype == x.dtype
    assert (lifted.shape, following.shape) == ((len(x), 5), (len(x), dim))
    assert ahead.shape == (len(x), steps, dim)
    windows = x.astype(float).reshape(-1, window, dim)
    start = windows if window > 1 else windows[:, 0]
    expected = model.simulate(start, steps)
    close = {"rtol": tolerance, "atol": tolerance}
    y = model.transform(start) if window == 1 else model.transform(list(windows))
    np.testing.assert_allclose(lifted, np.reshape(y, lifted.shape), **close)
    np.testing.assert_allclose(following, expected[:, 0], **close)
    np.testing.assert_allclose(ahead, expected, **close)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_every_activation_in_both_precisions(activation, dtype, tolerance):
    x = (3 * RNG.normal(size=(40, 3))).astype(dtype)
    check(made(dtype, activation=activation, hidden_layers=2), x, tolerance)


@pytest.mark.parametrize("activation", ["softplus", "mish", "selu", "gelu", "elu"])
def test_far_out_nothing_overflows(activation):
    model = made(np.float64, activation=activation)
    check(model, np.array([[900.0, -900.0, 300.0], [-2e3, 1e3, 5.0]]), 1e-12)


@pytest.mark.parametrize(
    "shape", [{"hidden_layers": 0}, {"window": 3}, {"depth": 2}, {"hidden_layers": 3, "window": 2}]
)
def test_every_shape_of_network(shape):
    model = made(np.float64, **shape)
    check(model, RNG.normal(size=(7, model.architecture_.input_dim)), 1e-12)


def test_a_trained_model():
    t = np.linspace(0, 20, 400)
    x = np.column_stack([np.sin(t), np.cos(t), np.sin(2 * t)])
    model = DeepKoopman(5, epochs=3, kind="paper").fit(x)
    check(model, x[:50].astype(np.float32), 1e-5)


@pytest.mark.parametrize("steps", [1, 9])
def test_as_many_steps_ahead_as_asked_for(steps):
    check(made(np.float64), RNG.normal(size=(2, 3)), 1e-12, steps)


def test_the_file_says_what_it_holds(tmp_path):
    path = tmp_path / "model.onnx"
    export.write_onnx(path, made())
    onnx.checker.check_model(onnx.load(path), full_check=True)
    about = {p.key: json.loads(p.value) for p in onnx.load(path).metadata_props}
    assert about == {"dt": 0.1, "depth": 1, "window": 1, "names": ["a", "b", "c"], "units": None}
    assert path.read_bytes() == export.to_onnx(made())


def test_what_cannot_be_exported_is_refused():
    model = DeepKoopman(3, epochs=1, activation=jax.numpy.cos, kind="paper").fit(
        RNG.normal(size=(9, 2))
    )
    with pytest.raises(InputError, match="is a function of your own, which ONNX does not know"):
        export.to_onnx(model)
    with pytest.raises(InputError, match="steps is 0"):
        export.to_onnx(made(), steps=0)


def test_without_onnx_the_remedy_is_named(monkeypatch):
    original = builtins.__import__

    def missing(name, *rest, **more):
        if name == "onnx":
            raise ImportError(name)
        return original(name, *rest, **more)

    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match=r"pip install 'fedkoopman\[onnx\]'"):
        export.to_onnx(made())
