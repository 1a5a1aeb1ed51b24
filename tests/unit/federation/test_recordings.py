"""Measured states as the truth: which piece a slot and client get, and what is held out."""

from dataclasses import replace

import numpy as np
import pytest
from reference.federations import experiment

from fedkoopman.federation.arrivals import Recordings
from fedkoopman.federation.sites import Address, Sites, held_out
from fedkoopman.federation.workers import Workers

STEPS = 10


def numbered(*lengths: int) -> tuple[np.ndarray, ...]:
    """Recordings (T, 3) whose first state is the row's number and whose second is the recording."""
    return tuple(
        np.stack([np.arange(length), np.full(length, i), np.zeros(length)], axis=1).astype(float)
        for i, length in enumerate(lengths)
    )


def places(recordings: Recordings, seed: int, slots: int, who: int = 0) -> list[tuple[int, int]]:
    """Recording and start of every slot's segment, each being whole."""
    found = []
    for slot in range(1, slots + 1):
        segment = recordings.segment(seed, slot, who, STEPS)
        assert segment.shape == (STEPS, 3)
        np.testing.assert_array_equal(np.diff(segment[:, 0]), 1.0)
        assert len(set(segment[:, 1])) == 1
        found.append((int(segment[0, 1]), int(segment[0, 0])))
    return found


class TestRandom:
    recordings = Recordings(numbered(14, 12), numbered(21))

    def test_every_start_of_every_recording_comes_and_no_other(self) -> None:
        found = places(self.recordings, 0, 400)
        assert set(found) == {(0, s) for s in range(5)} | {(1, s) for s in range(3)}

    def test_recordings_and_their_starts_are_equally_likely(self) -> None:
        found = np.array(places(self.recordings, 1, 4000))
        assert abs(np.mean(found[:, 0]) - 1 / 2) < 4 * np.sqrt(1 / 4 / 4000)
        starts = np.bincount(found[found[:, 0] == 0, 1], minlength=5)
        share = 1 / 5
        assert np.all(
            abs(starts / starts.sum() - share) < 4.5 * np.sqrt(share * (1 - share) / starts.sum())
        )

    def test_seed_slot_and_client_each_decide(self) -> None:
        long = Recordings(numbered(1000), ())
        mine = places(long, 0, 20)
        assert mine == places(long, 0, 20)
        assert mine != places(long, 1, 20)
        assert mine != places(long, 0, 20, who=1)
        assert len(set(mine)) > 10

    def test_a_recording_of_one_segment_is_that_segment(self) -> None:
        assert places(Recordings(numbered(STEPS), ()), 0, 3) == [(0, 0)] * 3


class TestConsecutive:
    def test_slots_cover_a_recording_without_gaps_and_begin_again(self) -> None:
        found = places(Recordings(numbered(35), (), consecutive=True), 0, 7)
        assert [start for _, start in found] == [0, 10, 20, 0, 10, 20, 0]

    def test_each_recording_counts_its_own_pieces(self) -> None:
        found = places(Recordings(numbered(35, 20), (), consecutive=True), 0, 60)
        assert {which for which, _ in found} == {0, 1}
        for slot, (which, start) in enumerate(found, start=1):
            assert start == (slot - 1) % (3, 2)[which] * STEPS


class TestHeldOut:
    def test_trajectories_share_their_edges_and_go_through_all_recordings(self) -> None:
        recordings = Recordings((), numbered(21, 30, 10))
        assert recordings.test_count(STEPS) == 4
        found = recordings.test_trajectories(STEPS, 4)
        assert found.shape == (4, STEPS + 1, 3)
        assert [tuple(x[0, [1, 0]]) for x in found] == [(0, 0), (0, 10), (1, 0), (1, 10)]
        np.testing.assert_array_equal(found[0, -1], found[1, 0])

    def test_the_first_are_taken(self) -> None:
        found = Recordings((), numbered(21, 30)).test_trajectories(STEPS, 3)
        np.testing.assert_array_equal(found[:, 0, 1], [0, 0, 1])

    def test_the_test_set_of_an_experiment_is_the_same_for_all_seeds(self) -> None:
        given = experiment(recordings=Recordings(numbered(80), numbered(200)), test_trajectories=2)
        for seed in (0, 1):
            trajectories = held_out(replace(given, seed=seed))[0].trajectories
            np.testing.assert_array_equal(trajectories[:, 0, 0], [0, given.steps])


@pytest.mark.parametrize("common", [True, False])
def test_clients_with_perfect_data_hold_rows_of_a_recording(common: bool) -> None:
    """One piece for all clients of a slot, or one for each; the same whoever asks with whom."""
    rng = np.random.default_rng(0)
    states = rng.normal(size=(500, 3))
    given = experiment(common=common, recordings=Recordings((states,), (states,)))
    wanted = [Address(slot, client) for slot in (1, 2, 3) for client in (0, 1, 2)]
    with Workers(1) as workers:
        sites = Sites(given, perfect=True)
        found = sites.segments(wanted, workers)
        alone = sites.segments(wanted[-1:], workers)
    starts = {}
    for address, segment in found.items():
        assert segment is not None
        starts[address] = int(np.flatnonzero((states == segment[0]).all(axis=1))[0])
        np.testing.assert_array_equal(segment, states[starts[address] :][: given.steps])
    np.testing.assert_array_equal(alone[wanted[-1]], found[wanted[-1]])
    assert len(set(starts.values())) == (3 if common else 9)


def test_estimates_follow_the_recording() -> None:
    """A filter that observes a recorded trajectory of its own system comes close to it."""
    import fedkoopman as fk

    system = fk.systems.Lorenz63()
    states = fk.simulate(system, steps=300, seed=5)
    given = experiment(recordings=Recordings((states,), (states,)))
    wanted = [Address(1, 0), Address(2, 1)]
    with Workers(1) as workers:
        true = Sites(given, perfect=True).segments(wanted, workers)
        found = Sites(given, perfect=False).segments(wanted, workers)
    for address in wanted:
        assert np.abs(found[address] - true[address])[10:].mean() < 1.0
        assert not np.array_equal(found[address], true[address])
