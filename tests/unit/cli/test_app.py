"""How the program ends: exit codes by fault, and what nobody foresaw is told as a bug."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from fedkoopman.cli import app
from fedkoopman.errors import ComputationError, InputError, MachineError, PeerError
from fedkoopman.user_code import load_object


def ended(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """The exit code of a verb that raises an error, and its one line."""

    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(app, "_run", fail)
    code = app.main([])
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("error: ")
    return code, said.err


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (InputError("slots is 0: give one"), 2, "error: slots is 0: give one"),
        (ComputationError("it diverged"), 1, "error: it diverged"),
        (MachineError("cannot write"), 1, "error: cannot write"),
        (PeerError("not a message"), 1, "error: not a message"),
        (MemoryError("Unable to allocate 3 TiB"), 1, "Unable to allocate 3 TiB"),
        (OSError(errno.EIO, "Input/output error", "data.csv"), 1, "data.csv: Input/output error"),
        (OSError(errno.EMFILE, "Too many open files"), 1, "refuses: Too many open files"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 2, "x: Permission denied"),
        (typer.BadParameter("no such"), 2, "no such (see fedkoopman --help)"),
        (InputError("half \ud800 a character"), 2, r"half \ud800 a character"),
        (InputError("two\nlines"), 2, "two lines"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_exit_codes(error, code: int, says: str, monkeypatch, capsys) -> None:
    found, said = ended(error, monkeypatch, capsys)
    assert (found, says in said) == (code, True), said


def test_a_long_message_keeps_its_beginning_and_its_remedy(monkeypatch, capsys) -> None:
    error = InputError("slots is " + "x" * 100_000 + ": give a number")
    _, said = ended(error, monkeypatch, capsys)
    assert said.startswith("error: slots is xx") and said.endswith("xx: give a number\n")
    assert len(said) < 2100


def test_what_nobody_foresaw_is_a_bug_with_its_traceback_in_a_file(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, said = ended(KeyError("window"), monkeypatch, capsys)
    assert code == 1 and "a bug of fedkoopman (KeyError: 'window')" in said
    [file] = tmp_path.iterdir()
    assert str(file) in said
    assert "Traceback" in file.read_text() and "KeyError: 'window'" in file.read_text()


def test_what_a_users_class_does_is_no_bug_of_ours(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "own.py").write_text("class Own:\n    def step(self): return 1 / 0\n")
    own = load_object("own.py:Own", tmp_path)
    with pytest.raises(ZeroDivisionError) as caught:
        own().step()  # type: ignore[operator]
    code, said = ended(caught.value, monkeypatch, capsys)
    assert code == 2 and "ZeroDivisionError" in said and "line 2 of" in said and "own.py" in said


@pytest.mark.skipif(os.name != "posix", reason="pipes")
@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_closed_and_broken_outputs_are_borne(closed: str) -> None:
    command = [sys.executable, "-m", "fedkoopman.cli", "config"]
    shut = {"stdout": ">&-", "stderr": "2>&-"}[closed]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {shut}', "sh", *command], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
