"""The Python files of a study, which its sites get with their kits: those it names, and those that
they import from beside them."""

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from fedkoopman.config.study import Study
from fedkoopman.config.user_files import user_files
from fedkoopman.deploy.provisioning.sealing import check_name
from fedkoopman.errors import InputError, system_error
from fedkoopman.paths import naming

__all__ = ["shared_files"]

LARGEST = 4 * 2**20
"""Bytes of a Python file."""
RESERVED = ("manifest.json", "study.toml", "ca.crt", "node.key", "node.pub")


def shared_files(study: Study) -> dict[str, bytes]:
    """What all sites get, by name: the study as it was resolved, and its Python files."""
    found = {"study.toml": study.to_toml().encode()}
    for file in user_files(study):
        if file.is_absolute() or ".." in file.parts:
            raise InputError(
                f"the study names {file}, which is not below its directory: put it beside "
                "study.toml, from where sites get a copy"
            )
        for name in _with_imported(study.root, file.as_posix()):
            found[name] = _content(study.root / name)
    return found


def _with_imported(root: Path, first: str) -> list[str]:
    """A file, and what it and the rest import from beside it."""
    waiting, found = [first], []
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        if check_name(name) in RESERVED:
            raise InputError(f"a Python file is called {name}, as a file of a kit is: rename it")
        found.append(name)
        # What a program imports is looked up beside it, wherever the importing module is.
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
    """First words of all that a file imports."""
    try:
        tree = ast.parse(_content(path), str(path))
    except (SyntaxError, ValueError, RecursionError) as error:
        cause = " ".join(str(error).split())
        raise InputError(f"{path} is not valid Python ({cause}): mend the file") from error
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
