"""Objects that users hand over in Python, by references that a study can hold as it holds others.

A function or system of an importable file of its own is named as "file.py:name", and lives on in a
run directory. One of a notebook, of a script or made on the fly exists in this Python process only:
it is kept here under a name like "<session>.py:my_policy", which everything that looks up
"file.py:name" finds, and which no run directory accepts.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from fedkoopman.errors import InputError, short

SESSION = "<session>.py"
_KEPT: dict[str, Any] = {}


def is_object(given: Any) -> bool:
    """Whether something is a function, a class or a system rather than a value of a study."""
    return callable(given) or hasattr(given, "vector_field")


def reference_to(given: Any) -> str:
    """A reference "file.py:name" by which `user_code.load_object` finds an object."""
    for module in _user_modules():
        for name, value in list(vars(module).items()):
            if value is given and name.isidentifier():
                return f"{module.__file__}:{name}"
    name = re.sub(r"\W", "", getattr(given, "__name__", "")) or type(given).__name__.lower()
    title, more = name, 1
    while title in _KEPT and _KEPT[title] is not given:
        more += 1
        title = f"{name}_{more}"
    _KEPT[title] = given
    return f"{SESSION}:{title}"


def _user_modules() -> Iterator[ModuleType]:
    """Modules that are one file of the user's own, which can be run again from that file."""
    apart = (sys.prefix, sys.base_prefix, str(Path(__file__).parent))
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        alone = name != "__main__" and getattr(module, "__package__", None) == ""
        if alone and isinstance(file, str) and file.endswith(".py") and not file.startswith(apart):
            yield module


def kept(name: str) -> Any:
    """An object of this session by its name."""
    try:
        return _KEPT[name]
    except KeyError:
        raise InputError(
            f"{short(name)} was an object of another Python session, which is gone: write it into "
            "a file and name it file.py:name"
        ) from None
