"""Many machines give the same model as one: equal bytes, for every policy.

`make test` compares the model of `test_attacks`, whose federation is attacked and killed meanwhile;
`tests/unit/deploy/test_loop.py` has all policies, without a network.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import fedkoopman as fk
from fedkoopman.deploy.site.ledger import ledger_entries

from .federation import Federation, small_study

pytestmark = pytest.mark.deploy
POLICIES: dict[str, dict[str, Any]] = {
    "threshold": {"policy__segments": 2},
    "random": {"clients__probability": 0.7},
    "round-robin": {"clients__probability": [0.9, 0.5, 0.7]},
}
SECURE: dict[str, Any] = {"policy__segments": 2, "aggregation__secure": True}


@pytest.mark.parametrize("policy", POLICIES)
def test_served_is_as_run(tmp_path: Path, policy: str) -> None:
    study = small_study(
        tmp_path / "field", policy__name=policy, aggregation__guard="auto", **POLICIES[policy]
    )
    check_parity(study, tmp_path)


def test_served_is_as_run_where_the_server_sees_only_sums(tmp_path: Path) -> None:
    study = small_study(tmp_path / "field", **SECURE)
    federation = check_parity(study, tmp_path)
    told = [entry.kinds for entry in ledger_entries(federation.state("lab-a"))]
    assert "masked update" in told and "update" not in told


def check_parity(study: Path, tmp_path: Path) -> Federation:
    """The same model, records and comparison, served and locally."""
    with Federation(study).start() as federation:
        federation.finish()
    local = fk.run(study, out=tmp_path / "local")
    for name in ("model.safetensors", "study.toml"):
        served, alone = (
            (federation.out / name).read_bytes(),
            (tmp_path / "local" / name).read_bytes(),
        )
        assert served == alone, name
    told = json.loads((federation.out / "summary.json").read_text())["benefit"]
    assert told == local.summary["benefit"]
    timeless = [{**record, "seconds": 0} for record in federation.records()]
    assert timeless == [{**record, "seconds": 0} for record in local.records]
    assert any(record["active"] for record in timeless)
    return federation
