"""A site's own Python: `file.py:name` names an object that a file defines."""

import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from fedkoopman.errors import InputError
from fedkoopman.paths import readable_file, shown

__all__ = ["is_reference", "load_object"]

_BESIDE: dict[str, Path] = {}
"""Modules that users' files imported from beside them, and where they are."""


def is_reference(name: str) -> bool:
    """Whether a name is a reference to an object in a file, as "file.py:name"."""
    return ".py:" in name


def load_object(reference: str, folder: Path) -> object:
    """Run `file.py` of a reference `file.py:name` and return what it calls `name`.

    Arguments:
        reference: `file.py:name`.
        folder: the directory that a relative file is looked up in.
    """
    file, colon, name = reference.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise InputError(f"{reference!r} names no object: write file.py:name")
    path = folder / file
    if not readable_file(path):
        raise InputError(f"{reference!r}: there is no file {shown(path)}: check the path")
    about = path.stat()
    module = _run(path.resolve(), about.st_mtime_ns, about.st_size)
    try:
        return getattr(module, name)
    except AttributeError:
        raise InputError(
            f"{shown(path)} defines no {name!r}: check the name after the colon"
        ) from None


@lru_cache(maxsize=64)
def _run(path: Path, changed: int, size: int) -> ModuleType:
    """Run a file; once, as long as it stays as it is, so that its functions are the same."""
    del changed, size
    mark = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    loader = _FromSource(f"fedkoopman_user_{path.stem}_{mark}", str(path))
    spec = importlib.util.spec_from_file_location(loader.name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # where dataclasses look for the names in annotations
    try:
        with _as_program(path.parent):
            loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[loader.name]
        cause = " ".join(str(error).split())
        raise InputError(
            f"running {shown(path)} failed with {type(error).__name__}: {cause}: mend the file"
        ) from error
    return module


class _FromSource(SourceFileLoader):
    """Compiles what stands in the file now: compiled code beside it would be told from it only by
    size and second, and leave a directory where a user expects none."""

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


@contextmanager
def _as_program(folder: Path) -> Iterator[None]:
    """Let what stands beside a file be imported by it, as for a program.

    Two sites may each have an `optics.py`: what the other imported under a name that is also found
    here is forgotten.
    """
    for name in list(_BESIDE):
        if _BESIDE[name] != folder and any(
            (folder / f"{name}{end}").exists() for end in ("", ".py")
        ):
            sys.modules.pop(name, None)
            del _BESIDE[name]
    before, writes = set(sys.modules), sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(folder):
                _BESIDE[name] = folder
