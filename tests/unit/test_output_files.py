"""Output is whole or absent."""

from pathlib import Path

import pytest

from fedkoopman.durable import check_output, written_whole
from fedkoopman.errors import InputError, MachineError


def test_success_moves_every_file_into_place(tmp_path: Path) -> None:
    targets = [tmp_path / "a.csv", tmp_path / "b.png"]
    targets[0].write_text("old", encoding="utf-8")
    with written_whole(*targets) as partial:
        assert [p.suffix for p in partial] == [".csv", ".png"]
        for path in partial:
            path.write_text("new", encoding="utf-8")
        assert targets[0].read_text(encoding="utf-8") == "old"
    assert [t.read_text(encoding="utf-8") for t in targets] == ["new", "new"]
    assert sorted(tmp_path.iterdir()) == targets


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_failure_leaves_everything_as_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "a.csv"
    target.write_text("old", encoding="utf-8")
    with pytest.raises(error), written_whole(target, tmp_path / "b.png") as partial:
        partial[0].write_text("half", encoding="utf-8")
        raise error
    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_failing_disk_is_told_in_one_line(tmp_path: Path) -> None:
    message = "cannot write .*a.csv: No space left on device"
    with pytest.raises(MachineError, match=message), written_whole(tmp_path / "a.csv"):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.xls", "ends in '.xls'"),
        ("a", "ends in 'no suffix'"),
        ("missing/a.csv", "there is no directory"),
        ("folder.csv", "is a directory"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match=message):
        check_output(tmp_path / name, (".csv",))
