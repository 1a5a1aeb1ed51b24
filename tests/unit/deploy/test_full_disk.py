"""A disk that is full for a while: services end so that they are started again, and go on."""

import errno
import os
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from reference.examples import write_example
from unit.deploy.in_memory import LABS, Sites, small_study

from fedkoopman.cli import main as program
from fedkoopman.deploy.provisioning.provision import provision
from fedkoopman.deploy.server import loop
from fedkoopman.deploy.site import agent_process
from fedkoopman.deploy.supervisor import Child, Process, Supervisor
from fedkoopman.errors import ComputationError, InputError, MachineError, PeerError

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True)
    except OSError:
        pytest.skip("there is no mount")
    if done.returncode:
        pytest.skip("only root can mount a disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Leave no room; gives the file that takes it."""
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return disk / "filler"
    raise AssertionError("a disk without end")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("a wrong key"), 2),
        (PeerError("a message cannot be read"), 1),
        (MachineError("cannot write: No space left on device"), 1),
        (ComputationError("the sums do not fit"), 1),
        (FULL, 1),
        (MemoryError(), 1),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("service", [loop, agent_process], ids=["loop", "agent"])
def test_only_wrong_input_ends_a_service_for_good(
    service: object, error: BaseException, code: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(service, "_serve" if service is loop else "_run", fail)
    monkeypatch.setattr(loop, "_settings", lambda *_: {})
    option = "--settings" if service is loop else "--state"
    assert service.main([option, str(tmp_path)]) == code  # type: ignore[attr-defined]
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1


@pytest.mark.parametrize("name", ["fedkoopman-server.service", "fedkoopman-site@.service"])
def test_units_restart_after_everything_but_wrong_input(name: str) -> None:
    text = (files("fedkoopman.deploy.provisioning") / "templates" / name).read_text()
    lines = text.splitlines()
    assert "Restart=on-failure" in lines
    assert f"RestartPreventExitStatus={InputError.exit_code}" in lines
    assert MachineError.exit_code != InputError.exit_code


@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_a_child_that_cannot_be_started_for_want_of_room_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    tries: list[Child] = []

    def limited(child: Child) -> Process:
        tries.append(child)
        if len(tries) == 2:
            raise MachineError("cannot write log: No space left on device")
        return Process(child)

    monkeypatch.setattr("fedkoopman.deploy.supervisor.Process", limited)
    monkeypatch.setattr("fedkoopman.deploy.supervisor.FIRST_WAIT", 0.0)
    with Supervisor(told.append) as supervisor:
        supervisor.start(Child("child", ["true"], tmp_path / "log"))
        supervisor._children["child"].wait = 0.0
        while len(tries) < 3:
            supervisor.poll()
    assert any("No space left on device; trying again" in line for line in told)


def test_a_server_loop_goes_on_when_there_is_room_again(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full before the first slot, and once more in the middle."""
    monkeypatch.setattr("fedkoopman.reports.run.write_report", lambda folder: folder)
    sites = Sites(small_study(tmp_path / "study"), tmp_path / "sites")
    for name in LABS:
        sites.start(name)
    filler = fill(disk)
    with pytest.raises(MachineError, match="No space left on device") as caught:
        sites.serve(disk / "out")
    assert caught.value.exit_code == 1
    filler.unlink()

    def full_after_two(event: object) -> None:
        if event.slot == 2:  # type: ignore[attr-defined]
            fill(disk)

    with pytest.raises(MachineError, match="No space left on device"):
        sites.serve(disk / "out", tell=full_after_two)
    filler.unlink()
    summary = sites.serve(disk / "out")
    sites.close()
    assert summary is not None and summary["finished"]


def test_serve_on_a_full_disk_ends_with_1_in_one_line(
    disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_example(tmp_path / "swings")
    study = tmp_path / "swings" / "study.toml"
    provision(study, None, insecure=True)
    fill(disk)
    words = ["--out", str(disk / "out"), "--port", "1", "--insecure"]
    capsys.readouterr()
    assert program(["serve", str(study), *words]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: cannot write") and "No space left on device" in said
    assert said.count("\n") == 1
