"""Simulated clients leave out samples that are too uncertain, and count what is really there."""

from dataclasses import replace

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
    model_bytes,
    run,
    segments,
)

from fedkoopman import Study
from fedkoopman.errors import InputError
from fedkoopman.estimation.left_out import kept_samples, stretches
from fedkoopman.federation.algorithms.staged import StagedLearning
from fedkoopman.federation.experiment import Filter
from fedkoopman.federation.sites import Address, Sites
from fedkoopman.federation.streams import subseed
from fedkoopman.koopman.kinds.spectral import Spectral
from fedkoopman.koopman.training import client_update
from fedkoopman.runs.experiment import experiment_of

GATE = 1.3
"""Low, so that much is left out of short segments."""


def gated(gate=GATE, **changes):
    return experiment(
        filter=Filter(initial_mean=np.zeros(3), initial_cov=np.eye(3), gate=gate), **changes
    )


ADDRESSES = [(slot, n) for slot in (1, 2, 3) for n in range(3)]


def test_what_is_left_out_is_what_a_loop_over_samples_leaves_out(monkeypatch):
    """The covariances are those of the filter; what follows from them is written out here."""
    spied = []
    filtered = Sites._filtered

    def spy(self, members, *given):
        found = filtered(self, members, *given)
        spied.extend(zip(members, found.mean, found.cov, strict=True))
        return found

    monkeypatch.setattr(Sites, "_filtered", spy)
    found = segments(gated(), ADDRESSES)
    least, cut = ARCHITECTURE.window + ARCHITECTURE.depth, 0
    for address, mean, cov in dict((one[0], one) for one in spied).values():
        usual = [np.median([np.sqrt(cov[k][j][j]) for k in range(STEPS)]) for j in range(3)]
        parts, part = [], []
        for k in range(STEPS):
            if max(np.sqrt(cov[k][j][j]) / usual[j] for j in range(3)) > GATE:
                parts, part = [*parts, part], []
            else:
                part = [*part, k]
        expected = [mean[one] for one in [*parts, part] if len(one) >= least]
        cut += len(expected) > 1
        for ours, theirs in zip(stretches(found[address]), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert cut  # in the midst of some, or nothing is tested


def test_sizes_are_of_what_is_there():
    e = gated(slots=6)
    held = segments(e, [(m, n) for m in range(1, 7) for n in range(3)])
    waiting = [0, 0, 0]
    for outcome in run(e)[1:]:
        record = outcome.record
        slot, came = record["slot"], record["arrived"]
        sizes = [kept_samples(held[Address(slot, n)]) for n in came]
        for n, size in zip(came, sizes, strict=True):
            waiting[n] += size
        assert record["buffered"] == waiting
        assert record["samples"] == sum(waiting[n] for n in record["active"])
        assert record.get("left_out", 0) == len(came) * STEPS - sum(sizes)
        for n in record["active"]:
            waiting[n] = 0


def test_training_sees_stretches_and_nothing_between_them():
    """One client: the shared model is its update, from the pieces alone."""
    e = gated(clients=clients(1, probability=1.0), slots=2, segments=1.5)
    start, first, after = run(e)
    assert first.record["active"] == [] and after.record["active"] == [0]
    held = segments(e, [(1, 0), (2, 0)]).values()
    parts = [part for states in held for part in stretches(states)]
    assert len(parts) == 3  # the second segment is cut in its midst
    expected = client_update(
        ARCHITECTURE,
        TRAINING,
        ARCHITECTURE.from_named(start.state.arrays),
        parts,
        seed=subseed(e.seed, "training", 2, 0),
        learning_rate=1e-3,
    )
    assert model_bytes(ARCHITECTURE.from_named(after.state.arrays)) == model_bytes(expected)


@pytest.mark.parametrize("staged", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_resumed_run_is_the_same(staged):
    more = {}
    if staged:
        kind = Spectral(3, 6, features=4, horizon=2)
        more = {"architecture": kind, "algorithm": StagedLearning()}
    e = gated(slots=8, segments=1.5, **more)
    whole = run(e)
    assert any(one.record.get("left_out") for one in whole)
    assert_same_run(run(e, whole[4].state), whole[5:])


def test_no_gate_changes_nothing_and_a_wide_one_neither():
    assert final(run(gated(0.0))) == final(run(experiment())) == final(run(gated(1e9)))
    assert final(run(gated())) != final(run(experiment()))


def test_true_states_are_not_gated():
    e = gated(scheme="perfect-data")
    assert not any(np.isnan(states).any() for states in segments(e, ADDRESSES, True).values())


def test_a_segment_of_which_nothing_is_left_is_dropped():
    e = gated(1.0000001)
    one = replace(e, architecture=replace(ARCHITECTURE, window=STEPS - 2))
    assert all(states is None for states in segments(one, ADDRESSES).values())


def test_a_study_says_which_gate():
    study = Study.paper_default(slots=3).with_values({"estimation.gate": 2.5})
    assert experiment_of(study, 0).filter.gate == 2.5
    with pytest.raises(InputError, match=r"estimation\.gate is 0\.5, which leaves out about half"):
        study.with_values({"estimation.gate": 0.5}).check()
