"""What server and sites say to each other: a closed, versioned list of requests, and their replies.

A body is one batch: a JSON header that says what is said, then the tensors it names, as
safetensors. Nothing in it is code, and nothing is unpickled. A reader trusts nothing: every field
is checked for its type, unknown fields are refused, and the size of a body is limited.

A request never asks for data. A site answers what `Polled`, `Answered`, `Evaluated`,
`Acknowledged` and `Refused` hold, and nothing else. `Ask` and `Answered` carry the messages of the
study's algorithm: named arrays and numbers, which both sides check against its schemas. Where the
server may see only sums (`aggregation.secure`), four requests take the place of `Ask`: `Offer`,
`Share`, `Mask` and `Unmask`, the steps of `deploy.secure`; sites stand in them by their places.

`Fleet` is what carries bodies: `flower.fleet.FlowerFleet`, or in tests one without a network.
"""

import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError, PeerError
from fedkoopman.federation.messages import Arrays, Message
from fedkoopman.version import NUMERICS

PROTOCOL = 3
LARGEST = 64 * 2**20
"""Bytes of a body."""
MOST = 8
"""Entries of a batch."""
HEADER = 2**20
"""Bytes of its JSON."""
LONGEST = 2_000
"""Characters of a text in a reply."""
_LENGTH = struct.Struct(">I")


Words = NDArray[np.uint64]
"""A masked vector."""


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
class Offer:
    """Make keys for a new session of secure aggregation, and send the public ones."""

    slot: int
    session: str


@dataclass(frozen=True)
class Share:
    """Split your secrets among those who sent these keys; so many shares rejoin one."""

    slot: int
    session: str
    threshold: int
    keys: Mapping[str, bytes]


@dataclass(frozen=True)
class Mask:
    """Answer this message of the algorithm as `Ask` does, but masked.

    Attributes:
        shares: what the others have sealed for this site, by their places.
    """

    slot: int
    session: str
    shares: Mapping[str, bytes]
    message: Message


@dataclass(frozen=True)
class Unmask:
    """Whose masked vectors came: send shares of their seeds, and of the others' keys."""

    slot: int
    session: str
    sent: tuple[str, ...]


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
class Offered:
    """Two public keys, one after the other."""

    site: str
    slot: int
    session: str
    keys: bytes


@dataclass(frozen=True)
class Shared:
    """Shares that are sealed for the other sites, by their places."""

    site: str
    slot: int
    session: str
    shares: Mapping[str, bytes]


@dataclass(frozen=True)
class Masked:
    """An answer to the message whose digest is `base`, as a masked vector.

    Attributes:
        reply: the kind of message that is masked.
    """

    site: str
    slot: int
    session: str
    base: str
    reply: str
    words: Words


@dataclass(frozen=True)
class Unmasked:
    """Shares of the seeds of those whose vectors came, and of the keys of the others."""

    site: str
    slot: int
    session: str
    seeds: Mapping[str, bytes]
    keys: Mapping[str, bytes]


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


Request = Poll | Ask | Offer | Share | Mask | Unmask | Evaluate | Acknowledge

Reply = (
    Polled | Answered | Offered | Shared | Masked | Unmasked | Evaluated | Acknowledged | Refused
)

REQUESTS, REPLIES = (
    {kind.__name__.lower(): kind for kind in kinds.__args__} for kinds in (Request, Reply)
)
"""All that a site can be asked, and all that it can answer, by name."""


@dataclass(frozen=True)
class Failure:
    """Why a site's reply is missing.

    Attributes:
        reason: one line.
        absent: the site's node is away, or the message expired; the site itself said nothing.
        broken: the site replied, and its reply breaks the rules.
    """

    reason: str
    absent: bool = False
    broken: bool = False


