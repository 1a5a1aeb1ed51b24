"""The schemes train on what they say, and trajectories are shared and go on as configured."""

import numpy as np
import pytest
from reference.federations import (
    ARCHITECTURE,
    STEPS,
    TRAINING,
    assert_same_run,
    clients,
    experiment,
    final,
    jobs_of,
    model_bytes,
    run,
    segments,
)

import fedkoopman as fk
from fedkoopman.errors import InputError
from fedkoopman.federation.experiment import SCHEMES
from fedkoopman.federation.simulation import first_state
from fedkoopman.federation.streams import subseed
from fedkoopman.koopman.training import client_update

EVERYONE = clients(5)
ADDRESSES = [(slot, n) for slot in range(1, 5) for n in range(5)]
COMMON = 2**32 - 1
"""Stands for all clients in the address of a common trajectory."""


def test_single_client_is_a_federation_of_the_first():
    alone = run(experiment(scheme="single-client", clients=EVERYONE, slots=6))
    expected = run(experiment(clients=EVERYONE[:1], slots=6))
    assert_same_run(alone, expected)
    assert {n for o in alone for n in o.record["active"]} == {0}
    # Its arrivals, data and orders are those it has in the federation.
    together = run(experiment(clients=EVERYONE, slots=6))
    for one, many in zip(alone[1:], together[1:], strict=True):
        assert one.record["arrived"] == [n for n in many.record["arrived"] if n == 0]


def test_single_client_takes_the_first_of_several_thresholds():
    several = run(experiment(scheme="single-client", segments=(2, 1, 1)))
    assert_same_run(several, run(experiment(scheme="single-client", segments=2)))


def test_perfect_data_is_the_truth():
    """x_1 … x_ζ as the solver gives them, for every client the same."""
    e = experiment(scheme="perfect-data")
    found = segments(e, ADDRESSES[:3], perfect=True)
    first = found[1, 0]
    assert all(x.tobytes() == first.tobytes() for x in found.values())
    assert first.shape == (STEPS, 3)
    np.testing.assert_allclose(first[1:], next_states(e.system, first[:-1]), rtol=1e-9, atol=1e-9)
    # The estimates of the same slot are near it, and no more.
    error = np.sqrt(np.mean((segments(e, [(1, 0)])[1, 0][10:] - first[10:]) ** 2))
    assert 1e-3 < error < 3


def next_states(system, x):
    """The states one interval later, by `system.flow`."""
    return fk.simulate(system, 1, initial=x)[:, 1]


@pytest.mark.parametrize("scheme", ["perfect-data", "kf-fedkl"])
def test_a_slot_trains_on_what_its_scheme_hands_out(scheme):
    """One client, one slot: the model is its update on the true states, or on its estimates."""
    e = experiment(scheme=scheme, clients=clients(1, probability=1.0), slots=1)
    (x,) = segments(e, [(1, 0)], perfect=scheme == "perfect-data").values()
    (job,) = jobs_of(e, [0])
    update = client_update(
        ARCHITECTURE,
        TRAINING,
        ARCHITECTURE.from_named(first_state(e).arrays),
        [x],
        seed=job.asked.seed,
        learning_rate=1e-3,
    )
    assert final(run(e)) == model_bytes(ARCHITECTURE.named(update))


def test_centralized_trains_on_the_union():
    """One update on all clients' data, with the server's own learning rate, then all of it goes."""
    who = clients(3, probability=1.0, learning_rate=0.5)
    e = experiment(scheme="centralized", clients=who, segments=(2, 1, 2), slots=2)
    weights = ARCHITECTURE.from_named(first_state(e).arrays)
    found = run(e)
    x = segments(e, [(slot, n) for slot in (1, 2) for n in range(3)])
    assert [o.record["active"] for o in found] == [[], [1], [0, 1, 2]]
    for slot, held in ((1, [(1, 1)]), (2, [(1, 0), (2, 0), (2, 1), (1, 2), (2, 2)])):
        state = found[slot - 1].state
        jobs = jobs_of(e, [0, 1, 2], state)
        assert [job.clients for job in jobs] == [tuple(found[slot].record["active"])]
        weights = client_update(
            ARCHITECTURE,
            TRAINING,
            weights,
            [x[address] for address in held],
            seed=jobs[0].asked.seed,
        )
        assert final([found[slot]]) == model_bytes(ARCHITECTURE.named(weights))
        assert found[slot].record["samples"] == STEPS * len(held)
    assert found[2].state.buffers == ((), (), ())


