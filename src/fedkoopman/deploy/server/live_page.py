"""`report.html` of a run that goes on, made anew now and then, beside the slots and not in them."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from fedkoopman.errors import InputError
from fedkoopman.reports.run import write_report

__all__ = ["LivePage"]

EVERY = 60.0
"""Seconds from one page to the next."""


class LivePage:
    """The page of a run directory."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self._last = time.monotonic()
        self._writer: threading.Thread | None = None
        self._failed = ""

    def refresh(self) -> None:
        """Begin a new page if the last one is old."""
        busy = self._writer is not None and self._writer.is_alive()
        if busy or time.monotonic() - self._last < EVERY:
            return
        self._last = time.monotonic()
        self._writer = threading.Thread(target=self._write, name="page", daemon=True)
        self._writer.start()

    def finish(self) -> Path:
        """Write the last page."""
        if self._writer is not None:
            self._writer.join()
        return write_report(self._folder)

    def _write(self) -> None:
        try:
            write_report(self._folder)
            self._failed = ""
        except InputError as error:  # a page is not worth a run
            if str(error) != self._failed:
                self._failed = str(error)
                self._say(f"report.html was not written: {error}")
