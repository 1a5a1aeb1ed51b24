"""Server steps against textbook twins, and what a federation makes of them."""

from dataclasses import replace

import numpy as np
import pytest
from reference.federations import experiment, first_weights, flat, model_bytes, run

from fedkoopman.config.study import Study
from fedkoopman.errors import InputError
from fedkoopman.federation.aggregators.mean import mean
from fedkoopman.federation.algorithm import Answered
from fedkoopman.federation.algorithms.staged import ALGORITHM
from fedkoopman.federation.averaging import averaged, first_average
from fedkoopman.federation.combining import combined, first_memory
from fedkoopman.federation.messages import Message
from fedkoopman.federation.options import ServerOptions
from fedkoopman.federation.server_steps import SERVER_STEPS, first_steps, stepped
from fedkoopman.koopman.kinds.spectral import Spectral

BETA1, BETA2, TAU, RATE = 0.7, 0.95, 1e-2, 0.05
OPTIONS = ServerOptions(
    learning_rate=RATE, momentum=BETA1, second_momentum=BETA2, epsilon=TAU, average=0.0
)


def adaptive(second, changes):
    """Algorithm 2 of Reddi et al.: Δ_t, m_t, v_t, then x_t + η m_t / (√v_t + τ); with m_t and v_t
    corrected for their start at 0, as in Adam."""
    x, m, v, found = 0.0, 0.0, 0.0, []
    for t, delta in enumerate(changes, 1):
        m = BETA1 * m + (1 - BETA1) * delta
        v = second(v, delta)
        c1, c2 = 1 - BETA1**t, 1 - BETA2**t
        x = x + RATE * (m / c1) / (np.sqrt(v / c2) + TAU)
        found.append(x)
    return found


def momentum(changes):
    """Hsu et al.: v ← β v + Δ, x ← x + η v."""
    x, v, found = 0.0, 0.0, []
    for delta in changes:
        v = BETA1 * v + delta
        x = x + RATE * v
        found.append(x)
    return found


def adagrad(changes):
    x, v, found = 0.0, TAU**2, []
    for delta in changes:
        v = v + delta**2
        x = x + RATE * delta / np.sqrt(v)
        found.append(x)
    return found


TWINS = {
    "none": lambda changes: list(RATE * np.cumsum(changes, axis=0)),
    "momentum": momentum,
    "adam": lambda changes: adaptive(lambda v, d: BETA2 * v + (1 - BETA2) * d**2, changes),
    "yogi": lambda changes: adaptive(
        lambda v, d: v - (1 - BETA2) * d**2 * np.sign(v - d**2), changes
    ),
    "adagrad": adagrad,
}


def test_every_step_has_a_twin():
    assert TWINS.keys() == set(SERVER_STEPS)


@pytest.mark.parametrize("name", TWINS)
def test_steps_are_the_textbooks(name):
    """Twenty changes of all sizes, one number at a time beside all at once."""
    random, step = np.random.default_rng(1), SERVER_STEPS.find(name)
    changes = random.normal(size=(20, 3, 2)) * 10.0 ** random.uniform(-4, 0, (20, 1, 1))
    model = {"a": np.zeros((3, 2))}
    memory = first_steps(step, OPTIONS, model)
    for change, expected in zip(changes, TWINS[name](changes), strict=True):
        aggregate = {"a": model["a"] + change}
        model, memory = stepped(step, OPTIONS, memory, model, aggregate)
        np.testing.assert_allclose(model["a"], expected, rtol=1e-9, atol=1e-12)


def test_momentum_is_a_geometric_series():
    """One change Δ, then none: the model goes on to Δ (1 + β + β² + …) = Δ / (1 − β)."""
    options = ServerOptions(momentum=0.5)
    step, model = SERVER_STEPS.find("momentum"), {"a": np.zeros(1)}
    memory = first_steps(step, options, model)
    model, memory = stepped(step, options, memory, model, {"a": np.ones(1)})
    sums = [model["a"][0]]
    for _ in range(60):
        model, memory = stepped(step, options, memory, model, model)
        sums.append(model["a"][0])
    np.testing.assert_array_equal(sums[:3], [1.0, 1.5, 1.75])
    assert sums[-1] == pytest.approx(2.0, abs=1e-12)


@pytest.mark.parametrize("name", ["adam", "yogi"])
def test_equal_changes_are_steps_of_the_rates_length(name):
    """m̂ and v̂ of a constant Δ are Δ and Δ² from the first step on (Yogi: as long as v < Δ²)."""
    step, model = SERVER_STEPS.find(name), {"a": np.zeros(2)}
    change = np.array([0.5, -3.0])
    memory = first_steps(step, OPTIONS, model)
    for _ in range(4):
        before = model["a"]
        model, memory = stepped(step, OPTIONS, memory, model, {"a": before + change})
        if name == "adam" or np.array_equal(before, np.zeros(2)):
            expected = RATE * change / (np.abs(change) + TAU)
            np.testing.assert_allclose(model["a"] - before, expected, rtol=1e-9)


# In a federation


def replies(count):
    return {n: Answered(Message("update", first_weights(n)), 10 + n, (n,)) for n in range(count)}


