"""Policies by their definitions, and what becomes of a user's own."""

from dataclasses import replace

import numpy as np
import pytest
from reference.federations import experiment, first_weights

from fedkoopman.errors import InputError
from fedkoopman.federation.experiment import Experiment, scheme_of
from fedkoopman.federation.policies import POLICIES, Situation, activate
from fedkoopman.federation.policies.random import random as random_policy
from fedkoopman.federation.policies.round_robin import round_robin
from fedkoopman.federation.policies.threshold import threshold
from fedkoopman.federation.simulation import jobs_of
from fedkoopman.federation.slot import State, ask

STEPS = 40


def situation(buffered, slot=1, seed=0, segments=5.0):
    random = np.random.default_rng([seed, slot])
    needed = np.broadcast_to(np.asarray(segments, float), (len(buffered),))
    return Situation(slot, np.array(buffered, np.int64), STEPS, random, needed)


def active(policy, buffered, slot=1, seed=0, segments=5.0):
    return activate(policy, situation(buffered, slot, seed, segments)).tolist()


@pytest.mark.parametrize("count", [1, 3, 5])
def test_round_robin_takes_m_mod_n(count):
    for slot in range(1, 3 * count + 2):
        assert active(round_robin, [STEPS] * count, slot) == [slot % count]


def test_random_is_uniform():
    """Chi-square over 5 clients in 5,000 slots, below its 1 - 1e-6 quantile (33.4, 4 degrees)."""
    chosen = [active(random_policy, [STEPS] * 5, slot) for slot in range(1, 5001)]
    assert {len(one) for one in chosen} == {1}
    counts = np.bincount(np.ravel(chosen), minlength=5)
    assert ((counts - 1000) ** 2 / 1000).sum() < 33.4


def test_random_chooses_anew_in_every_slot_and_repeats_itself():
    def choices(seed):
        return [active(random_policy, [STEPS] * 5, slot, seed) for slot in range(1, 50)]

    assert choices(0) == choices(0)
    assert choices(0) != choices(1)
    assert len({tuple(one) for one in choices(0)}) == 5


def test_a_choice_without_data_is_no_client_at_all():
    """Random and Round-Robin take a client whether it has data or not; without, nobody trains."""
    assert active(round_robin, [STEPS, 0, STEPS], slot=1) == []
    chosen = [active(random_policy, [0, STEPS], slot) for slot in range(1, 200)]
    assert {tuple(one) for one in chosen} == {(), (1,)}


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        (1, [1, 2, 3]),
        (2, [2, 3]),
        (2.5, [3]),
        (0.5, [1, 2, 3]),
        (4, []),
        ((1, 2, 2, 4), [2]),
        ([0, 0, 0, 3], [1, 2, 3]),
        (np.inf, []),
    ],
)
def test_threshold_takes_all_who_hold_enough(segments, expected):
    """|D_n| ≥ ρ ζ, with equality."""
    assert active(threshold, [0, STEPS, 2 * STEPS, 3 * STEPS], segments=segments) == expected


def test_threshold_of_five_is_the_default():
    e = replace(experiment(), segments=Experiment.segments)
    asked = ask(e.problem, first_weights(), 1, np.array([5 * STEPS, 5 * STEPS - 1, 0]))
    assert list(asked) == [0]


def test_nobody_trains_without_data_even_when_nothing_is_asked():
    assert active(threshold, [0, 0, STEPS], segments=0) == [2]
    assert active(threshold, [0, 0, 0], segments=0) == []


OWN = {
    "mask": (lambda s: s.buffered > 50, [1, 2]),
    "mask as a list": (lambda s: [True, False, True], [0, 2]),
    "indices": (lambda s: [2, 0], [0, 2]),
    "indices as an array": (lambda s: np.array([1], np.uint8), [1]),
    "tuple": (lambda s: (1, 2), [1, 2]),
    "range": (lambda s: range(3), [0, 1, 2]),
    "none": (lambda s: [], []),
    "none as an array": (lambda s: np.flatnonzero(s.buffered > 1e9), []),
    "nobody by mask": (lambda s: np.zeros(3, bool), []),
    "the fullest": (lambda s: [np.argmax(s.buffered)], [2]),
    "by slot": (lambda s: [s.slot], [1]),
    "by steps": (lambda s: s.buffered >= 2 * s.steps, [1, 2]),
    "twice": (lambda s: [1, 1, 0, 1], [0, 1]),
}


