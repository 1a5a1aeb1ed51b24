"""What server and sites say to each other: a closed, versioned list of requests, and their replies.

A body is one batch: a JSON header that says what is said, then the tensors it names, as
safetensors. Nothing in it is code, and nothing is unpickled. Whoever reads one believes nothing:
every field is checked for its kind, no other field is taken, and bodies have a greatest size.

A request never asks for data. What a site answers is what stands in `Polled`, `Answered`,
`Evaluated` and `Acknowledged`, and nothing else. `Ask` and `Answered` carry the messages of the
study's algorithm: named arrays and numbers, which both sides check against its schemas.
"""

import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError, PeerError
from fedkoopman.federation.messages import Arrays, Message
from fedkoopman.version import NUMERICS

PROTOCOL = 2
LARGEST = 64 * 2**20
"""Bytes of a body."""
MOST = 8
"""Entries of a batch."""
HEADER = 2**20
"""Bytes of its JSON."""
LONGEST = 2_000
"""Characters of a text in a reply."""
_LENGTH = struct.Struct(">I")
TENSORS = {"model", "measured"}
"""Fields that hold arrays by name."""
MESSAGE = "message"
"""The field that holds a message of the algorithm."""


@dataclass(frozen=True)
class Envelope:
    """Of what study a batch is, and who wrote it.

    Attributes:
        study: the study and its seed, as `Study.seeded_digest()` gives them.
        version: the first version of fedkoopman that computes the same.
        protocol: of this list of requests.
    """

    study: str
    version: str = NUMERICS
    protocol: int = PROTOCOL


@dataclass(frozen=True)
class Poll:
    """How much data waits for this slot?"""

    slot: int


@dataclass(frozen=True)
class Ask:
    """Answer this message of the algorithm, from what was counted for this slot."""

    slot: int
    message: Message


@dataclass(frozen=True)
class Evaluate:
    """How good is this model, which came out of this slot, on held-out data?

    Attributes:
        measure: whether sums for the finished model's reference and noise are asked for too.
    """

    slot: int
    model: Arrays
    measure: bool = False


@dataclass(frozen=True)
class Acknowledge:
    """The server's last safely saved slot, and the last one that has spent this site's data."""

    slot: int
    included: int


@dataclass(frozen=True)
class Polled:
    """Samples, and segments, that wait."""

    site: str
    slot: int
    buffered: int
    segments: int


@dataclass(frozen=True)
class Answered:
    """A site's answer to the message whose digest is `base`, computed from so many samples."""

    site: str
    slot: int
    base: str
    samples: int
    message: Message


@dataclass(frozen=True)
class Evaluated:
    """A site's scores: means over its held-out windows.

    Attributes:
        windows: how many; 0 where the site holds nothing out.
        metrics: by name, as `evaluation.Metrics`; NaN where the model diverged.
        measured: sums, where they were asked for.
        scores: the site's own table for the summary, where it was asked for.
    """

    site: str
    slot: int
    base: str
    windows: int
    metrics: Mapping[str, float]
    measured: Arrays = field(default_factory=dict)
    scores: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Acknowledged:
    """The site has done what follows from an acknowledgement."""

    site: str
    slot: int


@dataclass(frozen=True)
class Refused:
    """Why a site does not do what it was asked: one line, with the remedy."""

    site: str
    reason: str


Request = Poll | Ask | Evaluate | Acknowledge
Reply = Polled | Answered | Evaluated | Acknowledged | Refused
Entry = TypeVar("Entry")

REQUESTS: dict[str, type] = {
    "poll": Poll,
    "ask": Ask,
    "evaluate": Evaluate,
    "acknowledge": Acknowledge,
}
"""All that a site can be asked."""
REPLIES: dict[str, type] = {
    "polled": Polled,
    "answered": Answered,
    "evaluated": Evaluated,
    "acknowledged": Acknowledged,
    "refused": Refused,
}


def encode_requests(envelope: Envelope, requests: Sequence[Request]) -> bytes:
    """A batch of requests as bytes."""
    return _encode(envelope, requests, REQUESTS)


def decode_requests(body: bytes) -> tuple[Envelope, tuple[Request, ...]]:
    """A batch of requests; whatever is unknown, malformed or too large is an `InputError`."""
    return _decode(body, REQUESTS)


def encode_replies(envelope: Envelope, replies: Sequence[Reply]) -> bytes:
    """A batch of replies as bytes."""
    return _encode(envelope, replies, REPLIES)


def decode_replies(body: bytes) -> tuple[Envelope, tuple[Reply, ...]]:
    """A batch of replies; whatever is unknown, malformed or too large is an `InputError`."""
    return _decode(body, REPLIES)


