"""Which sums may count: honest sites are left alone, liars are refused or do no harm."""

from dataclasses import replace

import numpy as np
import pytest
from reference import lying
from reference.federations import assert_same_run, clients, experiment, model_bytes, run

from fedkoopman.federation.algorithm import Answered
from fedkoopman.federation.algorithms.staged import ALGORITHM
from fedkoopman.federation.arrivals import Deliveries
from fedkoopman.federation.messages import Message
from fedkoopman.federation.misfits import BOUND, IMPOSSIBLE, Misfit, core, times
from fedkoopman.federation.screening import remembered
from fedkoopman.koopman.kinds.edmd import EDMD
from fedkoopman.koopman.kinds.spectral import Spectral
from fedkoopman.koopman.training import Training

KINDS = {
    "edmd": EDMD.of(state_dim=2, degree=3),
    "delays": EDMD.of(state_dim=2, degree=2, window=2),
    "fourier": EDMD.of(state_dim=2, dictionary="fourier", features=8),
    "spectral": Spectral(2, 6, features=6, degree=3, horizon=4),
    "random": Spectral(2, 6, features=6, degree=3, horizon=4, learned=False),
}
LENGTH, SEGMENTS = 60, 6


def swing(random, amplitude):
    """A pendulum's path with a little noise: an energy of its own, so another range."""
    angle, rate, dt, rows = amplitude * random.uniform(0.7, 1.0), 0.0, 0.1, []
    for _ in range(LENGTH):
        rows.append((angle, rate))
        rate -= dt * np.sin(angle)
        angle += dt * rate
    return np.array(rows) + 1e-3 * random.normal(size=(LENGTH, 2))


def recordings(count):
    """Segments of sites that see other ranges of the same system, and what is held out."""
    train = tuple(
        tuple(
            swing(np.random.default_rng([site, i]), 1.0 + 0.4 * (site % 3)) for i in range(SEGMENTS)
        )
        for site in range(count)
    )
    return Deliveries(train, tuple((one[0],) for one in train), repeat=False)


def federation(name, count=5, **changes):
    given = {
        "algorithm": ALGORITHM,
        "architecture": KINDS[name],
        "training": Training(epochs=1, batch=16),
        "clients": clients(count, probability=1.0),
        "slots": 8,
        "steps": LENGTH,
        "deliveries": recordings(count),
        "test_trajectories": 5,
    }
    return experiment(**{**given, **changes})


def lied(e, lies, **options):
    """The outcomes of a federation with liars, and what was found."""
    algorithm = lying.Lying(e.algorithm, lies, **options)
    return run(replace(e, algorithm=algorithm)), algorithm


def error(outcomes):
    return outcomes[-1].record["E1"]


def without(e, liars):
    return replace(e, clients=tuple(c for c in e.clients if c.identity not in liars))


# Honest federations


@pytest.mark.parametrize(
    "name, count", [("edmd", 1), ("edmd", 2), ("edmd", 3), *((name, 5) for name in KINDS)]
)
def test_honest_sites_are_left_alone_bit_for_bit(name, count):
    e = federation(name, count)
    outcomes, found = lied(e, {})
    assert not found.findings and not found.changed
    for one, other in zip(outcomes, run(e), strict=True):
        kept = {k: v for k, v in one.state.arrays.items() if not k.startswith("screen.")}
        assert model_bytes(kept) == model_bytes(other.state.arrays)


def test_a_screened_federation_goes_on_from_every_slot_bit_for_bit():
    e = federation("edmd")
    outcomes, _ = lied(e, {1: lying.CAREFUL["shuffled time"]})
    for outcome in outcomes[1:-1:3]:
        algorithm = lying.Lying(ALGORITHM, {1: lying.CAREFUL["shuffled time"]})
        again = run(replace(e, algorithm=algorithm), outcome.state)
        assert_same_run(again, outcomes[outcome.state.slot + 1 :])


def test_the_server_that_computes_itself_is_not_judged():
    outcomes, found = lied(federation("edmd", scheme="centralized"), {})
    assert not found.findings and not found.changed
    assert "sums" in [one.record.get("stage") for one in outcomes]


# Lies


