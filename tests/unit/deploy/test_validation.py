"""What the server believes: every rule refuses a reply, and lets an honest one pass."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedkoopman.deploy.server.scores import (
    believed_scores,
    believed_sums,
    check_evaluated,
    check_measured,
)
from fedkoopman.deploy.server.validation import (
    ENOUGH,
    FIRST,
    TIMES,
    Accepted,
    Expected,
    check_answered,
    check_polled,
    norm_bound,
)
from fedkoopman.deploy.wire import Answered, Evaluated, Polled, message_digest
from fedkoopman.evaluation import Metrics
from fedkoopman.federation.messages import Message, NumberField, Schema, arrays_like
from fedkoopman.koopman.kinds.paper import PaperNetwork

MODEL = {"encoder.0": np.ones((2, 3), np.float32), "operator": np.ones((2, 2), np.float32)}
SCHEMAS = {
    "train": Schema("the model", arrays_like(MODEL), reply="update"),
    "update": Schema("a trained model", arrays_like(MODEL), changes=True),
    "count": Schema("nothing", reply="counted", data="arrived"),
    "counted": Schema("counts", {}, {"n": NumberField(0, 1e6, whole=True)}),
}
REQUEST = Message("train", MODEL)
ASKED = Expected("a", 4, REQUEST, 200, SCHEMAS)
BASE = message_digest(REQUEST)
RECENT = [Accepted(0.1, 200)] * ENOUGH


def update(step: float = 0.01, **changes: Any) -> Answered:
    model = {name: leaf + np.float32(step) for name, leaf in MODEL.items()}
    if "model" in changes:
        changes["message"] = Message("update", changes.pop("model"))
    return replace(Answered("a", 4, BASE, 200, Message("update", model)), **changes)


def changed(**leaves: Any) -> dict[str, Any]:
    return {**update().message.arrays, **leaves}


def test_an_honest_update_is_accepted_with_its_norm() -> None:
    verdict = check_answered(update(0.01), ASKED, RECENT)
    assert verdict.reason == "" and not verdict.stale
    assert verdict.norm == pytest.approx(0.01 * math.sqrt(10), rel=1e-4)


@pytest.mark.parametrize(
    "reply, reason, stale",
    [
        (update(site="b"), "speaks for 'b'", True),
        (update(slot=3), "for slot 3, not 4", True),
        (update(base="other"), "another message", True),
        (update(samples=400), "claims 400 samples where 200", False),
        (update(samples=0), "claims 0 samples", False),
        (
            update(model={"operator": MODEL["operator"]}),
            "sends 'update' without 'encoder.0'",
            False,
        ),
        (update(message=Message("train", MODEL)), "sends 'train' in answer to 'train'", False),
        (
            update(message=Message("update", MODEL, {"n": 1.0})),
            "'update' with 'n', which it does not have",
            False,
        ),
        (update(model=changed(operator=np.ones((3, 3), np.float32))), "of shape (3, 3)", False),
        (update(model=changed(operator=np.ones((2, 2)))), "as float64, not float32", False),
        (
            update(model=changed(operator=np.full((2, 2), np.inf, np.float32))),
            "not finite",
            False,
        ),
        (update(1.0), "changes the model by 3.162, more than 1", False),
        (update(3e38), "changes the model by", False),
    ],
)
def test_every_rule_refuses(reply: Answered, reason: str, stale: bool) -> None:
    verdict = check_answered(reply, ASKED, RECENT)
    assert reason in verdict.reason and verdict.stale == stale


def test_nothing_waiting_means_nothing_to_train_on() -> None:
    assert "claims 0" in check_answered(update(samples=0), ASKED._replace(samples=0), []).reason


@pytest.mark.parametrize(
    "number, reason",
    [
        (3.0, ""),
        (-1.0, "not from 0 to 1e+06"),
        (2.5, "not a whole number"),
        (math.nan, "not from"),
        (math.inf, "not from"),
    ],
)
def test_numbers_are_held_to_their_range(number: float, reason: str) -> None:
    """An answer that spends no data may come from any number of samples."""
    asked = ASKED._replace(request=Message("count"))
    message = Message("counted", {}, {"n": number})
    reply = Answered("a", 4, message_digest(asked.request), 7, message)
    verdict = check_answered(reply, asked, RECENT)
    assert reason in verdict.reason and bool(reason) == bool(verdict.reason)
    assert math.isnan(verdict.norm)


def test_the_first_updates_are_bound_by_the_model_alone() -> None:
    assert norm_bound(2.0, 200, []) == FIRST * 2.0
    assert norm_bound(2.0, 200, RECENT[1:]) == FIRST * 2.0


def test_later_ones_are_bound_by_recent_ones_and_by_their_data() -> None:
    assert norm_bound(2.0, 200, RECENT) == pytest.approx(TIMES * 0.1)
    assert norm_bound(2.0, 50, RECENT) == pytest.approx(TIMES * 0.1)
    assert norm_bound(2.0, 1000, RECENT) == pytest.approx(5 * TIMES * 0.1)
    assert norm_bound(2.0, 10**9, RECENT) == FIRST * 2.0
    one_liar = [*RECENT, Accepted(1e6, 200)]
    assert norm_bound(2.0, 200, one_liar) == pytest.approx(TIMES * 0.1)


@pytest.mark.parametrize(
    "buffered, segments, drawn, reason",
    [
        (0, 0, True, ""),
        (900, 3, True, ""),
        (900, 3, False, ""),
        (10**6, 5, False, ""),
        (900, 0, False, "in 0 segments"),
        (0, 2, False, "0 samples in 2"),
        (2, 3, False, "2 samples in 3"),
        (900, 5, True, "one arrives per slot"),
        (3 * 10**6, 2, True, "more than is plausible"),
        (2 * 10**9, 10**5, False, "more than is plausible"),
    ],
)
def test_counts_are_plausible(buffered: int, segments: int, drawn: bool, reason: str) -> None:
    found = check_polled(Polled("a", 4, buffered, segments), 4, drawn)
    assert reason in found and bool(found) == bool(reason)


METRICS = Metrics(0.1, 0.2, 0.3, 0.4, 0.5, 7.0)


def scores(**changes: Any) -> Evaluated:
    return replace(Evaluated("a", 3, "base", 4, METRICS._asdict()), **changes)


@pytest.mark.parametrize(
    "reply, reason",
    [
        (scores(), ""),
        (scores(windows=0, metrics={}), ""),
        (scores(metrics=dict.fromkeys(Metrics._fields, math.nan)), ""),
        (scores(site="b"), "speaks for"),
        (scores(slot=2), "another model"),
        (scores(base="other"), "another model"),
        (scores(windows=11), "11 held-out windows where 10"),
        (scores(metrics={"l1": 1.0}), "sends the scores"),
        (scores(metrics=METRICS._replace(l2=-1.0)._asdict()), "below zero"),
        (scores(metrics=METRICS._replace(horizon=101.0)._asdict()), "101 valid steps of 100"),
    ],
)
def test_scores_are_plausible(reply: Evaluated, reason: str) -> None:
    found = check_evaluated(reply, "a", 3, "base", most=10, steps=100)
    assert reason in found and bool(found) == bool(reason)


def test_all_honest_scores_count() -> None:
    given = {name: (METRICS._replace(l1=value), 3) for name, value in (("a", 0.1), ("b", 1e4))}
    assert believed_scores(given) == (given, ())


def test_a_model_that_diverged_everywhere_is_told_as_it_is() -> None:
    given = {name: (METRICS._replace(l1=math.nan), 3) for name in "ab"}
    assert believed_scores(given)[1] == ()


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e300])
def test_one_site_does_not_spoil_the_mean(value: float) -> None:
    given = {name: (METRICS, 3) for name in "abc"}
    given["b"] = METRICS._replace(e2=value), 3
    believed, left_out = believed_scores(given)
    assert left_out == ("b",) and list(believed) == ["a", "c"]


def sums(**changes: Any) -> dict[str, Any]:
    good = {
        "states": np.ones(2),
        "count": np.array([600.0]),
        "moments": np.stack([np.eye(3)] * 4),
        "counts": np.full(4, 100.0),
        "spans": np.full(4, 25.0),
    }
    return {**good, **changes}


@pytest.mark.parametrize(
    "given, reason",
    [
        (sums(), ""),
        (sums(moments=np.full((4, 3, 3), np.nan)), ""),  # as it is where a model diverged
        (sums(more=np.ones(2)), "sends the sums"),
        ({}, "sends the sums"),
        (sums(states=np.ones(3)), "states of shape (3,)"),
        (sums(moments=np.ones((4, 2, 2))), "moments of shape"),
        (sums(moments=np.ones((3, 3, 3))), "moments of shape"),
        (sums(spans=np.ones(4, np.float32)), "spans of shape"),
        (sums(counts=np.zeros(4)), "sums of nothing"),
        (sums(count=np.array([1e12])), "too much"),
        (sums(count=np.array([np.nan])), "sums of nothing"),
        (sums(moments=-np.stack([np.eye(3)] * 4)), "squares below zero"),
        (sums(counts=np.array(1.0)), "shape"),
    ],
)
def test_sums_have_the_form_of_the_models(given: dict[str, Any], reason: str) -> None:
    found = check_measured(given, PaperNetwork(2, 3))
    assert reason in found and bool(found) == bool(reason)


def test_sums_that_are_not_finite_count_only_if_all_are() -> None:
    bad, good = sums(states=np.full(2, np.nan)), sums()
    assert believed_sums({"a": bad, "b": good}) == {"b": good}
    assert believed_sums({"a": bad}) == {"a": bad}
