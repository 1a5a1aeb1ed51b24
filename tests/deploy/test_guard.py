"""A site that lies plausibly, over real processes: every rule of form is kept, and it is found."""

import json
from pathlib import Path

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.deploy.provisioning.proxy import find_nginx

from .attacked import HONEST, LYING, Field, honest_study
from .liar import of_answered, of_model

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(find_nginx() is None, reason="nginx is not installed"),
]
LIES = {
    "weights a fifth too large": of_model(lambda _, leaf: leaf * np.asarray(1.2, leaf.dtype)),
    "weights with noise": of_model(
        lambda _, leaf: (
            leaf + np.random.default_rng(leaf.size).normal(0, 0.1, leaf.shape).astype(leaf.dtype)
        )
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_plausible_liar_is_suspect_and_does_no_harm(name: str, tmp_path: Path) -> None:
    with Field(tmp_path / "field", 18) as field:
        field.liar.lie = of_answered(lambda reply: reply)
        field.go_on(6)
        assert not field.site(LYING)["suspect"]
        field.liar.lie = LIES[name]
        field.go_on(10)
        about = field.site(LYING)
        assert about["rejected"] == 0  # its replies break no rule
        assert 7 <= about["suspect"] <= 16
        assert not any(field.site(lab)["suspect"] for lab in HONEST)
        assert "SUSPECT" in field.federation.run("status", str(field.out))
        field.logged(f"SUSPECT in slot {about['suspect']}: site {LYING}", "loop")
        field.liar.allow(10**6)
        field.federation.finish(900)
        served = json.loads((field.out / "summary.json").read_text())
        local = fk.run(honest_study(field.federation.study))
    assert served["E"]["mean"] < 1.3 * local.summary["E"]["mean"]
