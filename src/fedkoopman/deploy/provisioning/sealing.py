"""Sealed archives: files in one encrypted, authenticated block of bytes that an unlock code opens.

An archive is a JSON object of names and contents. It is not compressed, so that no small file can
unpack to a huge one. A sealed archive is encrypted and authenticated (AES-256-GCM) with a key that
scrypt derives from the unlock code. An unsealed one, for a single machine only, has its SHA-256.
"""

import base64
import binascii
import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from pathlib import PurePosixPath

from fedkoopman.deploy.provisioning.signing import need_cryptography
from fedkoopman.errors import InputError, short

MAGIC = b"fedkoopman kit\n"
FORMAT = 1
LARGEST = 16 * 2**20
"""Bytes of an archive."""
MOST_FILES = 100
SALT, NONCE, HASH = 16, 12, 32
PLAIN, SEALED = b"\0", b"\1"
LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""32 characters that are not easily confused."""
GROUPS, GROUP = 5, 5
_CODE = re.compile(f"[{LETTERS}]{{{GROUPS * GROUP}}}")
_PART = re.compile(r"[^\x00-\x1f\x7f/\\:.][^\x00-\x1f\x7f/\\:]{0,99}")


def new_code() -> str:
    """A random unlock code of 125 bits, in groups that can be read aloud."""
    groups = ["".join(secrets.choice(LETTERS) for _ in range(GROUP)) for _ in range(GROUPS)]
    return "-".join(groups)


def normal_code(text: str) -> str:
    """A code in its original form; it may be typed in lower case, without dashes, O for 0."""
    typed = re.sub(r"[\s-]+", "", text.upper()).translate(str.maketrans("OIL", "011"))
    if not _CODE.fullmatch(typed):
        raise InputError(
            f"that is no unlock code, which has {GROUPS} groups of {GROUP} letters and digits: "
            "give it as `fedkoopman provision` printed it"
        )
    return "-".join(typed[i : i + GROUP] for i in range(0, len(typed), GROUP))


def check_name(name: object) -> str:
    """The name of a file below a directory; a name that leads out of it is refused."""
    parts = name.split("/") if isinstance(name, str) else []
    if not 0 < len(parts) <= 8 or not all(_PART.fullmatch(part) for part in parts):
        raise InputError(
            f"{short(name)} cannot name a file of a kit: give a path below the study's directory, "
            "without .. and without leading dots"
        )
    return str(PurePosixPath(*parts))


def sealed(content: Mapping[str, bytes], code: str | None) -> bytes:
    """An archive of some files.

    Arguments:
        content: by name.
        code: that unlocks it; None leaves it unsealed.
    """
    if len(content) > MOST_FILES:
        raise InputError(f"a kit of {len(content)} files: it may have {MOST_FILES}, name fewer")
    texts = {check_name(name): base64.b64encode(data).decode() for name, data in content.items()}
    archive = json.dumps(texts).encode()
    if len(archive) > LARGEST:
        raise InputError(
            f"a kit of {len(archive):,} bytes: it may have {LARGEST:,}, name smaller Python files"
        )
    if code is None:
        return _head(PLAIN) + hashlib.sha256(archive).digest() + archive
    need_cryptography()
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt, nonce = secrets.token_bytes(SALT), secrets.token_bytes(NONCE)
    head = _head(SEALED) + salt + nonce
    return head + AESGCM(_key(code, salt)).encrypt(nonce, archive, head)


def unsealed(data: bytes, code: str | None, name: str) -> dict[str, bytes]:
    """The files of an archive; refused if a single bit has changed.

    Arguments:
        data: as `sealed` made it.
        code: that unlocks it; None where it is not sealed.
        name: of the file it was in, for messages.
    """
    if not data.startswith(MAGIC) or len(data) < len(MAGIC) + 2:
        raise InputError(f"{name} is no kit: give the file that `fedkoopman provision` made")
    made = data[len(MAGIC)]
    if made != FORMAT:
        raise InputError(
            f"{name} was made in format {made}, this is format {FORMAT}: use the version of "
            "fedkoopman that made it"
        )
    kind, rest = data[len(MAGIC) + 1 :][:1], data[len(MAGIC) + 2 :]
    if kind == SEALED:
        archive = _decrypted(rest, code, name)
    elif kind == PLAIN and code is not None:
        raise InputError(
            f"{name} is not sealed but an unlock code was given, so it is not the kit that the "
            "code was made for: ask for it again"
        )
    else:
        archive = rest[HASH:]
        if kind != PLAIN or hashlib.sha256(archive).digest() != rest[:HASH]:
            raise InputError(f"{name} is damaged: ask for it again")
    return _files(archive, name)


def _head(kind: bytes) -> bytes:
    return MAGIC + bytes([FORMAT]) + kind


def _decrypted(rest: bytes, code: str | None, name: str) -> bytes:
    if code is None:
        raise InputError(f"{name} is sealed: give the unlock code that came with it")
    need_cryptography()
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt, nonce, secret = rest[:SALT], rest[SALT : SALT + NONCE], rest[SALT + NONCE :]
    key, head = _key(code, salt), _head(SEALED) + salt + nonce
    try:
        return AESGCM(key).decrypt(nonce, secret, head)
    except (InvalidTag, ValueError) as error:
        raise InputError(
            f"{name} does not open: the unlock code is another kit's or mistyped, or the file was "
            "changed on its way; check the code, or ask for both again"
        ) from error


def _key(code: str, salt: bytes) -> bytes:
    secret = normal_code(code).encode()
    return hashlib.scrypt(secret, salt=salt, n=2**14, r=8, p=1, maxmem=2**26, dklen=32)


def _files(archive: bytes, name: str) -> dict[str, bytes]:
    damaged = f"{name} holds no files of a kit: ask for it again"
    try:
        texts = json.loads(archive)
        if not isinstance(texts, dict) or not 0 < len(texts) <= MOST_FILES:
            raise InputError(damaged)
        return {
            check_name(file): base64.b64decode(text, validate=True) for file, text in texts.items()
        }
    except InputError:
        raise
    except (ValueError, TypeError, RecursionError, binascii.Error) as error:
        raise InputError(damaged) from error
