"""What the protocol is made of: key agreement, masks, sealed shares; all from kept libraries.

X25519 (`cryptography`) agrees on a secret, HKDF-SHA256 makes keys of it, ChaCha20 expands a key to
a mask, ChaCha20-Poly1305 seals what one site has for another, and Shamir's scheme (Flower's, on
pycryptodome) splits secrets of 32 bytes.
"""

import os
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError

__all__ = [
    "SECRET", "agreed_key", "key_pair", "mask", "opened", "public_of", "rejoined", "sealed",
    "split", "threshold_of",
]  # fmt: skip

SECRET = 32
"""Bytes of a key, secret or public, and of a seed."""
SHARE = 52
"""Bytes of a share: its place, and three blocks."""
_ZERO = bytes(16)
"""Every key expands to one mask only, so that it needs no other nonce."""

Words = NDArray[np.uint64]


def threshold_of(asked: int) -> int:
    """How many of those that were asked must be left: a majority, and two at least."""
    return max(2, asked // 2 + 1)


def key_pair() -> tuple[bytes, bytes]:
    """A new secret key and its public key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    secret = X25519PrivateKey.generate()
    return secret.private_bytes_raw(), secret.public_key().public_bytes_raw()


def public_of(secret: bytes) -> bytes:
    """The public key of a secret one."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agreed_key(secret: bytes, public: bytes, purpose: str) -> bytes:
    """The key that two sites have in common; the other one finds the same.

    Arguments:
        secret: one's own key.
        public: the other one's.
        purpose: what the key is for, and in which session.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import (
        X25519PrivateKey,
        X25519PublicKey,
    )

    try:
        common = X25519PrivateKey.from_private_bytes(secret).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError as error:  # a point of small order, or not 32 bytes
        raise InputError("a public key is none: refused") from error
    return _derived(common, purpose)


def mask(key: bytes, size: int, purpose: str) -> Words:
    """A key or a seed, expanded to so many words that look random."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    stream = Cipher(ChaCha20(_derived(key, purpose), _ZERO), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * size)), "<u8").astype(np.uint64)


def sealed(key: bytes, content: bytes, about: str) -> bytes:
    """Content that only who has the key can read, or change.

    Arguments:
        about: from whom to whom, and in which session; `opened` must be given the same.
    """
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    nonce = os.urandom(12)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, content, about.encode())


def opened(key: bytes, secret: bytes, about: str) -> bytes:
    """What was sealed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(key).decrypt(secret[:12], secret[12:], about.encode())
    except (InvalidTag, ValueError) as error:
        raise InputError("shares of another site were changed on their way: refused") from error


def split(secret: bytes, threshold: int, places: Sequence[str]) -> dict[str, bytes]:
    """Shares of a secret, one per place; so many of them give it back, fewer say nothing."""
    from fedkoopman.deploy.flower.internals import create_shares

    return dict(zip(places, create_shares(secret, threshold, len(places)), strict=True))


def rejoined(shares: Mapping[str, bytes], threshold: int) -> bytes:
    """The secret of which these are shares, by who gave them."""
    from fedkoopman.deploy.flower.internals import combine_shares

    if len(shares) < threshold:
        raise InputError(f"there are {len(shares)} shares of a secret, and {threshold} are needed")
    try:
        secret = combine_shares(list(shares.values())[:threshold])
    except ValueError as error:
        raise InputError("shares do not belong together") from error
    if len(secret) != SECRET:
        raise InputError("shares do not belong together")
    return secret


def _derived(secret: bytes, purpose: str) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = f"fedkoopman secure aggregation: {purpose}".encode()
    return HKDF(SHA256(), SECRET, salt=None, info=info).derive(secret)
