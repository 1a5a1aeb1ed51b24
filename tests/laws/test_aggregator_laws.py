"""Every aggregator: the form of what it gives, what it makes of updates that agree, and of a lie.

All are called as an algorithm calls them, through `combined`, which hands a rule its memory.
"""

import dataclasses

import numpy as np
import pytest
from reference.extension import member
from reference.federations import (
    assert_same_run,
    clients,
    experiment,
    first_weights,
    flat,
    model_bytes,
    run,
)

from fedkoopman.errors import InputError
from fedkoopman.federation.aggregators import AGGREGATORS, aggregate
from fedkoopman.federation.aggregators.aggregator import Remembering, Step
from fedkoopman.federation.algorithm import Answered
from fedkoopman.federation.combining import combined, first_memory
from fedkoopman.federation.messages import Message

RULES = {name: AGGREGATORS.find(name) for name in AGGREGATORS}
RULES["equal-mean"] = member("equal_mean", "AGGREGATOR")
ROBUST = {name: rule for name, rule in RULES.items() if name not in ("mean", "equal-mean")}
PROBLEM = experiment(clients=clients(5)).problem


@pytest.fixture(params=RULES.values(), ids=RULES)
def rule(request):
    return request.param


def updates(count, dtype=np.float32):
    return [{n: x.astype(dtype) for n, x in first_weights(k).items()} for k in range(count)]


class Server:
    """A rule with what it remembers, as an algorithm keeps both."""

    def __init__(self, rule, current, problem=PROBLEM):
        self.problem = dataclasses.replace(problem, aggregator=rule)
        self.state = first_memory(self.problem, current)

    def __call__(self, current, given, sizes):
        replies = {
            n: Answered(Message("update", one), sizes[n], (n,)) for n, one in sorted(given.items())
        }
        found, self.state, self.told = combined(self.problem, self.state, current, replies)
        return found


