"""`report.html` of a run that goes on, made anew now and then, beside the slots and not in them."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from fedkoopman.reports.run import write_report

__all__ = ["LivePage"]

EVERY = 60.0
"""Seconds from one page to the next."""


class LivePage:
    """The page of a run directory.

    One thread writes all pages: the C library keeps the 15 MB of a page for each of the arenas that
    a thread of its own would happen to get.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self._last = time.monotonic()
        self._writer = ThreadPoolExecutor(1, "page")
        self._page: Future[None] | None = None
        self._failed = ""

    def refresh(self) -> None:
        """Begin a new page if the last one is old."""
        busy = self._page is not None and not self._page.done()
        if busy or time.monotonic() - self._last < EVERY:
            return
        self._last = time.monotonic()
        self._page = self._writer.submit(self._write)

    def finish(self) -> Path:
        """Write the last page."""
        if self._page is not None:
            wait([self._page])
        return write_report(self._folder)

    def _write(self) -> None:
        try:
            write_report(self._folder)
            self._failed = ""
        except Exception as error:  # a page is not worth a run
            if str(error) != self._failed:
                self._failed = str(error)
                self._say(f"report.html was not written: {error}")
