"""Watching a federation changes nothing in it, and misses nothing."""

from dataclasses import replace

import numpy as np
from tests.reference.federations import assert_same_run, experiment, run

from fedkoopman.audit.watching import Watching, distinct, spread_out, watched
from fedkoopman.federation.workers import Workers


def test_a_watched_federation_is_the_same_bit_for_bit():
    e = experiment()
    watching = Watching(e.algorithm)
    assert_same_run(run(replace(e, algorithm=watching)), run(e))
    assert watching.updates


def test_every_update_is_noted_with_what_it_came_from():
    e = experiment()
    with Workers(2) as workers:
        updates = watched(e, workers)
    active = {(o.record["slot"], n) for o in run(e) for n in o.record["active"]}
    assert {(u.slot, u.client) for u in updates} == active
    for update in updates:
        again = e.algorithm.answer(e.problem, update.request, update.segments, update.asked)
        for name, leaf in again.arrays.items():
            np.testing.assert_array_equal(leaf, update.reply.arrays[name])
        assert update.samples == sum(len(segment) for segment in update.segments)


def test_victims_are_of_different_sites():
    e = experiment(slots=6)
    with Workers(2) as workers:
        updates = watched(e, workers)
    assert {u.client for u in spread_out(updates, 3)} == {0, 1, 2}
    assert len(spread_out(updates, 10**6)) == len(updates)


def test_a_segment_that_came_twice_is_one():
    one, other = np.zeros((3, 2)), np.ones((3, 2))
    assert len(distinct([one, other, one.copy()])) == 2
