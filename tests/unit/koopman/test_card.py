"""What a model says of itself: facts, and the card beside its file."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.koopman import DeepKoopman
from fedkoopman.koopman.card import card, facts, pace, write_card
from fedkoopman.koopman.kalman import KoopmanFilter
from fedkoopman.koopman.kinds.paper import Layer, PaperNetwork, Weights


def spinning(*blocks, **more):
    """A network without hidden layers whose K has known eigenvalues."""
    dim = sum(len(block) for block in blocks)
    operator = np.zeros((dim, dim))
    at = 0
    for block in blocks:
        operator[at : at + len(block), at : at + len(block)] = block
        at += len(block)
    layer = (Layer(np.column_stack([np.eye(dim), np.zeros(dim)])),)
    architecture = PaperNetwork(dim, dim, hidden_layers=0)
    return DeepKoopman.from_weights(architecture, Weights(layer, operator, layer), dt=0.1, **more)


def turn(modulus, angle):
    c, s = modulus * np.cos(angle), modulus * np.sin(angle)
    return np.array([[c, -s], [s, c]])


MODEL = spinning(
    turn(0.9, 0.2 * np.pi),
    np.array([[1.1]]),
    np.array([[0.0]]),
    np.array([[1.0]]),
    names=["a", "b", "c|d", "e", "<f>"],
    units=["m", "m/s", "1", "", "K"],
    information={"study": "three labs", "clients": 3, "rounds": 1200, "samples": 45678},
)


def test_the_spectrum_shows_pairs_once_with_their_meaning_in_time():
    rows = facts(MODEL)["spectrum"]
    assert [row["pair"] for row in rows] == [False, False, True, False]
    growing, staying, turning, gone = rows
    np.testing.assert_allclose(growing["half_life"], -0.1 * np.log(2) / np.log(1.1))
    assert pace(growing).startswith("doubles in 0.7273")
    assert (staying["decay_rate"], staying["half_life"], pace(staying)) == (0.0, None, "stays")
    np.testing.assert_allclose(turning["frequency"], 1.0)  # a tenth of a turn in 0.1
    np.testing.assert_allclose(turning["half_life"], 0.1 * np.log(2) / -np.log(0.9))
    np.testing.assert_allclose(turning["modulus"], 0.9)
    assert (gone["decay_rate"], pace(gone)) == (None, "vanishes at once")
    np.testing.assert_allclose(list(turning["mode"].values()), [1, 1, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(list(growing["mode"].values()), [0, 0, 1, 0, 0], atol=1e-12)


def test_facts_are_plain_json():
    about = facts(MODEL)
    assert json.loads(json.dumps(about, allow_nan=False)) == json.loads(json.dumps(about))
    assert about["states"][0] == {"name": "a", "unit": "m"}
    assert about["information"]["clients"] == 3
    assert about["weights"] == 25 + 2 * 30


def test_the_card_tells_what_a_stranger_needs():
    text = card(MODEL, scores={"E": {"mean": 0.0123, "std": 0.002}, "l1": 1e-5, "l2": None})
    for words in (
        "# A Koopman model of three labs",
        "| a | m |",
        "| c\\|d |  |",
        "| &lt;f> | K |",
        "Sampled every 0.1",
        "| sites | 3 |",
        "| local trainings | 1,200 |",
        "| E | 0.0123 ± 0.002 |",
        "| l1 | 1e-05 |",
        "| l2 | not finite |",
        "0.7281 ± 0.529 i | 1 | halves in 0.6579",
        'fk.load_model("model.safetensors")',
        "fedkoopman predict model.safetensors",
        "1 mode of K grows",
        "Nobody measured how far off it is",
        "no observation and no trajectory",
    ):
        assert words in text, words


def test_the_card_holds_no_number_of_the_data():
    x = np.random.default_rng(0).normal(size=(30, 2))
    text = card(DeepKoopman(4, epochs=1, width=5, kind="paper").fit(x))
    for number in (*x.ravel(), *x.mean(axis=0)):
        assert f"{number:.4g}" not in text


def test_cards_of_other_models():
    x = np.random.default_rng(0).normal(size=(40, 2))
    model = DeepKoopman(24, epochs=1, n_delays=2, depth=3, activation=jnp.sin, kind="paper").fit(x)
    text = card(model, file="my model.safetensors")
    assert "It sees 3 samples in a row" in text
    assert "one application of K advances 3." in text
    assert "a function" in text and "| x1 |" in text and "more fade faster" in text
    assert "fedkoopman inspect 'my model.safetensors'" in text
    assert "Nobody measured" not in text and "## Scores" not in text
    assert "| trainings here | 1 |" in text


@pytest.mark.parametrize("name", ["model.safetensors", "model"])
def test_the_card_lies_beside_the_model(tmp_path, name):
    MODEL.save(tmp_path / name)
    path = write_card(tmp_path / name, MODEL)
    assert path == tmp_path / "model.md"
    assert path.read_text(encoding="utf-8") == card(MODEL, file=name)


def test_every_line_of_the_pythons_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(40, 2)).cumsum(axis=0)
    model = DeepKoopman(4, epochs=1, width=5, n_delays=1, kind="paper").fit(x)
    model.save("model.safetensors")
    code = card(model).split("```python\n")[1].split("```")[0]
    monkeypatch.setattr(fk, "KoopmanFilter", KoopmanFilter, raising=False)
    sensor = fk.LinearSensor([[1.0, 0.0]])
    exec(code, {"x": x, "z": x[:, :1], "sensor": sensor})
