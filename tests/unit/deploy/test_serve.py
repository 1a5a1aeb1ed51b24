"""Before a coordinator serves: the study, the fleet and the kits belong together."""

import socket
import threading
from pathlib import Path

import pytest
from reference.examples import write_example

from fedkoopman.deploy.provisioning.provision import provision
from fedkoopman.deploy.server import serve as module
from fedkoopman.deploy.server.serve import Serving, serve
from fedkoopman.errors import InputError


@pytest.fixture
def study(tmp_path: Path) -> Path:
    write_example(tmp_path / "swings")
    return tmp_path / "swings" / "study.toml"


def refused(study: Path, cause: str, **given: object) -> None:
    """Refused in one line, before anything is written or started."""
    folder = study.parent
    serving = Serving(study, folder / "out", folder / "fleet", 1, **given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=cause) as caught:
        serve(serving, lambda line: pytest.fail(line))
    assert "\n" not in str(caught.value)
    assert not (folder / "out").exists()


def test_a_fleet_must_have_been_provisioned(study: Path) -> None:
    refused(study, "fedkoopman provision")


def test_kits_must_be_of_this_study(study: Path) -> None:
    provision(study, None, insecure=True)
    study.write_text(study.read_text().replace("epochs = 10", "epochs = 20"))
    refused(study, "for another study", insecure=True)


def test_a_fleet_without_keys_is_for_one_machine(study: Path) -> None:
    provision(study, None, insecure=True)
    refused(study, "add --insecure")
    refused(study, "without a proxy", insecure=True, proxy=True)


def test_a_fleet_with_keys_is_not_served_without(study: Path) -> None:
    provision(study, None)
    refused(study, "leave out --insecure", insecure=True)


def test_simulated_clients_are_not_served(study: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.toml"
    alone.write_text("slots = 3\n")
    provision(study, None, insecure=True)
    refused(alone, r"sites\.files", insecure=True)


@pytest.mark.parametrize("insecure", [True, False])
def test_a_port_that_another_has_is_refused(
    study: Path, insecure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that is started again and again would take the port over when it becomes free."""
    monkeypatch.setattr(module, "RELEASE", 0.3)
    provision(study, None, insecure=insecure)
    out, fleet = study.parent / "out", study.parent / "fleet"
    with socket.create_server(("", 0)) as another:
        port = another.getsockname()[1]
        serving = Serving(study, out, fleet, port, insecure=insecure, proxy=not insecure)
        with pytest.raises(InputError, match=f"cannot listen on port {port}: Address already"):
            serve(serving, lambda line: pytest.fail(line))


def test_a_port_that_becomes_free_in_time_is_taken() -> None:
    another = socket.create_server(("", 0))
    threading.Timer(0.5, another.close).start()
    module._await_port("", another.getsockname()[1])
    assert another.fileno() == -1, "not before"
