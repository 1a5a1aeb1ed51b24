"""Samples out of bounds and samples that are too uncertain: the same in both engines, and told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.deploy.in_memory import LABS, Sites, small_study

from fedkoopman.config.study import Study
from fedkoopman.deploy.site.buffer import Buffer
from fedkoopman.deploy.site.catalogue import Catalogue, Made, Stamp
from fedkoopman.deploy.site.store import Store
from fedkoopman.estimation.left_out import kept_samples, stretches, without
from fedkoopman.runs.run import run
from fedkoopman.runs.site_preparation import prepared_sites
from fedkoopman.survey.site_check import check_sites

BOUNDS = "[-1.0, 1.0]"
"""Of the angle; the pendulum leaves them now and then."""


@pytest.fixture(autouse=True)
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedkoopman.reports.run.write_report", lambda folder: folder)


def bounded(folder: Path, **values: Any) -> Study:
    """The small pendulum study, one site of which knows that its pendulum hardly ever goes far."""
    small_study(folder)
    file = folder / "lab-a" / "site.toml"
    text = file.read_text().replace("theta = [-7.0, 7.0]", f"theta = {BOUNDS}")
    assert BOUNDS in text
    file.write_text(text)
    return small_study(folder, {"estimation.gate": 1.2, **values})


@pytest.mark.parametrize(
    "values", [{}, pytest.param({"network.kind": "inclusive"}, marks=pytest.mark.slow)]
)
def test_run_and_serve_agree(values: dict[str, Any], tmp_path: Path) -> None:
    study = bounded(tmp_path / "study", **values)
    local = run(study, out=tmp_path / "local")
    sites = Sites(study, tmp_path / "sites")
    summary = sites.serve(tmp_path / "served")
    arrived, trained, waiting = sites.account()
    agents = [sites.start(name) for name in LABS]
    told = {name: agent.status() for name, agent in zip(LABS, agents, strict=True)}
    counts = {name: a.intake.catalogue.counts() for name, a in zip(LABS, agents, strict=True)}
    sites.close()
    here, there = (
        [json.loads(line) for line in (tmp_path / name / "records.jsonl").read_text().splitlines()]
        for name in ("local", "served")
    )
    for one in (*here, *there):
        del one["seconds"]
    assert here == there
    models = [(tmp_path / n / "model.safetensors").read_bytes() for n in ("local", "served")]
    assert models[0] == models[1]
    assert arrived == trained + waiting
    if not values:  # otherwise earlier samples are looked at again
        assert trained == sum(record["samples"] for record in here)
    assert summary is not None
    for name in LABS:
        mine, theirs = local.summary["sites"][name], summary["sites"][name]
        assert mine["train_samples"] == theirs["train_samples"]
        assert mine["left_out"] == told[name]["left_out"] != []
        count = sum(int(line.split(": ")[1].split()[0]) for line in mine["left_out"])
        assert counts[name].left_out == count
        # outside, no names
        assert theirs["left_out"] == [f"{count:,} samples, for reasons that the site knows"]
    assert any("theta is" in line for line in told["lab-a"]["left_out"])
    assert not any("theta is" in line for line in told["lab-b"]["left_out"])


def test_what_a_site_brings_lies_within_its_bounds(tmp_path: Path) -> None:
    study = bounded(tmp_path / "study", **{"estimation.gate": 0.0})
    within = prepared_sites(study).sites[0]
    (tmp_path / "study" / "lab-a" / "site.toml").write_text(
        (tmp_path / "study" / "lab-a" / "site.toml")
        .read_text()
        .replace(f"theta = {BOUNDS}", "theta = [-7.0, 7.0]")
    )
    before = prepared_sites(study).sites[0]
    assert before.left_out == () and len(within.left_out) > 0
    found, cut = iter(within.train), 0
    for states in before.train:
        bad = np.abs(states[:, 0]) > 1
        expected = without(states, bad, 2)
        if len(expected):
            np.testing.assert_array_equal(next(found), expected)
            cut += len(stretches(expected)) > 1
    assert cut and next(found, None) is None
    for one in within.held_out:
        assert np.abs(one.states[:, 0]).max() <= 1  # no score on what cannot be
        (whole,) = (other for other in before.held_out if other.name == one.name)
        place = int(np.flatnonzero((whole.states == one.states[0]).all(axis=1))[0])
        assert 2 * len(one.states) >= len(whole.states)
        np.testing.assert_array_equal(
            whole.observations[place : place + len(one.states)], one.observations
        )


def test_check_counts_samples(tmp_path: Path) -> None:
    study = bounded(tmp_path / "study")
    found, _ = check_sites(study, lambda *_: None)
    notes = " ".join(found[0].notes)
    assert "theta is estimated outside of [-1, 1] in " in notes
    assert "samples), as " in notes and "a run leaves such samples out" in notes
    assert "more than 1.2 times as uncertain as usual" in notes


def test_a_segment_in_pieces_is_one_delivery(tmp_path: Path) -> None:
    states = np.random.default_rng(0).normal(size=(12, 3))
    pieces = without(states, np.isin(np.arange(12), [3, 4, 8]), 2)
    assert [len(part) for part in stretches(pieces)] == [3, 3, 3]
    with Store(tmp_path / "state") as store:
        catalogue = Catalogue(store)
        catalogue.begin("a.csv", Stamp(1, 1), "x")
        catalogue.add("a.csv", Made("a", "train", "3 of 12 samples are left out: why", pieces))
        catalogue.add("a.csv", Made("b", "train", "", states))
        assert catalogue.finish("a.csv", deliver=True) == 21
        buffer = Buffer(store)
        counted = buffer.poll(1)
        assert (counted.samples, counted.segments) == (21, 2)
        for found in (buffer.states(1), buffer.arrived(1), buffer.history(1).segments):
            np.testing.assert_array_equal(found[0], pieces)
            np.testing.assert_array_equal(found[1], states)
        assert [kept_samples(one) for one in buffer.states(1)] == [9, 12]
        assert catalogue.counts().left_out == 3
        assert catalogue.left_out() == ["a: 3 of 12 samples are left out: why"]
        assert catalogue.dropped() == []
