"""Every lie that `tests/deploy` tells through a whole federation, told to the server alone."""

import threading
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from deploy.lies import COUNTS, UPDATES

from fedkoopman.deploy.server.rounds import Answers, ask, site_of
from fedkoopman.deploy.server.standings import judged
from fedkoopman.deploy.server.validation import check_polled
from fedkoopman.deploy.wire import (
    Answered,
    Ask,
    Envelope,
    Failure,
    Poll,
    Polled,
    Request,
    encode_replies,
    message_digest,
)
from fedkoopman.errors import InputError
from fedkoopman.federation.messages import Message, Schema, arrays_like

LIAR, SLOT, SAMPLES = "lab-x", 4, 300
ENVELOPE = Envelope("study:0")
MODEL = {"encoder.0": np.ones((2, 3), np.float32), "operator": np.ones((2, 2), np.float32)}
UPDATE = {name: leaf + np.float32(0.01) for name, leaf in MODEL.items()}
REQUEST = Message("train", MODEL)
SCHEMAS = {
    "train": Schema("the model", arrays_like(MODEL), reply="update"),
    "update": Schema("a trained model", arrays_like(MODEL), changes=True),
}
ANSWER = Answered(LIAR, SLOT, message_digest(REQUEST), SAMPLES, Message("update", UPDATE))
COUNT = Polled(LIAR, SLOT, SAMPLES, 1)


class OneAnswer:
    """A fleet whose only site says what it is told to."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def online(self) -> Mapping[str, int]:
        return {LIAR: 1}

    def exchange(
        self, bodies: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        yield LIAR, self._answer


def answers(answer: bytes, request: Request) -> Answers:
    return ask(OneAnswer(answer), ENVELOPE, {LIAR: [request]}, 1.0, threading.Event())


def reason_against_update(answer: bytes) -> str:
    found = answers(answer, Ask(SLOT, REQUEST))
    (update,), accepted = judged(found, {LIAR: (0, SAMPLES, REQUEST)}, SLOT, SCHEMAS, ())
    assert bool(update.reason) != bool(accepted)
    return update.reason


def reason_against_count(answer: bytes) -> str:
    found = answers(answer, Poll(SLOT))
    [reply] = found.replies[LIAR]
    assert isinstance(reply, Polled)
    return check_polled(reply, SLOT, drawn=True)


def test_the_truth_is_believed() -> None:
    assert reason_against_update(encode_replies(ENVELOPE, [ANSWER])) == ""
    assert reason_against_count(encode_replies(ENVELOPE, [COUNT])) == ""


@pytest.mark.parametrize("name", UPDATES)
def test_a_lie_about_an_update_is_refused(name: str) -> None:
    lie, told = UPDATES[name]
    answer = lie(ENVELOPE, [ANSWER])
    reason = reason_against_update(answer)
    if told == "malformed":  # so a fleet says, which asks whose reply it is before anyone else
        assert reason
        with pytest.raises(InputError):
            site_of(answer)
    else:
        assert told in reason


@pytest.mark.parametrize("name", COUNTS)
def test_a_lie_about_counts_is_refused(name: str) -> None:
    lie, told = COUNTS[name]
    assert told in reason_against_count(lie(ENVELOPE, [COUNT]))
