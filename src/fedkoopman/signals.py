"""How a process learns that it should stop: Ctrl-C (SIGINT) and SIGTERM.

Python runs a signal handler in the main thread, between any two instructions. Three kinds of
program need three ways:

- a service, whose threads wait for an event: `stop_requested`;
- a program whose main thread takes events from a queue: `signals_as_events`;
- a command that computes: `interruptible`, and `raise_if_interrupted` between its steps.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

__all__ = [
    "Interrupted",
    "interruptible",
    "raise_if_interrupted",
    "signals_as_events",
    "stop_requested",
]

_interrupted = threading.Event()


class Interrupted(Exception):
    """The user stopped the program; the message says what was saved and how to go on."""


@contextmanager
def stop_requested(also: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """An event that is set when this process is asked to stop; for its main thread.

    The handler must not set the event itself: the main thread may hold the event's lock at that
    instruction, and would wait for itself for ever. A `SimpleQueue` can be put to at any
    instruction, and another thread takes it from there.

    Arguments:
        also: is called then too, from another thread.
    """
    event, signals = threading.Event(), SimpleQueue[bool]()

    def listen() -> None:
        while signals.get():
            event.set()
            also()

    listener = threading.Thread(target=listen, name="signals", daemon=True)
    listener.start()
    try:
        with _handled_by(lambda: signals.put(True)):
            yield event
    finally:
        signals.put(False)
        listener.join()


@contextmanager
def signals_as_events(put: Callable[[], None]) -> Iterator[None]:
    """Have a signal put an event into a queue, where KeyboardInterrupt could come anywhere.

    Outside the main thread, which alone gets signals, this does nothing.

    Arguments:
        put: puts the event. KeyboardInterrupt is raised after the block in any case, as the last
            event may already have been taken.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def handle() -> None:
        nonlocal came
        came = True
        put()

    with _handled_by(handle):
        yield
    if came:
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """Note Ctrl-C, so that `raise_if_interrupted` finds it.

    Python raises KeyboardInterrupt wherever the program happens to be. If that is a callback of a
    library, as when JAX collects garbage, it is printed and forgotten, and the work goes on.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def note(sign: int, frame: Any) -> None:
        _interrupted.set()
        raise KeyboardInterrupt

    def unraisable(about: Any) -> None:
        if not issubclass(about.exc_type, KeyboardInterrupt):
            before(about)

    _interrupted.clear()
    before, sys.unraisablehook = sys.unraisablehook, unraisable
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = before
        _interrupted.clear()


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt if the user has pressed Ctrl-C and a library swallowed it."""
    if _interrupted.is_set():
        raise KeyboardInterrupt


@contextmanager
def _handled_by(handler: Callable[[], None]) -> Iterator[None]:
    """Install a handler for SIGINT and SIGTERM; those that were there before are put back."""
    before = {
        sign: signal.signal(sign, lambda *_: handler()) for sign in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for sign, old in before.items():
            signal.signal(sign, old)