def digest_of(arrays: Arrays) -> str:
    """A sha256 that two sets of arrays share if they are equal bit for bit."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        leaf = arrays[name]
        found.update(f"{name} {leaf.dtype.str} {leaf.shape};".encode())
        found.update(np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()


def message_digest(message: Message) -> str:
    """A sha256 that two messages share if they are equal bit for bit."""
    numbers = sorted((name, float(value)) for name, value in message.numbers.items())
    text = f"{message.kind} {numbers} {digest_of(message.arrays)}"
    return hashlib.sha256(text.encode()).hexdigest()


def _encode(envelope: Envelope, entries: Sequence[Any], kinds: Mapping[str, type]) -> bytes:
    names = {kind: name for name, kind in kinds.items()}
    tensors: dict[str, NDArray[Any]] = {}
    said = []
    for place, entry in enumerate(entries):
        plain: dict[str, Any] = {"kind": names[type(entry)]}
        for f in fields(entry):
            value = getattr(entry, f.name)
            if f.name == MESSAGE:
                numbers, arrays = _plain(value.numbers), value.arrays
                plain[MESSAGE] = {"kind": value.kind, "numbers": numbers, "arrays": list(arrays)}
            elif f.name in TENSORS:
                arrays = value
                plain[f.name] = list(value)
            if f.name in {MESSAGE, *TENSORS}:
                tensors |= {f"{place}/{f.name}/{name}": leaf for name, leaf in arrays.items()}
            else:
                plain[f.name] = _plain(value)
        said.append(plain)
    from safetensors.numpy import save

    header = json.dumps({"envelope": vars(envelope), "said": said}, allow_nan=False).encode()
    content = save({name: np.ascontiguousarray(leaf) for name, leaf in tensors.items()})
    body = _LENGTH.pack(len(header)) + header + content
    if len(body) > LARGEST or len(header) > HEADER:
        raise InputError(
            f"a message of {len(body):,} bytes is larger than the {LARGEST:,} that are sent: use a "
            "smaller network"
        )
    return body


def _decode(body: bytes, kinds: Mapping[str, type]) -> tuple[Envelope, tuple[Any, ...]]:
    if len(body) > LARGEST:
        raise InputError(f"a message has {len(body):,} bytes, more than {LARGEST:,}: refused")
    try:
        header, tensors = _taken_apart(body)
        about = header["envelope"]
        if set(header) != {"envelope", "said"} or set(about) != {"study", "version", "protocol"}:
            raise ValueError("unknown fields")
        envelope = Envelope(
            _text(about["study"]), _text(about["version"]), _whole(about["protocol"])
        )
        if envelope.protocol != PROTOCOL:
            raise InputError(
                f"a message of fedkoopman {envelope.version} is in protocol {envelope.protocol}, "
                f"this is protocol {PROTOCOL} of fedkoopman {NUMERICS}: install the same "
                "version on both sides"
            )
        if not isinstance(header["said"], list) or len(header["said"]) > MOST:
            raise ValueError("not a batch")
        entries = tuple(
            _entry(place, plain, kinds, tensors) for place, plain in enumerate(header["said"])
        )
        if tensors:
            raise ValueError(f"unknown tensors {_few(tensors)}")
    except InputError:
        raise
    except Exception as error:  # whatever random bytes may cause in any reader
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise PeerError(f"a message cannot be read ({cause}): refused") from error
    return envelope, entries


def _taken_apart(body: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    from safetensors.numpy import load

    (length,) = _LENGTH.unpack_from(body)
    if length > HEADER or _LENGTH.size + length > len(body):
        raise ValueError("its header is cut off or too long")
    header = json.loads(body[_LENGTH.size : _LENGTH.size + length], parse_constant=_no_constant)
    return header, load(body[_LENGTH.size + length :])


def _entry(
    place: int, plain: dict[str, Any], kinds: Mapping[str, type], tensors: dict[str, NDArray[Any]]
) -> Any:
    name = plain.pop("kind")
    if name not in kinds:
        raise InputError(
            f"there is no request or reply {str(name)[:50]!r}: known are {', '.join(kinds)}"
        )
    kind = kinds[name]
    if set(plain) != {f.name for f in fields(kind)}:
        raise ValueError(f"fields of {name} are {_few(plain)}")

    def arrays(key: str, names: Any) -> dict[str, NDArray[Any]]:
        found = {_text(n): tensors.pop(f"{place}/{key}/{n}") for n in names}
        if any(leaf.dtype not in (np.float32, np.float64) for leaf in found.values()):
            raise ValueError("tensors are float32 or float64")
        return found

    for key, value in plain.items():
        if key == MESSAGE:
            if set(value) != {"kind", "numbers", "arrays"}:
                raise ValueError(f"fields of a message are {_few(value)}")
            numbers = _numbers(value["numbers"])
            plain[key] = Message(_text(value["kind"]), arrays(key, value["arrays"]), numbers)
        elif key in TENSORS:
            plain[key] = arrays(key, value)
        else:
            plain[key] = CHECKS[key](value)
    return kind(**plain)


def _plain(value: Any) -> Any:
    """As JSON has it; what is not finite is null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError(f"{str(value)[:50]!r} is no count")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{str(value)[:50]!r} is neither true nor false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST or not value.isprintable():
        raise ValueError(f"{str(value)[:50]!r} is no text of one line")
    return value


def _numbers(value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        raise ValueError("numbers by name are expected")
    found = {}
    for name, number in value.items():
        if number is not None and type(number) not in (int, float):
            raise ValueError(f"{str(name)[:50]!r} is no number")
        found[_text(name)] = math.nan if number is None else float(number)
    return found


def _table(value: Any) -> dict[str, Any]:
    """What JSON can say, with texts of one line; nothing else is known of it."""
    if not isinstance(value, dict):
        raise ValueError("scores are a table")
    _harmless(value, 0)
    return value


def _harmless(value: Any, depth: int) -> None:
    if depth > 5:
        raise ValueError("a table is nested too deep")
    if isinstance(value, str):
        _text(value)
    for entry in value.items() if isinstance(value, dict) else ():
        for part in entry:
            _harmless(part, depth + 1)
    for entry in value if isinstance(value, list) else ():
        _harmless(entry, depth + 1)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


CHECKS = {
    "slot": _whole,
    "included": _whole,
    "buffered": _whole,
    "segments": _whole,
    "samples": _whole,
    "windows": _whole,
    "measure": _flag,
    "site": _text,
    "base": _text,
    "reason": _text,
    "metrics": _numbers,
    "scores": _table,
}
"""What each field may be."""


def _few(names: Any) -> str:
    return ", ".join(str(name)[:50] for name in list(names)[:10])
