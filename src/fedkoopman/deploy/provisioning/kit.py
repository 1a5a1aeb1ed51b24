"""A site's kit: the study, its Python files and the site's key, in one sealed file.

    kit = open_kit(Path("lab-a.kit"), state / "kit", code)
    kit.site, kit.identity, kit.study, kit.node_key

A kit is all that a site gets from a coordinator, and contains the only foreign code that the site
runs: a server later sends only numbers. `Kit.load` reads an opened kit and notices any change.

A kit's file is an archive: a JSON object of names and contents. It is not compressed, so that no
small file can unpack to a huge one. It is encrypted and authenticated (AES-256-GCM) with a key that
scrypt derives from the unlock code. An unsealed kit, for a single machine only, has its SHA-256.
"""

import base64
import binascii
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedkoopman.config.loader import read_toml
from fedkoopman.config.study import Study
from fedkoopman.deploy.provisioning.certificates import need_cryptography
from fedkoopman.deploy.provisioning.kit_content import (
    FORMAT,
    KEYS,
    MANIFEST,
    REMEDY,
    check_content,
    check_name,
    fingerprint,
)
from fedkoopman.durable import private_directory, sync_directory, write_private, writing
from fedkoopman.errors import InputError, MachineError, system_error
from fedkoopman.version import NUMERICS

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"fedkoopman kit\n"
LARGEST = 16 * 2**20
"""Bytes of an archive."""
MOST_FILES = 100
SALT, NONCE, HASH = 16, 12, 32
PLAIN, SEALED = b"\0", b"\1"
LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""32 characters that are not easily confused."""
GROUPS, GROUP = 5, 5
_CODE = re.compile(f"[{LETTERS}]{{{GROUPS * GROUP}}}")


@dataclass(frozen=True)
class Kit:
    """An opened kit.

    Attributes:
        site: the name of the site that it is for.
        identity: the site's place in the roster, from 0.
        clients: how many sites there are to be.
        digest: of the study.
        version: the first version of fedkoopman that computes what the federation computes.
        secure: whether it has a key; without one it is for one machine only.
        files: hashes by name.
        folder: the directory into which it was opened.
    """

    site: str
    identity: int
    clients: int
    digest: str
    version: str
    secure: bool
    files: Mapping[str, str]
    folder: Path

    @classmethod
    def load(cls, folder: Path) -> "Kit":
        """Read an opened kit; anything missing, added or changed is refused."""
        if not (folder / MANIFEST).is_file():
            raise InputError(f"there is no kit in {folder}: give the site's kit file")
        try:
            present = [p for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()]
            names = {path.relative_to(folder).as_posix(): path for path in present}
            if any(path.is_symlink() or not path.is_file() for path in present):
                raise InputError(f"the kit in {folder} holds links or devices: {REMEDY}")
            if sum(path.stat().st_size for path in present) > LARGEST:
                raise InputError(f"the kit in {folder} is too large: {REMEDY}")
            content = {name: path.read_bytes() for name, path in names.items()}
        except OSError as error:
            raise system_error(f"cannot read {folder}", error) from error
        made = check_content(content, f"the kit in {folder}")
        made["digest"] = made.pop("study")
        del made["format"]
        return cls(**made, folder=folder)

    @property
    def study(self) -> Study:
        """The study that the site takes part in; its Python files are beside it."""
        return Study.from_dict(read_toml(self.folder / "study.toml"), self.folder)

    @property
    def fingerprint(self) -> str:
        """A hash of all that a site consents to: the study with its seed, its code, the version."""
        return fingerprint({n: h for n, h in self.files.items() if n not in KEYS}, self.version)

    @property
    def code(self) -> dict[str, Path]:
        """The Python files that the site would run, by name."""
        return {name: self.folder / name for name in self.files if name.endswith(".py")}

    @property
    def ca(self) -> Path:
        """The certificate of the authority that the server's is checked against."""
        return self.folder / "ca.crt"

    @property
    def node_key(self) -> Path:
        """The private key by which the site proves its identity."""
        return self.folder / "node.key"

    def check_version(self) -> None:
        """Refuse a kit of a version of fedkoopman that may compute differently."""
        if self.version != NUMERICS:
            raise InputError(
                f"the kit of {self.site} is for fedkoopman {self.version} and this is "
                f"{NUMERICS}: pip install 'fedkoopman[deploy]=={self.version}', or ask the "
                "coordinator for a new kit"
            )


