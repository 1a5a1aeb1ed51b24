"""A model kind of one's own, in one file, works wherever the paper's does."""

import json
import struct
import subprocess
import sys
from importlib.metadata import EntryPoint

import numpy as np
import pytest
from reference.closed_form_kind import LeastSquares, Linear
from reference.extension import file_of
from reference.federations import assert_same_run, experiment, run

import fedkoopman as fk
from fedkoopman.errors import InputError
from fedkoopman.evaluation import TestSet, evaluate
from fedkoopman.koopman import DeepKoopman, load_model
from fedkoopman.koopman.card import card, facts
from fedkoopman.koopman.files import to_bytes
from fedkoopman.koopman.kind import Kind
from fedkoopman.koopman.kinds import KINDS, find_kind, name_of
from fedkoopman.koopman.kinds.paper import PaperNetwork

FILE = file_of("linear")
REFERENCE = f"{FILE}:Linear"
TURN = 0.98 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])


def turning(steps=120, start=(1.0, 0.5)):
    """A trajectory of x' = A x, whose eigenvalues are 0.98 exp(±0.3 i)."""
    states = [np.array(start)]
    for _ in range(steps):
        states.append(TURN @ states[-1])
    return np.array(states)


X = turning()
FITTED = DeepKoopman(3, kind=Linear, dt=0.1, epochs=150, batch_size=16, learning_rate=0.02).fit(X)


def test_training_finds_a_linear_systems_operator_and_spectrum():
    assert isinstance(FITTED.architecture_, Linear)
    np.testing.assert_allclose(FITTED.predict(X[:-1]), X[1:], atol=0.01)
    np.testing.assert_allclose(FITTED.simulate(X[0], 20), X[1:21], atol=0.03)
    assert FITTED.score(X) > 0.999
    pair = FITTED.eigenvalues_continuous_[np.abs(FITTED.eigenvalues_.imag) > 0.1]
    np.testing.assert_allclose(np.abs(pair.imag), 3.0, rtol=0.02)
    np.testing.assert_allclose(FITTED.frequencies_.max(), 3.0 / (2 * np.pi), rtol=0.02)
    assert FITTED.modes_.shape == (2, 3)


def test_the_same_seed_gives_the_same_model():
    again = DeepKoopman(3, kind=Linear, dt=0.1, epochs=2).fit(X)
    assert to_bytes(again) == to_bytes(DeepKoopman(3, kind=Linear, dt=0.1, epochs=2).fit(X))
    assert to_bytes(again.partial_fit(X)) != to_bytes(DeepKoopman(3, kind=Linear, epochs=2).fit(X))


def test_scores_forecasts_filters_and_the_card_know_no_kind():
    metrics = evaluate(FITTED.architecture_, FITTED.weights_, TestSet(turning(60)[None]))
    assert (metrics.l2, metrics.horizon > 30) == (0.0, True)
    assert metrics.l3 < 1e-4
    forecast = FITTED.forecast(X[:60], n_steps=5)
    np.testing.assert_allclose(forecast.mean, X[60:65], atol=0.03)
    sensor = fk.LinearSensor([[1.0, 0.0]])
    z = X[1:, :1] + 0.01 * np.random.default_rng(0).normal(size=(len(X) - 1, 1))
    observer = fk.KoopmanFilter(FITTED, sensor, observation_noise=1e-4, initial_mean=[1, 0.5])
    np.testing.assert_allclose(observer.smooth(z).mean, X[1:], atol=0.1)
    about = facts(FITTED)
    assert (about["kind"], about["architecture"]["scale"], about["weights"]) == ("linear", 1.0, 11)
    assert "The model is of the kind linear, K is 3 × 3" in card(FITTED)


def test_a_federation_trains_it():
    e = experiment(architecture=Linear(3, 5), slots=2)
    outcomes = run(e)
    assert outcomes[-1].state.arrays["operator"].shape == (5, 5)
    assert not np.array_equal(outcomes[-1].state.arrays["operator"], np.eye(5))
    assert_same_run(outcomes, run(e, threads=1))


# Files


def header_of(content):
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["fedkoopman"])


def test_the_header_names_every_kind_but_the_papers():
    assert header_of(to_bytes(FITTED))["kind"] == "linear"
    paper = PaperNetwork(2, 3)
    model = DeepKoopman.from_weights(paper, paper.initialise(seed=0), dt=1.0)
    assert "kind" not in header_of(to_bytes(model))


