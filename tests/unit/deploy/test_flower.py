"""Flower's programs are started quietly, and the SuperLink does what the coordinator tells it."""

import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from unit.deploy.lab import Lab, laboratory, until

from fedkoopman.deploy.flower import control, programs
from fedkoopman.deploy.flower.supernode import REFUSAL
from fedkoopman.deploy.flower.tasks import acquire_server_task
from fedkoopman.deploy.provisioning.certificates import authority, node_keys
from fedkoopman.deploy.supervisor import Child, Process
from fedkoopman.errors import ComputationError, InputError

pytestmark = pytest.mark.deploy  # real processes: `make test-deploy`


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A SuperLink with TLS and keys, and no site."""
    with laboratory(secure=True, names=[]) as opened:
        yield opened


def key(name: str) -> str:
    return node_keys(name)[1].decode()


def test_the_environment_is_quiet_and_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    monkeypatch.setenv("FLWR_SOMETHING", "else")
    monkeypatch.setenv("NO_PROXY", "intranet")
    env = programs.environment(tmp_path)
    assert env["FLWR_TELEMETRY_ENABLED"] == "0"
    assert env["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert env["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert env["FLWR_HOME"] == str(tmp_path)
    assert "FLWR_SOMETHING" not in env
    assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert env["NO_PROXY"] == env["no_proxy"] == "intranet,127.0.0.1,localhost"


def test_a_secret_is_made_once_and_is_nobody_elses(tmp_path: Path) -> None:
    path = programs.make_secret(tmp_path / "new" / "secret")
    content = path.read_bytes()
    assert len(content) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    assert programs.make_secret(path).read_bytes() == content


def test_commands_listen_on_loopback_only(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("ca", "crt", "key", "secret", "memory", "db")]
    ca, crt, private, secret, memory, db = files
    certificate = programs.ServerCertificate(ca, crt, private)
    link = programs.superlink_command(port=1, database=db, secret=secret, certificate=certificate)
    node = programs.supernode_command(
        server="host:1", port=2, secret=secret, certificates=ca, key=private, memory=memory
    )
    for command in (link, node):
        assert command[command.index("--host") + 1] == "127.0.0.1"
        assert "--insecure" not in command
    assert "--enable-supernode-auth" in link
    assert node[:3] == [sys.executable, "-m", "fedkoopman.deploy.flower.supernode"]
    plain = programs.supernode_command(server="127.0.0.1:1", port=2, secret=secret)
    assert plain[0].endswith("flower-supernode")
    assert "--insecure" in plain
    assert "--insecure" in programs.superlink_command(port=1, database=db, secret=secret)


def test_without_flower_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=re.escape("pip install 'fedkoopman[deploy]'")):
        programs.superlink_command(port=1, database=tmp_path, secret=tmp_path)


def test_only_elliptic_curve_keys_are_taken(lab: Lab) -> None:
    assert control.key_bytes(key("a")).startswith(b"-----BEGIN PUBLIC KEY-----")
    with pytest.raises(InputError, match="not a public key in OpenSSH's form"):
        control.key_bytes("nonsense")
    ed = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPv3JGhPHYzQvE2w7jQvqIZzz0g6nqZCkqkFCVq4yGGz a"
    with pytest.raises(InputError, match="not an elliptic-curve key"):
        control.key_bytes(ed)


def test_the_superlink_knows_the_keys_of_the_roster_and_no_others(lab: Lab) -> None:
    keys = {name: key(name) for name in ("x", "y", "z")}

    def known() -> dict[str, str]:
        found = control.nodes(lab.address, certificates=lab.authority)
        return {node.name: node.status for node in found}

    ca = lab.authority
    assert control.enrol(lab.address, keys, certificates=ca) == (["x", "y", "z"], [])
    assert control.enrol(lab.address, keys, certificates=ca) == ([], [])
    assert known() == dict.fromkeys("xyz", "registered")
    revoked = keys.pop("y")
    assert control.enrol(lab.address, keys, certificates=ca) == ([], ["y"])
    with pytest.raises(
        ComputationError, match=r"refused: Public key already in use. \(Flower's code"
    ):
        control.register(lab.address, revoked, "y", certificates=ca)
    assert control.enrol(lab.address, {}, certificates=ca) == ([], ["x", "z"])


def test_runs_that_were_left_open_are_ended(lab: Lab) -> None:
    ca = lab.authority
    first = control.start_run(lab.address, certificates=ca)
    second = control.start_run(lab.address, certificates=ca)
    assert sorted(control.stop_runs(lab.address, certificates=ca)) == sorted([first, second])
    assert control.stop_runs(lab.address, certificates=ca) == []
    with acquire_server_task(lab.address, lab.secret, certificates=ca) as task:
        assert task.run not in (first, second)
        assert list(task.grid.get_node_ids()) == []
        assert not task.lost.is_set()
    assert control.stop_runs(lab.address, certificates=ca) == [], "it was finished"


def test_who_does_not_know_the_secret_gets_no_task(lab: Lab, tmp_path: Path) -> None:
    wrong = tmp_path / "secret"
    wrong.write_text("guessed")
    with (
        pytest.raises(ComputationError, match=r"gives no task: .*401"),
        acquire_server_task(lab.address, wrong, certificates=lab.authority),
    ):
        pass


def test_a_superlink_that_is_not_there_or_another_is_told(lab: Lab, tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{programs.free_port()}"
    with pytest.raises(ComputationError, match=f"{nobody} is not ready: .*refused"):
        programs.wait_ready(nobody, seconds=0.3)
    with pytest.raises(ComputationError, match="its process ended"):
        programs.wait_ready(nobody, seconds=5, alive=lambda: False)
    with pytest.raises(ComputationError, match=r"does not answer: .*refused"):
        control.nodes(nobody)
    other = tmp_path / "other.crt"
    other.write_bytes(authority("another", datetime.now(UTC))[1])
    with pytest.raises(ComputationError, match="CERTIFICATE_VERIFY_FAILED"):
        programs.wait_ready(lab.address, certificates=other)
    with pytest.raises(ComputationError, match="CERTIFICATE_VERIFY_FAILED"):
        control.nodes(lab.address, certificates=other)
    with pytest.raises(ComputationError, match="does not answer"):
        control.nodes(lab.address)  # without TLS


def test_nodes_with_an_unknown_key_without_tls_or_with_another_authority_stay_out(
    lab: Lab, tmp_path: Path
) -> None:
    """Each is refused by the real programs, and both sides' logs say so."""
    outsider = lab.site("outsider")
    insecure = [part for part in outsider.node if part != "--insecure"]
    other = tmp_path / "other.crt"
    other.write_bytes(authority("another", datetime.now(UTC))[1])
    cut = insecure.index("--root-certificates")
    commands = {
        "unknown": outsider.node,
        "authority": [*insecure[: cut + 1], str(other), *insecure[cut + 2 :]],
        "plain": [*insecure[:cut], "--insecure"],
    }
    running = {}
    for name, command in commands.items():
        at = command.index("--port")
        port = str(programs.free_port())
        command = [*command[: at + 1], port, *command[at + 2 :]]
        if name == "plain":
            command += ["--max-retries", "1"]
        running[name] = Process(Child(name, command, tmp_path / f"{name}.log", outsider.env))
    try:
        for process in running.values():
            until(lambda process=process: process.dead, 40)  # type: ignore[misc]
    finally:
        for process in running.values():
            assert process.end() != 0
    said = {name: (tmp_path / f"{name}.log").read_text() for name in running}
    assert "Failed to activate SuperNode" in said["unknown"]
    assert f"{REFUSAL}turns this site away: it does not know the site's key" in said["unknown"]
    assert "CERTIFICATE_VERIFY_FAILED" in said["authority"]
    assert "is not the one of the kit" in said["authority"]
    assert "Failed to initialize the connection" in said["plain"]
    found = control.nodes(lab.address, certificates=lab.authority)
    assert "online" not in {node.status for node in found}
    assert re.search(r"/v1/fleet/activate-node.* [45]\d\d", lab.log())