def seal(content: Mapping[str, bytes], path: Path, code: str | None) -> None:
    """Write a kit's file.

    Arguments:
        code: that unlocks it; None leaves it unsealed.
    """
    write_private(path, sealed(content, code))


def read_kit(path: Path, code: str | None) -> dict[str, bytes]:
    """The files in a kit, checked, without writing any of them.

    Arguments:
        code: that unlocks it; None where it is not sealed.
    """
    try:
        if not path.is_file():
            problem = "is a directory" if path.is_dir() else "does not exist"
            raise InputError(f"the kit {path} {problem}: check the path")
        with path.open("rb") as file:
            data = file.read(LARGEST + 2**20)  # with room for the header
        if len(data) > LARGEST + 2**10:
            raise InputError(f"{path} is larger than {LARGEST:,} bytes: it is no kit")
    except OSError as error:
        raise system_error(f"cannot read {path}", error) from error
    content = unsealed(data, code, str(path))
    if check_content(content, str(path))["secure"] != (code is not None):
        raise InputError(
            f"{path} is {'not ' * (code is None)}sealed, which contradicts its content: ask for "
            "it again"
        )
    return content


def open_kit(path: Path, into: Path, code: str | None) -> Kit:
    """Open a kit into a directory, completely or not at all.

    If the same kit was opened there before, nothing changes; another kit is replaced.

    Arguments:
        code: that unlocks it; None where it is not sealed.
    """
    content = read_kit(path, code)
    try:
        if (into / MANIFEST).read_bytes() == content[MANIFEST]:
            return Kit.load(into)
    except (OSError, InputError, MachineError):
        pass  # absent or damaged: it is opened again
    private_directory(into.parent)
    fresh = into.with_name(f".{into.name}.{secrets.token_hex(8)}.partial")
    try:
        for name, data in content.items():
            private_directory((fresh / name).parent)
            write_private(fresh / name, data)
        _replace(fresh, into)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return Kit.load(into)


def _replace(fresh: Path, into: Path) -> None:
    """Replace one directory by another."""
    old = into.with_name(f".{into.name}.{secrets.token_hex(8)}.old")
    with writing(into):
        fresh.chmod(0o700)
        if into.exists() or into.is_symlink():
            os.rename(into, old)
        try:
            os.rename(fresh, into)
        except OSError:
            if old.exists():
                os.rename(old, into)
            raise
        sync_directory(into.parent)
    shutil.rmtree(old, ignore_errors=True)


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


def sealed(content: Mapping[str, bytes], code: str | None) -> bytes:
    """An archive of some files.

    Arguments:
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
    salt, nonce = secrets.token_bytes(SALT), secrets.token_bytes(NONCE)
    head = _head(SEALED) + salt + nonce
    return head + _cipher(code, salt).encrypt(nonce, archive, head)


def unsealed(data: bytes, code: str | None, name: str) -> dict[str, bytes]:
    """The files of an archive; refused if a single bit has changed.

    Arguments:
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
    salt, nonce, secret = rest[:SALT], rest[SALT : SALT + NONCE], rest[SALT + NONCE :]
    cipher = _cipher(code, salt)
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(nonce, secret, _head(SEALED) + salt + nonce)
    except (InvalidTag, ValueError) as error:
        raise InputError(
            f"{name} does not open: the unlock code is another kit's or mistyped, or the file was "
            "changed on its way; check the code, or ask for both again"
        ) from error


def _cipher(code: str, salt: bytes) -> "AESGCM":
    need_cryptography()
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(_key(code, salt))


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
