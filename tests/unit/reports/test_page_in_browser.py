"""The page in a real browser: charts are drawn, controls work, nothing is loaded."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.browser import Watched, chromium
from unit.reports.test_run_report import rollout_of, study_text, write_run, write_seed

from fedkoopman.reports.document import document, story_json
from fedkoopman.reports.run import write_report
from fedkoopman.reports.story import story

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> \" ' ` ${alert(3)} & %{y} "
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


def evidence_of(rollout: dict[str, Any], sites: list[str]) -> dict[str, Any]:
    """As of `runs.evidence`, for a trajectory."""
    truth, leads = np.array(rollout["truth"]), [1, 5, 20, 100]
    d = truth.shape[1]
    errors = [[0.01 * lead * (i + 1) for i in range(d)] for lead in leads]
    ahead = [np.where(np.arange(len(truth))[:, None] >= h, truth + 0.01 * h, np.nan) for h in leads]
    shown = [[[None if np.isnan(v) else v for v in row] for row in each] for each in ahead]
    modes = [
        {"eigenvalue": [0.9, 0.2], "pair": True, "modulus": 0.92, "frequency": 1.7,
         "decay_rate": 2.0, "half_life": 0.35, "mode": dict.fromkeys(rollout["names"], 0.5)},
        {"eigenvalue": [1.01, 0.0], "pair": False, "modulus": 1.01, "frequency": 0.0,
         "decay_rate": -0.5, "half_life": -1.39, "mode": dict.fromkeys(rollout["names"], 1.0)},
    ]  # fmt: skip
    view = truth[:60]
    std = np.full_like(view, 0.5).tolist()
    return {
        "names": rollout["names"], "units": rollout["units"], "dt": 0.02, "depth": 1, "relift": 0,
        "spectrum": modes, "edmd": {"degree": 3, "segments": 9}, "leads": leads,
        "errors": {"model": errors, "holding": [[9 * v for v in row] for row in errors],
                   "edmd": [[2 * v for v in row] for row in errors]},
        "std": errors, "spread": [8.0] * d, "levels": [0.5, 0.9, 0.99],
        "calibration": [{"lead": 1, "covered": [0.5, 0.9, 0.98], "count": 100}],
        "shown": {"truth": truth.tolist(), "leads": leads,
                  "forecasts": {"model": shown, "edmd": shown}},
        "valid": {"model": [40.0, 60.0], "holding": [2.0, 3.0]},
        "sites": [
            {"name": name, "observed": (view + 1).tolist(), "seen": view.tolist(), "seen_std": std,
             "true_seen": view.tolist(), "mean": view.tolist(), "std": std, "truth": view.tolist()}
            for name in sites
        ],
    }  # fmt: skip


def finished(directory: Path, names: list[str] | None = None, name: str = "small") -> Path:
    """A whole run: with evidence, and a comparison of each site alone."""
    rollout = rollout_of(0)
    if names:
        rollout |= {"names": names, "units": names}
    write_run(directory, slots=60)
    sites = names or ["client 0", "client 1"]
    (directory / "study.toml").write_text(study_text(name))
    (directory / "rollout.json").write_text(json.dumps(rollout))
    (directory / "evidence.json").write_text(json.dumps(evidence_of(rollout, sites)))
    own = {"holding": [0.9, 1.2], "alone": [0.2, 0.6], "dmd": [0.5, 0.9], "edmd": [0.3, "diverges"],
           "federated": [0.1, 0.5]}  # fmt: skip
    summary = {
        "finished": True, "tail_slots": 50, "seconds": 2.0, "E1": {"mean": 0.1, "std": 0.0},
        "benefit": {"horizons": [1, 20], "degree": 3, "sites": {site: own for site in sites},
                    "mean": own, "worse_than": {"holding": [], "dmd": []}, "sentence": "Better."},
    }  # fmt: skip
    (directory / "summary.json").write_text(json.dumps(summary))
    return directory


@pytest.fixture(scope="module")
def shown(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """A finished run's page, which several tests look at."""
    report = write_report(finished(tmp_path_factory.mktemp("page") / "run"))
    assert report.stat().st_size < 2_000_000
    seen, began = Watched(browser), time.perf_counter()
    seen.page.goto(report.as_uri())
    seen.page.wait_for_selector("#calibration .panels .line")
    print(f"{report.stat().st_size / 1000:.0f} kB, drawn {time.perf_counter() - began:.2f} s after")
    return seen