def test_schemes_share_first_model_arrivals_and_test_set():
    of_states = [name for name, scheme in SCHEMES.items() if not scheme.raw]
    found = {name: run(experiment(scheme=name)) for name in of_states}
    starts = {name: found[name][0] for name in of_states}
    assert len({final([o]) for o in starts.values()}) == 1
    assert len({o.record["loss"] for o in starts.values()}) == 1
    arrived = [
        [o.record["arrived"] for o in found[name]]
        for name in ("kf-fedkl", "perfect-data", "centralized")
    ]
    assert arrived[0] == arrived[1] == arrived[2]
    assert len({final(each) for each in found.values()}) == 4


def test_an_unknown_scheme_is_refused():
    with pytest.raises(InputError, match=r"unknown scheme 'kf-fedk': did you mean 'kf-fedkl'\?"):
        run(experiment(scheme="kf-fedk"))


def test_trajectories_are_shared_or_each_clients_own():
    shared = segments(experiment(clients=EVERYONE), ADDRESSES, perfect=True)
    own = segments(experiment(clients=EVERYONE, common=False), ADDRESSES, perfect=True)
    for slot in range(1, 5):
        assert len({shared[slot, n].tobytes() for n in range(5)}) == 1
    assert len({x.tobytes() for x in shared.values()}) == 4
    assert len({x.tobytes() for x in own.values()}) == len(ADDRESSES)


@pytest.mark.parametrize("restart", [1, 2, 3, 10])
@pytest.mark.parametrize("common", [True, False], ids=["common", "per-client"])
def test_a_trajectory_goes_on_until_the_restart(restart, common):
    """Slots in any order and one at a time, as after failures in the slots between."""
    e = experiment(slots=6, restart=restart, common=common)
    truth = segments(e, [(slot, n) for slot in range(1, 7) for n in range(3)], perfect=True)
    for n in range(3):
        for slot in range(1, 6):
            follows = next_states(e.system, truth[slot, n][-1:])[0]
            goes_on = np.allclose(truth[slot + 1, n][0], follows, rtol=1e-8, atol=1e-8)
            assert goes_on == (slot % restart != 0)
    for address in [(5, 1), (2, 0), (6, 2)]:
        assert segments(e, [address], perfect=True)[address].tobytes() == truth[address].tobytes()


def test_a_trajectory_goes_on_while_a_client_fails():
    """Clients that arrive rarely: what they hold is the truth at the time of their arrival."""
    e = experiment(slots=6, restart=6, clients=clients(3, probability=0.4), segments=100)
    arrived = {(o.record["slot"], n) for o in run(e) for n in o.record["arrived"]}
    assert 0 < len(arrived) < 18
    whole = fk.simulate(e.system, 6 * STEPS, initial=first_truth(e))
    for slot, n in arrived:
        expected = whole[(slot - 1) * STEPS + 1 : slot * STEPS + 1]
        truth = segments(e, [(slot, n)], perfect=True)[slot, n]
        # Chaos: the same steps, compiled for another length, part at 1e-9 by e^0.9t.
        np.testing.assert_allclose(truth, expected, rtol=1e-5, atol=1e-5)


def first_truth(e):
    """x_0 of the first common trajectory."""
    return fk.simulate(e.system, 1, seed=subseed(e.seed, "trajectory", 0, COMMON))[0]
