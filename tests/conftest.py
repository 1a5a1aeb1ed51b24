"""All tests run in float64, with strict shapes; what one process compiled, the next need not."""

import os
import signal
from pathlib import Path

# Workers have it from the process that started them: all share one.
_CACHE = Path(__file__).parents[1] / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

import jax  # noqa: E402 - reads these when it is loaded

jax.config.update("jax_enable_x64", True)

# A job in the background ignores Ctrl-C, and so would every process that a test starts to stop it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