class Fleet(Protocol):
    """Sites that can be asked."""

    def online(self) -> Mapping[str, int]:
        """By site that is enrolled, not revoked, and connected, a number that changes when its
        node starts anew."""
        ...

    def exchange(
        self, bodies: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        """Ask sites; gives each one's reply as it comes, or why there is none.

        A site that misses the deadline is not given at all.

        Arguments:
            bodies: what each site is asked.
            deadline: seconds from now.
        """
        ...


def encode_requests(envelope: Envelope, requests: Sequence[Request]) -> bytes:
    """A batch of requests as bytes."""
    return _encode(envelope, requests)


def decode_requests(body: bytes) -> tuple[Envelope, tuple[Request, ...]]:
    """A batch of requests; whatever is unknown, malformed or too large is an `InputError`."""
    return _decode(body, REQUESTS)


def encode_replies(envelope: Envelope, replies: Sequence[Reply]) -> bytes:
    """A batch of replies as bytes."""
    return _encode(envelope, replies)


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


def _encode(envelope: Envelope, entries: Sequence[Any]) -> bytes:
    from safetensors.numpy import save

    tensors: dict[str, NDArray[Any]] = {}

    def plain(value: Any, kind: Any, key: str) -> Any:
        if kind == Arrays:
            tensors.update({f"{key}/{n}": np.ascontiguousarray(leaf) for n, leaf in value.items()})
            return list(value)
        if kind is Message:
            numbers, arrays = _plain(value.numbers), plain(value.arrays, Arrays, key)
            return {"kind": value.kind, "numbers": numbers, "arrays": arrays}
        if kind == Words:
            tensors[key] = np.ascontiguousarray(value)
            return len(value)
        return _plain(value)

    said = [
        {"kind": type(entry).__name__.lower()}
        | {f.name: plain(getattr(entry, f.name), f.type, f"{i}/{f.name}") for f in fields(entry)}
        for i, entry in enumerate(entries)
    ]
    header = json.dumps({"envelope": vars(envelope), "said": said}, allow_nan=False).encode()
    body = _LENGTH.pack(len(header)) + header + save(tensors)
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
        if set(header) != {"envelope", "said"}:
            raise ValueError("unknown fields")
        envelope: Envelope = _checked(Envelope, header["envelope"], "", {})
        if envelope.protocol != PROTOCOL:
            raise InputError(
                f"a message of fedkoopman {envelope.version} is in protocol {envelope.protocol}, "
                f"this is protocol {PROTOCOL} of fedkoopman {NUMERICS}: install the same "
                "version on both sides"
            )
        if not isinstance(header["said"], list) or len(header["said"]) > MOST:
            raise ValueError("not a batch")
        entries = []
        for place, plain in enumerate(header["said"]):
            name = plain.pop("kind")
            if name not in kinds:
                raise InputError(
                    f"there is no request or reply {str(name)[:50]!r}: known are {', '.join(kinds)}"
                )
            entries.append(_checked(kinds[name], plain, str(place), tensors))
        if tensors:
            raise ValueError(f"unknown tensors {_few(tensors)}")
    except InputError:
        raise
    except Exception as error:  # whatever random bytes may cause in any reader
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise PeerError(f"a message cannot be read ({cause}): refused") from error
    return envelope, tuple(entries)


def _taken_apart(body: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    from safetensors.numpy import load

    (length,) = _LENGTH.unpack_from(body)
    if length > HEADER or _LENGTH.size + length > len(body):
        raise ValueError("its header is cut off or too long")
    header = json.loads(body[_LENGTH.size : _LENGTH.size + length], parse_constant=_no_constant)
    return header, load(body[_LENGTH.size + length :])


def _checked(kind: Any, plain: Any, key: str, tensors: dict[str, NDArray[Any]]) -> Any:
    """An object of which every field has been checked; its tensors are removed from the others."""
    if set(plain) != {f.name for f in fields(kind)}:
        raise ValueError(f"fields of {kind.__name__.lower()} are {_few(plain)}")

    def arrays(key: str, names: Any) -> dict[str, NDArray[Any]]:
        found = {_text(name): tensors.pop(f"{key}/{name}") for name in names}
        if any(leaf.dtype not in (np.float32, np.float64) for leaf in found.values()):
            raise ValueError("tensors are float32 or float64")
        return found

    def checked(kind: Any, value: Any, key: str) -> Any:
        if kind == Arrays:
            return arrays(key, value)
        if kind == Words:
            return _words(tensors.pop(key), value)
        if kind is not Message:
            return CHECKS[kind](value)
        if set(value) != {"kind", "numbers", "arrays"}:
            raise ValueError(f"fields of a message are {_few(value)}")
        text, numbers = _text(value["kind"]), _numbers(value["numbers"])
        return Message(text, arrays(key, value["arrays"]), numbers)

    return kind(**{f.name: checked(f.type, plain[f.name], f"{key}/{f.name}") for f in fields(kind)})


def _plain(value: Any) -> Any:
    """As JSON has it; what is not finite is null."""
    if isinstance(value, bytes):
        return value.hex()
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


def _bytes(value: Any) -> bytes:
    return bytes.fromhex(_text(value))


def _all_bytes(value: Any) -> dict[str, bytes]:
    if not isinstance(value, dict):
        raise ValueError("bytes by name are expected")
    return {_text(name): _bytes(one) for name, one in value.items()}


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("a list of texts is expected")
    return tuple(_text(one) for one in value)


def _words(tensor: NDArray[Any], length: Any) -> NDArray[np.uint64]:
    if tensor.dtype != np.uint64 or tensor.shape != (_whole(length),):
        raise ValueError("a masked vector consists of words")
    return tensor


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
    """Any table of JSON whose texts are of one line each."""
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


CHECKS: dict[Any, Callable[[Any], Any]] = {
    int: _whole,
    bool: _flag,
    str: _text,
    bytes: _bytes,
    tuple[str, ...]: _texts,
    Mapping[str, bytes]: _all_bytes,
    Mapping[str, float]: _numbers,
    Mapping[str, Any]: _table,
}
"""What a field of each type may hold."""


def _few(names: Any) -> str:
    return ", ".join(str(name)[:50] for name in list(names)[:10])
