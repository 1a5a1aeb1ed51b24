"""The table of the comparison, on the page and in a terminal."""

import json
from pathlib import Path
from typing import Any

import pytest
from unit.reports.test_run_report import charts_of, read, write_run

from fedkoopman.reports.benefit import show_benefit

ERRORS = {
    "holding": [0.5, 1.0],
    "alone": [0.25, None],
    "dmd": [0.2, 0.7],
    "edmd": ["diverges", "diverges"],
    "federated": [0.125, 0.75],
}
SENTENCE = "At 5 steps the shared model is 1.33 times better than <holding>."


def summary(sites: int = 2, **worse: list[int]) -> dict[str, Any]:
    return {
        "seeds": [0],
        "tail_slots": 50,
        "seconds": 1.0,
        "finished": True,
        "benefit": {
            "horizons": [1, 5],
            "degree": 3,
            "sites": {f"lab-{n}": ERRORS for n in range(sites)},
            "mean": ERRORS,
            "worse_than": {"holding": [], "alone": [], "dmd": [], "edmd": [], **worse},
            "sentence": SENTENCE,
        },
    }


def page_of(folder: Path, content: dict[str, Any]) -> tuple[Any, str]:
    run = write_run(folder)
    (run / "summary.json").write_text(json.dumps(content))
    return read(run), (run / "report.html").read_text()


def test_the_page_has_the_table_and_marks_the_best(tmp_path: Path) -> None:
    found, html = page_of(tmp_path / "run", summary())
    table = found.tables["benefit"]
    assert table["mean over 2 sites"] == ["1 step", "5 steps"]
    assert table["the shared model"] == ["0.125", "0.75"]
    assert table["a site alone"] == ["0.25", "–"]
    assert table["EDMD of degree 3, all sites"] == ["diverges", "diverges"]
    assert '<td class="number strong" data-name="1 step">0.125</td>' in html
    assert '<td class="number strong" data-name="5 steps">0.7</td>' in html
    assert '<td class="number" data-name="1 step">0.2</td>' in html
    assert found.tables["benefit-sites"]["lab-1: linear DMD, all sites"] == ["0.2", "0.7"]
    frames = charts_of(html)["alone"]["frames"]
    assert [len(line["x"]) for frame in frames for line in frame["series"]] == [2, 2, 0, 2]


def test_the_sentence_opens_the_section_and_warns_of_a_loss(tmp_path: Path) -> None:
    for name, worse, style in (("won", [], "<p>"), ("lost", [5], '<p class="warning">')):
        _, html = page_of(tmp_path / name, summary(dmd=worse))
        words = f"{style}At 5 steps the shared model is 1.33 times better than &lt;holding&gt;."
        assert html.index('id="gain"') < html.index(words) < html.index('id="benefit"')


def test_one_site_has_one_table(tmp_path: Path) -> None:
    found, _ = page_of(tmp_path / "run", summary(sites=1))
    assert "lab-0" in found.tables["benefit"] and "benefit-sites" not in found.tables


def test_a_run_without_a_comparison_has_no_table(tmp_path: Path) -> None:
    content = summary()
    del content["benefit"]
    found, html = page_of(tmp_path / "run", content)
    assert "benefit" not in found.tables and "federating" not in html


def test_the_terminal_shows_means_and_the_sentence_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_benefit(summary())
    shown = capsys.readouterr().out.splitlines()
    assert SENTENCE in shown
    rows = {line.strip().split("  ")[0]: line.split()[-2:] for line in shown if "  " in line}
    assert rows["the shared model"] == ["0.125*", "0.75"]
    assert rows["linear DMD, all sites"] == ["0.2", "0.7*"]
    show_benefit({})
    assert not capsys.readouterr().out
