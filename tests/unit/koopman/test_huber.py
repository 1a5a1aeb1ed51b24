"""Huber's loss in place of the square: its formula, its slope, and what it does to outliers."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from reference import koopman as twin
from reference.federations import ARCHITECTURE, TRAINING, model_bytes, params_of

import fedkoopman as fk
from fedkoopman.errors import InputError
from fedkoopman.koopman.kinds.inclusive import Inclusive
from fedkoopman.koopman.kinds.spectral import Spectral
from fedkoopman.koopman.losses import powers
from fedkoopman.koopman.training import batch_loss, client_update
from fedkoopman.koopman.watched import Watch

ERRORS = np.array([-50.0, -1.5001, -1.5, -1.4999, -0.3, 0.0, 1e-9, 1.5, 2.0, 1e6])
KINDS = {
    "paper": ARCHITECTURE,
    "inclusive": Inclusive(3, 8, width=8, window=2),
    "spectral": Spectral(3, 6, features=5, horizon=3, depth=2),
}


def h(e, delta):
    """The formula, one number at a time."""
    return e * e if abs(e) <= delta else 2 * delta * abs(e) - delta**2


@pytest.mark.parametrize("delta", [0.2, 1.5, 1e3])
def test_it_is_the_formula_and_twice_what_optax_has(delta):
    with jax.enable_x64(True):
        found = np.asarray(powers(jnp.asarray(ERRORS), delta))
        np.testing.assert_allclose(found, [h(e, delta) for e in ERRORS], rtol=1e-14)
        other = 2 * optax.losses.huber_loss(jnp.asarray(ERRORS), delta=delta)
        np.testing.assert_allclose(found, other, rtol=1e-14)


def test_no_error_pulls_harder_than_one_of_size_delta():
    with jax.enable_x64(True):
        slope = jax.vmap(jax.grad(partial(powers, huber=1.5)))(jnp.asarray(ERRORS))
    np.testing.assert_allclose(slope, np.clip(2 * ERRORS, -3.0, 3.0), rtol=1e-14)


def batch(kind, n=7, scale=3.0):
    random = np.random.default_rng(4)
    x = scale * random.normal(size=(kind.input_dim, n))
    ahead = tuple(scale * random.normal(size=(kind.input_dim, n)) for _ in kind.leads)
    return x, ahead, np.full(n, 1 / n)


def drawn(kind, seed=1):
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: 0.4 * random.normal(size=np.shape(leaf)), kind.trainee)


def fixed_of(kind):
    """What a staged kind's loss needs beside its features."""
    random = np.random.default_rng(3)
    shapes = kind.fixed_shapes() if hasattr(kind, "fixed_shapes") else {}
    return {name: 0.5 + random.random(shape) for name, shape in shapes.items()}


def loss(kind, huber, weights):
    training = replace(TRAINING, huber=huber, loss_weights=(0.5, 0.2, 0.3))
    x, ahead, share = batch(kind)
    return batch_loss(kind, training, weights, fixed_of(kind), x, ahead, share)


def test_the_papers_losses_are_those_of_a_loop_over_samples():
    weights = drawn(ARCHITECTURE)
    params, (x, (target,), _) = params_of(weights), batch(ARCHITECTURE)
    total = 0.0
    for one, later in zip(x.T, target.T, strict=True):
        y, y_later = twin.encode(params, one), twin.encode(params, later)
        moved = params["operator"] @ y
        parts = (moved - y_later, one - twin.decode(params, y), twin.decode(params, moved) - later)
        for w, errors in zip((0.5, 0.2, 0.3), parts, strict=True):
            total += w * np.mean([h(e, 0.7) for e in errors]) / x.shape[1]
    with jax.enable_x64(True):
        found, square = (float(loss(ARCHITECTURE, d, weights)) for d in (0.7, 0.0))
    assert found == pytest.approx(total, rel=1e-12)
    assert found < 0.9 * square  # some errors are beyond δ, or nothing is tested


