"""Lying sites of `benchmarks/trust.py`: every attack by its closed form, nothing else altered."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from reference.federations import assert_same_run, clients, experiment, final, flat, run

from fedkoopman.federation.algorithm import Answered, Asked
from fedkoopman.federation.algorithms.fedavg_m import FedAvgM
from fedkoopman.federation.messages import Message
from fedkoopman.federation.streams import subseed

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def attacks():
    """The module, which is in no package."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("trust_attacks")
    finally:
        sys.path.remove(str(BENCHMARKS))


E = experiment(clients=clients(3, probability=1.0))


class Walk(FedAvgM):
    """Every site's step depends on slot and site alone, so that what is sent has a closed form."""

    def answer(self, problem, request, segments, asked):
        random = np.random.default_rng(asked.seed)
        moved = {n: x + random.normal(size=x.shape) for n, x in request.arrays.items()}
        return Message("update", moved)


def asked_of(site, slot):
    return Asked(slot, subseed(E.seed, "training", slot, site), 1e-3)


def sent(lying, slots, site=0):
    """w, the honest step and what is sent in each of some slots."""
    w = Message("train", FedAvgM().begin(E.problem))
    found = []
    for slot in slots:
        honest = Walk().answer(E.problem, w, [], asked_of(site, slot))
        reply = lying.answer(E.problem, w, [], asked_of(site, slot))
        found.append((flat(w.arrays), flat(honest.arrays) - flat(w.arrays), flat(reply.arrays)))
        w = Message("train", {n: x * 1.1 for n, x in w.arrays.items()})
    return found


def test_without_a_lie_nothing_changes(attacks):
    plain = run(E)
    assert_same_run(
        run(experiment(clients=E.clients, algorithm=attacks.Lying(E.algorithm, [0], "none", 1))),
        plain,
    )
    late = attacks.Lying(E.algorithm, [0], "flip", 99)
    assert_same_run(run(experiment(clients=E.clients, algorithm=late)), plain)
    early = attacks.Lying(E.algorithm, [0], "flip", 1)
    assert final(run(experiment(clients=E.clients, algorithm=early))) != final(plain)


def test_only_the_liar_lies_and_only_from_its_first_slot_on(attacks):
    lying = attacks.Lying(Walk(), [1], "flip", 5)
    for site, slot, factor in ((0, 9, 1), (1, 4, 1), (1, 5, -1), (2, 5, 1)):
        [(w, step, found)] = sent(lying, [slot], site)
        np.testing.assert_allclose(found, w + factor * step, rtol=1e-12, atol=1e-12)


FACTORS = {"times-3": 3, "times-30": 30, "times-100": 100, "flip": -1, "flip-times-3": -3,
           "million": -1, "tenfold": -1, "nothing": 0}  # fmt: skip


@pytest.mark.parametrize("attack", FACTORS)
def test_multiples(attacks, attack):
    [(w, step, found)] = sent(attacks.Lying(Walk(), [0], attack, 1), [1])
    np.testing.assert_allclose(found, w + FACTORS[attack] * step, rtol=1e-12, atol=1e-12)


def norm(x):
    return np.linalg.norm(x)


def test_random_steps_and_weights_have_plausible_lengths(attacks):
    (w, step, one), (w2, step2, two) = sent(attacks.Lying(Walk(), [0], "random", 1), [1, 2])
    assert norm(one - w) == pytest.approx(norm(step)) and norm(two - w2) == pytest.approx(
        norm(step2)
    )
    assert abs((one - w) @ (two - w2)) < 0.5 * norm(step) * norm(step2)
    [(w, step, found)] = sent(attacks.Lying(Walk(), [0], "random-weights", 1), [1])
    assert norm(found) == pytest.approx(norm(w)) and abs(found @ w) < 0.5 * norm(w) ** 2


