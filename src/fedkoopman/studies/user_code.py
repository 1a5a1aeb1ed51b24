"""A site's own Python: `file.py:name` names an object that a file defines."""

import importlib.util
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from fedkoopman.errors import InputError


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
    if not path.is_file():
        raise InputError(f"{reference!r}: there is no file {path}")
    about = path.stat()
    module = _run(path.resolve(), about.st_mtime_ns, about.st_size)
    try:
        return getattr(module, name)
    except AttributeError:
        raise InputError(f"{path} defines no {name!r}: check the name after the colon") from None


@lru_cache(maxsize=64)
def _run(path: Path, changed: int, size: int) -> ModuleType:
    """Run a file; once, as long as it stays as it is, so that its functions are the same."""
    del changed, size
    spec = importlib.util.spec_from_file_location(f"fedkoopman_user_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # As for a program: what stands beside a file may be imported by it.
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        cause = " ".join(str(error).split())
        raise InputError(f"running {path} failed with {type(error).__name__}: {cause}") from error
    finally:
        sys.path.remove(str(path.parent))
    return module
