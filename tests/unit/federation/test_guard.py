"""The guard: what judges say, what follows from it, and federations with a liar in them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from reference import koopman as twin
from reference.federations import (
    ARCHITECTURE,
    clients,
    experiment,
    final,
    first_weights,
    params_of,
    run,
)

from fedkoopman.federation.algorithm import Answered
from fedkoopman.federation.algorithms.fedavg_m import FedAvgM
from fedkoopman.federation.guard.evidence import (
    Evidence,
    copied,
    likeness,
    opinion,
    sketch,
)
from fedkoopman.federation.guard.guarded import Guarded
from fedkoopman.federation.guard.history import trust_entry, trust_sentences
from fedkoopman.federation.guard.judging import judge_message, judged
from fedkoopman.federation.guard.verdicts import (
    EXPECTED,
    FULL,
    MOST,
    capped,
    decided,
    first_standings,
)
from fedkoopman.federation.messages import ArrayField, Message
from fedkoopman.federation.options import AggregationOptions
from fedkoopman.federation.slot import fault_of
from fedkoopman.federation.streams import subseed

RANDOM = np.random.default_rng(0)


# What judges say


def test_a_judge_tells_the_training_loss_of_every_update() -> None:
    problem = experiment(algorithm=Guarded(FedAvgM())).problem
    given = first_weights(0)
    updates = [
        {name: leaf + 0.01 * RANDOM.standard_normal(leaf.shape) for name, leaf in given.items()}
        for _ in range(2)
    ]
    segments = [RANDOM.standard_normal((length, 3)) for length in (9, 1, 14)]
    request = judge_message(given, updates)
    reply = problem.algorithm.answer(problem, request, segments, None)  # type: ignore[arg-type]
    assert not fault_of(problem.algorithm.messages(problem), request, reply)
    pairs = [(s[k], s[k + 1]) for s in segments for k in range(len(s) - 1)]
    expected = [
        twin.batch_loss(params_of(one), pairs, problem.training.loss_weights)
        for one in (given, *updates)
    ]
    np.testing.assert_allclose(reply.arrays["current"], expected[:1], rtol=1e-10)
    np.testing.assert_allclose(reply.arrays["losses"], expected[1:], rtol=1e-10)
    assert reply.arrays["windows"][0] == len(pairs)


def test_a_judge_without_held_out_data_says_so() -> None:
    problem = experiment(algorithm=Guarded(FedAvgM())).problem
    reply = judged(problem, judge_message(first_weights(0), [first_weights(1)]), [np.zeros((1, 3))])
    assert reply.arrays["windows"][0] == 0


def said(losses: list[float], current: float = 1.0, windows: float = 100.0) -> Message:
    arrays = {"losses": losses, "current": [current], "windows": [windows]}
    return Message("judged", {name: np.array(values) for name, values in arrays.items()})


def test_the_lower_median_of_the_others_counts() -> None:
    honest = {n: said([math.exp(0.1 * n)]) for n in range(1, 4)}
    assert opinion(0, 0, honest) == (pytest.approx(0.2), 3)
    liars = {**honest, 4: said([1e30])}
    assert opinion(0, 0, liars) == (pytest.approx(0.2), 4)
    flattered = {**honest, 0: said([1e-30]), 4: said([0.0])}
    assert opinion(0, 0, flattered) == (pytest.approx(0.1), 4)  # not its own, and one liar


@pytest.mark.parametrize(
    "useless", [said([5.0], windows=0), said([5.0], current=math.nan), said([])], ids=str
)
def test_judges_that_know_nothing_do_not_count(useless: Message) -> None:
    assert opinion(0, 0, {1: said([2.0]), 2: said([2.0]), 3: useless})[1] == 2
    harm, judges = opinion(0, 0, {1: said([2.0]), 2: useless})
    assert math.isnan(harm) and judges == 1  # a single one may lie


def test_what_is_not_finite_is_the_worst() -> None:
    for loss in (math.nan, math.inf):
        assert opinion(0, 0, {n: said([loss]) for n in (1, 2)})[0] == math.inf


def test_a_long_sketch_keeps_lengths_and_angles() -> None:
    a, b = RANDOM.standard_normal((2, 100_000))
    b = 0.6 * a + 0.8 * b
    short = [sketch(one) for one in (a, b)]
    assert len(short[0]) < 5000
    cosine = short[0] @ short[1] / np.linalg.norm(short[0]) / np.linalg.norm(short[1])
    # A sum over m random signs has a standard deviation of about 1/√m.
    assert abs(cosine - a @ b / np.linalg.norm(a) / np.linalg.norm(b)) < 5 / math.sqrt(4096)
    assert np.linalg.norm(short[0]) == pytest.approx(np.linalg.norm(a), rel=5 / math.sqrt(4096))


def test_a_repeated_step_is_recognised_in_float32() -> None:
    step = RANDOM.standard_normal(500)
    base = (100 * RANDOM.standard_normal(500)).astype(np.float32)
    again = ((base + step.astype(np.float32)) - base).astype(np.float64)
    assert not np.array_equal(again, step) and copied(again, [np.zeros(500), step])
    assert not copied(RANDOM.standard_normal(500), [step])


def test_likeness_of_parallel_and_opposite_steps() -> None:
    step = RANDOM.standard_normal(50)
    length = float(np.linalg.norm(step))
    assert likeness(step, [step, step], length) == (pytest.approx(0), pytest.approx(1))
    assert likeness(-step, [step], length) == (pytest.approx(2), pytest.approx(-1))
    assert all(map(math.isnan, likeness(step, [], length)))


# What follows


def standings(count: int = 5, **changes: np.ndarray) -> dict[str, np.ndarray]:
    return {**first_standings(count, 4), "sizes": np.full((count, 4), 300.0), **changes}


def test_a_single_bad_update_is_refused_and_forgotten() -> None:
    after, found = decided(standings(), 9, {2: Evidence(1.0, 300, harm=1.0, judges=4)})
    assert not found[2].counts and "2.72 times as large" in found[2].reason
    assert not found[2].named and not after["set_aside"].any()
    for slot in range(10, 14):
        after, found = decided(after, slot, {2: Evidence(1.0, 300, harm=0.0, judges=4)})
        assert found[2].counts
    assert after["counter"][2] == 0.0


@pytest.mark.parametrize(
    "evidence, words",
    [
        (Evidence(1.0, 300, harm=3.1, judges=4), "22.2 times as large"),
        (Evidence(1.0, 300, harm=math.inf, judges=4), "times as large"),
        (Evidence(1.0, 10**6, harm=0.0, judges=4), "claims 1,000,000 samples, 3,333 times"),
        (Evidence(1.0, 300, harm=-0.1, judges=4, copy=True), "sends again"),
    ],
    ids=["ruinous", "not finite", "claim", "copy"],
)
def test_what_sets_a_site_aside_at_once(evidence: Evidence, words: str) -> None:
    after, found = decided(standings(), 9, {2: evidence})
    assert found[2].named and not found[2].counts and words in found[2].reason
    assert after["set_aside"].tolist() == [0, 0, 9, 0, 0]


def test_who_was_away_for_long_may_come_with_as_much_as_gathered_meanwhile() -> None:
    much = Evidence(1.0, 300 * 900, harm=0.0, judges=4)
    away = standings(last=np.array([999.0, 998.0, 50.0, 999.0, 997.0]))
    after, found = decided(away, 1000, {1: much, 2: much})
    assert found[2].counts and after["last"][2] == 1000
    assert found[1].named and "900 times" in found[1].reason


def test_small_harm_again_and_again_fills_the_counter() -> None:
    """The others' updates change the loss by 10 % either way; this one's raise it by 30 %."""
    quiet = np.tile([0.1, -0.1, 0.1, -0.1, 0.1, -0.1, 0.1, -0.1], (5, 1))
    after, slot = standings(harms=quiet), 0
    each = min(0.3 / 0.1, MOST) - EXPECTED
    while not after["set_aside"].any():
        slot += 1
        after, found = decided(after, slot, {1: Evidence(1.0, 300, harm=0.3, judges=4)})
    assert slot == math.ceil(FULL / each) and found[1].named
    assert "again and again" in found[1].reason
    # Where honest updates do as much either way, the same is nothing unusual.
    loud = standings(harms=4 * quiet)
    for slot in range(50):
        loud, found = decided(loud, slot + 1, {1: Evidence(1.0, 300, harm=0.3, judges=4)})
        assert found[1].counts


def test_a_mended_site_comes_back_after_three_good_updates() -> None:
    after, _ = decided(standings(), 5, {3: Evidence(1.0, 300, harm=9.0, judges=4)})
    good = Evidence(1.0, 300, harm=-0.2, judges=4)
    for slot in (6, 7):
        after, found = decided(after, slot, {3: good})
        assert not found[3].counts and "until" in found[3].reason
    after, found = decided(after, 8, {3: good})
    assert found[3].back and found[3].counts and not after["set_aside"].any()


def test_less_than_half_of_the_sites_are_set_aside() -> None:
    for count in range(1, 8):
        worst = {n: Evidence(1.0, 300, harm=9.0, judges=4) for n in range(count)}
        after, found = decided(standings(count), 3, worst)
        assert np.count_nonzero(after["set_aside"]) == (count - 1) // 2
        assert not any(one.counts for one in found.values())


def test_an_update_that_nobody_judged_counts() -> None:
    after, found = decided(standings(), 3, {0: Evidence(1.0, 300)})
    assert found[0].counts and after["counter"][0] == 0


def test_a_claim_buys_twice_the_usual_at_most() -> None:
    known = standings()
    assert capped(known, 0, 500) == 500 and capped(known, 0, 10**6) == 600
    assert capped(first_standings(5, 4), 0, 10**6) == 10**6  # nobody knows what is usual
    after, _ = decided(known, 1, {0: Evidence(1.0, 29_000, harm=0.0, judges=4)})
    assert after["sizes"][0, -1] == 600  # nor does it make more of it usual


# Federations


class Lying:
    """An algorithm in which one client alters what it sends, and calls other updates ruinous."""

    def __init__(self, inner: Guarded, liar: int, lie, first: int = 1) -> None:
        self.inner, self.liar, self.lie, self.first = inner, liar, lie, first

    def __getattr__(self, name: str):
        return getattr(self.inner, name)

    def answer(self, problem, request, segments, asked):
        reply = self.inner.answer(problem, request, segments, asked)
        own = asked.seed == subseed(problem.seed, "training", asked.slot, self.liar)
        if not own or asked.slot < self.first:
            return reply
        if request.kind == "judge":
            return replace(reply, arrays={**reply.arrays, "losses": np.full(9, 1e9)})
        steps = {n: leaf - request.arrays[n] for n, leaf in reply.arrays.items()}
        arrays = {n: request.arrays[n] + self.lie(leaf) for n, leaf in steps.items()}
        return Message(reply.kind, arrays)

    def review(self, *given):
        return self.inner.review(*given)

    def settle(self, *given):
        return self.inner.settle(*given)


LIES = {
    "not a number": lambda step: step * np.nan,
    "a thousand times": lambda step: 1000 * step,
    "flipped, 300 times": lambda step: -300 * step,
    "other weights": lambda step: np.ones_like(step),
}


def federation(**changes):
    return experiment(**{"clients": clients(5), "slots": 9, "test_trajectories": 2, **changes})


@pytest.fixture(scope="module")
def without():
    """The federation without its first client."""
    return run(federation(clients=clients(5)[1:], algorithm=Guarded(FedAvgM())))


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_liar_is_named_and_does_no_harm(lie, without) -> None:
    outcomes = run(federation(algorithm=Lying(Guarded(FedAvgM()), 0, lie, first=3)))
    named = [r["slot"] for r in (o.record for o in outcomes) if 0 in r.get("suspects", ())]
    assert named and named[0] <= 5
    assert outcomes[-1].record["suspects"] == [0]
    assert outcomes[-1].record["loss"] < 1.3 * without[-1].record["loss"]
    plain = run(federation(algorithm=_plain(lie)))
    worse = plain[-1].record["loss"]
    assert not worse < 3 * without[-1].record["loss"] or lie is LIES["not a number"]


def _plain(lie):
    """The same lies without a guard."""

    class Plain(Lying):
        review = settle = None  # type: ignore[assignment]

    found = Plain(FedAvgM(), 0, lie, first=3)  # type: ignore[arg-type]
    return found


def test_honest_updates_are_used_as_they_are() -> None:
    """With nothing refused or shortened, the guard leaves every model as it is."""
    plain = run(experiment(clients=clients(4)))
    kept = AggregationOptions(clip=1e9)
    guarded = run(experiment(clients=clients(4), algorithm=Guarded(FedAvgM()), aggregation=kept))
    rows = [row for o in guarded for row in o.record.get("trust", ())]
    assert rows and {row["became"] for row in rows} == {"used"}
    for one, other in zip(plain, guarded, strict=True):
        for name, leaf in one.state.arrays.items():
            assert np.array_equal(leaf, other.state.arrays[name]), name


def test_a_resumed_run_ends_with_the_same_model() -> None:
    lie = LIES["a thousand times"]
    e = federation(algorithm=Lying(Guarded(FedAvgM()), 0, lie, first=3), slots=7)
    whole = run(e)
    again = run(e, start=whole[4].state)
    assert final(again) == final(whole)
    assert again[-1].record["suspects"] == whole[-1].record["suspects"] == [0]


def test_long_updates_are_shortened() -> None:
    e = federation(algorithm=Guarded(FedAvgM()), aggregation=AggregationOptions(clip=0.5))
    outcomes = run(e)
    rows = [row for o in outcomes for row in o.record.get("trust", ())]
    assert sum(row["became"] == "shortened" for row in rows) > len(rows) / 2


def reply_to(given: dict, step: dict, samples: int = 40) -> Answered:
    update = {name: leaf + step[name] for name, leaf in given.items()}
    return Answered(Message("update", update), samples, (0,), Message("train", given))


def test_a_step_after_which_most_sites_are_ten_times_worse_is_undone() -> None:
    problem = experiment(clients=clients(3), algorithm=Guarded(FedAvgM())).problem
    guard = problem.algorithm
    state = guard.begin(problem)
    before = guard.model(problem, state)
    step = {name: np.full_like(leaf, 0.01) for name, leaf in before.items()}
    replies = {0: reply_to(before, step)}
    fine = {n: said([1.0]) for n in (1, 2)}
    state, told = guard.settle(problem, state, 1, replies, fine, {})
    moved = guard.model(problem, state)
    assert not told.get("rolled_back")
    assert all(not np.array_equal(moved[name], before[name]) for name in before)
    ruined = {n: said([12.0], current=12.0) for n in (1, 2)}
    state, told = guard.settle(problem, state, 2, {0: reply_to(moved, step)}, ruined, {})
    assert told["rolled_back"]
    after = guard.model(problem, state)
    assert all(np.array_equal(after[name], before[name]) for name in before)
    # One site alone, or a site that lies, undoes nothing.
    again, told = guard.settle(problem, state, 3, replies, fine, {})
    mixed = {1: said([12.0], current=12.0), 2: said([1.0])}
    _, told = guard.settle(problem, again, 4, {0: reply_to(moved, step)}, mixed, {})
    assert "rolled_back" not in told


def test_clients_that_are_enrolled_later_have_room() -> None:
    guard = Guarded(FedAvgM())
    few = experiment(clients=clients(3), algorithm=guard).problem
    many = experiment(clients=clients(5), algorithm=guard).problem
    state = guard.begin(few)
    model = guard.model(few, state)
    step = {name: np.full_like(leaf, 0.01) for name, leaf in model.items()}
    fine = {n: said([1.0]) for n in range(4)}
    after, told = guard.settle(many, state, 1, {4: reply_to(model, step)}, fine, {})
    assert told["trust"][0]["site"] == 4 and len(after["guard.standing.counter"]) == 5


def test_stacks_are_held_to_their_form() -> None:
    one = ArrayField((2, 3), "float64", rows=True)
    assert not one.fault("steps", np.zeros((4, 2, 3)))
    for wrong in ((2, 3), (0, 2, 3), (4, 3, 2), (1, 4, 2, 3), ()):
        assert one.fault("steps", np.zeros(wrong)), wrong
    numbers = ArrayField((), "float64", rows=True)
    assert not numbers.fault("losses", np.zeros(3)) and numbers.fault("losses", np.zeros((3, 1)))


# What people read

RECORDS = [
    {"slot": 3, "trust": [{"site": 1, "harm": 0.9, "became": "used"}]},
    {
        "slot": 4,
        "trust": [
            {"site": 0, "harm": 1.1, "became": "shortened"},
            {"site": 1, "harm": 40.0, "became": "refused", "why": "sends rubbish",
             "set_aside": True},
        ],
        "suspects": [1],
    },
    {"slot": 5, "rolled_back": True},
    {"slot": 9, "trust": [{"site": 1, "harm": 0.8, "became": "used", "back": True}]},
]  # fmt: skip


def test_sentences_name_the_suspect_and_why() -> None:
    lines = trust_sentences(RECORDS, ["lab-a", "lab-b"])
    assert lines[0] == (
        "Site lab-b was set aside in slot 4: it sends rubbish. It came back in slot 9."
    )
    assert lines[1].startswith("In slot 5 the model had become ten times worse")
    assert lines[-1] == "1 of 4 judged updates did not count."
    assert trust_sentences(RECORDS[:1]) == [
        "Nobody was set aside; 0 of 1 judged updates did not count."
    ]
    assert trust_sentences([{"slot": 1}]) == []


def test_the_summary_has_counts_and_medians_by_site() -> None:
    found = trust_entry(RECORDS)
    assert found is not None
    assert found["sites"]["client 1"] == {
        "updates": 3,
        "refused": 1,
        "shortened": 0,
        "harm": 0.9,
        "set_aside": [{"slot": 4, "why": "sends rubbish", "back": 9}],
    }
    assert trust_entry([{"slot": 1}]) is None


def test_the_tests_architecture_is_the_twins() -> None:
    assert ARCHITECTURE.window == ARCHITECTURE.depth == 1
