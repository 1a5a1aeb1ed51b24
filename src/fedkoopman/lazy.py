"""Packages that load their names on first use (PEP 562), so that listing members needs no JAX.

A package states its names once, as ordinary imports under `if TYPE_CHECKING:`, where editors and
type checkers see them; `lazy_names` reads that block.
"""

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path


def lazy_names(package: str) -> Callable[[str], object]:
    """The `__getattr__` of a package.

    Arguments:
        package: its `__name__`.
    """

    @cache
    def homes() -> dict[str, str]:
        """The module that each name comes from."""
        file = sys.modules[package].__file__
        assert file is not None
        for node in ast.parse(Path(file).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                imports = [part for part in node.body if isinstance(part, ast.ImportFrom)]
                return {name.name: str(part.module) for part in imports for name in part.names}
        return {}

    def load(name: str) -> object:
        if name in homes():
            value: object = getattr(import_module(homes()[name]), name)
        elif not name.startswith("_") and find_spec(f"{package}.{name}"):
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    return load
