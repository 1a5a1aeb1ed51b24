"""`benchmarks/measured.py`: parts keep their results, and the page says what was met."""

import importlib
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
PART = {
    "intro": "Two sites.",
    "tables": [
        {
            "title": "Errors",
            "columns": ["model", "error"],
            "rows": [["**ours**", 0.0421]],
            "note": "",
        }
    ],
    "verdicts": [
        {"goal": "halved", "result": "0.6 times", "met": False},
        {"goal": "kept", "result": "1.0 times", "met": True},
        {"goal": "peers", "result": "none installed", "met": None},
    ],
}


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """The runner with one made-up part in place of all, and a folder of its own for results."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("measured")
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(module, "part_of", lambda place: lambda _: PART | {"intro": place})
    return module


def called(measured, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["measured.py", *arguments])
    measured.main()


def test_parts_that_are_not_run_keep_their_results(measured, monkeypatch, tmp_path):
    for only in ("ships", "silverbox"):
        called(measured, monkeypatch, "--data", str(tmp_path), "--only", only)
    called(measured, monkeypatch, "--data", str(tmp_path), "--only", "double-pendulum", "--quick")
    kept = json.loads((measured.RESULTS / "measured.json").read_text(encoding="utf-8"))
    assert set(kept) == {"ships", "silverbox"}
    text = (measured.RESULTS / "measured.md").read_text(encoding="utf-8")
    assert "ships.part" in text and "silverbox.part" in text
    assert "Not run yet: double-pendulum." in text
    assert "| **ours** | 0.042 |" in text
    assert "| halved | 0.6 times | **missed** |" in text and "| kept | 1.0 times | met |" in text
    assert "| peers | none installed | not judged |" in text
    assert str(tmp_path) not in text


def test_a_folder_that_is_not_there_is_told(measured, monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("FEDKOOPMAN_MEASURED", raising=False)
    with pytest.raises(SystemExit):
        called(measured, monkeypatch, "--data", str(tmp_path / "none"))
    assert "set FEDKOOPMAN_MEASURED" in capsys.readouterr().err


def test_a_part_of_another_form_is_refused(measured, monkeypatch):
    check = importlib.import_module("measured_page").check
    assert check("ships", PART) is PART
    with pytest.raises(ValueError, match="lacks verdicts"):
        check("ships", {"intro": "", "tables": []})
    ragged = {"title": "t", "columns": ["a", "b"], "rows": [[1]], "note": ""}
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        check("ships", PART | {"tables": [ragged]})
