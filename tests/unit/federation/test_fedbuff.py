"""FedBuff: its fixed points, what stale updates count, and what the buffer remembers."""

from dataclasses import replace

import numpy as np
import pytest
from reference.federations import (
    assert_same_run,
    clients,
    experiment,
    first_weights,
    flat,
    measures,
    model_bytes,
    run,
)

from fedkoopman.config.study import Study
from fedkoopman.errors import InputError
from fedkoopman.federation.algorithm import Answered, Ready
from fedkoopman.federation.algorithms.fedbuff import ALGORITHM, KEPT, FedBuff
from fedkoopman.federation.messages import Message
from fedkoopman.federation.options import BufferOptions, ServerOptions
from fedkoopman.federation.server_steps import SERVER_STEPS
from fedkoopman.federation.slot import ask


def problem_of(buffer=1, staleness=0.5, delays=0, **changes):
    options = BufferOptions(buffer, staleness, delays)
    return replace(experiment(algorithm=ALGORITHM, buffering=options).problem, **changes)


def update(k, samples=40, asked=0, client=0):
    """An update to the weights of a seed."""
    return Answered(Message("update", first_weights(k)), samples, (client,), asked=asked)


def played(problem, slots):
    """The states after slots with these replies, and what was told; `asked` 0 is the slot."""
    state, told, found = problem.algorithm.begin(problem), [], []
    for slot, replies in enumerate(slots, 1):
        replies = {n: one._replace(asked=one.asked or slot) for n, one in replies.items()}
        state, said = problem.algorithm.conclude(problem, state, slot, replies)
        found.append(state)
        told.append(said)
    return found, told


def model(problem, state):
    return problem.algorithm.model(problem, state)


# Fixed points


@pytest.mark.parametrize(
    "changes", [{}, {"server_step": SERVER_STEPS.find("adam")}], ids=["none", "adam"]
)
def test_with_a_buffer_of_one_and_nobody_slow_it_is_fedavg_m(changes):
    """Bit for bit, in every slot, with one active client or more."""
    plain, buffered = (
        run(experiment(slots=6, **changes, **given))
        for given in ({}, {"algorithm": ALGORITHM, "buffering": BufferOptions(buffer=1)})
    )
    problem = experiment(algorithm=ALGORITHM).problem
    for one, other in zip(plain, buffered, strict=True):
        names = dict(problem.architecture.shapes())
        newest = {name: one.state.arrays[name] for name in names}
        assert model_bytes(model(problem, other.state.arrays)) == model_bytes(newest)
        told = measures(other)
        assert not any(told.pop("staleness", [])) and told.pop("gathered", 0) <= 3
        assert told == measures(one)
    assert {len(one.record["active"]) for one in plain} >= {1, 2}


def test_one_fresh_update_is_the_next_model_bit_for_bit():
    problem = problem_of(buffer=1)
    [state], [told] = played(problem, [{1: update(7)}])
    assert model_bytes(model(problem, state)) == model_bytes(first_weights(7))
    assert told == {"staleness": [0], "gathered": 1}


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_equal_updates_are_their_own_aggregate(rounds):
    """From three clients, in one slot or several, of different sizes."""
    problem = problem_of(buffer=3 * rounds)
    slots = [{n: update(7, 10 + n + k) for n in range(3)} for k in range(rounds)]
    states, _ = played(problem, slots)
    np.testing.assert_allclose(flat(model(problem, states[-1])), flat(first_weights(7)), rtol=1e-14)


def test_a_buffer_that_is_not_full_changes_nothing():
    problem = problem_of(buffer=3)
    states, told = played(problem, [{0: update(5)}, {0: update(6)}, {2: update(7)}])
    first = model(problem, problem.algorithm.begin(problem))
    assert [one["gathered"] for one in told] == [1, 2, 3]
    for state in states[:2]:
        assert model_bytes(model(problem, state)) == model_bytes(first)
    assert states[2]["gathered"] == 0 and not states[2]["sizes"].any()
    expected = np.mean([flat(first_weights(k)) for k in (5, 6, 7)], axis=0)
    np.testing.assert_allclose(flat(model(problem, states[2])), expected, rtol=1e-12)


def test_updates_count_by_their_sizes():
    problem = problem_of(buffer=3)
    slots = [{0: update(5, 10)}, {0: update(6, 20), 1: update(7, 50)}]
    states, _ = played(problem, slots)
    expected = sum(n * flat(first_weights(k)) for k, n in ((5, 10), (6, 20), (7, 50))) / 80
    np.testing.assert_allclose(flat(model(problem, states[-1])), expected, rtol=1e-12)


# Staleness


