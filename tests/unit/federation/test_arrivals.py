"""Who arrives: frequencies, independence, and that only the identity decides a client's luck."""

import numpy as np
import pytest
from reference.federations import client, clients

from fedkoopman.federation.arrivals import arrivals
from fedkoopman.federation.streams import generator, subseed

SLOTS = range(1, 2001)


def history(who, seed=0, slots=SLOTS):
    """(slots, clients) of booleans."""
    return np.array([arrivals(seed, slot, who) for slot in slots])


def test_each_client_arrives_as_often_as_its_probability_says():
    """Within five standard deviations of the binomial law."""
    p = np.array([0.05, 0.3, 0.7, 0.95])
    who = [client(n, probability=chance) for n, chance in enumerate(p)]
    share = history(who).mean(axis=0)
    assert (np.abs(share - p) < 5 * np.sqrt(p * (1 - p) / len(SLOTS))).all()


def test_probabilities_of_nought_and_one_are_exact():
    who = [client(0, probability=0.0), client(1, probability=1.0), client(2)]
    seen = history(who)
    assert not seen[:, 0].any()
    assert seen[:, 1].all()
    assert 0 < seen[:, 2].sum() < len(SLOTS)


def test_clients_and_slots_are_independent():
    """All correlations, between clients and with the slot before, within five deviations of 0."""
    seen = history(clients(4)).astype(float)
    together = np.hstack([seen[1:], seen[:-1]])
    correlation = np.corrcoef(together, rowvar=False)
    assert np.abs(correlation - np.eye(8)).max() < 5 / np.sqrt(len(SLOTS))


@pytest.mark.parametrize("order", [[2, 0, 1, 3], [3, 2, 1, 0], [1], [3, 0]])
def test_order_and_number_of_clients_change_nobodys_luck(order):
    everyone = clients(4)
    seen = history([everyone[n] for n in order], slots=range(1, 200))
    np.testing.assert_array_equal(seen, history(everyone, slots=range(1, 200))[:, order])


def test_anothers_probability_changes_nobodys_luck():
    others = (client(0), client(1, probability=0.0), client(2), client(3, probability=1.0))
    np.testing.assert_array_equal(
        history(others, slots=range(1, 200))[:, [0, 2]],
        history(clients(4), slots=range(1, 200))[:, [0, 2]],
    )


def test_a_likelier_client_arrives_in_every_slot_that_it_did_before():
    """The same luck against a higher bar: runs with different p can be compared in pairs."""
    rare, often = history([client(0, probability=0.3)]), history([client(0, probability=0.6)])
    assert (often >= rare).all()
    assert often.sum() > rare.sum()


def test_seed_slot_and_identity_are_what_decides():
    slots = range(1, 100)
    one = history([client(0)], slots=slots)
    np.testing.assert_array_equal(one, history([client(0)], slots=slots))
    assert not np.array_equal(one, history([client(0)], seed=1, slots=slots))
    assert not np.array_equal(one, history([client(1)], slots=slots))
    assert not np.array_equal(one, history([client(0)], slots=range(101, 200)))


def test_identities_need_not_be_consecutive():
    seen = history([client(7), client(1000)], slots=range(1, 100))
    np.testing.assert_array_equal(seen[:, 0], history([client(7)], slots=range(1, 100))[:, 0])
    assert not np.array_equal(seen[:, 0], seen[:, 1])


def test_streams_of_different_purpose_or_address_differ():
    addresses = [("noise", 1, 2), ("noise", 2, 1), ("filter", 1, 2), ("noise", 1), ("noise",)]
    first = {generator(0, *address).integers(2**62) for address in addresses}
    assert len(first | {generator(1, "noise", 1, 2).integers(2**62)}) == len(addresses) + 1
    seeds = {subseed(0, *address) for address in addresses}
    assert len(seeds) == len(addresses)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert subseed(0, "noise", 1, 2) == subseed(0, "noise", 1, 2)