@pytest.mark.parametrize(("policy", "expected"), OWN.values(), ids=OWN)
def test_a_policy_of_the_users_own(policy, expected):
    assert active(policy, [STEPS, 2 * STEPS, 3 * STEPS]) == expected


NAMED = {name: POLICIES.find(name) for name in POLICIES}
EVERY = {**NAMED, **{name: policy for name, (policy, _) in OWN.items()}}


@pytest.mark.parametrize("segments", [0, 1, (2, 1, 0)], ids=str)
@pytest.mark.parametrize("policy", EVERY.values(), ids=EVERY)
def test_no_policy_activates_a_client_twice_or_without_data(policy, segments):
    random = np.random.default_rng(1)
    for _ in range(50):
        # The slot of "by slot" is an index too.
        buffered = STEPS * random.integers(0, 4, size=3)
        found = active(policy, buffered, int(random.integers(0, 3)), segments=segments)
        assert found == sorted(set(found))
        assert all(buffered[n] > 0 for n in found)


def fails(situation):
    raise KeyError("no such site")


def fails_at_length(situation):
    raise RuntimeError("first line\nsecond line")


BAD = {
    "nothing": (lambda s: None, "give a mask of 3 booleans or a list of client indices"),
    "a number": (lambda s: 1, r"gave 1 in slot 4"),
    "too high": (lambda s: [0, 3], r"gave \[0, 3\] in slot 4: .* from 0 to 2"),
    "negative": (lambda s: [-1], r"gave \[-1\]"),
    "fractions": (lambda s: [0.0, 1.0], r"gave \[0.0, 1.0\]"),
    "not a number": (lambda s: [np.nan], "gave"),
    "names": (lambda s: ["a", "b"], "gave"),
    "short mask": (lambda s: [True, False], "give a mask of 3"),
    "long mask": (lambda s: [True] * 4, "give a mask of 3"),
    "column": (lambda s: [[True], [False], [True]], "give a mask of 3"),
    "table of indices": (lambda s: [[0, 1]], "give a mask of 3"),
    "a set": (lambda s: {0, 1}, "give a mask of 3"),
    "ragged": (lambda s: [[0], [1, 2]], "ValueError"),
    "an exception": (fails, "failed in slot 4 with KeyError: 'no such site'"),
    "a wrong signature": (lambda: [0], "failed in slot 4 with TypeError"),
    "thresholds of others": (
        lambda s: s.buffered > s.segments[:2],
        "failed in slot 4 with ValueError",
    ),
}


@pytest.mark.parametrize(("policy", "message"), BAD.values(), ids=BAD)
def test_a_bad_policy_is_refused_with_one_line(policy, message):
    with pytest.raises(InputError, match=message) as caught:
        active(policy, [STEPS] * 3, slot=4)
    assert "\n" not in str(caught.value)


def test_a_long_exception_is_told_in_one_line():
    with pytest.raises(InputError, match="RuntimeError: first line") as caught:
        active(fails_at_length, [STEPS] * 3)
    assert "\n" not in str(caught.value)


def test_an_empty_answer_of_any_shape_means_nobody():
    assert active(lambda s: np.zeros((0, 3)), [STEPS] * 3) == []


def careless(situation):
    """Works on the server's own numbers instead of a copy."""
    situation.buffered[:] = 0
    return [0]


def buffered_and_asked(e, buffers, slot=0):
    """Samples that wait, and who is asked, in the slot after this one."""
    e, scheme = scheme_of(e)
    state = State(slot, first_weights(), buffers, ((),) * 3)
    buffered, jobs = jobs_of(e, scheme, state, buffers)
    return buffered.tolist(), [n for job in jobs for n in job.clients]


def test_a_policy_cannot_change_what_the_clients_hold():
    assert buffered_and_asked(experiment(policy=careless), ((1,), (1,), ())) == ([40, 40, 0], [0])


def test_samples_of_all_waiting_segments_count():
    e = experiment(segments=2, slots=9)
    assert buffered_and_asked(e, ((5, 7), (4, 6), (7,)), slot=6) == ([80, 80, 40], [0, 1])


def test_a_policys_randomness_follows_seed_and_slot_alone():
    def draw(seed, slot):
        seen = []

        def policy(situation):
            seen.append(situation.random.random(3).tolist())
            return []

        ask(experiment(policy=policy, seed=seed).problem, first_weights(), slot, np.zeros(3, int))
        return seen[0]

    assert draw(0, 1) == draw(0, 1)
    assert draw(0, 1) != draw(0, 2)
    assert draw(0, 1) != draw(1, 1)