@pytest.mark.parametrize("lie", [*lying.CRUDE, *lying.CAREFUL])
def test_a_liar_among_five_is_refused_whenever_it_lies_and_nobody_else_is(lie):
    e = federation("edmd")
    outcomes, found = lied(e, {2: (lying.CRUDE | lying.CAREFUL)[lie]})
    lies = {(slot, 2) for slot, asked in found.asked.items() if asked.get(2) in ("add", "add-all")}
    assert found.findings.keys() == lies
    assert all(
        one.reason.startswith("sends") or "counts" in one.reason for one in found.findings.values()
    )
    assert error(outcomes) <= 1.3 * error(run(without(e, {2})))


@pytest.mark.parametrize("lie", ["sums ×3", "random sums", "a million windows"])
def test_what_no_data_could_give_is_refused_even_of_two_sites(lie):
    _, found = lied(federation("edmd", 2), {0: lying.CRUDE[lie]})
    assert {n for _, n in found.findings} == {0}
    assert all(one.measure == IMPOSSIBLE for one in found.findings.values())


def test_of_two_sites_that_contradict_each_other_none_is_blamed():
    _, found = lied(federation("edmd", 2), {0: lying.CAREFUL["shuffled time"]})
    assert not found.findings


@pytest.mark.parametrize("lie", ["random sums", "careful ×3", "shuffled time"])
@pytest.mark.parametrize("name", ["delays", "fourier", "random", "spectral"])
def test_other_kinds_are_screened_too(name, lie):
    e = federation(name)
    outcomes, found = lied(e, {2: (lying.CRUDE | lying.CAREFUL)[lie]})
    assert {n for _, n in found.findings} == {2}
    assert error(outcomes) <= 1.3 * error(run(without(e, {2})))


@pytest.mark.parametrize("lie", ["careful ×3", "shuffled time", "another system"])
@pytest.mark.parametrize("count, liars", [(3, {1}), (5, {0, 3}), (10, {4, 7})])
def test_liars_together_are_refused_and_no_honest_site_with_them(count, liars, lie):
    e = federation("edmd", count)
    outcomes, found = lied(e, dict.fromkeys(liars, lying.CAREFUL[lie]))
    assert {n for _, n in found.findings} == liars
    assert error(outcomes) <= 1.3 * error(run(without(e, liars)))


def test_without_a_screen_such_lies_do_harm():
    # So that the tests above could fail.
    e = federation("edmd")
    good = error(run(without(e, {2})))
    for lie in ("careful ×3", "shuffled time", "another system"):
        assert error(lied(e, {2: lying.CAREFUL[lie]}, screen=False)[0]) > 3 * good


def test_a_site_that_begins_to_lie_later_is_judged_by_what_counts_already():
    e = federation("edmd")
    outcomes, found = lied(e, {2: lying.CAREFUL["shuffled time"]}, since=5)
    assert {n for _, n in found.findings} == {2}
    assert min(slot for slot, _ in found.findings) == 5
    assert error(outcomes) <= 1.3 * error(run(without(e, {2})))


def test_a_site_that_stops_lying_is_asked_for_all_its_data_and_counted():
    class Mended(lying.Lying):
        def conclude(self, problem, state, slot, replies):
            self.lies = {} if slot > 4 else self.lies
            return super().conclude(problem, state, slot, replies)

    e = federation("edmd")
    algorithm = Mended(ALGORITHM, {2: lying.CAREFUL["shuffled time"]})
    outcomes = run(replace(e, algorithm=algorithm))
    assert [algorithm.asked[slot][2] for slot in range(2, 7)] == ["add-all"] * 4 + ["add"]
    np.testing.assert_allclose(
        outcomes[-1].state.arrays["sums.gram"], run(e)[-1].state.arrays["sums.gram"], rtol=1e-9
    )


@pytest.mark.parametrize("lie", lying.SCALE)
def test_the_common_scale_is_not_spoiled(lie):
    e = federation("edmd")
    outcomes, found = lied(e, {2: lying.SCALE[lie]}, stages=("scale",))
    honest = run(e)[-1].state.arrays
    scale = outcomes[-1].state.arrays["scale.std"]
    assert (np.abs(np.log(scale / honest["scale.std"])) < np.log(1.5)).all()
    assert {n for _, n in found.findings} == (set() if lie == "a thousandfold" else {2})


