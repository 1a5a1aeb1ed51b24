"""Sums are screened by a server with real agents as in a local run: one liar of three."""

import json
from dataclasses import replace

import numpy as np
import pytest
from unit.deploy.in_memory import Sites, only, small_study

from fedkoopman.deploy.wire import Answered, Ask
from fedkoopman.runs.run import run as run_study


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setattr("fedkoopman.reports.run.write_report", lambda folder: folder)
    values = {"network.kind": "edmd"}
    return small_study(tmp_path / "study", {"slots": 8, **values})


def records(out):
    return [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]


def shuffled(reply):
    """Sums in which what follows has nothing to do with what was."""
    arrays = dict(reply.message.arrays)
    if "shift" not in arrays:
        return reply
    shift = np.outer(arrays["gram"][:, 0], arrays["gram"][0]) / max(arrays["pairs"][0], 1.0)
    return replace(reply, message=replace(reply.message, arrays={**arrays, "shift": shift}))


def asked_of(sites, name):
    """Kinds of what a site was asked for, in order."""
    batches = [requests for site, requests in sites.asked if site == name]
    return [one.message.kind for batch in batches for one in batch if isinstance(one, Ask)]


def test_honest_sites_are_served_as_they_are_run(study, tmp_path):
    run_study(study, out=tmp_path / "local")
    sites = Sites(study, tmp_path / "sites")
    sites.serve(tmp_path / "served")
    sites.close()
    models = [tmp_path / name / "model.safetensors" for name in ("local", "served")]
    assert models[0].read_bytes() == models[1].read_bytes()
    assert not any("suspect" in one for one in records(tmp_path / "served"))


def test_a_liar_is_refused_and_when_it_is_mended_all_its_data_count(study, tmp_path):
    sites = Sites(study, tmp_path / "sites")
    liar = only(shuffled, "lab-b", Answered)

    def twist(site, requests, replies):
        lies = len([kind for kind in asked_of(sites, "lab-b") if kind == "add-all"]) <= 3
        return liar(site, requests, replies) if lies else replies

    sites.twist = twist
    sites.serve(tmp_path / "served")
    delivered, trained, waiting = sites.account()
    sites.close()
    rows = [row for one in records(tmp_path / "served") for row in one.get("trust", ())]
    assert [(row["site"], row["became"]) for row in rows] == [(1, "refused")] * 3
    kinds = asked_of(sites, "lab-b")
    assert kinds[:5] == ["measure", *["add-all"] * 4] and "add-all" not in kinds[5:]
    assert delivered == trained + waiting > 0
    run_study(study, out=tmp_path / "local")
    local, served = (records(tmp_path / name)[-1]["E1"] for name in ("local", "served"))
    assert served == pytest.approx(local, rel=1e-6)
