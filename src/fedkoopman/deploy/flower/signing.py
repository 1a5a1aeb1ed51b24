"""Signed requests: a site proves with every request who it is, what it sends, and that it is new.

Flower's own signature covers a time and nothing else: whoever sees a request can send it again for
minutes, with another body, to another path. Here a signature covers the path, the hash of the body,
the time, a number that is used once, and the start of the server that it is for. All of them are
headers, so a server knows whether to read a body before it does.

A site need not know the time: the server's first answer tells it, with the name of the server's
present start (its epoch). A request is refused when its time is more than `WINDOW` from the
server's, and numbers are remembered for longer than that. So a request counts once. The server's
time runs on evenly from its start, also when somebody sets its clock.
"""

import base64
import binascii
import hashlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedkoopman.errors import InputError

log = logging.getLogger(__name__)
WINDOW = 60.0
"""Seconds by which a request's time may differ from the server's when it arrives."""
KEY, TIME, ONCE, DIGEST, SIGNATURE, EPOCH, INSTANCE = (
    f"x-fedkoopman-{name}"
    for name in ("key", "time", "once", "digest", "signature", "epoch", "instance")
)
LONGEST = 300
"""Characters of a header."""
ONCE_LENGTH = range(16, 65)
"""Characters of a number that is used once."""
AGAIN = "sign again"
"""The beginning of a refusal of a request that is good but for its time or epoch."""
SKEW = 5.0
"""Seconds between two clocks that are worth a line in the log."""


def fingerprint(public_key: bytes) -> str:
    """A short name of a public key."""
    return hashlib.sha256(public_key).hexdigest()


def digest_of(body: bytes) -> str:
    """The hash of a body."""
    return hashlib.sha256(body).hexdigest()


def _signed(path: str, headers: Mapping[str, str]) -> bytes:
    """What a signature covers."""
    parts = [headers[name] for name in (KEY, TIME, ONCE, DIGEST, EPOCH, INSTANCE)]
    return "\n".join(["fedkoopman request 1", path, *parts]).encode("ascii")


def _even_clock() -> Callable[[], float]:
    """A clock that is right now, and that nobody sets."""
    began = time.time() - time.monotonic()
    return lambda: began + time.monotonic()


