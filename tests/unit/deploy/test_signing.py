"""A request counts once, from who signed it, for the path and the body that were signed."""

import re

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fedkoopman.deploy.flower.signing import (
    AGAIN,
    DIGEST,
    INSTANCE,
    ONCE,
    SIGNATURE,
    TIME,
    WINDOW,
    Door,
    Refused,
    Signer,
    digest_of,
    fingerprint,
    key_bytes,
    public_bytes,
)
from fedkoopman.deploy.provisioning.certificates import node_keys
from fedkoopman.errors import InputError

PATH = "/v1/fleet/pull-messages"


class Clock:
    """A clock that is set by hand."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Pair:
    """A door and a signer that it knows, each with its own clock."""

    def __init__(self, curve: ec.EllipticCurve | None = None, ahead: float = 0.0) -> None:
        self.key = ec.generate_private_key(curve or ec.SECP256R1())
        public = public_bytes(self.key.public_key())
        self.server, self.site = Clock(1e9), Clock(1e9 - ahead)
        self.door = Door(keys={fingerprint(public): public}, clock=self.server)
        self.signer = Signer(self.key, public, "i" * 32, clock=self.site)

    def met(self) -> "Pair":
        """After the handshake."""
        headers = {name.decode(): value.decode() for name, value in self.door.answer_headers()}
        self.signer._learn(headers, self.site.now)
        return self

    def refusal(self, headers: dict[str, str], path: str = PATH) -> tuple[int, str]:
        with pytest.raises(Refused) as found:
            self.door.check(path, headers)
        return found.value.status, found.value.reason


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1()], ids=["new", "earlier kits"])
@pytest.mark.parametrize("ahead", [0.0, 86_400.0, -3e8])
def test_a_site_takes_part_whatever_its_clock_says(curve: ec.EllipticCurve, ahead: float) -> None:
    pair = Pair(curve, ahead)
    assert pair.refusal(pair.signer.headers(PATH, b"x"))[1].startswith(AGAIN), "not yet met"
    sender = pair.met().door.check(PATH, pair.signer.headers(PATH, b"x"))
    assert (sender.digest, sender.instance) == (digest_of(b"x"), "i" * 32)
    assert pair.signer.offset == pytest.approx(ahead, abs=0.01)


def test_each_request_is_taken_once() -> None:
    pair = Pair().met()
    headers = pair.signer.headers(PATH, b"x")
    pair.door.check(PATH, headers)
    for later in (0.0, WINDOW / 2, WINDOW - 1):
        pair.server.now = 1e9 + later
        assert pair.refusal(headers) == (401, "this request was sent before")
    pair.server.now = 1e9 + WINDOW + 1
    assert pair.refusal(headers)[1].startswith(AGAIN), "its time alone refuses it"
    pair.server.now = 1e9
    pair.door.epoch = "another start"
    assert pair.refusal(headers)[1].startswith(AGAIN)


def test_a_clock_that_is_set_back_opens_nothing() -> None:
    pair = Pair().met()
    pair.site.now = pair.server.now + WINDOW - 1
    headers = pair.signer.headers(PATH, b"x")  # as far ahead as is taken
    pair.door.check(PATH, headers)
    for later in range(0, int(2 * WINDOW), 10):
        pair.server.now = 1e9 + later
        assert pair.refusal(headers)[0] == 401


@pytest.mark.parametrize("name", [TIME, ONCE, DIGEST, INSTANCE])
def test_what_was_signed_cannot_be_changed(name: str) -> None:
    pair = Pair().met()
    headers = pair.signer.headers(PATH, b"x")
    changed = {**headers, name: headers[name][:-1] + ("0" if headers[name][-1] != "0" else "1")}
    assert pair.refusal(changed) == (401, "the signature does not fit")
    assert pair.refusal(headers, "/v1/fleet/push-object") == (401, "the signature does not fit")
    assert pair.door.check(PATH, headers), "a forgery does not spend the number of the true one"


def test_other_keys_and_other_signatures_are_refused() -> None:
    pair, other = Pair().met(), Pair().met()
    assert pair.refusal(other.signer.headers(PATH, b"x"))[0] == 412
    headers = pair.signer.headers(PATH, b"x")
    theirs = other.signer.headers(PATH, b"x")[SIGNATURE]
    for signature in (theirs, "", "!", "AAAA"):
        assert pair.refusal({**headers, SIGNATURE: signature})[0] == 401
    assert pair.refusal({})[0] == 412
    assert pair.refusal({name: "x" * 10_000 for name in headers}) == (
        401,
        "the headers are malformed",
    )
    assert pair.refusal({**headers, TIME: "nan"})[0] == 401
    assert pair.refusal({**headers, TIME: "9" * 299})[0] == 401


def test_numbers_are_forgotten_when_time_refuses_them() -> None:
    pair = Pair().met()
    for second in range(0, 600, 2):
        pair.server.now = pair.site.now = 1e9 + second
        pair.door.check(PATH, pair.signer.headers(PATH, b""))
    assert len(pair.door._used) == len(pair.door._order) <= (2 * WINDOW + 3) / 2


def test_without_signatures_only_the_name_counts() -> None:
    door = Door(signed=False, keys={fingerprint(b"lab"): b"lab"})
    assert door.check(PATH, Signer(None, b"lab", "i" * 32).headers(PATH, b"x")).key == b"lab"
    with pytest.raises(Refused, match="no site that may take part"):
        door.check(PATH, Signer(None, b"other", "i" * 32).headers(PATH, b"x"))


def test_only_elliptic_curve_keys_are_taken() -> None:
    assert key_bytes(node_keys("a")[1].decode()).startswith(b"-----BEGIN PUBLIC KEY-----")
    with pytest.raises(InputError, match="not a public key in OpenSSH's form"):
        key_bytes("nonsense")
    ed = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPv3JGhPHYzQvE2w7jQvqIZzz0g6nqZCkqkFCVq4yGGz a"
    with pytest.raises(InputError, match=re.escape("not an elliptic-curve key")):
        key_bytes(ed)
