"""A real browser: Debian's Chromium, driven by Playwright. Without either, tests are skipped."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser; there can be one at a time in a process."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with sync_api.sync_playwright() as program:
        started = program.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Watched:
    """A page, and whatever it should not have done: complaints, dialogs, requests of elsewhere."""

    def __init__(self, browser: Any, own: str = "file:", **options: Any) -> None:
        self.page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}} | options)
        self.faults: list[str] = []
        self._own = own
        self.page.on("console", lambda said: self.faults.append(said.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda box: (self.faults.append(box.message), box.dismiss()))
        self.page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(("file:", self._own)):
            self.faults.append(f"asked for {request.url}")