CHARTS = (
    "alone", "shares", "losses", "error", "clients", "views", "ahead", "states", "space",
    "spectrum-plane", "horizons", "calibration",
)  # fmt: skip


def test_every_chart_has_data_and_nothing_is_loaded(shown: Watched) -> None:
    drawn = shown.page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("figure.chart")].map(
        one => [one.id, [...one.querySelectorAll(".panels svg")].map(
          svg => svg.querySelectorAll(".line, .mark, .dots").length)]))"""
    )
    assert set(drawn) == set(CHARTS)
    assert all(count > 0 for counts in drawn.values() for count in counts), drawn
    empty = shown.page.evaluate(
        """() => [...document.querySelectorAll(".panels path:is(.line, .mark, .dots)")].filter(
        path => !path.getAttribute("d")).length"""
    )
    assert empty == 0
    assert shown.faults == []


def test_names_are_unique_and_figures_described(shown: Watched) -> None:
    found = shown.page.evaluate(
        """() => {const ids = [...document.querySelectorAll("[id]")].map(one => one.id);
        return {twice: ids.filter((id, i) => ids.indexOf(id) !== i),
                bare: [...document.querySelectorAll("figure svg[role=img]")].filter(
                  one => !(one.getAttribute("aria-label") || "").trim()).length}}"""
    )
    assert found == {"twice": [], "bare": 0}


def test_the_slider_changes_the_forecast_by_key(shown: Watched) -> None:
    page = shown.page
    line = page.locator('#ahead g[data-name="model"] path').first
    before = line.get_attribute("d")
    slider = page.locator("#ahead input")
    slider.focus()
    page.keyboard.press("End")
    assert page.locator("#ahead output").inner_text() == "100 steps (2 time units)"
    assert slider.get_attribute("aria-valuetext") == "100 steps (2 time units)"
    assert line.get_attribute("d") != before
    assert "holding the last value" in page.locator("#ahead .note").inner_text()


def test_the_legend_hides_and_shows_a_line_by_key(shown: Watched) -> None:
    page = shown.page
    lines = page.locator('#losses g[data-name="ℓ2"]')
    assert lines.count() == 1
    button = page.locator("#losses .legend button", has_text="ℓ2")
    button.focus()
    page.keyboard.press("Enter")
    assert lines.count() == 0 and button.get_attribute("aria-pressed") == "false"
    page.keyboard.press("Enter")  # focus has stayed
    assert lines.count() == 1


def test_hovering_tells_numbers_with_spread_and_unit(shown: Watched) -> None:
    page = shown.page
    chart = page.locator("#states .panels svg").nth(1)
    chart.scroll_into_view_if_needed()
    chart.hover(position={"x": 200, "y": 60})
    said = page.locator("#states .tip").inner_text()
    assert "time" in said and " m" in said and "±" in said
    page.mouse.move(1, 1)
    assert page.locator("#states .tip").is_hidden()


def test_charts_are_read_by_keyboard(shown: Watched) -> None:
    page = shown.page
    page.locator("#spectrum-plane .panels svg").first.focus()
    page.keyboard.press("ArrowRight")
    said = page.locator("#spectrum-plane .tip").inner_text()
    for words in ("frequency 1.7", "period 0.5882", "halves in 0.35"):
        assert words in said
    page.locator("#losses .panels svg").focus()
    page.keyboard.press("Home")
    assert "time slot 0" in page.locator("#losses .tip").inner_text()
    tab = page.locator("#views [role=tab]").first
    tab.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#views [aria-selected=true]").inner_text() == "client 1"


def test_dragging_zooms_and_escape_shows_all(shown: Watched) -> None:
    page = shown.page
    chart = page.locator("#losses .panels svg")
    chart.scroll_into_view_if_needed()
    whole = chart.text_content()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 80)
    page.mouse.up()
    assert page.locator("#losses .reset").is_visible() and chart.text_content() != whole
    chart.focus()
    page.keyboard.press("Escape")
    assert chart.text_content() == whole


@pytest.mark.parametrize("width", [400, 1280, 1920])
def test_nothing_is_wider_than_the_screen(shown: Watched, browser: Any, width: int) -> None:
    page = shown.page
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(50)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    cut = page.evaluate(
        """() => [...document.querySelectorAll("td.meaning, th")].filter(one => one.offsetParent
        && getComputedStyle(one).display === "none").length"""
    )
    assert cut == 0 and page.locator("td.meaning").first.is_visible()
    if width > 400:
        wide = page.evaluate(
            """() => [...document.querySelectorAll(".scroll")].filter(
            one => one.scrollWidth > one.clientWidth).length"""
        )
        assert wide == 0
    page.set_viewport_size({"width": 1280, "height": 900})


def test_dark_mode_and_print_change_colours_by_style_alone(shown: Watched) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    page = shown.page
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(colour) == "rgb(20, 25, 30)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    assert page.locator("#losses .panels svg .line").first.is_visible()
    page.emulate_media(media="screen", color_scheme="light")
    assert shown.faults == []


def test_hostile_names_are_inert(browser: Any, tmp_path: Path) -> None:
    names = [HOSTILE, f"{HOSTILE}2", "x" * 10_000]
    first = finished(tmp_path / "first", names, name=HOSTILE)
    other = finished(tmp_path / "other", names, name="y" * 10_000)
    report = write_report([first, other])
    assert report.stat().st_size < 2_000_000
    seen = Watched(browser)
    seen.page.goto(report.as_uri())
    seen.page.wait_for_selector("#calibration .panels .line")
    assert seen.page.locator("h1").inner_text() == HOSTILE.strip()
    assert seen.page.locator("img, figure script").count() == 0
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 1280
    seen.page.locator("#states .panels svg").first.hover(position={"x": 400, "y": 60})
    assert seen.page.locator("#states .tip").is_visible()
    seen.page.set_viewport_size({"width": 400, "height": 800})
    seen.page.wait_for_timeout(50)
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 400
    assert seen.faults == []
    seen.page.close()


def test_a_live_page_redraws_what_changed_and_keeps_what_was_chosen(
    browser: Any, tmp_path: Path
) -> None:
    directory = finished(tmp_path / "run")
    now = story([directory])
    seen = Watched(browser, "http://page.test/")
    told = [story_json(now)]
    html = b"".join(document(now, "/story"))
    seen.page.route("http://page.test/", lambda route: route.fulfill(
        body=html, content_type="text/html; charset=utf-8"))  # fmt: skip
    seen.page.route("http://page.test/story", lambda route: route.fulfill(
        body=told[0], content_type="application/json"))  # fmt: skip
    seen.page.goto("http://page.test/")
    slider = seen.page.locator("#ahead input")
    slider.focus()
    seen.page.keyboard.press("End")
    seen.page.locator("#losses .legend button", has_text="ℓ2").click()
    seen.page.locator("details summary", has_text="Some of these numbers").click()
    before = seen.page.locator('#losses g[data-name="ℓ1"] path').get_attribute("d")

    shutil.rmtree(directory / "seed-1", ignore_errors=True)
    write_seed(tmp_path / "longer", seed=0, slots=80)
    shutil.copy(tmp_path / "longer" / "records.jsonl", directory)
    told[0] = story_json(story([directory]))
    seen.page.wait_for_function(
        """before => document.querySelector("#losses g[data-name=ℓ1] path").getAttribute("d")
        !== before""",
        arg=before, timeout=5000,
    )  # fmt: skip
    assert seen.page.locator("#ahead output").inner_text().startswith("100 steps")
    assert seen.page.locator('#losses g[data-name="ℓ2"]').count() == 0
    assert seen.page.locator("#curves").is_visible()
    assert "80" in seen.page.locator("#curves").inner_text()

    fresh = tmp_path / "fresh.html"
    fresh.write_bytes(b"".join(document(story([directory]))))
    again = Watched(browser)
    again.page.goto(fresh.as_uri())
    text = """() => [...document.querySelectorAll("p, td, th, dd, dt, h2")].filter(
        one => one.id !== "connection" && !one.closest("noscript, figure")).map(
        one => one.textContent).join("|")"""
    assert seen.page.evaluate(text) == again.page.evaluate(text)
    assert seen.faults == [] and again.faults == []
    seen.page.close()
    again.page.close()
