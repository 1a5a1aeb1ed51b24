"""`fedkoopman watch` in a real browser: opened before the run, while it runs, and after it."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from reference.browser import Watched, chromium

from fedkoopman.reports.live_server import address, listening, serving

PATIENCE = 20_000
"""Milliseconds that a test waits for what should take far less."""
HOSTILE = (
    '<img src="http://elsewhere.example.org/x.png" onerror="window.hacked=1">',
    "</script><script>window.hacked = 1</script>",
    "';window.hacked=1;\"`${window.hacked=1}` javascript:window.hacked=1",
    "long" * 2500,
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page; afterwards nothing may have gone wrong in it or been asked of elsewhere."""
    pages = []

    def visit(address: str, **options: Any) -> Any:
        seen = Watched(browser, address, **options)
        pages.append(seen)
        seen.page.set_default_timeout(PATIENCE)
        seen.page.goto(address)
        return seen.page

    yield visit
    for seen in pages:
        seen.page.close()
        assert seen.faults == []


def begin(directory: Path, name: str = "a first run", epochs: int = 5) -> Path:
    directory.mkdir(parents=True)
    (directory / "study.toml").write_text(
        f"name = {json.dumps(name)}\nseed = 0\nslots = 40\n[clients]\ncount = 3\n"
        f"[training]\nepochs = {epochs}\n"
    )
    return directory


def append(directory: Path, *slots: int) -> None:
    with (directory / "records.jsonl").open("a") as file:
        for slot in slots:
            numbers = {"l1": 0.5 / slot, "l2": 0.4 / slot, "l3": 0.3 / slot, "E": 2.0 / slot}
            row = {"slot": slot, "arrived": [0, slot % 3], "active": [slot % 3], "dropped": []}
            more = {"samples": 300, "horizon": float(slot), "E1": 1.0, "E2": 1.0, "loss": 1.0}
            file.write(json.dumps(row | numbers | more | {"seconds": 0.1 * slot}) + "\n")


def finish(directory: Path, slots: int) -> None:
    means = {name: {"mean": 0.1, "std": 0.0} for name in ("l1", "l2", "l3", "E", "E1", "horizon")}
    content = {"seeds": [0], "tail_slots": 40, "seconds": 4.0, "slots": slots, "finished": True}
    (directory / "summary.json").write_text(json.dumps(content | means))


def shows(page: Any, words: str) -> float:
    """Wait until the page shows some words; how many seconds that took."""
    began = time.monotonic()
    page.wait_for_function("words => document.body.innerText.includes(words)", arg=words)
    return time.monotonic() - began


def last_slot(page: Any, slot: int) -> float:
    """Wait until the table of the learning curves ends with a slot; the seconds that took."""
    began = time.monotonic()
    page.wait_for_function(
        "slot => document.querySelector('#curves tbody tr:last-child th')?.textContent === slot",
        arg=str(slot),
    )
    return time.monotonic() - began


def test_a_page_opened_before_the_run_keeps_up_with_it(
    tmp_path: Path, opened: Callable[..., Any]
) -> None:
    directory = tmp_path / "run"
    with listening() as own, serving(own, [directory]):
        page = opened(address(own))
        shows(page, "Waiting for a run")
        begin(directory)
        append(directory, 1)
        print(f"the first record was shown after {shows(page, 'a first run'):.2f} s")
        assert "Waiting" not in page.inner_text("body")
        append(directory, 2, 3)
        print(f"further records were shown after {last_slot(page, 3):.2f} s")
        page.click("#curves >> xpath=ancestor::details/summary")
        append(directory, 4)
        last_slot(page, 4)
        assert page.locator("#curves").is_visible()  # what a reader has opened stays open
        (directory / "records.jsonl").write_text("")  # resumed from its beginning
        append(directory, 1, 2)
        last_slot(page, 2)
        append(directory, *range(3, 41))
        finish(directory, 40)
        last_slot(page, 40)
        shows(page, "Finished")
        for chart in ("#losses", "#error", "#clients"):
            assert page.locator(f"{chart} svg path, {chart} svg rect").count() > 0


def test_runs_beside_each_other_are_told_apart(tmp_path: Path, opened: Callable[..., Any]) -> None:
    runs = [begin(tmp_path / "a", "one"), begin(tmp_path / "b", "another", epochs=20)]
    for run in runs:
        append(run, 1, 2)
    with listening() as own, serving(own, [*runs, tmp_path / "later"]):
        page = opened(address(own))
        shows(page, f"{tmp_path / 'later'} does not exist yet")
        assert "training.epochs" in page.inner_text("#differences")
        told = page.inner_text("#error")
        assert "one" in told and "another" in told
        append(runs[1], 3)
        begin(tmp_path / "later", "a third")
        append(tmp_path / "later", 1)
        print(f"a third run was shown after {shows(page, 'a third'):.2f} s")


def test_hostile_names_are_names(tmp_path: Path, opened: Callable[..., Any]) -> None:
    run = tmp_path / "<img src=x onerror=window.hacked=1>"
    with listening() as own, serving(own, [run]):
        page = opened(address(own), viewport={"width": 400, "height": 800})
        shows(page, run.name)
        begin(run)
        (run / "run.json").write_text(json.dumps({"sites": HOSTILE[:3]}))
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        for slot, name in enumerate(HOSTILE, 1):
            (run / "study.toml").write_text(f"name = {json.dumps(name)}\nslots = 40\n")
            append(run, slot)
            page.wait_for_function(
                "name => document.querySelector('h1').textContent === name", arg=name
            )
            assert page.evaluate("window.hacked === undefined")
            page.reload()  # the same from the server
            assert page.inner_text("h1") == name
            assert page.evaluate("window.hacked === undefined")
            assert page.evaluate(wide) <= 0


def test_a_page_that_lost_its_server_says_so(tmp_path: Path, browser: Any) -> None:
    run = begin(tmp_path / "run")
    append(run, 1)
    page = browser.new_page()
    with listening() as own:
        with serving(own, [run]):
            page.goto(address(own))
            shows(page, "Live")
        shows(page, "No connection to fedkoopman watch")
    page.close()
