"""A run that is killed, interrupted or out of room loses nothing and ends as if it had not been."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fedkoopman as fk
from fedkoopman.cli import main

TINY = {
    "slots": 40,
    "segments.steps": 40,
    "training.epochs": 2,
    "evaluation.trajectories": 2,
    "policy.segments": 2,
    "clients.count": 3,
}

PROGRAM = """
import json, sys
import fedkoopman as fk
study = fk.Study.paper_default().with_values(json.loads(sys.argv[1]))
fk.run(study, seeds=json.loads(sys.argv[2]), out=sys.argv[3], resume=True, checkpoint_seconds=0.0)
"""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    subprocess.run(command(out), check=True)
    return out


def command(out: Path, seeds: list[int] | None = None) -> list[str]:
    return [sys.executable, "-c", PROGRAM, json.dumps(TINY), json.dumps(seeds), str(out)]


def records(path: Path) -> list[dict]:
    lines = (path / "records.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def lines_in(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def kill_at(process: subprocess.Popen, file: Path, line: int, sign: int = signal.SIGKILL) -> bool:
    """Send a signal once a file has so many lines; whether the process was still alive."""
    while process.poll() is None:
        if lines_in(file) >= line:
            process.send_signal(sign)
            process.wait()
            return True
        time.sleep(0.001)
    return False


@pytest.mark.parametrize("case", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_killed_several_times_and_resumed_it_ends_with_the_same_bytes(
    case: int, tmp_path: Path, uninterrupted: Path
) -> None:
    out = tmp_path / "run"
    chance = random.Random(case)
    at = sorted(chance.sample(range(1, TINY["slots"] - 3), 2))
    killed = 0
    for line in at:
        process = subprocess.Popen(command(out), stderr=subprocess.DEVNULL)
        killed += kill_at(process, out / "records.jsonl", line)
        acknowledged = records_whole(out)
        assert acknowledged == records(uninterrupted)[: len(acknowledged)]
    assert killed >= 1
    resumed_here(out)
    for name in ("model.safetensors", "rollout.json"):
        assert (out / name).read_bytes() == (uninterrupted / name).read_bytes()
    assert records(out) == records(uninterrupted)


def resumed_here(out: Path) -> None:
    """Go on in this process, which has loaded JAX already."""
    fk.run(fk.Study.paper_default().with_values(TINY), out=out, resume=True)


def records_whole(out: Path) -> list[dict]:
    """Records whose lines were written to the end."""
    lines = (out / "records.jsonl").read_bytes().split(b"\n")[:-1]
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


@pytest.mark.slow  # `test_run_cli` interrupts a run of several seeds
def test_several_seeds_killed_and_resumed_equal_each_seed_alone(
    tmp_path: Path, uninterrupted: Path
) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(command(out, [0, 1]), stderr=subprocess.DEVNULL)
    assert kill_at(process, out / "seed-1" / "records.jsonl", 12)
    subprocess.run(command(out, [0, 1]), check=True)
    alone = (uninterrupted / "model.safetensors").read_bytes()
    assert (out / "seed-0" / "model.safetensors").read_bytes() == alone
    assert (out / "seed-1" / "model.safetensors").read_bytes() != alone
    summary = json.loads((out / "summary.json").read_text())
    assert summary["seeds"] == [0, 1] and summary["finished"]


def words(out: Path, *more: str) -> list[str]:
    values = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]
    return ["run", *values, "--out", str(out), *more]


def cli(out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "fedkoopman.cli", *words(out, *more)]


def test_terminated_it_saves_says_how_to_go_on_and_exits_130(tmp_path: Path) -> None:
    """As on Ctrl-C, for which see `test_run_cli`."""
    out = tmp_path / "run"
    long = cli(out, "--set", "slots=2000")
    with (tmp_path / "stderr").open("w") as stderr:
        process = subprocess.Popen(long, stderr=stderr)
        assert kill_at(process, out / "records.jsonl", 25, signal.SIGTERM)
    assert process.returncode == 130
    last = (tmp_path / "stderr").read_text().strip().splitlines()[-1]
    assert last.startswith("interrupted: saved at slot") and f"--resume --out {out}" in last
    kept = records_whole(out)
    assert checkpoint_slot(out) == len(kept) >= 25


def checkpoint_slot(out: Path) -> int:
    content = (out / "checkpoint" / "state.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return json.loads(header["__metadata__"]["state"])["slot"]


def test_a_full_disk_ends_in_one_line_and_keeps_what_was_recorded(
    tmp_path: Path, uninterrupted: Path
) -> None:
    out = tmp_path / "run"

    # Files of at most 12 blocks of 512 bytes: writing more fails, as on a full disk. Compiled
    # functions are larger, but the whole run has left them in the cache.
    limited = ["sh", "-c", 'ulimit -f 12; exec "$@"', "sh", *cli(out)]
    done = subprocess.run(limited, capture_output=True, text=True)
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and "cannot write" in errors[0] and "--resume" in errors[0]
    assert "Traceback" not in done.stderr
    kept = records_whole(out)
    assert 3 < len(kept) < TINY["slots"]
    assert kept == records(uninterrupted)[: len(kept)]
    resumed_here(out)
    model = "model.safetensors"
    assert (out / model).read_bytes() == (uninterrupted / model).read_bytes()


def test_a_second_process_is_kept_out_of_a_running_runs_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    first = subprocess.Popen(cli(out, "--set", "slots=5000"), stderr=subprocess.DEVNULL)
    while lines_in(out / "records.jsonl") < 2 and first.poll() is None:
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)  # it need not work meanwhile
    try:
        assert main(words(out, "--set", "slots=5000", "--resume")) == 2
    finally:
        first.kill()
        first.wait()
    assert "in use by another process" in capsys.readouterr().err


def test_the_same_seed_gives_the_same_bytes_in_memory_and_on_disk(
    uninterrupted: Path, tmp_path: Path
) -> None:
    found = fk.run(fk.Study.paper_default().with_values(TINY))
    found.model.save(tmp_path / "model.safetensors")
    assert (tmp_path / "model.safetensors").read_bytes() == (
        uninterrupted / "model.safetensors"
    ).read_bytes()
