"""The members of examples/extension, from its files: nothing is installed."""

import importlib
import sys
from pathlib import Path
from typing import Any

EXTENSION = Path(__file__).parents[2] / "examples" / "extension"
SOURCES = EXTENSION / "src"


def file_of(module: str) -> Path:
    """The file of a module of the example."""
    return SOURCES / "fedkoopman_extras" / f"{module}.py"


def member(module: str, attribute: str) -> Any:
    """What a module of the example binds to an attribute, as `ALGORITHM`."""
    sys.path.insert(0, str(SOURCES))
    try:
        return getattr(importlib.import_module(f"fedkoopman_extras.{module}"), attribute)
    finally:
        sys.path.remove(str(SOURCES))
