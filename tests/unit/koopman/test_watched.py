"""Training that is watched gives the same weights, and the losses that a twin computes."""

import jax
import numpy as np
import pytest
from reference import koopman as twin

from fedkoopman.errors import ComputationError
from fedkoopman.koopman import DeepKoopman, load_model
from fedkoopman.koopman.fitted import NotFittedError
from fedkoopman.koopman.kinds.paper import PaperNetwork
from fedkoopman.koopman.training import Training, client_update, shuffled
from fedkoopman.koopman.watched import watched_update

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
    found = watched_update(network, training, weights, segments, seed=3)
    for one, other in zip(*map(jax.tree.leaves, (found.weights, expected)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert found.losses.shape == (training.epochs,)


def test_the_loss_of_an_epoch_is_the_mean_over_its_batches_by_their_sizes():
    # With a learning rate so small that the weights stay, every epoch has the loss of all pairs.
    options = {"epochs": 3, "batch_size": 16, "precision": "float64", "learning_rate": 1e-300}
    model = DeepKoopman(3, width=4, loss_weights=(0.2, 0.3, 0.5), **options).fit(SEGMENTS)
    weights = model.weights_
    params = {
        "encoder": [(layer.weight, layer.bias) for layer in weights.encoder],
        "operator": weights.operator,
        "decoder": [(layer.weight, layer.bias) for layer in weights.decoder],
    }
    pairs = [(part[k], part[k + 1]) for part in SEGMENTS for k in range(len(part) - 1)]
    expected = twin.batch_loss(params, pairs, np.array([0.2, 0.3, 0.5]))
    np.testing.assert_allclose(model.history_, expected, rtol=1e-10)
    # 127 pairs: the last batch has 15 and counts less; in float64 the order does not show.
    assert len(shuffled(np.arange(127, dtype=np.int32), 1, 0)[0]) == len(pairs)


def test_the_history_grows_with_partial_fit_and_starts_anew_with_fit(tmp_path):
    model = DeepKoopman(3, width=4, epochs=4)
    assert not hasattr(model, "history_")
    first = model.fit(SEGMENTS).history_
    assert first.shape == (4,) and first[-1] < first[0]
    model.partial_fit(SEGMENTS)
    assert model.history_.shape == (8,)
    np.testing.assert_array_equal(model.history_[:4], first)
    np.testing.assert_array_equal(model.fit(SEGMENTS).history_, first)
    model.save(tmp_path / "m.safetensors")
    loaded = load_model(tmp_path / "m.safetensors")
    with pytest.raises(NotFittedError, match="not trained here"):
        _ = loaded.history_
    assert loaded.partial_fit(SEGMENTS).history_.shape == (4,)


def test_a_training_that_diverged_leaves_model_and_history_in_place():
    model = DeepKoopman(3, width=4, epochs=4).fit(SEGMENTS)
    before = model.history_
    with pytest.raises(ComputationError, match="training diverged"):
        model.set_params(learning_rate=1e30).partial_fit(SEGMENTS)
    np.testing.assert_array_equal(model.history_, before)


def test_verbose_tells_about_ten_lines_on_stderr_and_silence_is_the_default(capfd):
    DeepKoopman(3, width=4, epochs=30).fit(SEGMENTS)
    assert capfd.readouterr() == ("", "")
    model = DeepKoopman(3, width=4, epochs=30, verbose=1).fit(SEGMENTS)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 10
    assert lines[1].startswith(f"epoch 6/30: loss {model.history_[5]:.4g} (")
    DeepKoopman(3, width=4, epochs=3, verbose=1).fit(SEGMENTS)
    assert len(capfd.readouterr().err.splitlines()) == 3