def test_the_features_of_the_recommended_kind_are_trained_on_it_too():
    kind = KINDS["spectral"]
    weights, fixed, (x, ahead, _) = drawn(kind), fixed_of(kind), batch(kind)
    u = (x - fixed["mean"][:, None]) / fixed["std"][:, None]
    with jax.enable_x64(True):
        layers = [np.asarray(part) for part in kind.functions.layer_values(weights, u)]
        found, square = (float(loss(kind, d, weights)) for d in (0.7, 0.0))
    predicted = weights["heads"] @ np.concatenate([np.ones_like(u[:1]), u, *layers])
    scale = [fixed["std"] * moves for moves in fixed["moves"]]
    moves = np.concatenate([(a - x) / s[:, None] for a, s in zip(ahead, scale, strict=True)])
    expected = np.mean([h(e, 0.7) for e in (moves - predicted).ravel()])
    assert found == pytest.approx(expected, rel=1e-12)
    assert found < 0.9 * square


@pytest.mark.parametrize("name", KINDS)
def test_without_it_nothing_is_traced_in(name):
    """Existing studies compile what they always did."""
    kind = KINDS[name]
    x, ahead, share = batch(kind)
    plain = jax.make_jaxpr(
        lambda w: kind.loss(w, fixed_of(kind), x, ahead, share, (0.5, 0.2, 0.3))
    )(drawn(kind))
    assert str(jax.make_jaxpr(partial(loss, kind, 0.0))(drawn(kind))) == str(plain)
    assert str(jax.make_jaxpr(partial(loss, kind, 2.0))(drawn(kind))) != str(plain)


def test_one_who_watches_gets_the_same_weights():
    random = np.random.default_rng(0)
    segments = [3 * random.normal(size=(40, 3))]
    training = replace(TRAINING, huber=0.5)
    weights = ARCHITECTURE.initialise(seed=1, dtype=np.float64)
    expected = client_update(ARCHITECTURE, training, weights, segments, seed=2)
    found = Watch(training.epochs).update(ARCHITECTURE, training, weights, segments, seed=2)
    assert model_bytes(found) == model_bytes(expected)
    square = client_update(ARCHITECTURE, TRAINING, weights, segments, seed=2)
    assert model_bytes(square) != model_bytes(expected)


def test_a_fit_with_gross_outliers_is_better():
    system, random = fk.systems.VanDerPol(dt=0.1), np.random.default_rng(0)
    clean = fk.simulate(system, steps=100, seed=1, batch=5)
    spoilt = fk.simulate(system, steps=100, seed=0, batch=20)
    hit = random.random(spoilt.shape[:2]) < 0.05
    spoilt[hit] += random.normal(0, 10, (hit.sum(), 2))

    def error(huber):
        options = {"dt": 0.1, "epochs": 15, "learning_rate": 3e-3}
        model = fk.DeepKoopman(8, kind="paper", huber=huber, **options).fit(list(spoilt))
        return np.mean([(np.asarray(model.predict(x))[:-1] - x[1:]) ** 2 for x in clean])

    assert error(0.3) < 0.5 * error(0.0)


def test_a_model_remembers_it(tmp_path):
    states = np.random.default_rng(0).normal(size=(30, 2))
    model = fk.DeepKoopman(4, kind="paper", epochs=1, huber=0.5).fit(states)
    model.save(tmp_path / "m.safetensors")
    assert fk.load_model(tmp_path / "m.safetensors").get_params()["huber"] == 0.5


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kind": "paper", "huber": -1}, "huber is -1"),
        ({"kind": "paper", "huber": float("nan")}, "huber is nan"),
        ({"kind": "edmd", "huber": 1.0}, "huber is 1 but the model kind edmd"),
        ({"kind": "spectral", "learned": False, "huber": 1.0}, "leave huber at 0"),
    ],
)
def test_what_makes_no_sense_is_refused(options, told):
    with pytest.raises(InputError, match=told):
        fk.DeepKoopman(**options).fit(np.random.default_rng(0).normal(size=(200, 2)))


def test_a_study_refuses_it_where_it_has_no_effect():
    with pytest.raises(InputError, match=r"training\.huber is 2 but the model kind edmd"):
        fk.Study.from_dict({"network": {"kind": "edmd"}, "training": {"huber": 2.0}}).check()
