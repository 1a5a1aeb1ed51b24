"""Nothing is counted twice, failures stay where they are, and a run goes on from any slot."""

from itertools import pairwise

import numpy as np
import pytest
from reference.federations import (
    STEPS,
    assert_same_run,
    client,
    clients,
    experiment,
    final,
    first_weights,
    measures,
    model_bytes,
    run,
)

import fedkoopman as fk
from fedkoopman.errors import InputError
from fedkoopman.federation.aggregators.mean import mean
from fedkoopman.federation.messages import Message
from fedkoopman.federation.policies import POLICIES
from fedkoopman.federation.simulation import first_state
from fedkoopman.federation.slot import Judged, ask, concluded, fault_of, record_of

EVERYONE = clients(5)


def test_nobody_active_leaves_model_and_scores_as_they_are():
    found = run(experiment(segments=100))
    assert [o.record["active"] for o in found] == [[]] * 5
    assert {o.record["samples"] for o in found} == {0}
    assert {final([o]) for o in found} == {model_bytes(first_state(experiment()).arrays)}
    assert len({tuple(measures(o)[key] for key in ("loss", "E", "horizon")) for o in found}) == 1
    held = [sum(o.record["buffered"]) for o in found]
    assert held == sorted(held)
    assert held[-1] > STEPS


def test_nobody_ever_arriving_is_a_run_too():
    found = run(experiment(clients=clients(3, probability=0.0)))
    assert [o.record["slot"] for o in found] == [0, 1, 2, 3, 4]
    assert len({final([o]) for o in found}) == 1


@pytest.mark.parametrize("policy", POLICIES.names)
def test_data_is_trained_on_once_and_then_gone(policy):
    """What was held, plus what arrived, is what was trained on, plus what is held."""
    found = run(experiment(clients=EVERYONE, policy=POLICIES.find(policy), segments=2, slots=8))
    trained = 0
    for before, after in pairwise(found):
        record = after.record
        held = [len(waiting) * STEPS for waiting in before.state.buffers]
        for n in record["arrived"]:
            held[n] += STEPS
        assert record["buffered"] == held
        assert record["samples"] == sum(held[n] for n in record["active"])
        assert all(after.state.buffers[n] == () for n in record["active"])
        trained += record["samples"]
        changed = final([before]) != final([after])
        assert changed == bool(record["active"])
    assert trained > 0


def spoilt(model, value=np.nan):
    operator = model["operator"].copy()
    operator[0, 0] = value
    return {**model, "operator": operator}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_is_refused_and_the_rest_averaged(value):
    problem = experiment(clients=EVERYONE[:3]).problem
    schemas, state = problem.algorithm.messages(problem), first_weights()
    request = ask(problem, state, 1, np.array([STEPS] * 3))[0]
    models = [first_weights(1), spoilt(first_weights(2), value), first_weights(3)]

    def judged(models):
        replies = [Message("update", model) for model in models]
        return [
            Judged(n, STEPS, reply, fault_of(schemas, request, reply))
            for n, reply in enumerate(replies)
        ]

    found = judged(models)
    assert [one.reason for one in found] == [
        "",
        "sends operator with entries that are not finite",
        "",
    ]
    after, _ = concluded(problem, state, 1, found)
    expected = mean(state, [models[0], models[2]], [1, 1])
    assert model_bytes(after) == model_bytes(expected)
    assert record_of(1, found, arrived=[], buffered=[])["refused"] == [1]
    nothing_left, _ = concluded(problem, state, 1, judged([spoilt(m, value) for m in models]))
    assert model_bytes(nothing_left) == model_bytes(state)


def test_a_client_that_cannot_learn_is_refused_and_reported():
    """One client's rate is infinite: its update is not finite, and the others go on without."""
    wild = (EVERYONE[0], client(1, learning_rate=np.inf), EVERYONE[2])
    found = run(experiment(clients=wild, slots=6))
    calm = run(experiment(clients=(EVERYONE[0], client(1, probability=0.0), EVERYONE[2]), slots=6))
    reported = 0
    for one, other in zip(found[1:], calm[1:], strict=True):
        active = 1 in one.record["active"]
        assert one.record.get("refused", []) == ([1] if active else [])
        reported += active
        assert final([one]) == final([other])
    assert reported > 0
    assert all(np.isfinite(o.record["loss"]) for o in found)


DIVERGING = {
    "in a filter of its own": {"dynamics": fk.systems.Lorenz63(b=1e200)},
    "in a filter with others": {"sensor": fk.LinearSensor(np.full((2, 3), 1e200))},
}


@pytest.mark.parametrize("trouble", DIVERGING.values(), ids=DIVERGING)
def test_a_diverging_estimate_is_dropped_and_recorded_while_others_go_on(trouble):
    found = run(experiment(clients=(EVERYONE[0], client(1, **trouble), EVERYONE[2]), slots=6))
    absent = (EVERYONE[0], client(1, probability=0.0), EVERYONE[2])
    expected = run(experiment(clients=absent, slots=6))
    normal = run(experiment(slots=6))
    dropped = 0
    for one, other, plain in zip(found, expected, normal, strict=True):
        assert one.record["arrived"] == plain.record["arrived"]
        assert one.record["dropped"] == [n for n in one.record["arrived"] if n == 1]
        assert one.record["buffered"] == other.record["buffered"]
        assert one.record["active"] == other.record["active"]
        assert final([one]) == final([other])
        dropped += len(one.record["dropped"])
    assert dropped > 0


def test_a_failing_policy_ends_the_run_with_one_line():
    def policy(situation):
        return [7] if situation.slot == 3 else []

    with pytest.raises(InputError, match=r"gave \[7\] in slot 3"):
        run(experiment(policy=policy))


RESUMED = {
    "threshold 1": {},
    "data that waits": {"segments": 2},
    "random": {"policy": POLICIES.find("random")},
    "no restart": {"restart": 4, "segments": 2},
    "centralized": {"scheme": "centralized", "segments": 2},
    "perfect data": {"scheme": "perfect-data", "segments": 2, "restart": 2},
}


@pytest.mark.parametrize("changes", RESUMED.values(), ids=RESUMED)
def test_a_run_goes_on_from_any_slot_with_the_same_bytes(changes):
    e = experiment(slots=6, **changes)
    whole = run(e)
    assert [o.record["slot"] for o in whole] == [0, 1, 2, 3, 4, 5, 6]
    for slot in range(7):
        assert_same_run(run(e, start=whole[slot].state), whole[slot + 1 :])


def test_a_shorter_run_is_the_beginning_of_a_longer_one():
    assert_same_run(run(experiment(slots=3, restart=2)), run(experiment(slots=6, restart=2))[:4])
