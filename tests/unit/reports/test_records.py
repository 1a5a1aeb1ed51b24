"""Records are read as they are appended, and anew where a run was resumed or replaced."""

import json
from pathlib import Path

import pytest

from fedkoopman.errors import InputError
from fedkoopman.reports.records import RecordsFile


def line(slot: int, error: float = 1.0) -> str:
    return json.dumps({"slot": slot, "arrived": [0], "active": [], "E": error}) + "\n"


def told(file: RecordsFile) -> list[tuple[int, float]]:
    found = file.read(0)
    return [] if found is None else list(zip(found.slots, found.metrics["E"], strict=True))


def test_only_new_records_are_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.jsonl"
    file, parsed = RecordsFile(path), []
    monkeypatch.setattr(json, "loads", lambda text, f=json.loads: parsed.append(text) or f(text))
    assert told(file) == []  # opened before the run starts
    path.write_text(line(1) + line(2))
    assert told(file) == [(1, 1), (2, 1)]
    with path.open("a") as more:
        more.write(line(3, 0.5) + line(4)[:17])
    assert told(file) == [(1, 1), (2, 1), (3, 0.5)]
    with path.open("a") as more:
        more.write(line(4)[17:])
    assert told(file)[3:] == [(4, 1)]
    assert file.read(0, {"E": 9.0}).metrics["E"].tolist() == [9, 1, 1, 0.5, 1]  # slot 0 first
    assert parsed == [line(slot, 0.5 if slot == 3 else 1.0) for slot in (1, 2, 3, 4)]


def test_what_was_cut_off_or_replaced_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(line(1) + line(2) + line(3))
    file = RecordsFile(path)
    told(file)
    path.write_text(line(1) + line(2, 0.25))  # resumed from slot 1, shorter than before
    assert told(file) == [(1, 1), (2, 0.25)]
    path.write_text("".join(line(slot, 2.0) for slot in range(1, 9)))  # another run, longer
    assert told(file) == [(slot, 2) for slot in range(1, 9)]
    path.unlink()
    assert told(file) == []


def test_a_damaged_line_is_named_and_can_be_mended(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(line(1) + "{nonsense}\n" + line(3))
    file = RecordsFile(path)
    for _ in range(2):
        with pytest.raises(InputError, match=r"line 2 of .*records.jsonl is no record"):
            file.read(0)
    path.write_text(line(1) + line(2) + line(3))
    assert [slot for slot, _ in told(file)] == [1, 2, 3]
