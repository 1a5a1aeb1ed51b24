"""Users' Python files: what runs is what stands in them, and nothing is left beside them."""

from pathlib import Path

import pytest

from fedkoopman.errors import InputError
from fedkoopman.user_code import load_object


@pytest.fixture(autouse=True)
def _bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)


def test_nothing_is_left_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("SIZE = 3\n")
    (tmp_path / "own.py").write_text("import beside\n\n\nsize = beside.SIZE\n")
    assert load_object("own.py:size", tmp_path) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"beside.py", "own.py"}


def test_each_site_imports_what_stands_beside_its_own_file(tmp_path: Path) -> None:
    for site, size in (("a", 1), ("b", 2)):
        (tmp_path / site).mkdir()
        (tmp_path / site / "optics_of_site.py").write_text(f"SIZE = {size}\n")
        (tmp_path / site / "sensor.py").write_text("from optics_of_site import SIZE\n")
    found = [load_object("sensor.py:SIZE", tmp_path / site) for site in "ab"]
    assert found == [1, 2]


def test_dataclasses_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n\n\n"
        "@dataclass\nclass Rod:\n    length: float = 2.0\n\n\n"
        "rod = Rod()\n"
    )
    assert load_object("own.py:rod", tmp_path).length == 2.0


@pytest.mark.parametrize(
    ("reference", "content", "says"),
    [
        ("own.py", "", "write file.py:name"),
        ("none.py:f", "", "there is no file .*none.py: check the path"),
        ("own.py:f", "g = 1", "own.py defines no 'f'"),
        ("own.py:f", "1 / 0", "own.py failed with ZeroDivisionError: division by zero"),
        ("own.py:f", "raise SystemExit(3)", "own.py failed with SystemExit: 3"),
        ("own.py:f", "\0", "own.py failed with"),
        ("own.py:f", b"f = '\xff'", "own.py failed with SyntaxError"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, reference: str, content: str | bytes, says: str
) -> None:
    raw = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "own.py").write_bytes(raw)
    with pytest.raises(InputError, match=says) as caught:
        load_object(reference, tmp_path)
    assert "\n" not in str(caught.value)
