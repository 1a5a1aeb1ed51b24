"""A lying site in a served federation: it is named, does no harm, and comes back when mended."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedkoopman.cli.app import app
from fedkoopman.deploy.server.status import read_status
from fedkoopman.deploy.wire import Answered, Ask

from .in_memory import Sites, small_study

LIAR, SLOTS = "lab-b", 14
VALUES = {"slots": SLOTS, "clients.probability": 1.0, "evaluation.tail_slots": 3}


def lying(change: Callable[[np.ndarray, np.ndarray], np.ndarray], slots: range) -> Any:
    """A twist: the liar's updates are changed, and it calls the others' ruinous."""

    def twist(site: str, requests: tuple, replies: tuple) -> tuple:
        if site != LIAR:
            return replies
        return tuple(map(told, requests, replies))

    def told(request: Any, reply: Any) -> Any:
        if not isinstance(reply, Answered) or reply.slot not in slots:
            return reply
        assert isinstance(request, Ask)
        arrays = dict(reply.message.arrays)
        if reply.message.kind == "judged":
            arrays["losses"] = np.full_like(arrays["losses"], 1e9)
        elif reply.message.kind == "update":
            given = request.message.arrays
            arrays = {n: change(given[n], leaf).astype(leaf.dtype) for n, leaf in arrays.items()}
        return replace(reply, message=replace(reply.message, arrays=arrays))

    return twist


LIES = {
    "flipped, nine times": lambda given, update: given - 9 * (update - given),
    "constant": lambda given, update: np.ones_like(given),
    "not a number": lambda given, update: given * np.nan,
}


def serve(folder: Path, twist: Any = None, without: str = "") -> tuple[Path, list[str]]:
    study = small_study(folder / "study", VALUES)
    sites, said = Sites(study, folder / "sites"), list[str]()
    sites.revoked = {without} - {""}
    if twist is not None:
        sites.twist = twist
    assert sites.serve(folder / "out", say=said.append) is not None
    sites.close()
    return folder / "out", said


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return serve(tmp_path_factory.mktemp("honest"))[0]


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return serve(tmp_path_factory.mktemp("without"), without=LIAR)[0]


def loss(out: Path) -> float:
    return float(json.loads((out / "summary.json").read_text())["loss"]["mean"])


@pytest.mark.parametrize(
    "lie", ["flipped, nine times", "constant", pytest.param("not a number", marks=pytest.mark.slow)]
)
def test_a_lying_site_is_named_and_does_no_harm(lie: str, without: Path, tmp_path: Path) -> None:
    out, said = serve(tmp_path, lying(LIES[lie], range(4, SLOTS + 1)))
    about = read_status(out)["sites"]
    named = about[LIAR]["suspect"] or about[LIAR]["set_aside"]
    assert 4 <= named <= 8
    assert not any(about[lab]["suspect"] for lab in ("lab-a", "lab-c"))
    assert loss(out) < 1.1 * loss(without)
    assert any(LIAR in line and ("SUSPECT" in line or "REJECTED" in line) for line in said)
    summary = json.loads((out / "summary.json").read_text())
    assert f"Site {LIAR} was set aside" in summary["trust"]["sentences"][0]
    page = (out / "report.html").read_text()
    assert "Who contributed, and who hurt?" in page and f"Site {LIAR} was set aside" in page
    if lie == "flipped, nine times":
        result = CliRunner().invoke(app, ["status", str(out)])
        assert result.exit_code == 0
        assert "SUSPECT" in result.output
        line = next(line for line in result.output.splitlines() if "is suspect since slot" in line)
        assert line.startswith(LIAR) and "its updates do not count" in line


def test_a_mended_site_comes_back(tmp_path: Path) -> None:
    out, said = serve(tmp_path, lying(LIES["constant"], range(4, 6)))
    assert read_status(out)["sites"][LIAR]["suspect"] == 0
    assert f"site {LIAR} is trusted again: its last updates were good" in said
    trust = json.loads((out / "summary.json").read_text())["trust"]
    [aside] = trust["sites"][LIAR]["set_aside"]
    assert aside["back"] > aside["slot"] >= 4


def test_nobody_is_named_among_honest_sites(honest: Path) -> None:
    trust = json.loads((honest / "summary.json").read_text())["trust"]
    assert trust["sentences"] == [
        f"Nobody was set aside; 0 of {3 * SLOTS} judged updates did not count."
    ]
