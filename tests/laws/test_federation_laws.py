"""Who else takes part, runs or is listed changes nothing for a client, nor for a seed."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax
import numpy as np
import pytest
from reference.federations import (
    TRAINING,
    assert_same_run,
    client,
    clients,
    experiment,
    final,
    first_weights,
    flat,
    jobs_of,
    model_bytes,
    run,
    segments,
)

import fedkoopman as fk
from fedkoopman.federation.aggregators.mean import mean
from fedkoopman.federation.experiment import Filter
from fedkoopman.federation.simulation import first_state, simulate_federation
from fedkoopman.federation.workers import Workers

EVERYONE = clients(5)
ADDRESSES = [(slot, n) for slot in range(1, 5) for n in range(5)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_single_model_is_its_own_mean(dtype):
    model = jax.tree.map(lambda leaf: leaf.astype(dtype), first_weights())
    for size in (1, 3, 300):
        assert model_bytes(mean(model, [model], [size])) == model_bytes(model)


@pytest.mark.parametrize("sizes", [[1, 1, 1], [1, 2, 4], [3, 300, 7, 90, 1]])
def test_equal_models_average_to_themselves(sizes):
    model = first_weights()
    found = mean(model, [model] * len(sizes), sizes)
    np.testing.assert_allclose(flat(found), flat(model), rtol=1e-15)
    single = jax.tree.map(np.float32, model)
    assert model_bytes(mean(single, [single] * len(sizes), sizes)) == model_bytes(single)


def test_the_mean_is_weighted_by_data():
    one, other = first_weights(0), first_weights(1)
    found = mean(one, [one, other], [1, 3])
    np.testing.assert_allclose(flat(found), flat(one) / 4 + 3 * flat(other) / 4, atol=1e-15)
    same = mean(one, [one, other], [50, 150])
    assert model_bytes(found) == model_bytes(same)


def test_permuting_clients_changes_rounding_only():
    order = [3, 0, 4, 2, 1]
    shuffled = tuple(EVERYONE[n] for n in order)
    one, other = experiment(clients=EVERYONE, slots=6), experiment(clients=shuffled, slots=6)
    found, expected = run(other), run(one)
    for a, b in zip(found[1:], expected[1:], strict=True):
        for key in ("arrived", "active"):
            assert sorted(order[n] for n in a.record[key]) == b.record[key]
        assert a.record["buffered"] == [b.record["buffered"][n] for n in order]
        np.testing.assert_allclose(flat(a.state.arrays), flat(b.state.arrays), rtol=1e-6, atol=1e-9)
    mine = segments(other, [(slot, order.index(n)) for slot, n in ADDRESSES])
    theirs = segments(one, ADDRESSES)
    for slot, n in ADDRESSES:
        assert mine[slot, order.index(n)].tobytes() == theirs[slot, n].tobytes()


@pytest.mark.parametrize("common", [True, False], ids=["common", "per-client"])
@pytest.mark.parametrize("present", [[0, 1, 2, 3, 4], [2], [4, 2], [2, 0]], ids=str)
def test_a_clients_data_and_orders_depend_on_itself_alone(present, common):
    """Segments, arrivals and the randomness of training, bit for bit, with others and without."""
    everyone = experiment(clients=EVERYONE, common=common)
    some = experiment(clients=tuple(EVERYONE[n] for n in present), common=common)
    place = present.index(2)
    for slot in range(1, 4):
        (alone,) = segments(some, [(slot, place)]).values()
        together = segments(some, [(slot, n) for n in range(len(present))])[slot, place]
        expected = segments(everyone, ADDRESSES)[slot, 2]
        assert alone.tobytes() == together.tobytes() == expected.tobytes()
    with_others = {job.clients: job for job in jobs_of(everyone, range(5))}[2,]
    without = {job.clients: job for job in jobs_of(some, range(len(present)))}[place,]
    assert with_others.asked.seed == without.asked.seed
    assert [slot for slot, _ in with_others.segments] == [slot for slot, _ in without.segments]


def test_clients_do_not_share_randomness():
    """Segments of one trajectory differ by noise and sensor; orders differ between all."""
    e = experiment(clients=clients(5, sensor=EVERYONE[0].sensor))
    found = segments(e, ADDRESSES)
    assert len({x.tobytes() for x in found.values()}) == len(ADDRESSES)
    start = first_state(e)
    later = replace(start, slot=1)
    jobs = [job for state in (start, later) for job in jobs_of(e, range(5), state)]
    assert len({job.asked.seed for job in jobs}) == 10


@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.parametrize("segments_needed", [0, 1, 2])
def test_an_idle_client_changes_nothing(place, segments_needed):
    idle = client(99, probability=0.0)
    with_idle = (*EVERYONE[:place], idle, *EVERYONE[place:3])
    found = run(experiment(clients=with_idle, segments=segments_needed, slots=6))
    expected = run(experiment(clients=EVERYONE[:3], segments=segments_needed, slots=6))
    assert [model_bytes(o.state.arrays) for o in found] == [
        model_bytes(o.state.arrays) for o in expected
    ]
    assert [o.record["loss"] for o in found] == [o.record["loss"] for o in expected]
    assert {o.record["buffered"][place] for o in found} == {0}


def test_more_clients_than_one_batch_of_the_filter_change_nothing():
    """Segments in calls of 64: a client's are the same in any lane of any call."""
    many = tuple(client(n, sensor=EVERYONE[n % 5].sensor) for n in range(70))
    found = segments(experiment(clients=many), [(1, n) for n in range(70)])
    for n in (0, 1, 31, 63, 64, 69):
        (alone,) = segments(experiment(clients=(many[n],)), [(1, 0)]).values()
        assert found[1, n].tobytes() == alone.tobytes()


