"""What a reproduced item leaves on disk: its numbers whole or not at all, all else made of them."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedkoopman.errors import InputError
from fedkoopman.paper.files import (
    Saved,
    read_numbers,
    read_saved,
    write_index,
    write_item,
    write_numbers,
)

NAME, COMMAND = "fig-noise", "fedkoopman reproduce fig-noise"
SETTINGS = {"seeds": (0, 1), "studies": {"ρ": "slots = 200\n"}, "limit": float("inf")}
DATA = {
    "E": [1.5, float("nan"), 1e-300],
    "pair": (1, 2),
    7: None,
    "text": "a\u2028b",
    "x": 0.1 + 0.2,
}
READ = {"E": [1.5, None, 1e-300], "pair": [1, 2], "7": None, "text": "a\u2028b", "x": 0.1 + 0.2}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_numbers(tmp_path, NAME, SETTINGS, DATA, COMMAND, fast=True)
    return tmp_path / NAME / f"{NAME}.json"


def test_numbers_come_back_as_they_were_returned(tmp_path: Path) -> None:
    assert write_numbers(tmp_path, NAME, SETTINGS, DATA, COMMAND, fast=True) == READ
    assert read_numbers(tmp_path, NAME, SETTINGS) == READ
    settings = {"seeds": [0, 1], "studies": {"ρ": "slots = 200\n"}, "limit": None}
    assert read_saved(tmp_path, NAME) == Saved(NAME, COMMAND, True, settings, READ)


def test_numbers_of_other_settings_or_items_do_not_count(file: Path) -> None:
    out = file.parent.parent
    assert read_numbers(out, NAME, SETTINGS | {"seeds": (0, 2)}) is None
    assert read_numbers(out, "fig-policy", SETTINGS) is None
    other = out / "fig-policy" / "fig-policy.json"
    other.parent.mkdir()
    other.write_bytes(file.read_bytes())
    assert read_numbers(out, "fig-policy", SETTINGS) is None


def test_the_file_is_json_without_nan(file: Path) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    found = json.loads(file.read_text(encoding="utf-8"), parse_constant=refuse)
    assert {"item", "command", "settings", "data"} <= set(found)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_file_cut_short_anywhere_is_none(file: Path) -> None:
    whole, out = file.read_bytes(), file.parent.parent
    for end in range(len(whole.rstrip())):
        file.write_bytes(whole[:end])
        assert read_saved(out, NAME) is None, end
    file.write_bytes(whole)
    assert read_saved(out, NAME) is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"1.5", b"1.4"),
        (b'"fast": true', b'"fast": false'),
        (b"slots = 200", b"slots = 100"),
        (b'"command"', b'"commands"'),
        (b"{\n", b"[{\n"),
        (b'"sha256"', b'"sha"'),
        (b"\xcf\x81", b"\xff\xff"),
    ],
)
def test_an_altered_file_is_none(file: Path, old: bytes, new: bytes) -> None:
    content = file.read_bytes()
    assert content.count(old) == 1
    file.write_bytes(content.replace(old, new))
    assert read_saved(file.parent.parent, NAME) is None


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b'"a"', b"{}", b"[" * 100_000])
def test_another_json_is_none(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert read_saved(file.parent.parent, NAME) is None


def test_an_item_writes_its_files_and_leaves_the_numbers(tmp_path: Path, item) -> None:
    write_numbers(tmp_path, item.name, SETTINGS, DATA, item.command, fast=False)
    folder = tmp_path / item.name
    before = (folder / f"{item.name}.json").read_bytes()
    page = write_item(tmp_path, item)
    assert page == folder / f"{item.name}.html"
    ends = (".csv", "-slots.csv", ".html", ".json", ".md", ".pdf", ".png")
    assert {path.name for path in folder.iterdir()} == {f"{item.name}{end}" for end in ends}
    assert (folder / f"{item.name}.json").read_bytes() == before


def test_an_item_is_written_the_same_again(tmp_path: Path, item) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for out in (first, second):
        write_item(out, item)
        write_index(out, [item])
    names = [path.relative_to(first) for path in first.rglob("*") if path.is_file()]
    assert len(names) == 9
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_csv_files_hold_unrounded_numbers_and_blanks(tmp_path: Path, item) -> None:
    write_item(tmp_path, item)
    numbers = item.findings.numbers[0]
    with (tmp_path / item.name / f"{item.name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == list(numbers.columns)
    assert rows[1] == [numbers.rows[0][0], "0", "0.30000000000000004"]
    assert rows[2] == ["0.9", "1", ""]
    text = (tmp_path / item.name / f"{item.name}-slots.csv").read_bytes()
    assert text == b"slot,E\n1,2.5\n2,\n"


def test_a_table_has_no_figure(tmp_path: Path, item) -> None:
    table = replace(item, findings=replace(item.findings, panels=()))
    page = write_item(tmp_path, table).read_text(encoding="utf-8")
    assert "<img" not in page
    assert not list((tmp_path / item.name).glob("*.p*"))
    write_index(tmp_path, [table])
    assert "![" not in (tmp_path / "paper.md").read_text(encoding="utf-8")


def test_the_index_has_its_images_beside_it(tmp_path: Path, item) -> None:
    write_item(tmp_path, item)
    index, text = write_index(tmp_path, [item])
    assert (index, text) == (tmp_path / "index.html", tmp_path / "paper.md")
    image = (tmp_path / item.name / f"{item.name}.png").read_bytes()
    assert (tmp_path / "paper" / f"{item.name}.png").read_bytes() == image


def test_a_place_that_cannot_be_written_is_told_in_one_line(tmp_path: Path, item) -> None:
    (tmp_path / "out").write_text("a file")
    for write in (
        lambda: write_numbers(tmp_path / "out", NAME, SETTINGS, DATA, COMMAND, fast=False),
        lambda: write_item(tmp_path / "out", item),
    ):
        with pytest.raises(InputError, match="cannot write") as raised:
            write()
        assert "\n" not in str(raised.value)