@pytest.mark.parametrize("kind", [Linear, REFERENCE], ids=["class", "reference"])
def test_a_model_of_ones_own_kind_is_saved_and_loaded(tmp_path, kind):
    path = tmp_path / "model.safetensors"
    FITTED.save(path)
    back = load_model(path, kind)
    assert to_bytes(back) == to_bytes(FITTED)
    np.testing.assert_array_equal(back.predict(X), FITTED.predict(X))
    if kind is Linear:
        assert back.get_params() == FITTED.get_params()
        assert to_bytes(back.partial_fit(X)) == to_bytes(load_model(path, kind).partial_fit(X))


def test_a_file_is_never_a_reason_to_run_code(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    for name in ("linear", REFERENCE):
        monkeypatch.setattr(Linear, "name", name)
        FITTED.save(path)
        with pytest.raises(
            InputError, match=r"of the kind .*, and installed are edmd, inclusive, paper, spectral"
        ) as caught:
            load_model(path)
        assert "\n" not in str(caught.value)
    monkeypatch.setattr(Linear, "name", "linear")
    FITTED.save(path)
    with pytest.raises(InputError, match="of the kind 'linear', not least-squares"):
        load_model(path, LeastSquares)
    with pytest.raises(InputError, match="of the kind 'linear', not paper"):
        load_model(path, "paper")


def test_a_package_adds_a_kind_by_an_entry_point(tmp_path, monkeypatch):
    entry = EntryPoint("linear", "reference.closed_form_kind:Linear", KINDS.group)
    assert KINDS.group == "fedkoopman.model_kinds"
    monkeypatch.setattr(KINDS, "_foreign", {"linear": entry})
    monkeypatch.setattr(KINDS, "names", ("paper", "linear"))
    monkeypatch.setattr(KINDS, "_found", {})
    model = DeepKoopman(3, kind="linear", epochs=2).fit(X)
    model.save(tmp_path / "model")
    back = load_model(tmp_path / "model")
    assert (back.kind, to_bytes(back)) == ("linear", to_bytes(model))


def test_a_setting_that_is_no_parameter_is_kept_by_further_training(tmp_path):
    kind = Linear(2, 3, scale=2.5)
    model = DeepKoopman.from_weights(kind, kind.initialise(seed=0), dt=1.0).set_params(epochs=1)
    assert model.partial_fit(X).architecture_ == kind
    with pytest.raises(InputError, match="call fit to start anew"):
        model.set_params(kind="paper").partial_fit(X)


# A kind in closed form


def test_a_kind_without_losses_is_a_model_all_the_same(tmp_path):
    kind = LeastSquares(2, 2)
    weights = kind.solved(kind.initialise(seed=0, dtype=np.float64), X)
    model = DeepKoopman.from_weights(kind, weights, dt=0.1)
    np.testing.assert_allclose(model.operator_, TURN, atol=1e-12)
    np.testing.assert_allclose(np.abs(model.eigenvalues_), 0.98, rtol=1e-12)
    model.save(tmp_path / "model")
    assert to_bytes(load_model(tmp_path / "model", LeastSquares)) == to_bytes(model)


def test_it_is_not_trained_by_gradients():
    with pytest.raises(InputError, match="the model kind least-squares has no loss") as caught:
        DeepKoopman(3, kind=LeastSquares, epochs=1).fit(X)
    assert "\n" not in str(caught.value)


# Names


def test_kinds_are_found_by_name_reference_and_class():
    assert find_kind("paper") is KINDS.find("paper") is PaperNetwork
    assert find_kind(Linear) is Linear
    assert issubclass(find_kind(REFERENCE), Kind)
    assert (name_of(PaperNetwork), name_of(Linear)) == ("paper", Linear)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("papr", "unknown model kind 'papr': did you mean 'paper'"),
        (3, "kind is 3, which is not a model kind: write a subclass of"),
        (dict, "is not a model kind"),
        (PaperNetwork(2, 3), "is not a model kind"),
        (f"{FILE}:np", "is not a model kind"),
        (Kind, "has no name: write name ="),
    ],
)
def test_what_is_no_kind_is_refused_in_fit(kind, message):
    with pytest.raises(InputError, match=message) as caught:
        DeepKoopman(3, kind=kind, epochs=1).fit(X)
    assert "\n" not in str(caught.value)


def test_a_kinds_own_checks_are_told():
    with pytest.raises(InputError, match="components is 1: give 2 or more"):
        DeepKoopman(1, kind=Linear, epochs=1).fit(X)


def test_names_are_listed_without_jax():
    code = "import sys; from fedkoopman.koopman.kinds import KINDS; "
    code += "print(*KINDS, 'jax' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["edmd", "inclusive", "paper", "spectral", "False"]