class Refused(Exception):
    """A request that is not let in.

    Attributes:
        status: of HTTP.
        reason: a line for the people at the site.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Sender:
    """Who sent a request, and the hash that its body must have.

    Attributes:
        key: the public key, as it is enrolled.
        instance: what the site's node calls itself, the same after a restart.
    """

    key: bytes
    instance: str
    digest: str


@dataclass
class Door:
    """Lets in requests that are signed by an enrolled key, each of them once.

    Attributes:
        signed: whether requests must be signed; only a federation on one machine goes without.
        keys: the enrolled public keys, by their fingerprints.
        epoch: names this start of the server.
    """

    signed: bool = True
    keys: Mapping[str, bytes] = field(default_factory=dict)
    clock: Callable[[], float] = field(default_factory=_even_clock)
    epoch: str = field(default_factory=lambda: secrets.token_hex(8))
    _used: dict[str, float] = field(default_factory=dict)
    _order: deque[tuple[float, str]] = field(default_factory=deque)
    _read: dict[bytes, Any] = field(default_factory=dict)

    def answer_headers(self) -> list[tuple[bytes, bytes]]:
        """What every answer tells: the server's time and epoch."""
        told = {TIME: f"{self.clock():.3f}", EPOCH: self.epoch}
        return [(name.encode(), value.encode()) for name, value in told.items()]

    def check(self, path: str, found: Mapping[str, str]) -> Sender:
        """The sender of a request, from its path and headers; raises `Refused`."""
        names = (KEY, TIME, ONCE, DIGEST, SIGNATURE, EPOCH, INSTANCE)
        headers = {name: found.get(name, "") for name in names}
        if any(len(one) > LONGEST or not one.isascii() for one in headers.values()):
            raise Refused(401, "the headers are malformed")
        public = self.keys.get(headers[KEY])
        if public is None:
            raise Refused(412, "no site that may take part has this key")
        if not self.signed:
            return Sender(public, headers[INSTANCE], headers[DIGEST])
        now, sent = self.clock(), _seconds(headers[TIME])
        if headers[EPOCH] != self.epoch:
            raise Refused(401, f"{AGAIN}: the server was started anew")
        if abs(now - sent) > WINDOW:
            raise Refused(401, f"{AGAIN}: this is not the server's time")
        once = f"{headers[KEY]} {headers[ONCE]}"
        if len(headers[ONCE]) not in ONCE_LENGTH:
            raise Refused(401, "the headers are malformed")
        if once in self._used:
            raise Refused(401, "this request was sent before")
        if not self._verified(public, headers[SIGNATURE], _signed(path, headers)):
            raise Refused(401, "the signature does not fit")
        self._remember(once, now)
        return Sender(public, headers[INSTANCE], headers[DIGEST])

    def _remember(self, once: str, now: float) -> None:
        """Remember a number until its time alone refuses it."""
        while self._order and self._order[0][0] < now:
            del self._used[self._order.popleft()[1]]
        self._used[once] = until = now + 2 * WINDOW + 1.0
        self._order.append((until, once))

    def _verified(self, public: bytes, signature: str, signed: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        if public not in self._read:
            self._read = {key: self._read[key] for key in self.keys.values() if key in self._read}
            self._read[public] = load_pem_public_key(public)
        try:
            given = base64.b64decode(signature, validate=True)
            self._read[public].verify(given, signed, ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, binascii.Error):
            return False
        return True


class Signer:
    """Signs the requests of a site; one of the interceptors of Flower's client.

    Arguments:
        key: an elliptic-curve private key of `cryptography`; None: nothing is signed.
        public: its public half, as `key_bytes` gives it; where nothing is signed, the site's name.
        instance: what this node calls itself, the same after a restart.

    Attributes:
        offset: seconds by which the server's clock is ahead of this machine's.
    """

    def __init__(
        self, key: Any, public: bytes, instance: str, clock: Callable[[], float] = time.time
    ) -> None:
        self.public, self._key, self._instance, self._clock = public, key, instance, clock
        self._epoch = ""
        self._told = 0.0
        self.offset = 0.0

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        """Sign a request and send it; once more if the server tells another time or epoch."""
        began = self._clock()
        answer = self._sent(context, call_next)
        if answer.status_code == 401 and answer.text.startswith(AGAIN):
            self._learn(answer.headers, (began + self._clock()) / 2)
            answer = self._sent(context, call_next)
        return answer

    def _sent(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        request = context.request
        request.headers.update(self.headers(request.url.path, request.content))
        return call_next(context)

    def headers(self, path: str, body: bytes) -> dict[str, str]:
        """The headers of one request."""
        told = {
            KEY: fingerprint(self.public),
            TIME: f"{self._clock() + self.offset:.3f}",
            ONCE: secrets.token_hex(16),
            DIGEST: digest_of(body),
            EPOCH: self._epoch,
            INSTANCE: self._instance,
        }
        if self._key is None:
            return told
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        signature = self._key.sign(_signed(path, told), ec.ECDSA(hashes.SHA256()))
        return told | {SIGNATURE: base64.b64encode(signature).decode()}

    def _learn(self, headers: Mapping[str, str], when: float) -> None:
        """Take over the server's time and epoch."""
        self._epoch = headers.get(EPOCH, "")
        self.offset = _seconds(headers.get(TIME, "")) - when
        if abs(self.offset) > SKEW and abs(self.offset - self._told) > SKEW:
            self._told = self.offset
            log.warning(
                "this machine's clock is %.0f s %s the server's: messages go on, but times in the "
                "ledger and dates of certificates follow this clock; set it right",
                abs(self.offset),
                "behind" if self.offset > 0 else "ahead of",
            )


def key_bytes(public_key: str) -> bytes:
    """A public key in OpenSSH's form, as it is enrolled."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    from fedkoopman.errors import short

    try:
        key = load_ssh_public_key(public_key.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{short(public_key)} is not a public key in OpenSSH's form") from error
    if not isinstance(key, EllipticCurvePublicKey):
        raise InputError(f"{short(public_key)} is not an elliptic-curve key: use ecdsa, nistp256")
    return public_bytes(key)


def public_bytes(key: Any) -> bytes:
    """A public key of `cryptography`, as it is enrolled."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return 0.0
    return found if abs(found) < 1e12 else 0.0
