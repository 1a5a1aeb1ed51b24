"""The compilation cache that tests share holds whole entries only, whoever is killed."""

import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from jax._src.lru_cache import LRUCache

STARTUP = Path(__file__).parents[1] / "startup"
WRITER = """
import sys
from jax._src.lru_cache import LRUCache
cache = LRUCache(sys.argv[1], max_size=-1)
print("ready", flush=True)
n = 0
while True:
    cache.put(f"entry-{n}", b"x" * 5_000_000)
    n += 1
"""


def test_this_process_and_its_children_rename_entries_into_place() -> None:
    assert LRUCache.put.__qualname__ == "write_atomically.<locals>.put"
    assert str(STARTUP) in os.environ["PYTHONPATH"].split(os.pathsep)


def test_a_killed_writer_leaves_whole_entries(tmp_path: Path) -> None:
    cache = LRUCache(str(tmp_path), max_size=-1)
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        while cache.get("entry-3") is None:
            time.sleep(0.001)
        writer.send_signal(signal.SIGKILL)
    entries = list(tmp_path.glob("*-cache"))
    assert len(entries) >= 4
    assert {entry.stat().st_size for entry in entries} == {5_000_000}


def test_an_entry_that_cannot_be_written_is_not_there(tmp_path: Path) -> None:
    module = ModuleType("cache")
    module._CACHE_SUFFIX, module.LRUCache = "-cache", type("LRUCache", (), {})
    runpy.run_path(str(STARTUP / "sitecustomize.py"))["write_atomically"](module)
    cache = SimpleNamespace(path=tmp_path)
    with pytest.raises(TypeError):
        module.LRUCache.put(cache, "key", "not bytes")
    assert not (tmp_path / "key-cache").exists()
    module.LRUCache.put(cache, "key", b"first")
    module.LRUCache.put(cache, "key", b"second")
    assert (tmp_path / "key-cache").read_bytes() == b"first"
