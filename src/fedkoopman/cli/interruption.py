"""Ctrl-C: that it is heard, and how an interrupted verb says what it saved."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_asked = threading.Event()


class Interrupted(Exception):
    """The user stopped the program; the message says what was saved and how to go on."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Note Ctrl-C, so that `heed` finds it.

    Python raises KeyboardInterrupt wherever the program happens to be. If that is a callback of a
    library, as when JAX collects garbage, it is printed and forgotten, and the work goes on.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def note(sign: int, frame: Any) -> None:
        _asked.set()
        raise KeyboardInterrupt

    def forgotten(about: Any) -> None:
        if not issubclass(about.exc_type, KeyboardInterrupt):
            printed(about)

    _asked.clear()
    printed, sys.unraisablehook = sys.unraisablehook, forgotten
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = printed
        _asked.clear()


def heed() -> None:
    """End what is being done, if the user has asked for it."""
    if _asked.is_set():
        raise KeyboardInterrupt
