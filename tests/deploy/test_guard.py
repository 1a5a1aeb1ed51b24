"""A site that lies, over real processes: it is named, or what it does is no harm."""

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
    "a fifth too large": of_model(lambda _, leaf: leaf * np.asarray(1.2, leaf.dtype)),
    "a tenth too large": of_model(lambda _, leaf: leaf * np.asarray(1.1, leaf.dtype)),
}


@pytest.mark.parametrize("name", LIES)
def test_a_liar_is_named_or_does_no_harm(name: str, tmp_path: Path) -> None:
    with Field(tmp_path / "field", 60) as field:  # so long that lies at first are forgotten
        field.liar.lie = of_answered(lambda reply: reply)
        field.go_on(6)
        assert not field.site(LYING)["suspect"] and not field.site(LYING)["rejected"]
        field.liar.lie = LIES[name]
        field.go_on(10)
        about = field.site(LYING)
        named = about["suspect"] or about["set_aside"]
        assert not any(field.site(lab)["suspect"] for lab in HONEST)
        if named:
            assert 7 <= named <= 16
            shown = field.federation.run("status", str(field.out))
            assert "SUSPECT" in shown or "SET ASIDE" in shown
        field.liar.allow(10**6)
        field.federation.finish(900)
        served = json.loads((field.out / "summary.json").read_text())
        local = fk.run(honest_study(field.federation.study))
    ratio = served["E"]["mean"] / local.summary["E"]["mean"]
    assert ratio < 1.3
    assert named or ratio < 1.05
