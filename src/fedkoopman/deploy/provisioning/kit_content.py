"""What a kit contains: the study, its Python files, keys, and a manifest with a hash of each.

A site gets the Python files that the study names, and those that they import from beside them.
`check_servable` refuses a study that sites cannot run with this alone.
"""

import ast
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from fedkoopman.config.study import Study
from fedkoopman.config.tables import SiteName
from fedkoopman.config.user_files import user_files
from fedkoopman.errors import InputError, short, system_error
from fedkoopman.paths import naming
from fedkoopman.version import NUMERICS

_PART = re.compile(r"[^\x00-\x1f\x7f/\\:.][^\x00-\x1f\x7f/\\:]{0,99}")
FORMAT = 1
"""Of kits and their manifests."""
KEYS = ("ca.crt", "node.key", "node.pub")
MANIFEST = "manifest.json"
RESERVED = (MANIFEST, "study.toml", *KEYS)
REMEDY = "open the kit again, or ask for a new one"
LARGEST = 4 * 2**20
"""Bytes of a Python file."""
_KINDS: dict[str, type] = {
    "site": str,
    "identity": int,
    "clients": int,
    "study": str,
    "version": str,
    "secure": bool,
    "files": dict,
}


def check_servable(study: Study, period: float = 0.0) -> None:
    """Refuse a study that sites on machines of their own cannot run.

    Arguments:
        period: seconds from one slot to the next; 0 for as soon as possible.
    """
    if study.scheme != "kf-fedkl":
        raise InputError(
            f'scheme is "{study.scheme}", which is for comparisons on one machine: serve '
            '"kf-fedkl", or use fedkoopman run'
        )
    if study.system.unknown:
        raise InputError(
            f"system.unknown names {', '.join(study.system.unknown)}, which serve does not "
            "estimate: estimate them with fedkoopman run, write what it finds into "
            "system.parameters, and leave out system.unknown"
        )
    if study.recordings.train:
        raise InputError(
            "recordings.train is given, but served sites bring their own data: leave it out"
        )
    if study.sites.arrivals == "live" and not period:
        raise InputError(
            'sites.arrivals is "live" and the period is 0, so that slots would pass before data '
            "arrive: give seconds per slot by --period"
        )


def shared_files(study: Study) -> dict[str, bytes]:
    """What all sites get, by name: the resolved study and its Python files."""
    found = {"study.toml": study.to_toml(lasting=True).encode()}
    for file in user_files(study):
        if file.is_absolute() or ".." in file.parts:
            raise InputError(
                f"the study names {file}, which is not below its directory: put it beside "
                "study.toml, so that sites get a copy"
            )
        for name in _with_imported(study.root, file.as_posix()):
            found[name] = _content(study.root / name)
    return found


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
        shared: what all sites get, from `shared_files`.
        identity: the site's place in the roster, from 0.
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


def check_content(content: Mapping[str, bytes], where: str) -> dict[str, Any]:
    """Compare a kit's files with the manifest among them, which is returned.

    Arguments:
        where: the kit, for messages.
    """
    made = _manifest(content.get(MANIFEST, b""), where)
    files: dict[str, str] = made["files"]
    for name in sorted({*files, *content} - {MANIFEST}):
        what = "lacks" if name not in content else "has an added" if name not in files else ""
        if not what and _hash(content[name]) != files[name]:
            what = "has a changed"
        if what:
            raise InputError(f"{where} {what} {name}: {REMEDY}")
    wanted = {"study.toml", *(KEYS if made["secure"] else ())}
    if not wanted <= set(files) or (not made["secure"] and set(KEYS) & set(files)):
        raise InputError(f"{where} does not have the files of a kit: {REMEDY}")
    # Another version's study may have keys that this one does not know.
    if made["version"] == NUMERICS and _digest(content["study.toml"], where) != made["study"]:
        raise InputError(f"{where} has another study than its manifest says: {REMEDY}")
    return made


def check_name(name: object) -> str:
    """The name of a file below a directory; a name that leads out of it is refused."""
    parts = name.split("/") if isinstance(name, str) else []
    if not 0 < len(parts) <= 8 or not all(_PART.fullmatch(part) for part in parts):
        raise InputError(
            f"{short(name)} cannot name a file of a kit: give a path below the study's directory, "
            "without .. and without leading dots"
        )
    return str(PurePosixPath(*parts))


def _with_imported(root: Path, first: str) -> list[str]:
    """A file, and all that it imports from beside it, directly or not."""
    waiting, found = [first], []
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        if check_name(name) in RESERVED:
            raise InputError(f"a Python file is called {name}, as a file of a kit is: rename it")
        found.append(name)
        # Python looks imports up beside the first file, whichever module imports.
        folder = PurePosixPath(first).parent
        for module in _imported(root / name):
            beside = folder / module
            if (root / f"{beside}.py").is_file():
                waiting.append(f"{beside}.py")
            elif (root / beside).is_dir():
                files = sorted((root / beside).rglob("*.py"))
                waiting += [path.relative_to(root).as_posix() for path in files]
    return found


def _imported(path: Path) -> Iterator[str]:
    """The top-level names of all modules that a file imports."""
    try:
        tree = ast.parse(_content(path), str(path))
    except (SyntaxError, ValueError, RecursionError) as error:
        cause = " ".join(str(error).split())
        raise InputError(f"{path} is not valid Python ({cause}): correct the file") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _content(path: Path) -> bytes:
    with naming(path):
        try:
            if path.stat().st_size > LARGEST:
                raise InputError(f"{path} is larger than {LARGEST:,} bytes: name a smaller file")
            return path.read_bytes()
        except OSError as error:
            raise system_error(f"cannot read {path}", error) from error


def _digest(content: bytes, where: str) -> str:
    try:
        return Study.from_dict(tomllib.loads(content.decode())).digest()
    except (ValueError, RecursionError) as error:  # an InputError is a ValueError
        cause = " ".join(str(error).split())
        raise InputError(f"{where} has an unreadable study.toml: {cause}") from error


def _manifest(content: bytes, where: str) -> dict[str, Any]:
    damaged = f"{where} has no readable manifest: {REMEDY}"
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
