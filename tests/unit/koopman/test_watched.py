"""Training that is watched gives the same weights, and the losses that a twin computes."""

import jax
import numpy as np
import pytest
from reference import koopman as twin

from fedkoopman.errors import ComputationError
from fedkoopman.koopman import DeepKoopman, load_model
from fedkoopman.koopman.fitted import NotFittedError
from fedkoopman.koopman.fitting import fitted_weights
from fedkoopman.koopman.kinds.inclusive import Inclusive
from fedkoopman.koopman.kinds.paper import PaperNetwork
from fedkoopman.koopman.kinds.spectral import Spectral
from fedkoopman.koopman.training import Training, client_update, shuffled, window_starts
from fedkoopman.koopman.watched import Watch

RNG = np.random.default_rng(0)
SEGMENTS = [RNG.normal(size=(length, 2)) for length in (41, 30, 59)]


@pytest.mark.parametrize(
    ("network", "training"),
    [
        (PaperNetwork(2, 12), Training(epochs=25)),
        (PaperNetwork(2, 5, 2, 17, "tanh", window=3, depth=2), Training(epochs=3, batch=7)),
        (PaperNetwork(2, 20, 1, 64, "gelu"), Training(epochs=12, batch=200, weight_decay=0.1)),
        (PaperNetwork(2, 12, 3, 30), Training(epochs=1, precision="float64", decay=0.5)),
        (PaperNetwork(2, 4, 0), Training(epochs=11, loss_weights=(1.0, 0.0, 2.0))),
    ],
    ids=["paper", "delays", "one batch", "double", "linear"],
)
def test_the_weights_are_those_of_client_update_bit_for_bit(network, training):
    dtype = np.dtype(training.precision)
    weights = network.initialise(seed=1, dtype=dtype)
    segments = [part.astype(dtype) for part in SEGMENTS]
    expected = client_update(network, training, weights, segments, seed=3)
    watch = Watch(training.epochs)
    found = watch.update(network, training, weights, segments, seed=3)
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert watch.losses.shape == (training.epochs,)


@pytest.mark.parametrize("kind", [Spectral(2, 8, features=16, horizon=5), Inclusive(2, 8)])
def test_kinds_in_stages_are_the_same_bit_for_bit_too(kind):
    training = Training(epochs=23, batch=32)
    weights = kind.initialise(seed=1)
    watch = Watch(training.epochs)
    found = fitted_weights(kind, training, weights, SEGMENTS, seed=3, update=watch.update)
    expected = fitted_weights(kind, training, weights, SEGMENTS, seed=3)
    for name, leaf in expected.items():
        np.testing.assert_array_equal(found[name], leaf)
    assert watch.losses.shape == (23,) and watch.losses[-1] < watch.losses[0]


def test_the_loss_after_an_epoch_is_the_mean_over_all_pairs():
    # 127 pairs in eight batches, the last of which has fifteen and counts less.
    options = {"epochs": 3, "precision": "float64", "learning_rate": 1e-2}
    losses = (0.2, 0.3, 0.5)
    model = DeepKoopman(
        3, width=4, loss_weights=losses, batch_size=16, kind="paper", **options
    ).fit(SEGMENTS)
    weights = model.weights_
    params = {
        "encoder": [(layer.weight, layer.bias) for layer in weights.encoder],
        "operator": weights.operator,
        "decoder": [(layer.weight, layer.bias) for layer in weights.decoder],
    }
    pairs = [(part[k], part[k + 1]) for part in SEGMENTS for k in range(len(part) - 1)]
    assert len(pairs) == 127
    expected = twin.batch_loss(params, pairs, np.array(losses))
    assert model.history_[-1] == pytest.approx(expected, rel=1e-10)


def test_of_many_batches_an_eighth_is_judged():
    options = {"epochs": 2, "precision": "float64", "batch_size": 1, "learning_rate": 1e-300}
    model = DeepKoopman(3, width=4, kind="paper", **options).fit(SEGMENTS)
    weights = jax.tree.map(np.asarray, model.weights_)
    starts = window_starts([41, 30, 59], 1, 1)
    seed = int(np.random.SeedSequence([0, 1]).generate_state(1, np.uint64)[0] >> 1)
    joined = np.concatenate(SEGMENTS)
    for epoch, order in enumerate(shuffled(starts, 2, seed)):
        judged = order[: 127 // 8]
        x, target = joined[judged].T, joined[judged + 1].T
        expected = model.architecture_.losses(weights, x, target).weighted((1 / 3, 1 / 3, 1 / 3))
        assert model.history_[epoch] == pytest.approx(float(expected), rel=1e-10)


def test_the_history_grows_with_partial_fit_and_starts_anew_with_fit(tmp_path):
    model = DeepKoopman(3, width=4, epochs=4, kind="paper")
    assert not hasattr(model, "history_")
    first = model.fit(SEGMENTS).history_
    assert first.shape == (4,) and first[-1] < first[0]
    model.partial_fit(SEGMENTS)
    assert model.history_.shape == (8,)
    np.testing.assert_array_equal(model.history_[:4], first)
    np.testing.assert_array_equal(model.fit(SEGMENTS).history_, first)
    model.save(tmp_path / "m.safetensors")
    loaded = load_model(tmp_path / "m.safetensors")
    with pytest.raises(NotFittedError, match="there is no history"):
        _ = loaded.history_
    assert loaded.partial_fit(SEGMENTS).history_.shape == (4,)


def test_a_training_that_diverged_leaves_model_and_history_in_place():
    model = DeepKoopman(3, width=4, epochs=4, kind="paper").fit(SEGMENTS)
    before = model.history_
    with pytest.raises(ComputationError, match="training diverged"):
        model.set_params(learning_rate=1e30).partial_fit(SEGMENTS)
    np.testing.assert_array_equal(model.history_, before)


def test_verbose_tells_about_ten_lines_on_stderr_and_silence_is_the_default(capfd):
    DeepKoopman(3, width=4, epochs=30, kind="paper").fit(SEGMENTS)
    assert capfd.readouterr() == ("", "")
    model = DeepKoopman(3, width=4, epochs=30, verbose=1, kind="paper").fit(SEGMENTS)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 10
    assert lines[1].startswith(f"epoch 6/30: loss {model.history_[5]:.4g} (")
    DeepKoopman(3, width=4, epochs=3, verbose=1, kind="paper").fit(SEGMENTS)
    assert len(capfd.readouterr().err.splitlines()) == 3
