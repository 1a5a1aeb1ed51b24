"""A site that lies, over real processes: it is named, and does no harm."""

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
LIE = of_model(lambda _, leaf: leaf * np.asarray(1.2, leaf.dtype))
"""All weights a fifth too large."""


def test_a_liar_is_named_and_does_no_harm(tmp_path: Path) -> None:
    with Field(tmp_path / "field", 18) as field:
        field.liar.lie = of_answered(lambda reply: reply)
        field.go_on(6)
        assert not field.site(LYING)["suspect"] and not field.site(LYING)["rejected"]
        field.liar.lie = LIE
        field.go_on(10)
        about = field.site(LYING)
        named = about["suspect"] or about["set_aside"]
        assert not any(field.site(lab)["suspect"] for lab in HONEST)
        assert 7 <= named <= 16
        shown = field.federation.run("status", str(field.out))
        assert "SUSPECT" in shown or "SET ASIDE" in shown
        field.liar.allow(10**6)
        field.federation.finish(900)
        served = json.loads((field.out / "summary.json").read_text())
        local = fk.run(honest_study(field.federation.study))
    assert served["E"]["mean"] < 1.3 * local.summary["E"]["mean"]
