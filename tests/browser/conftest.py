"""A real browser: Debian's Chromium, driven by Playwright; skipped where it is not installed."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 20_000
"""Milliseconds that a test waits for what should take far less."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page; afterwards nothing may have gone wrong in it or been asked of elsewhere."""
    complaints: list[str] = []
    contexts = []

    def visit(address: str, **options: Any) -> Any:
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on(
            "console",
            lambda one: complaints.append(one.text) if one.type in ("error", "warning") else None,
        )
        page.on(
            "request",
            lambda one: None if one.url.startswith(own) else complaints.append(f"asked: {one.url}"),
        )
        own = address if address.startswith("file:") else address.rstrip("/") + "/"
        page.goto(address)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert complaints == []
