"""Many processes share JAX's compilation cache here, and some of them are killed.

JAX writes an entry in place. Another process could read half of it, and the half that a killed
process leaves would stay: JAX never writes an entry twice. So each is written to a file of its own,
which is then renamed.

The tests' processes and all that they start have this directory in `PYTHONPATH`, so Python loads
this file when it starts. It does not load JAX.
"""

import os
import sys
import threading
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

CACHE = "jax._src.lru_cache"


def write_atomically(module: ModuleType) -> None:
    """Replace how this module of JAX writes an entry."""

    def put(self: Any, key: str, value: bytes) -> None:
        entry = f"{self.path}/{key}{module._CACHE_SUFFIX}"
        if os.path.exists(entry):
            return
        unfinished = f"{entry}.{os.getpid()}.{threading.get_ident()}"
        with open(unfinished, "wb") as file:
            file.write(value)
        os.replace(unfinished, entry)

    module.LRUCache.put = put


class CacheFinder(MetaPathFinder):
    """Finds JAX's cache as Python does, and changes it as soon as it is loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == CACHE else None
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_change(module: ModuleType) -> None:
                load(module)
                write_atomically(module)

            spec.loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec


if CACHE in sys.modules:
    write_atomically(sys.modules[CACHE])
else:
    sys.meta_path.insert(0, CacheFinder())
