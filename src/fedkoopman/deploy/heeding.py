"""Ctrl-C and SIGTERM as an event that threads can wait for.

A handler runs in the main thread between two of its instructions. Were it to set the event itself
while that thread is about to wait for the event, it would wait for a lock that its own thread
holds, for ever. A `SimpleQueue` is made for this: it may be put to at any instruction; a thread
takes it from there.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

__all__ = ["heeded"]


@contextmanager
def heeded(also: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """An event that is set when somebody asks this process to end; for its main thread.

    Arguments:
        also: is called then too, from another thread.
    """
    asked, wishes = threading.Event(), SimpleQueue[bool]()

    def listen() -> None:
        while wishes.get():
            asked.set()
            also()

    listener = threading.Thread(target=listen, name="wishes", daemon=True)
    listener.start()
    before = {
        sign: signal.signal(sign, lambda *_: wishes.put(True))
        for sign in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield asked
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
        wishes.put(False)
        listener.join()
