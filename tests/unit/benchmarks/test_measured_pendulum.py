"""The double pendulum's protocol of `benchmarks/measured.py`, against figures of other code."""

import importlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
DATA = os.environ.get("FEDKOOPMAN_MEASURED", "")


@pytest.fixture(scope="module")
def load():
    """Modules of benchmarks/, which is no package."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield lambda name: importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_who_is_ahead_is_told_for_every_horizon(load):
    pendulum = load("measured_pendulum")
    errors = {
        "holding": {5: 0.1, 25: 0.4, 100: 1.0},
        "nearly as good": {5: 0.004, 25: 0.02, 100: 1.0},
        "**spectral, a delay**": {5: 0.004, 25: 0.02, 100: 0.2},
        "did not run": {},
    }
    first, second = pendulum.verdicts(errors)
    assert first["met"] and first["goal"] == "ahead of holding"
    assert not second["met"] and second["result"] == "not ahead at 10 ms, 50 ms"


@pytest.mark.skipif(
    not DATA or not (Path(DATA) / "double_pendulum").is_dir(),
    reason="FEDKOOPMAN_MEASURED names no folder with the double pendulum",
)
@pytest.mark.slow
def test_free_motion_begins_at_the_release_and_holding_has_the_known_error(load):
    pendulum, accuracy = load("measured_pendulum"), load("accuracy_measured")
    states, samples = pendulum.trials(Path(DATA) / "double_pendulum")
    # By eye, the samples are 2590, 2591 and 2439.
    np.testing.assert_allclose(samples, (2590, 2591, 2439), atol=5)
    assert [len(one) for one in states] == [38_000 - first for first in samples]
    found = accuracy.angle_errors(load("accuracy_baselines").holding, states[2:], 0, (5, 100))
    error = [load("accuracy_baselines").root_mean_square(e) for e in found.values()]
    np.testing.assert_allclose(error, (0.091, 1.17), rtol=0.02)
