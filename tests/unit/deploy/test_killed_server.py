"""The server's process is killed at every step of a slot, and started again."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from unit.deploy.in_memory import LABS, Sites, small_study
from unit.deploy.served_process import DONE

from fedkoopman.deploy.server.coordinator import CRASH, STEPS
from fedkoopman.deploy.site.site_socket import listening, serve

pytestmark = pytest.mark.deploy  # real processes: `make test-deploy`

HERE = Path(__file__).parent
ALL = [f"{step}:{slot}" for step, slot in zip(STEPS, (1, 2, 2, 3, 4, 5, 6), strict=True)]


@pytest.mark.parametrize(
    "crashes", [["trained:2", "checkpointed:4"], pytest.param(ALL, marks=pytest.mark.slow)], ids=len
)
def test_killed_at_any_step_it_learns_the_same(crashes: list[str], tmp_path: Path) -> None:
    study = small_study(tmp_path / "study")
    (tmp_path / "study" / "served.toml").write_text(study.to_toml())
    quiet = Sites(study, tmp_path / "quiet")
    quiet.serve(tmp_path / "whole")
    quiet.close()
    sites, stop = Sites(study, tmp_path / "sites"), threading.Event()
    with tempfile.TemporaryDirectory(prefix="fk") as sockets:
        os.chmod(sockets, 0o700)
        for name in LABS:
            threading.Thread(
                target=_answering, args=(sites, name, Path(sockets), stop), daemon=True
            ).start()
        while len(list(Path(sockets).glob("*.sock"))) < len(LABS):
            time.sleep(0.05)
        command = [sys.executable, str(HERE / "served_process.py"), str(tmp_path / "study"),
                   sockets, str(tmp_path / "out")]  # fmt: skip
        env = {**os.environ, CRASH: ",".join(crashes)}
        for _ in crashes:
            done = subprocess.run(command, env=env, capture_output=True, text=True)
            assert done.returncode == -signal.SIGKILL, done.stderr
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0 and DONE in done.stdout, done.stderr
        stop.set()
    assert _model(tmp_path / "out") == _model(tmp_path / "whole")
    found, expected = _records(tmp_path / "out"), _records(tmp_path / "whole")
    assert found == expected
    arrived, trained, waiting = sites.account()
    assert trained == sum(r["samples"] for r in found) and arrived == trained + waiting
    sites.close()


@pytest.mark.parametrize("asked", ["", "polled:2", "polled:11,trained:1"])
def test_nobody_is_killed_unasked(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedkoopman.deploy.server.coordinator import crash_if_asked

    monkeypatch.setenv(CRASH, asked)
    crash_if_asked("polled", 1, tmp_path)
    assert not list(tmp_path.iterdir())


def _answering(sites: Sites, name: str, sockets: Path, stop: threading.Event) -> None:
    agent = sites.start(name)
    with listening(sockets / f"{name}.sock") as door:
        serve(door, agent.answer, stop)


def _model(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def _records(out: Path) -> list[dict]:
    found = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    return [{k: v for k, v in record.items() if k != "seconds"} for record in found]
