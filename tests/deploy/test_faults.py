"""Processes of a federation are killed while it works; nothing is lost, nothing doubled.

`make test` kills an agent, a node and the server loop in `test_attacks`. Here it is each process
of a site, the loop and the proxy, each while it works, and whole programs. The whole matrix of
faults is in `test_fault_matrix`.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from .bookkeeping import check_books
from .federation import Federation, is_dead, small_study, wait_until

pytestmark = pytest.mark.deploy


def kill_processes(federation: Federation) -> None:
    federation.catch("lab-a")
    federation.kill("lab-a", "agent")
    federation.catch("lab-b")
    federation.kill("lab-b", "node")
    federation.catch("lab-c")
    federation.kill("lab-c", "worker")
    federation.await_all()

    federation.catch("lab-b")
    federation.kill("serve", "loop")
    federation.await_all()


def kill_programs(federation: Federation) -> None:
    federation.catch("lab-c")
    federation.kill("serve", "proxy")
    federation.await_all()

    federation.catch("lab-a")
    kill_whole(federation, "lab-a")
    federation.join("lab-a")
    federation.await_all()

    federation.catch("lab-b")
    kill_whole(federation, "serve")
    federation.options = ["--deadline", "30"]  # what is left goes as fast as it can
    federation.serve()


# At one slot per period, a kill takes about two slots.
@pytest.mark.parametrize("kills", [kill_processes, kill_programs])
def test_what_is_killed_goes_on(tmp_path: Path, kills: Callable[[Federation], None]) -> None:
    study = small_study(tmp_path / "field", slots=14, training__epochs=1500)
    with Federation(study) as federation:
        federation.options = ["--period", "3", "--deadline", "30"]
        federation.start()
        federation.reach(1)
        kills(federation)
        federation.finish(400)
        assert [federation.stop(lab) for lab in federation.labs] == [0, 0, 0]
    check_books(federation)
    for lab in federation.labs:
        assert "error:" not in federation.said(lab), federation.said(lab)


def kill_whole(federation: Federation, name: str) -> None:
    """Kill a program; all that it started ends with it."""
    family = federation.tree(name)
    federation.kill(name)
    wait_until(lambda: all(map(is_dead, family)), 30, lambda: f"the end of all of {name}")
