"""What sites prepare is computed once and passed on; their states lie in a temporary file."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.config.study import Study
from fedkoopman.errors import ComputationError
from fedkoopman.runs import run as run_module
from fedkoopman.runs import sweep as sweep_module
from fedkoopman.runs.experiment import experiment_of
from fedkoopman.runs.site_preparation import SpilledArrays, prepared_sites
from fedkoopman.runs.sweep import sweep

SITE = """
name = "lab"
[data]
files = "z.npz"
[sensor]
kind = "identity"
[noise]
observation = 0.01
process = 0.01
"""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Three short swings at one site, held out the last; the first is too short for a window."""
    swings = fk.simulate(fk.systems.VanDerPol(), steps=20, batch=3)
    np.savez(tmp_path / "z.npz", short=swings[0][:2], middle=swings[1], last=swings[2])
    (tmp_path / "site.toml").write_text(SITE, encoding="utf-8")
    table = {
        "slots": 2,
        "system": {"name": "van-der-pol"},
        "sites": {"files": ["site.toml"]},
        "clients": {"count": 1, "probability": 1.0},
        "network": {"components": 3, "hidden_layers": 1, "width": 4},
        "training": {"epochs": 1},
        "policy": {"segments": 1},
        "evaluation": {"horizon": 2},
    }
    return Study.from_dict(table, tmp_path)


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[Study]:
    """The studies whose sites were prepared, in order."""
    seen: list[Study] = []

    def counted(study: Study, *more: Any) -> Any:
        seen.append(study)
        return prepared_sites(study, *more)

    for module in (run_module, sweep_module):
        monkeypatch.setattr(module, "prepared_sites", counted)
    return seen


def test_a_run_prepares_its_sites_once(study: Study, prepared: list[Study]) -> None:
    both = fk.run(study, seeds=2)
    assert len(prepared) == 1
    again = fk.run(study, seeds=2, sites=prepared_sites(study))
    assert len(prepared) == 1
    assert again.summary["sites"] == both.summary["sites"]
    assert [r["l3"] for r in again.records] == [r["l3"] for r in both.records]


def test_an_experiment_is_made_of_prepared_sites(study: Study) -> None:
    with pytest.raises(ValueError, match="give what prepared_sites makes"):
        experiment_of(study, 0)
    sites = prepared_sites(study)
    found = experiment_of(study, 0, sites)
    assert found.deliveries is not None
    assert found.deliveries.train == (sites.sites[0].train,)


def test_a_sweep_prepares_again_only_what_differs(
    study: Study, prepared: list[Study], tmp_path: Path
) -> None:
    grid = {"network.window": [1, 2], "training.epochs": [1, 2]}
    results = sweep(study, grid, out=tmp_path / "sweep")
    assert [one.network.window for one in prepared] == [1, 2]
    dropped = [result.summary["sites"]["lab"]["dropped"] for result in results]
    assert dropped[0] == dropped[1] == []
    assert dropped[2] == dropped[3] == ["short: 2 samples, fewer than the 3 that training needs"]


def test_arrays_come_back_in_order_and_outlast_the_shelf() -> None:
    rng = np.random.default_rng(0)
    given = [rng.normal(size=(int(n), 3)) for n in rng.integers(1, 9, 50)]
    with SpilledArrays() as shelf:
        for array in given:
            shelf.keep(array)
        kept = shelf.arrays()
    assert len(kept) == len(given)
    for before, after in zip(given, kept, strict=True):
        np.testing.assert_array_equal(before, after)
        assert not after.flags.writeable


def test_nothing_kept_is_nothing() -> None:
    with SpilledArrays() as shelf:
        assert shelf.arrays() == ()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="handles are counted in /proc")
def test_many_arrays_take_one_handle() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with SpilledArrays() as shelf:
        for _ in range(500):
            shelf.keep(np.ones((2, 2)))
        kept = shelf.arrays()
    assert len(kept) == 500
    assert len(os.listdir("/proc/self/fd")) <= before + 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tempfile.TemporaryFile",
        lambda: open("/dev/full", "r+b"),  # noqa: SIM115
    )
    with SpilledArrays() as shelf, pytest.raises(ComputationError, match=r"No space left.*TMPDIR"):
        shelf.keep(np.ones((2, 2)))
