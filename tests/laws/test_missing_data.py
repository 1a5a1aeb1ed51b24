"""Lost samples and a dead channel cost little: the filter knows that they are missing.

Three sites watch pendulums through two channels. Of the same recordings one study has all, the
other has lost a twentieth of the samples at every site and one channel of one site. Both models are
judged on the same true swings, which no site has seen, so that nothing depends on how well a run's
own held-out states were estimated.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.errors import ComputationError
from fedkoopman.evaluation import TestSet, evaluate

SITES, SWINGS, SAMPLES, DT = ("lab-a", "lab-b", "lab-c"), 6, 200, 0.02
NOISE = 0.1
SEEDS = 4
"""Trainings that are averaged: that of one seed is known to a tenth."""

STUDY = f"""
name = "missing"
slots = 60
[system]
name = "pendulum"
parameters = {{ dt = {DT} }}
[sites]
files = [{", ".join(f'"{site}/site.toml"' for site in SITES)}]
[clients]
count = 3
probability = 1.0
[segments]
steps = {SAMPLES}
[estimation]
method = "ukf-resampled"
[network]
components = 8
[policy]
segments = 2
[evaluation]
tail_slots = 10
"""
SITE = f"""
[data]
files = "data/*.csv"
columns = ["angle", "rate"]
[sensor]
kind = "identity"
[noise]
observation = {NOISE**2}
process = {{ diagonal = [1e-5, 1e-4] }}
[initial]
cov = 2.0
"""


@pytest.fixture(scope="module")
def swings() -> np.ndarray:
    """True states (38, 201, 2): those that the sites record, and 20 to judge on."""
    starts = np.random.default_rng(0).uniform((-2.0, -1.0), (2.0, 1.0), (38, 2))
    system = fk.systems.Pendulum(dt=DT)
    return np.stack([fk.simulate(system, steps=SAMPLES, initial=x0) for x0 in starts])


@pytest.fixture(scope="module")
def errors(swings: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., float]:
    """E, averaged over seeds, of what is learned from damaged recordings."""
    test = TestSet(swings[len(SITES) * SWINGS :])

    def error(
        lost: float = 0.0, dead: int | None = None, filler: str = "", lost_track: str = "auto"
    ) -> float:
        folder = tmp_path_factory.mktemp("study")
        record(folder, swings, lost, dead, filler)
        # Without the guard, which would recognise the damaged site by its updates.
        values = {"estimation.lost_track": lost_track, "aggregation.guard": "off"}
        study = fk.Study.load(folder / "study.toml", values)
        run = fk.run(study, seeds=SEEDS)
        assert run.summary["dropped"] == 0
        return float(np.mean([evaluate(m.architecture_, m.weights_, test).e for m in run.models]))

    return error


def record(folder: Path, swings: np.ndarray, lost: float, dead: int | None, filler: str) -> None:
    """Write what the sites record; whatever is lost, the rest is the same.

    Arguments:
        lost: the share of samples that is lost at every site.
        dead: the channel that the second site never sees.
        filler: what stands in the cells of what is lost.
    """
    rng = np.random.default_rng(1)
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    for i, site in enumerate(SITES):
        data = folder / site / "data"
        data.mkdir(parents=True)
        (folder / site / "site.toml").write_text(f'name = "{site}"\n{SITE}', encoding="utf-8")
        for j in range(SWINGS):
            z = swings[i * SWINGS + j, 1:] + rng.normal(0.0, NOISE, (SAMPLES, 2))
            z[rng.random(SAMPLES) < lost] = np.nan
            if i == 1 and dead is not None:
                z[:, dead] = np.nan
            rows = [",".join(filler if np.isnan(v) else f"{v:.5f}" for v in row) for row in z]
            text = "\n".join(["angle,rate", *rows]) + "\n"
            (data / f"swing-{j}.csv").write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def complete(errors: Callable[..., float]) -> float:
    found = errors()
    assert 0.001 < found < 0.01  # a model that has learned something, and is not perfect
    return found


@pytest.mark.parametrize(
    "dead",
    [pytest.param(0, id="no angle"), pytest.param(1, id="no rate", marks=pytest.mark.slow)],
)
def test_a_twentieth_lost_and_a_dead_channel_cost_at_most_a_fifth(
    errors: Callable[..., float], complete: float, dead: int
) -> None:
    assert errors(lost=0.05, dead=dead) < 1.2 * complete


def test_the_same_damage_unnoticed_costs_more_than_a_fifth(
    errors: Callable[..., float], complete: float
) -> None:
    """Zeros in place of blanks: the test above would see a filter that took them for samples. By
    default the filter notices that it cannot follow them."""
    damage = {"lost": 0.05, "dead": 1, "filler": "0"}
    assert errors(**damage, lost_track="keep") > 1.2 * complete
    with pytest.raises(ComputationError, match=r"lab-b has no segment.* the filter lost track: in"):
        errors(**damage)