def test_moves_are_part_of_the_scale():
    def lie(told):
        given = told.reply.message.arrays
        return lying._with(told.reply, moves=given["moves"] * 1000)

    _, found = lied(federation("random"), {2: lie}, stages=("scale",))
    [(_, one)] = found.findings.items()
    assert "moves" in one.reason


def test_states_that_nobody_could_see_do_not_widen_the_range():
    def lie(told):
        counts = np.zeros_like(told.reply.message.arrays["range"])
        counts[:, -3] = told.reply.samples
        return lying._with(told.reply, range=counts)

    outcomes, found = lied(federation("edmd"), {2: lie})
    assert {n for _, n in found.findings} == {2}
    assert np.abs(outcomes[-1].state.arrays["model.high"]).max() < 40


# Claims


def test_claims_count_for_twice_the_median_of_the_others_and_a_little():
    e = federation("edmd")
    outcomes, found = lied(e, {2: lying.many})
    first = next(o.state.arrays for o in outcomes if o.record.get("stage") == "sums")
    counted = first["screen.counted"]
    assert found.changed[0] == (2, 2)
    assert not any(slot <= 2 or n != 2 for slot, n in found.findings)
    others = np.median(np.delete(counted, 2))
    assert counted[2] == 2 * others + 2 * LENGTH
    pairs = counted / LENGTH * (LENGTH - 1)
    assert first["sums.pairs"][0] == pytest.approx(pairs.sum(), rel=1e-9)


def test_later_claims_are_capped_together_with_earlier_ones():
    outcomes, _ = lied(federation("edmd"), {2: lying.many})
    counted = outcomes[-1].state.arrays["screen.counted"]
    held = 1  # segments that others may hold back, by the policy
    assert counted[2] <= 2 * np.median(np.delete(counted, 2)) + (2 + held) * LENGTH


def test_what_was_sent_before_does_no_harm_when_sent_again():
    e = federation("edmd")
    outcomes, _ = lied(e, {2: lying.replayed})
    assert error(outcomes) <= 1.3 * error(run(without(e, {2})))


# Parts


def test_more_than_half_of_the_sites_are_the_core_however_many_there_are():
    def among(n, others):
        [m] = others
        lies = (n % 5 == 1) + (m % 5 == 1)
        return Misfit({"one": 1.0 + 100 * lies + abs(n - m) / 1e3}, 1.0)

    for count in (3, 4, 5, 10, 17, 18, 40):
        found = core(list(range(count)), among)
        assert len(found) == count - (count - 1) // 2
        assert not any(n % 5 == 1 for n in found)


def test_errors_are_compared_at_the_same_number_of_samples():
    usual = [Misfit({"a": 4.0}, 100.0), Misfit({"a": 4.0}, 100.0)]
    assert times(Misfit({"a": 400.0}, 100.0), usual) == pytest.approx(10, rel=1e-4)
    assert times(Misfit({"a": 400.0}, 10.0), usual) == pytest.approx(10, rel=1e-4)
    assert times(Misfit({"a": 400.0}, 1600.0), usual) == pytest.approx(5, rel=1e-4)
    assert BOUND < times(Misfit({"a": 1e12}, 100.0), usual) <= IMPOSSIBLE


def test_the_misfit_from_most_samples_is_remembered():
    def told(n, **numbers):
        return {n: Answered(Message("sums", {}, numbers), 5, (n,))}

    state = remembered({}, told(0, counted=5.0, size=4.0, **{"misfit.a": 1.0}), 2)
    state = remembered(state, told(0, counted=5.0, size=3.0, **{"misfit.a": 9.0}), 2)
    state = remembered(state, told(2, counted=7.0, size=5.0, **{"misfit.a": 2.0}), 3)
    np.testing.assert_array_equal(state["screen.counted"], [10, 0, 7])
    np.testing.assert_array_equal(state["screen.misfit.a"], [1, 0, 2])
    assert remembered({}, told(0), 1) == {}