def test_repetitions(attacks):
    slots = [1, 2, 3, 4]  # lies from slot 3 on
    for attack in ("yesterday", "copy", "old-model", "constant"):
        first, second, third, fourth = sent(attacks.Lying(Walk(), [0], attack, 3), slots)
        before = second[2] - second[0]
        if attack == "yesterday":
            np.testing.assert_allclose(third[2] - third[0], before, atol=1e-12)
            np.testing.assert_allclose(fourth[2] - fourth[0], before, atol=1e-12)
        if attack == "copy":
            apart = norm(third[2] - third[0] - before) / norm(before)
            assert 0.04 < apart < 0.06 and norm(third[2] - third[0]) == pytest.approx(norm(before))
        if attack == "old-model":
            np.testing.assert_array_equal(third[2], second[2])
            np.testing.assert_array_equal(fourth[2], second[2])
        if attack == "constant":
            np.testing.assert_array_equal(third[2], fourth[2])
            assert not np.array_equal(second[2], third[2])
        np.testing.assert_allclose(first[2], first[0] + first[1], rtol=1e-12)


@pytest.mark.parametrize(
    ("attack", "honest", "share"),
    [("drift", 1, 1), ("half-drift", 0.5, 0.5), ("tenth-drift", 0.9, 0.1)],
)
def test_liars_drift_together_in_one_direction(attacks, attack, honest, share):
    lying = attacks.Lying(Walk(), [0, 2], attack, 1)
    rows = sent(lying, [1, 2]) + sent(lying, [2], site=2)
    drifts = [(found - w - honest * step) / norm(step) for w, step, found in rows]
    for drift in drifts:
        assert norm(drift) == pytest.approx(share)
        np.testing.assert_allclose(drift, drifts[0], atol=1e-10)


def test_nan_is_refused(attacks):
    lying = attacks.Lying(E.algorithm, [0], "nan", 2)
    records = [one.record for one in run(experiment(clients=E.clients, algorithm=lying))]
    assert [record.get("refused", []) for record in records[1:]] == [[], [0], [0], [0]]


def test_a_million_claimed_samples_decide_the_mean(attacks):
    w = FedAvgM().begin(E.problem)
    moved = {k: {n: x + k for n, x in w.items()} for k in (1.0, 2.0)}
    replies = {k: Answered(Message("update", moved[k + 1.0]), 100, (k,)) for k in (0, 1)}
    for attack, weight in (("flip", 100), ("tenfold", 1000), ("million", 10**6)):
        lying = attacks.Lying(Walk(), [1], attack, 1)
        found, _ = lying.conclude(E.problem, w, 1, replies)
        expected = (100 * 1.0 + weight * 2.0) / (100 + weight)
        np.testing.assert_allclose(flat(found) - flat(w), expected, rtol=1e-9)


class Judging(Walk):
    """An algorithm with a second exchange."""

    def review(self, problem, state, slot, replies, present):
        return dict.fromkeys(present, Message("judge"))

    def settle(self, problem, state, slot, replies, reviews, broken):
        return state, {"samples": [one.samples for one in replies.values()], "broken": broken}

    def answer(self, problem, request, segments, asked):
        if request.kind != "judge":
            return super().answer(problem, request, segments, asked)
        arrays = {"losses": np.ones(3), "current": np.full(1, 2.0), "windows": np.ones(1)}
        return Message("judged", arrays)

    def messages(self, problem):
        judged = super().messages(problem)["train"]
        return {**super().messages(problem), "judge": judged, "judged": judged}


def test_liars_lie_as_judges_where_there_are_judges(attacks):
    assert not hasattr(attacks.Lying(Walk(), [0], "million", 1), "review")
    lying = attacks.Lying(Judging(), [1, 4], "million", 1)
    replies = {n: Answered(Message("update", {}), 100, (n,)) for n in (0, 1, 2)}
    asked = lying.review(E.problem, {}, 1, replies, [0, 1, 2, 4])
    honest = lying.answer(E.problem, asked[0], [], asked_of(0, 1)).arrays["losses"]
    np.testing.assert_array_equal(honest, np.ones(3))
    for liar in (1, 4):
        false = lying.answer(E.problem, asked[liar], [], asked_of(liar, 1)).arrays
        times = false["losses"] / false["current"]
        assert (times[[0, 2]] > 100).all() and times[1] < 1
    _, told = lying.settle(E.problem, {}, 1, replies, {}, {3: "sends NaN"})
    assert told == {"samples": [100, 10**6, 100], "broken": {3: "sends NaN"}}
