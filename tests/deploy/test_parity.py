"""Many machines give the same model as one: equal bytes, for every policy."""

from pathlib import Path
from typing import Any

import pytest

import fedkoopman as fk

from .federation import Federation, small_study

POLICIES: list[dict[str, Any]] = [
    {"policy__name": "threshold", "policy__segments": 2},
    {"policy__name": "random", "clients__probability": 0.7},
    {"policy__name": "round-robin", "clients__probability": [0.9, 0.5, 0.7]},
]


@pytest.mark.parametrize("values", POLICIES, ids=lambda v: v["policy__name"])
def test_served_is_as_run(tmp_path: Path, values: dict[str, Any]) -> None:
    study = small_study(tmp_path / "field", **values)
    with Federation(study).start() as federation:
        federation.finish()
    local = fk.run(study, out=tmp_path / "local")
    for name in ("model.safetensors", "study.toml"):
        served, alone = (
            (federation.out / name).read_bytes(),
            (tmp_path / "local" / name).read_bytes(),
        )
        assert served == alone, name
    timeless = [{**record, "seconds": 0} for record in federation.records()]
    assert timeless == [{**record, "seconds": 0} for record in local.records]
    assert any(record["active"] for record in timeless)