def once(rule, current, given, sizes):
    """The first slot, with updates of clients 0, 1, …."""
    return Server(rule, current)(current, dict(enumerate(given)), dict(enumerate(sizes)))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_updates_are_their_own_aggregate(rule, count, dtype):
    one = updates(1, dtype)[0]
    found = once(rule, updates(2, dtype)[1], [one] * count, range(1, count + 1))
    assert {name: leaf.dtype for name, leaf in found.items()} == dict.fromkeys(one, dtype)
    rtol = 1e-6 if dtype == np.float32 else 1e-14
    np.testing.assert_allclose(flat(found), flat(one), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_single_update_comes_back_exactly(rule, dtype):
    current, one = updates(2, dtype)
    assert model_bytes(once(rule, current, [one], [7])) == model_bytes(one)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_order_of_clients_changes_rounding_only(rule, count):
    given, sizes = updates(count, np.float64), list(range(1, count + 1))
    current = updates(count + 1, np.float64)[-1]
    servers = Server(rule, current), Server(rule, current)
    for slot in range(3):  # the second and third with a memory, each of other clients
        now = list(range(count))[slot % 2 :]
        there = {n: given[n] for n in now}
        mirrored = {count - 1 - n: given[n] for n in now}
        found = servers[0](current, there, dict(enumerate(sizes)))
        backwards = servers[1](current, mirrored, dict(enumerate(sizes[::-1])))
        np.testing.assert_allclose(flat(found), flat(backwards), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_an_aggregate_lies_between_its_updates(rule, count):
    given = updates(count, np.float64)
    found = flat(once(rule, given[0], given, [1] * count))
    stacked = np.stack([flat(one) for one in given])
    assert (found >= stacked.min(axis=0) - 1e-12).all()
    assert (found <= stacked.max(axis=0) + 1e-12).all()


def test_the_unit_of_sizes_does_not_matter(rule):
    given = updates(3, np.float64)
    one, other = (once(rule, given[0], given, [k, 2 * k, 5 * k]) for k in (1, 300))
    np.testing.assert_allclose(flat(one), flat(other), rtol=1e-12, atol=1e-12)


def test_updates_are_left_as_they_are(rule):
    given = updates(3)
    before = [model_bytes(one) for one in given]
    once(rule, given[0], given, [1, 2, 3])
    assert [model_bytes(one) for one in given] == before


def test_a_memory_is_finite_arrays_and_is_not_changed_in_place(rule):
    current = updates(1)[0]
    server = Server(rule, current)
    for active in ([0, 1], [2], [0, 1, 2, 3, 4]):
        before = {name: leaf.copy() for name, leaf in server.state.items()}
        given = server.state
        server(current, {n: updates(n + 2)[-1] for n in active}, dict.fromkeys(active, 10))
        assert all(np.array_equal(given[name], leaf) for name, leaf in before.items())
        assert all(np.isfinite(leaf).all() for leaf in server.state.values())
        # what is saved is enough to go on: bytes, types and shapes
        server.state = {
            name: np.frombuffer(leaf.tobytes(), leaf.dtype).reshape(leaf.shape)
            for name, leaf in server.state.items()
        }
    assert isinstance(rule, Remembering) or not server.state


def test_a_run_goes_on_from_any_slot_with_what_its_rule_remembers(rule):
    e = experiment(aggregator=rule, clients=clients(5, probability=0.5), slots=5)
    whole = run(e)
    assert_same_run(run(e, whole[3].state), whole[4:])


def test_a_client_that_is_enrolled_later_is_heard(rule):
    current, *given = updates(7, np.float64)
    server = Server(rule, current)
    server(current, dict(enumerate(given[:5])), dict.fromkeys(range(5), 10))
    server.problem = dataclasses.replace(server.problem, clients=6)
    found = server(current, {5: given[5]}, {5: 10})
    np.testing.assert_allclose(flat(found), flat(given[5]), rtol=1e-6)


# A lie. Honest clients walk one unit towards a goal, each with its own error.


def walk(rule, lie, slots, liar=0, claims=10):
    """How far the model is from the goal when client 0 of 5 lies in every slot; f = 1.

    Arguments:
        lie: from the honest step to what is sent in its place.
        slots: the active clients of each.
    """
    random = np.random.default_rng(5)
    goal = {name: leaf * 0 + 1.0 for name, leaf in first_weights().items()}
    current = {name: leaf * 0 for name, leaf in goal.items()}
    server = Server(rule, current)
    for active in slots:
        given = {}
        for n in active:
            steps = {
                k: 0.2 * (goal[k] - x + random.normal(0, 0.3, x.shape)) for k, x in current.items()
            }
            sent = {k: lie(step) for k, step in steps.items()} if n == liar else steps
            given[n] = {k: current[k] + sent[k] for k in current}
        sizes = {n: claims if n == liar else 10 for n in active}
        current = server(current, given, sizes)
    return float(np.sqrt(np.mean((flat(current) - 1) ** 2)))


TOGETHER = [range(5)] * 25
IN_TURN = [
    [1],
    [2, 3],
    [4],
    [1, 2],
    [3],
    [0],
    [4, 1],
    [0, 2],
    [3],
    [0],
    [2],
    [1, 4],
    [3],
    [0, 3],
    [2],
]
LIES = {
    "a million times": lambda step: 1e6 * step,
    "flipped a million times": lambda step: -1e6 * step,
    "far beyond": lambda step: 1e300 * step,
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.parametrize("name", ROBUST)
def test_one_liar_of_five_does_no_harm_when_all_speak(name, lie):
    assert walk(ROBUST[name], lie, TOGETHER) < 0.25
    assert walk(ROBUST[name], lambda step: step, TOGETHER) < 0.25  # and none is no harm either


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.parametrize("name", ROBUST)
def test_one_liar_of_five_does_no_harm_when_one_or_two_speak(name, lie):
    assert walk(ROBUST[name], lie, IN_TURN) < 0.45


@pytest.mark.parametrize("name", ROBUST)
def test_a_million_claimed_samples_buy_no_more_than_a_share(name):
    assert walk(ROBUST[name], lambda step: -step, TOGETHER, claims=10**6) < 0.25


def test_the_mean_is_harmed_by_all_of_these():
    assert walk(RULES["mean"], LIES["a million times"], TOGETHER) > 1e3
    assert walk(RULES["mean"], lambda step: -step, TOGETHER, claims=10**6) > 2


# Rules of the user's own

BAD = {
    "nothing": lambda *_: None,
    "a number": lambda *_: 3.0,
    "other names": lambda current, *_: {f"{n}x": v for n, v in current.items()},
    "other shapes": lambda current, *_: {n: v[:1] for n, v in current.items()},
    "another type": lambda current, *_: {n: v.astype(int) for n, v in current.items()},
    "not finite": lambda current, *_: {n: v * np.nan for n, v in current.items()},
    "ragged": lambda current, *_: {name: [[1], [1, 2]] for name in current},
}


class Broken:
    """A rule with a memory, whose arrays are those of a bad one."""

    def __init__(self, bad):
        self.bad = bad

    def begin(self, problem, arrays):
        return {}

    def step(self, problem, memory, current, updates, sizes):
        return Step(self.bad(current), {}, {})


@pytest.mark.parametrize("rule_", BAD.values(), ids=BAD)
def test_a_rule_of_the_users_own_is_held_to_its_form(rule_):
    given = updates(2)
    with pytest.raises(InputError, match="the aggregator gave") as caught:
        aggregate(rule_, given[0], given, [1, 1])
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="the aggregator gave") as caught:
        once(Broken(rule_), given[0], given, [1, 1])
    assert "\n" not in str(caught.value)


class Bare(Broken):
    def step(self, problem, memory, current, updates, sizes):
        return self.bad(current)


@pytest.mark.parametrize("found", [None, {}, {"w": np.zeros(2)}])
def test_a_rule_with_a_memory_gives_a_step(found):
    given = updates(1)
    with pytest.raises(InputError, match=r"give Step\(arrays, memory, told\)"):
        once(Bare(lambda _: found), given[0], given, [1])
