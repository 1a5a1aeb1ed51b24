"""DP-SGD: clipping against a loop of single gradients, noise and sampling against their laws."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedkoopman.koopman.example_gradients import clipped_sum, products_of, written_down
from fedkoopman.koopman.kinds.inclusive import Inclusive
from fedkoopman.koopman.kinds.paper import PaperNetwork
from fedkoopman.koopman.kinds.spectral import Spectral
from fedkoopman.koopman.private_training import (
    Plan,
    Private,
    distinct,
    occurrences,
    plan_of,
    private_update,
    sampled,
    site_update,
)
from fedkoopman.koopman.training import Training, _weights, client_update

KINDS = {
    "paper": PaperNetwork(2, 5, width=6),
    "paper-tanh-window": PaperNetwork(2, 5, width=6, hidden_layers=2, activation="tanh", window=2),
    "paper-driven": PaperNetwork(2, 5, width=6, window=2, inputs=1, bilinear=True),
    "inclusive": Inclusive(2, 5, width=6),
    "spectral": Spectral(2, 6, features=4, horizon=3, degree=2),
}
CLIP = {
    "paper": 2.0,
    "paper-tanh-window": 2.0,
    "paper-driven": 2.0,
    "inclusive": 2.0,
    "spectral": 1.0,
}
TRAINING = Training(epochs=2, batch=8, precision="float64")


def segments(count=3, steps=30, dim=2, seed=0):
    random = np.random.default_rng(seed)
    return [np.cumsum(random.normal(size=(steps, dim)), axis=0) for _ in range(count)]


def trainee(kind, seed=0):
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: 0.5 * random.normal(size=leaf.shape), kind.trainee)


def fixed_of(kind):
    return kind.fixed() if hasattr(kind, "fixed") else {}


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def examples_of(kind, n, seed=1):
    random = np.random.default_rng(seed)
    found = [random.normal(size=(kind.input_dim, n)) for _ in range(1 + len(kind.leads))]
    if kind.inputs:
        found.append(random.normal(size=(kind.inputs * max(kind.leads), n)))
    return tuple(found)


def summed_loss(kind):
    fixed = fixed_of(kind)

    def loss(vector, windows):
        x, *ahead = windows
        share = jnp.ones(x.shape[-1], vector.dtype)
        weights = TRAINING.loss_weights
        return kind.loss(_weights(vector, kind), fixed, x, tuple(ahead), share, weights)

    return loss


def looped(kind, vector, examples, clip):
    """One example after the other: `jax.grad`, its norm, and NumPy."""
    total, norms, slope = np.zeros_like(vector), [], jax.jit(jax.grad(summed_loss(kind)))
    for i in range(examples[0].shape[1]):
        one = tuple(part[:, i : i + 1] for part in examples)
        gradient = np.asarray(slope(vector, one))
        norms.append(np.linalg.norm(gradient))
        total += gradient * min(1.0, clip / norms[-1])
    return total, norms


@pytest.mark.parametrize(
    ("name", "way"),
    [
        *((name, products_of) for name in KINDS),
        ("paper-tanh-window", written_down),
        *(
            pytest.param(name, written_down, marks=pytest.mark.slow)
            for name in KINDS
            if name != "paper-tanh-window"
        ),
    ],
)
def test_clipped_sums_are_those_of_a_loop_of_single_gradients(name, way):
    kind = KINDS[name]
    with jax.enable_x64(True):
        vector, examples = flat(trainee(kind)), examples_of(kind, 7)
        expected, norms = looped(kind, vector, examples, CLIP[name])
        assert min(norms) < CLIP[name] < max(norms)  # some are shortened, some are not
        found = jax.jit(lambda *given: way(summed_loss(kind), *given))(
            vector, examples, np.ones(7), CLIP[name]
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_an_example_whose_gradient_is_not_finite_leaves_the_others_alone():
    kind = KINDS["paper"]
    with jax.enable_x64(True):
        vector, examples = flat(trainee(kind)), examples_of(kind, 4)
        expected, _ = looped(kind, vector, tuple(part[:, :3] for part in examples), 1.0)
        broken = tuple(part.copy() for part in examples)
        broken[0][:, 3] = 1e200
        for way in (products_of, written_down):
            found = jax.jit(lambda *given, way=way: way(summed_loss(kind), *given))(
                vector, broken, np.ones(4), 1.0
            )
            np.testing.assert_allclose(found, expected, atol=1e-10)


def test_a_loss_that_uses_weights_in_another_way_is_written_down():
    def loss(vector, examples):
        return jnp.sum(jnp.exp(vector[:, None] * examples[0]))

    with jax.enable_x64(True):
        vector, examples = np.array([0.1, -0.2]), (np.random.default_rng(0).normal(size=(2, 5)),)
        found = clipped_sum(loss, vector, examples, np.ones(5), 0.7)
        gradients = examples[0] * np.exp(vector[:, None] * examples[0])
        expected = gradients @ np.minimum(1, 0.7 / np.linalg.norm(gradients, axis=0))
        np.testing.assert_allclose(found, expected, atol=1e-12)


def twin(kind, training, private, weights, data, record):
    """DP-SGD as a textbook has it: a loop over steps, records and examples."""
    lengths = [len(one) for one in data]
    plan = plan_of(kind, training, record, lengths)
    random = np.random.Generator(np.random.Philox(key=private.secret))
    batches = sampled(random, plan, plan.steps)
    vector = flat(weights)
    noise = random.standard_normal((plan.steps, vector.size))
    ahead = max(kind.leads)
    records = []
    for one in data:
        windows = []
        for start in range(len(one) - kind.window - ahead + 1):
            parts = [one[start + lead : start + lead + kind.window] for lead in (0, *kind.leads)]
            windows.append(tuple(part.reshape(-1, 1) for part in parts))
        records += [[window] for window in windows] if record == "sample" else [windows]
    first = second = np.zeros_like(vector)
    slope = jax.jit(jax.grad(summed_loss(kind)))
    for t, batch in enumerate(batches):
        total = np.zeros_like(vector)
        for i in batch:
            gradient = np.mean([slope(vector, window) for window in records[i]], axis=0)
            total += gradient * min(1.0, private.clip / np.linalg.norm(gradient))
        total = total + private.noise * private.clip * noise[t]
        g = total / (plan.rate * plan.records) + training.weight_decay * vector
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
        step = (first / (1 - 0.9 ** (t + 1))) / (np.sqrt(second / (1 - 0.999 ** (t + 1))) + 1e-8)
        epoch = t // math.ceil(1 / plan.rate)
        vector = vector - training.learning_rate * training.decay**epoch * step
    return vector


@pytest.mark.parametrize("record", ["sample", "segment"])
def test_training_is_that_of_a_textbook(record):
    kind, data = KINDS["paper"], segments()
    private = Private(record, 0.8, 0.5, 11)
    weights = trainee(kind)
    found = private_update(kind, TRAINING, private, weights, data)
    with jax.enable_x64(True):
        expected = twin(kind, TRAINING, private, weights, data, record)
    np.testing.assert_allclose(flat(found), expected, atol=1e-7)


class Mixed(PaperNetwork):
    """A kind of somebody else, whose columns are pairs of one example: 1, 1, 2, 2, …"""

    def loss(self, trained, fixed, x, ahead, share, loss_weights):
        both = jnp.stack([x, ahead[0]], axis=-1).reshape(len(x), -1)
        y = self.lift(trained, both).reshape(self.components, -1, 2)
        back = self.decode(trained, y.reshape(self.components, -1))
        moved = trained.operator @ y[..., 0] - y[..., 1]
        square = jnp.sum(moved**2, axis=0) + jnp.sum(
            ((back - both) ** 2).reshape(len(x), -1, 2), axis=(0, 2)
        )
        return jnp.sum(square * share)


@pytest.mark.slow
def test_kinds_of_others_are_clipped_by_their_true_gradients():
    kind, data, weights = Mixed(2, 5, width=6), segments(1, 20), trainee(KINDS["paper"])
    private = Private("sample", 0.8, 0.5, 7)
    found = private_update(kind, TRAINING, private, weights, data)
    with jax.enable_x64(True):
        expected = twin(kind, TRAINING, private, weights, data, "sample")
        # the fast way would get this kind wrong: the check above can fail
        vector, examples = flat(weights), examples_of(kind, 6)
        fast = products_of(summed_loss(kind), vector, examples, np.ones(6), 0.8)
        true = written_down(summed_loss(kind), vector, examples, np.ones(6), 0.8)
    np.testing.assert_allclose(flat(found), expected, atol=1e-7)
    assert np.abs(fast - true).max() > 1e-3


def test_a_site_trains_privately_if_asked_to():
    kind, data, weights = KINDS["paper"], segments(), trainee(KINDS["paper"])
    private = Private("sample", 1.0, 1.0, 3)
    found = site_update(kind, TRAINING, weights, data, seed=0, private=private)
    other = site_update(kind, TRAINING, weights, data, seed=99, private=private)
    expected = private_update(kind, TRAINING, private, weights, data)
    assert flat(found).tobytes() == flat(expected).tobytes() == flat(other).tobytes()
    plain = client_update(kind, TRAINING, weights, data, seed=0)
    same = site_update(kind, TRAINING, weights, data, seed=0, private=None)
    assert flat(plain).tobytes() == flat(same).tobytes() != flat(found).tobytes()


def test_the_noise_has_the_stated_standard_deviation(monkeypatch):
    """Plain descent by one full batch in place of Adam: what differs between secrets is noise."""
    plain = optax.GradientTransformation(lambda w: (), lambda g, memory, w=None: (g, memory))
    monkeypatch.setattr(optax, "scale_by_adam", lambda: plain)
    kind, data = PaperNetwork(2, 12, width=30), segments(1, 40)
    training = Training(epochs=1, batch=100, learning_rate=1.0, precision="float64")
    assert plan_of(kind, training, "sample", [40]) == Plan(39, 1.0, 1)
    weights = trainee(kind)
    changes = np.array(
        [flat(private_update(kind, training, Private("sample", 0.25, 1.5, secret), weights, data))
         for secret in range(8)]
    )  # fmt: skip
    spread = changes.std(axis=0, ddof=1) * math.sqrt(7)
    found = math.sqrt((spread**2).sum() / (7 * changes.shape[1]))
    # 4.5 standard errors of a standard deviation
    assert abs(found / (1.5 * 0.25 / 39) - 1) < 4.5 / math.sqrt(2 * 7 * changes.shape[1])


@pytest.mark.parametrize("plan", [Plan(40, 0.1, 0), Plan(7, 0.6, 0), Plan(5, 1.0, 0)])
def test_batches_are_independent_draws_with_the_stated_rate(plan):
    steps = 4000
    batches = sampled(np.random.default_rng(0), plan, steps)
    taken = np.zeros((steps, plan.records))
    for i, batch in enumerate(batches):
        assert len(set(batch.tolist())) == len(batch)
        taken[i, batch] = 1
    q, error = plan.rate, math.sqrt(plan.rate * (1 - plan.rate) / steps)
    assert np.abs(taken.mean(axis=0) - q).max() <= 4.5 * error
    if q == 1:
        return
    centred = (taken - q) / math.sqrt(q * (1 - q))
    between = centred.T @ centred / steps - np.eye(plan.records)
    np.fill_diagonal(between, 0)
    assert np.abs(between).max() < 5 / math.sqrt(steps)  # records of one batch
    assert np.abs(centred[1:].T @ centred[:-1] / steps).max() < 5 / math.sqrt(steps)  # next batch


def test_segments_that_came_twice_count_once():
    kind, data, weights = KINDS["paper"], segments(), trainee(KINDS["paper"])
    private = Private("segment", 1.0, 1.0, 3)
    assert len(distinct([*data, data[1].copy()])) == 3
    found = private_update(kind, TRAINING, private, weights, [*data, data[1].copy()])
    expected = private_update(kind, TRAINING, private, weights, data)
    assert flat(found).tobytes() == flat(expected).tobytes()


def test_plans_have_few_rates_and_expect_a_whole_batch():
    kind, training = KINDS["paper"], Training(epochs=10, batch=64)
    plans = [plan_of(kind, training, "sample", [n]) for n in range(500, 2000, 7)]
    assert len({plan.rate for plan in plans}) <= 34
    for plan in plans:
        assert 64 <= plan.rate * plan.records <= 64 * 2 ** (1 / 16) + 1e-9
        assert plan.steps == 10 * math.ceil(1 / plan.rate)
    assert plan_of(kind, training, "segment", [300] * 5).records == 5
    assert plan_of(kind, training, "segment", [300] * 5).rate >= 0.2
    assert plan_of(kind, training, "sample", [20]) == Plan(19, 1.0, 10)
    assert plan_of(kind, training, "sample", [1]) == Plan(0, 0.0, 0)


@pytest.mark.parametrize("name", KINDS)
def test_a_state_occurs_in_no_more_examples_than_is_told(name):
    kind, steps = KINDS[name], 30
    counts = np.zeros(steps, int)
    for start in range(steps - kind.window - max(kind.leads) + 1):
        seen = {start + lead + i for lead in (0, *kind.leads) for i in range(kind.window)}
        counts[list(seen)] += 1
    assert counts.max() == occurrences(kind)
