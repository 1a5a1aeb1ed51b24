"""What is said arrives as it was said; whatever else arrives is refused in one line."""

import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.federations import experiment
from safetensors.numpy import save

from fedkoopman.deploy import wire
from fedkoopman.deploy.wire import (
    Acknowledge,
    Acknowledged,
    Answered,
    Ask,
    Envelope,
    Evaluate,
    Evaluated,
    Mask,
    Masked,
    Offer,
    Offered,
    Poll,
    Polled,
    Refused,
    Share,
    Shared,
    Unmask,
    Unmasked,
    decode_replies,
    decode_requests,
    digest_of,
    encode_replies,
    encode_requests,
    message_digest,
)
from fedkoopman.errors import InputError
from fedkoopman.federation.messages import Message

ENVELOPE = Envelope("a" * 64 + ":0")
MODEL = {"encoder.0": np.arange(6, dtype=np.float32).reshape(2, 3), "operator": np.eye(2)}


def said(header: object, tensors: dict[str, np.ndarray] | None = None) -> bytes:
    """A body with any header."""
    text = json.dumps(header).encode()
    return struct.pack(">I", len(text)) + text + save(tensors or {})


def header(*entries: object, **envelope: object) -> dict[str, object]:
    about = {"study": "s", "version": "1", "protocol": wire.PROTOCOL, **envelope}
    return {"envelope": about, "said": list(entries)}


