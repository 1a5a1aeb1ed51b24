"""A site's kit: the study, its Python files and the site's key, in one sealed file.

    kit = open_kit(Path("lab-a.kit"), state / "kit", code)
    kit.site, kit.identity, kit.study, kit.node_key

A kit is all that a site gets from a coordinator, and contains the only foreign code that the site
runs: a server later sends only numbers. `Kit.load` reads an opened kit and notices any change.
"""

import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedkoopman.config.loader import read_toml
from fedkoopman.config.study import Study
from fedkoopman.deploy.provisioning.kit_content import (
    KEYS,
    MANIFEST,
    REMEDY,
    check_content,
    fingerprint,
)
from fedkoopman.deploy.provisioning.sealing import LARGEST, sealed, unsealed
from fedkoopman.durable import private_directory, sync_directory, write_private, writing
from fedkoopman.errors import InputError, MachineError, system_error
from fedkoopman.version import NUMERICS


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
        content: from `kit_content`.
        path: of the file.
        code: that unlocks it; None leaves it unsealed.
    """
    write_private(path, sealed(content, code))


def read_kit(path: Path, code: str | None) -> dict[str, bytes]:
    """The files in a kit, checked, without writing any of them.

    Arguments:
        path: of the kit's file.
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
        path: of the kit's file.
        into: the directory, as a site's `state/kit`.
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