def test_without_a_step_the_aggregate_is_taken_bit_for_bit():
    problem = experiment().problem
    current, given = first_weights(9), replies(3)
    assert first_memory(problem, current) == {}
    found, memory, told = combined(problem, {}, current, given)
    arrays = [one.message.arrays for one in given.values()]
    assert model_bytes(found) == model_bytes(mean(current, arrays, [10, 11, 12]))
    assert memory == told == {}
    one = combined(problem, {}, current, replies(1))[0]
    assert model_bytes(one) == model_bytes(first_weights(0))


def test_half_a_rate_goes_half_the_way():
    problem = replace(experiment().problem, server=ServerOptions(learning_rate=0.5))
    current = first_weights(9)
    memory = first_memory(problem, current)
    found, _, _ = combined(problem, memory, current, replies(1))
    np.testing.assert_allclose(flat(found), (flat(current) + flat(first_weights(0))) / 2)


def test_a_step_acts_on_the_rules_aggregate():
    problem = replace(
        experiment().problem, server_step=SERVER_STEPS.find("momentum"), server=OPTIONS
    )
    current = first_weights(9)
    state = first_memory(problem, current)
    steps = []
    for _ in range(3):
        before = current
        current, memory, _ = combined(problem, state, before, replies(2))
        arrays = [first_weights(0), first_weights(1)]
        steps.append(flat(mean(before, arrays, [10, 11])) - flat(before))
        state = {**state, **memory}
        expected = RATE * sum(BETA1 ** (len(steps) - 1 - k) * s for k, s in enumerate(steps))
        np.testing.assert_allclose(flat(current) - flat(before), expected, rtol=1e-9, atol=1e-12)


# The average of server models


def test_the_average_is_the_weighted_mean_of_all_models():
    random, decay = np.random.default_rng(0), 0.8
    models = random.normal(size=(6, 4))
    memory = first_average({"a": np.full(4, 1e9)})
    for k, model in enumerate(models, 1):
        memory = averaged(decay, memory, {"a": model})
        shares = decay ** np.arange(k)[::-1]
        np.testing.assert_allclose(memory["a"], shares @ models[:k] / shares.sum(), rtol=1e-12)
    assert memory["#"] == 6


def test_the_first_average_is_the_first_model_bit_for_bit():
    for decay in (0.1, 0.5, 0.9, 0.999):
        found = averaged(decay, first_average(first_weights(1)), first_weights(2))
        assert all(np.array_equal(found[n], x) for n, x in first_weights(2).items())


def test_equal_models_are_their_own_average():
    memory = first_average(first_weights(1))
    for _ in range(5):
        memory = averaged(0.7, memory, first_weights(2))
    np.testing.assert_allclose(
        flat({n: memory[n] for n in first_weights(2)}), flat(first_weights(2)), rtol=1e-14
    )


def test_clients_train_the_newest_model_and_the_average_is_the_result():
    """Averaging changes nothing in what is trained; the model is the average of the others'."""
    plain = run(experiment())
    with_average = experiment(server=ServerOptions(average=0.6))
    found, problem = run(with_average), with_average.problem
    memory = first_average(plain[0].state.arrays)
    before = plain[0].state.arrays
    for one, other in zip(plain, found, strict=True):
        newest = {n: x for n, x in other.state.arrays.items() if not n.startswith("average.")}
        assert model_bytes(newest) == model_bytes(one.state.arrays)
        if model_bytes(one.state.arrays) != model_bytes(before):
            memory = averaged(0.6, memory, one.state.arrays)
        before = one.state.arrays
        model = problem.algorithm.model(problem, other.state.arrays)
        np.testing.assert_allclose(flat(model), flat({n: memory[n] for n in model}), rtol=1e-14)
    assert model_bytes(model) != model_bytes(newest)


def test_a_staged_kind_is_solved_from_averaged_features():
    """Training is as without; the last sums, and so the model, are of the average."""
    kind = Spectral(3, 6, features=8, horizon=5)
    given = {"algorithm": ALGORITHM, "architecture": kind, "slots": 12}
    plain = run(experiment(**given))
    e = experiment(**given, server=ServerOptions(average=0.5))
    found = run(e)
    last, other = found[-1].state.arrays, plain[-1].state.arrays
    for name in dict(kind.feature_shapes()):
        assert np.array_equal(last[f"features.{name}"], other[f"features.{name}"])
        if name != "heads":  # these are for training only
            average = last[f"average.{name}"].astype(np.float64)
            np.testing.assert_allclose(last[f"model.{name}"], average, rtol=1e-12)
            assert not np.array_equal(average, other[f"model.{name}"])
    stages = [one.record.get("stage") for one in found]
    assert "features" in stages and stages[-1] == "sums"


def test_what_has_no_updates_takes_no_server_step(tmp_path):
    for values in ({"server.average": 0.5}, {"server.step": "adam"}, {"server.momentum": 0.1}):
        study = Study.paper_default().with_values({"network.kind": "edmd", **values})
        with pytest.raises(InputError, match=r"server\.\w+: the section server .* edmd .* sums"):
            study.check()
    (tmp_path / "own.py").write_text(
        "class Own:\n    def _(self, *_): ...\n"
        "    messages = begin = ask = answer = conclude = model = warm = _\nown = Own()\n"
    )
    study = replace(Study.paper_default(), folder=tmp_path)
    study = study.with_values({"algorithm.name": "own.py:own", "server.step": "adam"})
    with pytest.raises(InputError, match=r"server.step is given but the algorithm own.py:own"):
        study.check()
    with pytest.raises(InputError, match=r"server.step"):
        Study.paper_default().with_values({"server.step": "adan"}).check()
