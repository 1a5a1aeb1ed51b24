"""What a site sends against the rules is held against it, and ends nothing: one liar cannot keep
the others from their model."""

import json
import math
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from fedkoopman.deploy.server.rounds import Answers, ask
from fedkoopman.deploy.server.scores import believed_sums, check_measured, check_table
from fedkoopman.deploy.server.standings import judged
from fedkoopman.deploy.server.validation import check_polled
from fedkoopman.deploy.wire import (
    Ask,
    Envelope,
    Failure,
    Polled,
    Refused,
    Reply,
    decode_replies,
    encode_replies,
)
from fedkoopman.federation.messages import Message
from fedkoopman.koopman.kinds.paper import PaperNetwork

ENVELOPE = Envelope("study:0")
MODEL = {"operator": np.eye(2)}
HORIZON = 3


class OneAnswer:
    """A fleet whose only site says what it is told to."""

    def __init__(self, answer: bytes | Failure) -> None:
        self._answer = answer

    def online(self) -> Mapping[str, int]:
        return {"a": 1}

    def exchange(
        self, bodies: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        yield "a", self._answer


def answers(answer: bytes | Failure) -> Answers:
    requests = {"a": [Ask(1, Message("train", MODEL))]}
    return ask(OneAnswer(answer), ENVELOPE, requests, 1.0, threading.Event())


def replies(*said: Reply) -> bytes:
    return encode_replies(ENVELOPE, said)


def test_a_reply_that_was_broken_on_arrival_counts_against_the_site() -> None:
    for reason in ("sends a reply of other parts", "speaks for 'b'"):
        found = answers(Failure(reason, broken=True))
        assert found.broken == {"a": reason} and not found.failures and not found.replies
    found = answers(Failure("its node is not online"))
    assert found.failures == {"a": "its node is not online"} and not found.broken


def test_one_refusal_is_a_refusal_and_two_are_nonsense() -> None:
    one = answers(replies(Refused("a", "not now")))
    assert one.failures == {"a": "not now"} and not one.broken
    two = answers(replies(Refused("a", "no"), Refused("a", "no")))
    assert two.broken == {"a": "answers ['Refused', 'Refused']"} and not two.replies
    ((update,), accepted) = judged(two, {"a": (0, 300, Message("train", MODEL))}, 1, {}, ())
    assert not accepted
    assert update.reason and not update.answered


def test_reasons_are_lines_that_do_nothing_to_a_terminal() -> None:
    for evil in ("\x1b]0;owned\x07 x", "a\nREJECTED in slot 1: site b", "\u202eabc", "\x9b2J"):
        for answer in (Failure(evil), Failure(evil, broken=True)):
            found = answers(answer)
            [told] = (found.broken or found.failures).values()
            assert told.isprintable()
    header = json.dumps({"envelope": vars(ENVELOPE), "said": [{"kind": "polled", "\x1b[2J": 1}]})
    body = len(header).to_bytes(4, "big") + header.encode() + b"\x02" + b"\0" * 7 + b"{}"
    [told] = answers(body).broken.values()
    assert "fields of polled are ?[2J" in told and told.isprintable()


def table(**changes: Any) -> dict[str, Any]:
    rows = [[0.1, None], None, [0.2, 0.3]]
    return {
        "state_error": rows,
        "observation_error": rows,
        "held_error": rows,
        "train_segments": 3,
        "train_samples": 900,
        "held_out_segments": 1,
        "dropped": ["2 of its segments"],
        "observation_noise": [0.1],
        "process_noise": [0.0, 1e-6],
    } | changes


def test_an_honest_table_stands_in_the_summary() -> None:
    assert check_table(table(), HORIZON) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"observation_noise": [math.inf]},
        {"observation_noise": [10**4000]},
        {"process_noise": [-1.0]},
        {"process_noise": [True]},
        {"held_error": [[math.inf], None, None]},
        {"state_error": [[0.1]] * (HORIZON + 1)},
        {"state_error": [[0.1] * 10**4] * HORIZON},
        {"train_samples": 10**400},
        {"train_segments": 1.0},
        {"dropped": ["x"] * 10**4},
        {"dropped": [{"x": 1}]},
        {"more": "<script>"},
    ],
)
def test_tables_that_would_spoil_the_summary(changes: dict[str, Any]) -> None:
    assert check_table(table(**changes), HORIZON)


def test_numbers_too_large_for_json_arrive_as_infinity() -> None:
    """The reason why finiteness is looked at: `1e999` is JSON, and no number."""
    header = {"envelope": vars(ENVELOPE), "said": []}
    said = {"kind": "evaluated", "site": "a", "slot": 1, "base": "", "windows": 0}
    said |= {"metrics": {}, "measured": [], "scores": {"observation_noise": ["HUGE"]}}
    text = json.dumps(header | {"said": [said]}).replace('"HUGE"', "1e999").encode()
    empty = replies()
    tensors = empty[4 + int.from_bytes(empty[:4], "big") :]
    _, [reply] = decode_replies(len(text).to_bytes(4, "big") + text + tensors)
    assert reply.scores["observation_noise"] == [math.inf]
    assert check_table(table(**reply.scores), HORIZON) == "has no numbers observation_noise"


def sums(**changes: Any) -> dict[str, Any]:
    return {
        "states": np.array([10.0, 20.0]),
        "count": np.array([100.0]),
        "moments": np.stack([np.eye(3), 2 * np.eye(3)]),
        "counts": np.array([90.0, 80.0]),
        "spans": np.array([90.0, 45.0]),
    } | changes


@pytest.mark.parametrize(
    "moment",
    [np.eye(3) - 2 * (1 - np.eye(3)), np.triu(np.ones((3, 3))), -np.eye(3)],
    ids=["indefinite", "not-symmetric", "negative"],
)
def test_moments_that_are_none(moment: np.ndarray) -> None:
    assert "moments" in check_measured(
        sums(moments=np.stack([np.eye(3), moment])), PaperNetwork(2, 3)
    )


def test_honest_moments_pass_whatever_their_size() -> None:
    errors = np.random.default_rng(0).normal(size=(3, 50))
    for scale in (1e-150, 1.0, 1e150):
        moments = np.stack([scale * errors @ errors.T] * 2)
        assert check_measured(sums(moments=moments), PaperNetwork(2, 3)) == ""
    assert check_measured(sums(moments=np.zeros((2, 3, 3))), PaperNetwork(2, 3)) == ""


@pytest.mark.parametrize(
    "changes", [{"states": np.array([1e300, 0.0])}, {"moments": np.stack([1e300 * np.eye(3)] * 2)}]
)
def test_sums_far_from_all_others_are_left_out(changes: dict[str, Any]) -> None:
    honest = {"a": sums(), "b": sums(), "c": sums()}
    assert list(believed_sums({**honest, "x": sums(**changes)})) == ["a", "b", "c"]
    assert list(believed_sums(honest)) == ["a", "b", "c"]
    assert list(believed_sums({"a": sums(), "x": sums(**changes)})) == ["a", "x"]  # who lies?


def test_a_count_of_another_slot_is_none() -> None:
    assert check_polled(Polled("a", 3, 300, 1), 3, True) == ""
    assert check_polled(Polled("a", 2, 300, 1), 3, True) == "counts for slot 2, not 3"