@pytest.mark.parametrize("a", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("s", [1, 3, KEPT - 1])
def test_an_update_of_s_steps_before_counts_by_its_staleness(a, s):
    """It was asked for in slot 1, and comes after s steps of others: ω + (1 + s)^−a (ω_n − ω_1)."""
    problem = problem_of(buffer=1, staleness=a)
    slots = [{0: update(20 + k)} for k in range(s)]
    states, told = played(problem, [*slots, {1: update(7, asked=1)}])
    first, before = (
        flat(model(problem, one)) for one in (problem.algorithm.begin(problem), states[-2])
    )
    expected = before + (1.0 + s) ** -a * (flat(first_weights(7)) - first)
    np.testing.assert_allclose(flat(model(problem, states[-1])), expected, rtol=1e-12, atol=1e-12)
    assert told[-1]["staleness"] == [s]


def test_fresh_and_stale_updates_share_a_step():
    problem = problem_of(buffer=2, staleness=1.0)
    slots = [{0: update(5), 1: update(6)}, {0: update(8, 30), 2: update(7, 10, asked=1)}]
    states, told = played(problem, slots)
    first, before = (
        flat(model(problem, one)) for one in (problem.algorithm.begin(problem), states[0])
    )
    fresh, stale = flat(first_weights(8)) - before, flat(first_weights(7)) - first
    expected = before + (30 * fresh + 10 * stale / 2) / 40
    np.testing.assert_allclose(flat(model(problem, states[1])), expected, rtol=1e-12, atol=1e-12)
    assert told[1]["staleness"] == [0, 1]


def test_who_owes_an_answer_is_asked_the_same_again():
    problem = problem_of(buffer=1)
    states, _ = played(problem, [{0: update(20 + k)} for k in range(KEPT + 1)])
    nobody = np.zeros(3, np.int64)

    def asked(state, slot, owed, waiting=(0, 9, 0)):
        found = ask(problem, state, slot, np.array(waiting), owed=owed)
        return {n: model_bytes(dict(one.arrays)) for n, one in found.items()}

    first = model_bytes(dict(model(problem, problem.algorithm.begin(problem))))
    newest = [model_bytes(dict(model(problem, one))) for one in states]
    assert asked(states[0], 2, nobody) == {}, "nine samples are less than a segment"
    assert asked(states[0], 2, [0, 1, 0]) == {1: first}
    assert asked(states[5], 7, [0, 4, 0]) == {1: newest[2]}
    assert asked(states[5], 7, [0, 4, 0], (400, 9, 0)) == {0: newest[5], 1: newest[2]}
    assert asked(states[5], 7, [0, 4, 0], (0, 0, 0)) == {}, "it is not there"
    # After 17 steps, those of slots 2 to 17 are kept: what was asked for in slot 3 is the oldest.
    assert asked(states[KEPT], KEPT + 2, [0, 3, 0]) == {1: newest[1]}
    assert asked(states[KEPT], KEPT + 2, [0, 2, 0]) == {1: newest[KEPT]}, "that model is forgotten"


def test_delays_are_models_of_slots_before():
    """A client that is D slots behind gets what was the newest model in slot m − D."""
    options = BufferOptions(buffer=1, delays=(0, 1, 3))
    everybody = clients(3, probability=1.0)
    e = experiment(slots=7, algorithm=Watching(), buffering=options, clients=everybody)
    outcomes = run(e, threads=1)
    models = [model_bytes(dict(model(e.problem, one.state.arrays))) for one in outcomes]
    assert len(set(models)) == 8
    for slot, n, given in e.algorithm.requests:
        assert given == models[max(0, slot - 1 - options.delay(n))]
    assert [one.record["staleness"] for one in outcomes[1:6]] == [
        [0, 0, 0], [0, 1, 1], [0, 1, 2], [0, 1, 3], [0, 1, 3],
    ]  # fmt: skip


class Watching(FedBuff):
    """Remembers what was asked of whom, when."""

    def __init__(self):
        self.requests = []

    def ask(self, problem, state, slot, ready):
        found = super().ask(problem, state, slot, ready)
        self.requests += [(slot, n, model_bytes(dict(one.arrays))) for n, one in found.items()]
        return found


# What survives


def test_a_federation_goes_on_from_a_buffer_that_is_half_full():
    options = BufferOptions(buffer=4, delays=(0, 1, 3))
    steps = {"server_step": SERVER_STEPS.find("yogi"), "server": ServerOptions(average=0.7)}
    e = experiment(slots=8, algorithm=ALGORITHM, buffering=options, **steps)
    whole = run(e)
    full = [one.state.slot for one in whole if one.state.arrays["gathered"] > 0]
    assert len(full) > 3
    for slot in full[:3]:
        assert_same_run(run(e, whole[slot].state), whole[slot + 1 :])


def test_clients_that_were_enrolled_later_have_room():
    few = problem_of(buffer=3)
    [state], _ = played(few, [{1: update(5)}])
    more = replace(few, clients=5)
    after, _ = more.algorithm.conclude(more, state, 2, {4: update(6, asked=2)})
    assert after["sizes"].tolist() == [0, 40, 0, 0, 40]
    after, _ = more.algorithm.conclude(more, after, 3, {0: update(7, asked=3)})
    expected = np.mean([flat(first_weights(k)) for k in (5, 6, 7)], axis=0)
    np.testing.assert_allclose(flat(model(more, after)), expected, rtol=1e-12)
    ready = Ready(np.full(5, 400), np.ones(5, bool), np.zeros(5, np.int64))
    assert sorted(more.algorithm.ask(more, after, 4, ready)) == [0, 1, 2, 3, 4]


def test_a_study_of_a_kind_in_stages_is_refused():
    study = Study.recommended().with_values({"algorithm.name": "fedbuff"})
    with pytest.raises(InputError, match=r'learned in stages: give algorithm.name = "auto"'):
        study.check()
    with pytest.raises(InputError, match=r"algorithm.delays has 2 entries"):
        Study.paper_default().with_values({"algorithm.delays": [0, 1]})
