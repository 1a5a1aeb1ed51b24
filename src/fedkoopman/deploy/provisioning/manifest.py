"""The manifest of a kit: whose it is, what it is for, and a hash of every file beside it."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from typing import Any

from fedkoopman.config.site_sections import SiteName
from fedkoopman.config.study import Study
from fedkoopman.deploy.provisioning.sealing import FORMAT, check_name
from fedkoopman.errors import InputError
from fedkoopman.version import NUMERICS

__all__ = ["KEYS", "MANIFEST", "checked", "fingerprint", "kit_content"]

KEYS = ("ca.crt", "node.key", "node.pub")
MANIFEST = "manifest.json"
AGAIN = "open the kit again, or ask for a new one"
_KINDS: dict[str, type] = {
    "site": str,
    "identity": int,
    "clients": int,
    "study": str,
    "version": str,
    "secure": bool,
    "files": dict,
}


def fingerprint(hashes: Mapping[str, str], version: str = NUMERICS) -> str:
    """A hash of what all sites of a study share.

    Arguments:
        hashes: of study.toml and of every Python file, by name.
        version: the first version of fedkoopman that computes the same.
    """
    return _hash(json.dumps([version, sorted(hashes.items())]).encode())


def kit_content(
    shared: Mapping[str, bytes],
    site: str,
    identity: int,
    clients: int,
    digest: str,
    keys: Mapping[str, bytes],
) -> dict[str, bytes]:
    """The files of a kit, the manifest among them.

    Arguments:
        shared: what all sites get, from `code_files.shared_files`.
        site: whose it is.
        identity: the site's place in the roster, from 0.
        clients: how many sites there are to be.
        digest: of the study.
        keys: ca.crt, node.key and node.pub; empty for one machine only.
    """
    files = {**shared, **keys}
    manifest = {
        "format": FORMAT,
        "site": site,
        "identity": identity,
        "clients": clients,
        "study": digest,
        "version": NUMERICS,
        "secure": bool(keys),
        "files": {name: _hash(data) for name, data in sorted(files.items())},
    }
    return {MANIFEST: (json.dumps(manifest, indent=1) + "\n").encode(), **files}


def checked(content: Mapping[str, bytes], where: str) -> dict[str, Any]:
    """The manifest among some files, if every one of them is as it says, and no other is there.

    Arguments:
        content: by name.
        where: they are, as it stands at the beginning of messages.
    """
    made = _manifest(content.get(MANIFEST, b""), where)
    files: dict[str, str] = made["files"]
    for name in sorted({*files, *content} - {MANIFEST}):
        what = "lacks" if name not in content else "has an added" if name not in files else ""
        if not what and _hash(content[name]) != files[name]:
            what = "has a changed"
        if what:
            raise InputError(f"{where} {what} {name}: {AGAIN}")
    wanted = {"study.toml", *(KEYS if made["secure"] else ())}
    if not wanted <= set(files) or (not made["secure"] and set(KEYS) & set(files)):
        raise InputError(f"{where} does not have the files of a kit: {AGAIN}")
    # Another version's study may have keys that this one does not know.
    if made["version"] == NUMERICS and _digest(content["study.toml"], where) != made["study"]:
        raise InputError(f"{where} has another study than its manifest says: {AGAIN}")
    return made


def _digest(content: bytes, where: str) -> str:
    try:
        return Study.from_dict(tomllib.loads(content.decode())).digest()
    except (ValueError, RecursionError) as error:  # an InputError is a ValueError
        cause = " ".join(str(error).split())
        raise InputError(f"{where} has a study.toml that cannot be read: {cause}") from error


def _manifest(content: bytes, where: str) -> dict[str, Any]:
    damaged = f"{where} has no manifest that can be read: {AGAIN}"
    try:
        made = json.loads(content)
        its_format = made["format"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(damaged) from error
    if its_format != FORMAT:
        raise InputError(
            f"{where} was made in format {its_format!r:.20}, this is format {FORMAT}: use the "
            "version of fedkoopman that made it"
        )
    if not isinstance(made, dict) or set(made) != {"format", *_KINDS}:
        raise InputError(damaged)
    if any(type(made[name]) is not kind for name, kind in _KINDS.items()):
        raise InputError(damaged)
    for name, its_hash in made["files"].items():
        check_name(name)
        if not isinstance(its_hash, str):
            raise InputError(damaged)
    if not 0 <= made["identity"] < made["clients"] or len(made["version"]) > 100:
        raise InputError(damaged)
    SiteName().read(made["site"], f"the site's name in {where}")
    return made


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
