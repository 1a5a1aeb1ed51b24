"""All tests run in float64 and share what they compile, also with later runs."""

import ctypes
import gc
import os
import runpy
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

from fedkoopman.cli.process import cache_folder

STARTUP = Path(__file__).parent / "startup"
TARGETS = {"slow": "make test-slow", "deploy": "make test-deploy"}
"""Markers of tests that `make test` leaves out, and the target that runs them."""
KEPT_DAYS = 14
MOST_BYTES = 3 << 30
"""Of memory that a process of the tests may hold before it forgets compiled functions."""
LEFT_OUT = pytest.StashKey[Counter[str]]()

# Workers inherit these, and so do the processes that tests start.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_folder("fedkoopman-tests")))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # single operations too
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
_PATH = os.environ.get("PYTHONPATH", "").split(os.pathsep)
if str(STARTUP) not in _PATH:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(STARTUP), *_PATH]))
runpy.run_path(str(STARTUP / "sitecustomize.py"))

# How long an example takes depends on the machine and on what is compiled already.
settings.register_profile("tests", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tests")

# A job in the background ignores Ctrl-C, and so would every process that a test starts to stop it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = Counter()
    if _runs_tests(config):
        import jax

        jax.config.update("jax_enable_x64", True)
    if not hasattr(config, "workerinput"):
        _forget_unused(Path(os.environ["JAX_COMPILATION_CACHE_DIR"]))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tracing makes many objects; looking through thousands of tests for garbage takes a tenth."""
    if _runs_tests(session.config):
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """JAX keeps all that is compiled: half of the tests would fill eight gigabytes."""
    if nextitem is None or nextitem.path == item.path or _resident() < MOST_BYTES:
        return
    import jax

    jax.clear_caches()
    gc.collect()
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the C library of Linux
    if give_back:
        give_back(0)


def _resident() -> int:
    """Bytes of memory that this process holds; 0 where the system does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _runs_tests(config: pytest.Config) -> bool:
    """Whether this process runs tests itself, not only by workers."""
    return hasattr(config, "workerinput") or not config.getoption("numprocesses", None)


def _forget_unused(cache: Path) -> None:
    """Delete compiled functions that no run has read for a while: their sources have changed."""
    oldest = time.time() - KEPT_DAYS * 24 * 3600
    with suppress(OSError), os.scandir(cache) as entries:
        for entry in entries:
            about = entry.stat()
            if max(about.st_atime, about.st_mtime) < oldest:
                os.unlink(entry)


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        for name in TARGETS:
            if item.get_closest_marker(name):
                item.config.stash[LEFT_OUT][name] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(session.config.stash[LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """Every worker collects all tests, so each of them says the same."""
    config, told = node.config, getattr(node, "workeroutput", {})
    config.stash[LEFT_OUT] = Counter(told.get("left_out", config.stash[LEFT_OUT]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what did not run, and which target has it."""
    left_out = terminalreporter.config.stash[LEFT_OUT]
    told = [f"{n} tests marked {name} ({TARGETS[name]})" for name, n in left_out.items()]
    skipped = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    terminalreporter.section("not run")
    terminalreporter.line(f"left out: {', '.join(told) or 'nothing'}")
    terminalreporter.line(f"skipped: {sum(skipped.values())}")
    for reason, count in skipped.most_common():
        terminalreporter.line(f"  {count} because {reason}")
