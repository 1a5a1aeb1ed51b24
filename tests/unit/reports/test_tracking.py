"""`--track`: what a run records is logged once, whatever happens on the way."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedkoopman.errors import InputError
from fedkoopman.reports import tracking
from fedkoopman.reports.tracking import Following, check_tracker, scalars


def begin(directory: Path) -> Path:
    directory.mkdir()
    (directory / "study.toml").write_text('name = "small"\nseed = 3\n[training]\nepochs = 2\n')
    return directory


def record(directory: Path, *slots: int, **more: Any) -> None:
    with (directory / "records.jsonl").open("a") as file:
        for slot in slots:
            row = {"slot": slot, "arrived": [0, 2], "E": 1 / slot, "seconds": 0.5, "l1": None}
            file.write(json.dumps(row | more) + "\n")


def test_scalars_are_the_numbers_of_a_record() -> None:
    row = {"slot": 4, "E": 0.5, "l1": None, "arrived": [0, 2], "stage": "sums", "trust": {"a": 1}}
    assert scalars(row) == {"E": 0.5, "arrived": 2.0}


def messages(folder: Path) -> Iterator[Any]:
    """The events of TensorBoard's files, in the order in which it reads them."""
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(folder.glob("events*")):
        content, at = path.read_bytes(), 0
        while at < len(content):
            length = int.from_bytes(content[at : at + 8], "little")
            yield Event.FromString(content[at + 12 : at + 12 + length])
            at += length + 16


def shown(folder: Path) -> list[tuple[int, float]]:
    """Steps and values of E as TensorBoard shows them: a new start purges what came after it."""
    found: list[tuple[int, float]] = []
    for event in messages(folder):
        if event.HasField("session_log"):
            found = [pair for pair in found if pair[0] < event.step]
        found += [(event.step, one.simple_value) for one in event.summary.value if one.tag == "E"]
    return found


def test_tensorboard_shows_every_slot_once_after_a_kill(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    first = Following("tensorboard", run)
    first.look()  # before the first record
    record(run, 1, 2)
    first.look()
    memory = (run / "tracking/tensorboard.json").read_bytes()
    record(run, 3)
    first.look()
    (run / "tracking/tensorboard.json").write_bytes(memory)  # killed before it was noted
    first.close()
    (run / "records.jsonl").write_text("")
    record(run, 1, 2, 3, 4)  # resumed from the beginning
    again = Following("tensorboard", run)
    again.close()
    values = shown(run / "tracking/tensorboard/seed-3")
    assert [step for step, _ in values] == [1, 2, 3, 4]
    assert values[3][1] == pytest.approx(0.25)


def followed(run: Path) -> None:
    """Follow a run until its end, as the process beside it does."""
    subprocess.run(
        [sys.executable, "-m", "fedkoopman.reports.tracking", "mlflow", str(run)],
        stdin=subprocess.DEVNULL,
        env=os.environ
        | {"MLFLOW_TRACKING_URI": f"file://{run}/store", "MLFLOW_ALLOW_FILE_STORE": "true"},
        check=True,
    )


@pytest.mark.slow
def test_mlflow_has_one_run_with_every_slot_once(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    record(run, 1, 2)
    followed(run)
    record(run, 3)
    followed(run)
    [path] = (run / "store").rglob("metrics/E")
    assert [line.split()[2] for line in path.read_text().splitlines()] == ["1", "2", "3"]
    assert (path.parent.parent / "params/training.epochs").read_text() == "2"


def test_an_unknown_tracker_and_a_missing_package_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="did you mean 'tensorboard'"):
        check_tracker("tensorbord")
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'fedkoopman\[mlflow\]'"):
        check_tracker("mlflow")
