"""Sites with data of their own: every segment arrives in order, once per round through them."""

from dataclasses import replace

import numpy as np
import pytest
from reference.federations import experiment

from fedkoopman.federation.arrivals import Deliveries, arrivals, schedule, succeeded
from fedkoopman.federation.simulation import simulate_federation
from fedkoopman.federation.sites import Address, arrived, held_out, samples
from fedkoopman.federation.workers import Workers


def states(*lengths: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(len(lengths))
    return tuple(rng.normal(size=(length, 3)) for length in lengths)


def recorded(repeat: bool = True, slots: int = 20, probability: float = 0.6):
    held_out = (states(25, 41), (), states(12))
    given = Deliveries((states(9, 12), states(7, 8, 30), states(10)), held_out, repeat)
    e = experiment(slots=slots)
    clients = tuple(replace(client, probability=probability) for client in e.clients)
    return replace(e, deliveries=given, clients=clients, steps=10)


@pytest.mark.parametrize("repeat", [True, False])
def test_segments_arrive_in_order(repeat: bool) -> None:
    e = recorded(repeat)
    counts = (2, 3, 1)
    for n, count in enumerate(counts):
        places = [slot[n] for slot in schedule(e) if n in slot]
        assert len(places) > count if repeat else len(places) <= count
        assert places == [i % count for i in range(len(places))]
    assert all(arrived(e, slot) == list(schedule(e)[slot]) for slot in range(1, e.slots + 1))


def test_who_arrives_does_not_depend_on_the_others_data() -> None:
    e = recorded()
    assert e.deliveries is not None
    others = replace(e.deliveries, train=(e.deliveries.train[0], *[states(50, 60)] * 2))
    with_others = schedule(replace(e, deliveries=others))
    assert [slot.get(0) for slot in schedule(e)] == [slot.get(0) for slot in with_others]


def test_data_is_counted_in_samples() -> None:
    """Buffers, records and weights go by samples, and each segment is trained on as often as it
    arrives."""
    e = recorded(repeat=False, slots=30)
    with Workers(1) as workers:
        records = [outcome.record for outcome in simulate_federation(e, workers)][1:]
    waiting = [0, 0, 0]
    for record in records:
        for n in record["arrived"]:
            waiting[n] += samples(e, Address(record["slot"], n))
        assert record["buffered"] == waiting
        assert record["samples"] == sum(waiting[n] for n in record["active"])
        for n in record["active"]:
            waiting[n] = 0
    trained = sum(record["samples"] for record in records)
    assert trained + sum(waiting) == 9 + 12 + 7 + 8 + 30 + 10
    assert trained > 0


def test_held_out_states_are_cut_into_equal_windows() -> None:
    e = recorded()
    test, last = (one.trajectories for one in held_out(e))
    assert e.deliveries is not None
    (first, second), _, (third,) = e.deliveries.held_out
    assert test.shape == (3, 11, 3)  # as many as evaluation takes, of each site
    np.testing.assert_array_equal(last, third[None, :11])
    np.testing.assert_array_equal(test[0], first[:11])
    np.testing.assert_array_equal(test[1], first[10:21])
    np.testing.assert_array_equal(test[2], second[:11])


def test_in_every_slot_a_segment_arrives_until_there_is_none() -> None:
    e = recorded(repeat=False, probability=0.0)
    assert e.deliveries is not None
    always = schedule(replace(e, deliveries=replace(e.deliveries, every_slot=True)))
    assert always[:5] == [{}, {0: 0, 1: 0, 2: 0}, {0: 1, 1: 1}, {1: 2}, {}]


def test_one_clients_luck_is_that_among_others() -> None:
    e = recorded(slots=50)
    for slot in range(1, 51):
        among = arrivals(e.seed, slot, e.clients).tolist()
        alone = [succeeded(e.seed, slot, c.identity, c.probability) for c in e.clients]
        assert among == alone
