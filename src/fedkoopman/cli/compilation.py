"""Keep what was compiled: a second run of a study starts in a second or two.

Only the program does this, not the library: it sets options of JAX, and the process is ours.
"""

import hashlib
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path


def keep_compiled() -> None:
    """Let JAX keep compiled functions in the user's cache, where that can be written.

    Compiled code is for one kind of processor, and a home directory may be shared by several; so
    each kind has a directory of its own. `JAX_COMPILATION_CACHE_DIR`, if set, goes first. Where JAX
    is loaded already, someone else uses it in this process, and nothing is changed.
    """
    if "jax" in sys.modules or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        # JAX reads these when it is loaded, which a refused study should not have to wait for.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


def cache_folder(program: str = "fedkoopman") -> Path:
    """The directory of a program's compiled functions, for this JAX and kind of processor."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / program / f"jaxlib-{version('jaxlib')}-{_processor()}"


def _processor() -> str:
    """A short name for the kind of processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        about = sorted({line for line in lines if line.startswith(("model name", "flags"))})
    except OSError:
        about = [platform.processor()]
    text = "\n".join([platform.machine(), *about])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
