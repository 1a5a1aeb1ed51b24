"""`fedkoopman watch` and `run --watch` as a user starts them."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

PROGRAM = [sys.executable, "-m", "fedkoopman.cli"]
STUDY = """
name = "tiny"
slots = 3
[segments]
steps = 30
[training]
epochs = 1
[policy]
segments = 1
[evaluation]
trajectories = 2
"""


def address(line: str) -> str:
    found = re.match(r"live page: (http://127\.0\.0\.1:\d+/[\w-]{16}/)", line)
    assert found, line
    return found[1]


def story(page: str) -> dict:
    with urlopen(f"{page}story", timeout=30) as answer:
        return json.load(answer)


def test_it_waits_for_a_run_and_ends_with_control_c(tmp_path: Path) -> None:
    command = [*PROGRAM, "watch", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        try:
            assert watching.stdout is not None
            page = address(watching.stdout.readline())
            assert "the page waits for it" in watching.stdout.readline()
            assert story(page)["title"] == "Waiting for a run"
            watching.send_signal(signal.SIGINT)
            assert watching.wait(timeout=30) == 0
        finally:
            watching.kill()


def test_beside_a_run_an_open_page_learns_how_it_ended(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(STUDY)
    command = [*PROGRAM, "run", "tiny.toml", "--watch", "--json", "--no-progress", "--out", "out"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, text=True, **pipes) as running:
        try:
            assert running.stderr is not None
            page, told = address(running.stderr.readline()), {"finished": False}
            while running.poll() is None and not told["finished"]:
                told = story(page)
                time.sleep(0.2)
            out, err = running.communicate(timeout=60)
        finally:
            running.kill()
    assert (running.returncode, err) == (0, "")
    assert told["finished"] and told["title"] == "tiny"
    assert json.loads(out)["report"] == "out/report.html"
    with pytest.raises(URLError):
        story(page)
