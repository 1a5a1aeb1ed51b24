"""Every process of a federation is killed once, in its midst; nothing is lost, nothing doubled.

The whole matrix of faults is in `test_fault_matrix`.
"""

from pathlib import Path

from .bookkeeping import check_books
from .federation import Federation, is_dead, small_study, wait_until

SLOTS = 24
"""Enough for all kills: about two per kill, at one per period."""


def test_each_process_is_killed_in_turn(tmp_path: Path) -> None:
    study = small_study(tmp_path / "field", slots=SLOTS, training__epochs=1500)
    with Federation(study) as federation:
        federation.options = ["--period", "3", "--deadline", "30"]
        federation.start()
        federation.reach(1)

        federation.catch("lab-a")
        federation.kill("lab-a", "agent")
        federation.catch("lab-b")
        federation.kill("lab-b", "supernode")
        federation.catch("lab-c")
        federation.kill("lab-c", "courier")
        federation.await_all()

        federation.catch("lab-a")
        federation.kill("serve", "superlink")
        federation.await_all()

        federation.catch("lab-b")
        federation.kill("serve", "loop")
        federation.await_all()

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