def same(one: object, other: object) -> bool:
    """Equal, tensors bit for bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, Message) and isinstance(other, Message):
        return same(vars(one), vars(other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return one == other


@pytest.mark.parametrize(
    "batch",
    [
        [Poll(3)],
        [Acknowledge(4, 0), Evaluate(4, MODEL, measure=True), Poll(5)],
        [Ask(7, Message("train", MODEL))],
        [Offer(7, "ab"), Share(7, "ab", 2, {"0": b"\x00\xff", "1": b"k"})],
        [Mask(7, "ab", {"1": b"sealed"}, Message("train", MODEL)), Unmask(7, "ab", ("0", "10"))],
        [],
    ],
)
def test_requests_arrive_as_they_were_made(batch: list) -> None:
    envelope, found = decode_requests(encode_requests(ENVELOPE, batch))
    assert envelope == ENVELOPE
    assert [type(one) for one in found] == [type(one) for one in batch]
    assert all(same(vars(a), vars(b)) for a, b in zip(found, batch, strict=True))


def test_replies_arrive_as_they_were_made() -> None:
    batch = [
        Polled("lab-a", 3, 600, 2),
        Answered("lab-a", 3, "b" * 64, 600, Message("update", MODEL, {"n": 3.0, "x": math.nan})),
        Evaluated("lab-a", 3, "b", 2, {"l1": 0.5, "E": math.nan}, {"x": np.ones(3)}, {"n": [None]}),
        Acknowledged("lab-a", 3),
        Refused("lab-a", "another study: ask for a new kit"),
    ]
    masked = [
        Offered("lab-a", 3, "ab", bytes(range(64))),
        Shared("lab-a", 3, "ab", {"1": b"sealed", "2": b""}),
        Masked("lab-a", 3, "ab", "b" * 64, "update", np.array([0, 2**64 - 1], np.uint64)),
        Unmasked("lab-a", 3, "ab", {"0": b"seed"}, {}),
    ]
    for said in (batch, masked):
        _, found = decode_replies(encode_replies(ENVELOPE, said))
        assert all(same(vars(a), vars(b)) for a, b in zip(found, said, strict=True))


def test_a_masked_vector_consists_of_words() -> None:
    masked = {"kind": "masked", "site": "a", "slot": 1, "session": "s", "base": "b", "reply": "u"}
    for length, tensor in (
        (3, np.zeros(3)),
        (2, np.zeros(3, np.uint64)),
        (3, np.zeros((3, 1), np.uint64)),
        ("3", np.zeros(3, np.uint64)),
    ):
        with pytest.raises(InputError, match=r"words|count"):
            decode_replies(said(header({**masked, "words": length}), {"0/words": tensor}))


def test_networks_survive_and_others_are_refused() -> None:
    architecture = experiment().architecture
    weights = architecture.initialise(seed=1)
    tensors = architecture.named(weights)
    again = architecture.named(architecture.from_named(tensors))
    assert same(again, tensors)
    assert digest_of(again) == digest_of(tensors)
    assert message_digest(Message("a", again, {"n": 1})) == message_digest(
        Message("a", tensors, {"n": 1.0})
    )
    assert message_digest(Message("a", again)) != message_digest(Message("b", again))
    assert message_digest(Message("a", again)) != message_digest(Message("a", again, {"n": 1}))
    changed = {**tensors, "operator": np.nextafter(tensors["operator"], 1, dtype=np.float32)}
    assert digest_of(changed) != digest_of(tensors)
    with pytest.raises(InputError, match="shape"):
        architecture.from_named({**tensors, "operator": np.zeros((2, 2))})
    with pytest.raises(InputError, match="not among the tensors"):
        architecture.from_named({**tensors, "extra": np.zeros(1)})


POLL = {"kind": "poll", "slot": 1}
MESSAGE = {"kind": "train", "numbers": {}, "arrays": ["a"]}
TRAIN = {"kind": "ask", "slot": 1, "message": MESSAGE}
OFFER = {"kind": "offer", "slot": 1, "session": "ab"}
SHARE = {"kind": "share", "slot": 1, "session": "ab", "threshold": 2, "keys": {"0": "00ff"}}


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"", "cannot be read"),
        (b"\xff" * 100, "cannot be read"),
        (said(header({"kind": "raw_data"})), "no request or reply 'raw_data'"),
        (said(header({"kind": "read", "path": "/etc/passwd"})), "no request"),
        (said(header({**POLL, "path": "data/swing.csv"})), "fields of poll"),
        (said(header({"kind": "poll"})), "fields of poll"),
        (said(header({**POLL, "slot": -1})), "no count"),
        (said(header({**POLL, "slot": 1.5})), "no count"),
        (said(header({**POLL, "slot": True})), "no count"),
        (said(header({**POLL, "slot": 10**400})), "no count"),
        (said(header(*[POLL] * 9)), "not a batch"),
        (said(header(POLL, protocol=1)), "install the same version"),
        (said({**header(POLL), "code": "import os"}), "unknown fields"),
        (said(header(POLL), {"more": np.zeros(2)}), "unknown tensors"),
        (said(header(TRAIN)), "cannot be read"),
        (
            said(header(TRAIN), {"0/message/a": np.zeros(2, int)}),
            "float32 or float64",
        ),
        (said(header({**TRAIN, "message": []})), "cannot be read"),
        (said(header({**TRAIN, "message": {**MESSAGE, "code": "x"}})), "fields of a message"),
        (said(header({**TRAIN, "message": {**MESSAGE, "numbers": {"n": "1"}}})), "no number"),
        (said(header({**TRAIN, "message": {**MESSAGE, "kind": 3}})), "no text"),
        (said(header({**OFFER, "session": 3})), "no text"),
        (said(header({**SHARE, "keys": {"0": "0g"}})), "cannot be read"),
        (said(header({**SHARE, "keys": {"0": 3}})), "no text"),
        (said(header({**SHARE, "keys": ["00"]})), "bytes by name"),
        (said(header({**SHARE, "threshold": -1})), "no count"),
        (said(header({**OFFER, "kind": "unmask", "sent": "01"})), "list of texts"),
        (said([]), "cannot be read"),
        (b"\x00\x00\x00\x02{}", "cannot be read"),
        (said(header({"kind": "poll", "slot": 1}))[:-1], "cannot be read"),
        (b"\x7f\xff\xff\xff" + b"{" * 10, "cut off or too long"),
        (bytes(wire.LARGEST + 1), "more than"),
    ],
)  # fmt: skip
def test_anything_else_is_refused(body: bytes, cause: str) -> None:
    with pytest.raises(InputError, match=cause) as caught:
        decode_requests(body)
    assert "\n" not in str(caught.value)


def test_a_reply_is_no_request() -> None:
    with pytest.raises(InputError, match="no request"):
        decode_requests(encode_replies(ENVELOPE, [Acknowledged("a", 1)]))


def test_texts_of_several_lines_are_refused() -> None:
    body = said(header({"kind": "refused", "site": "a", "reason": "x\nERROR forged line"}))
    with pytest.raises(InputError, match="no text of one line"):
        decode_replies(body)


def test_what_is_too_large_is_not_sent() -> None:
    with pytest.raises(InputError, match="larger than"):
        encode_requests(
            ENVELOPE, [Ask(1, Message("train", {"a": np.zeros(wire.LARGEST // 8 + 1)}))]
        )


@settings(max_examples=200)
@given(data=st.data())
def test_damaged_bodies_are_refused_or_still_well_formed(data: st.DataObject) -> None:
    """A flipped bit never gets through as anything but a well-formed batch."""
    body = bytearray(encode_requests(ENVELOPE, [Acknowledge(4, 2), Evaluate(4, MODEL), Poll(5)]))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        _, found = decode_requests(bytes(body))
    except InputError:
        return
    assert all(type(one) in wire.REQUESTS.values() for one in found)
