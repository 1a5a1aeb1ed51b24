"""Laws that every policy obeys: those of the registry, and the extension's."""

import numpy as np
import pytest
from reference.extension import member

from fedkoopman.federation.policies import POLICIES, Situation, activate

EVERY = {name: POLICIES.find(name) for name in POLICIES}
EVERY["fuller-half"] = member("fuller_half", "POLICY")
STEPS, CLIENTS = 10, 5
BUFFERED = np.random.default_rng(0).integers(0, 4, (30, CLIENTS)) * STEPS


@pytest.fixture(params=EVERY.values(), ids=EVERY)
def policy(request):
    return request.param


def situation(slot, buffered=None):
    waiting = np.array(BUFFERED[slot] if buffered is None else buffered, np.int64)
    needed = np.ones(len(waiting))
    return Situation(slot, waiting, STEPS, np.random.default_rng([7, slot]), needed)


def choices(policy, slots):
    return {slot: activate(policy, situation(slot)).tolist() for slot in slots}


def test_it_activates_clients_that_have_data_and_each_once(policy):
    for slot, chosen in choices(policy, range(1, 30)).items():
        assert chosen == sorted(set(chosen)) and set(chosen) <= set(range(CLIENTS))
        assert all(BUFFERED[slot][n] > 0 for n in chosen)


def test_it_keeps_nothing_from_slot_to_slot(policy):
    """A run that goes on from a slot asks the policy for the first time there."""
    forwards = choices(policy, range(1, 30))
    assert choices(policy, range(29, 0, -1)) == forwards
    assert choices(policy, [17]) == {17: forwards[17]}


def test_sooner_or_later_everybody_trains(policy):
    full = np.full(CLIENTS, 3 * STEPS)
    waiting, trained = full.copy(), set()
    for slot in range(1, 100):
        chosen = activate(policy, situation(slot, waiting)).tolist()
        trained |= set(chosen)
        waiting[chosen] = 0
        waiting += STEPS
    assert trained == set(range(CLIENTS))


def test_it_leaves_the_situation_as_it_is(policy):
    given = situation(3)
    policy(given)
    np.testing.assert_array_equal(given.buffered, BUFFERED[3])


def test_one_client_and_no_data_are_no_special_cases(policy):
    assert activate(policy, situation(1, [0] * CLIENTS)).tolist() == []
    assert activate(policy, situation(1, [3 * STEPS])).tolist() == [0]


def test_the_fuller_half_of_the_clients_is_chosen():
    chosen = activate(EVERY["fuller-half"], situation(1, [10, 30, 20, 30, 10]))
    assert chosen.tolist() == [1, 2, 3]
    assert activate(EVERY["fuller-half"], situation(1, [10] * 4)).tolist() == [0, 1]