def test_clients_of_different_kinds_do_not_disturb_each_other():
    """Each of another noise, belief or number of sensors, so that none are filtered together."""
    kinds = (
        client(0),
        client(1, observation_noise=4 * np.eye(2)),
        client(2, dynamics=fk.systems.Lorenz63(b=27.0)),
        client(3, sensor=fk.LinearSensor.identity(3), observation_noise=np.eye(3)),
        client(4, process_noise=0.1 * np.eye(3)),
    )
    found = segments(experiment(clients=kinds), [(1, n) for n in range(5)])
    assert len({x.tobytes() for x in found.values()}) == 5
    for n, kind in enumerate(kinds):
        (alone,) = segments(experiment(clients=(kind,)), [(1, 0)]).values()
        assert found[1, n].tobytes() == alone.tobytes()
    # The first is filtered as among its own kind.
    assert found[1, 0].tobytes() == segments(experiment(), [(1, 0)])[1, 0].tobytes()


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_seed_alone_is_the_same_among_others(precision):
    training = replace(TRAINING, precision=precision)
    runs = [
        experiment(seed=seed, clients=EVERYONE, slots=6, training=training) for seed in range(4)
    ]
    alone = [run(e, threads=1) for e in runs]
    with Workers(3) as pool, ThreadPoolExecutor(4) as drivers:
        together = list(drivers.map(lambda e: list(simulate_federation(e, pool)), runs))
    for found, expected in zip(together, alone, strict=True):
        assert_same_run(found, expected)
    assert len({final(each) for each in alone}) == 4


def test_the_same_seed_gives_the_same_bytes():
    assert_same_run(run(experiment()), run(experiment(), threads=4))


def test_the_callers_precision_does_not_change_the_first_weights():
    first = []
    for setting in (True, False):
        with jax.enable_x64(setting):
            first.append(model_bytes(first_state(experiment()).arrays))
    assert first[0] == first[1]


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_callers_precision_does_not_change_a_run(precision):
    """From given weights on; the setting is left as it was."""
    e = experiment(training=replace(TRAINING, precision=precision))
    start = first_state(e)
    found = []
    for setting in (True, False):
        with jax.enable_x64(setting):
            found.append(run(e, start))
            assert jax.config.jax_enable_x64 is setting
    assert_same_run(*found)


@pytest.mark.parametrize("method", ["ukf-resampled", "ekf", "particle"])
def test_every_filter_gives_a_client_the_same_states_with_others_and_without(method):
    options = Filter(method, initial_mean=np.zeros(3), initial_cov=np.eye(3), particles=50)
    e = experiment(filter=options)
    together = segments(e, [(slot, n) for slot in (1, 2) for n in range(3)])
    (alone,) = segments(experiment(filter=options, clients=(client(2),)), [(2, 0)]).values()
    assert together[2, 2].tobytes() == alone.tobytes()
    assert len({x.tobytes() for x in together.values()}) == 6
