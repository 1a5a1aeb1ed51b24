"""A site's own Python: `file.py:name` names an object that a file defines."""

import importlib.util
from pathlib import Path

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
    spec = importlib.util.spec_from_file_location(f"fedkoopman_user_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        cause = " ".join(str(error).split())
        raise InputError(f"running {path} failed with {type(error).__name__}: {cause}") from error
    try:
        return getattr(module, name)
    except AttributeError:
        raise InputError(f"{path} defines no {name!r}: check the name after the colon") from None
