"""A site's system by name, and what its sensor shows of single states."""

from pathlib import Path

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.runs.site_estimation import load_system, seen_alone


def test_a_built_in_system_takes_parameters_and_interval() -> None:
    system = load_system("lorenz63", {"b": 25.0}, dt=0.1)
    assert system.parameters["b"] == 25.0
    assert system.dt == 0.1
    # a longer interval is divided into more sub-steps
    assert system.substeps > load_system("lorenz63").substeps


def test_a_system_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(
        "import fedkoopman as fk\nmine = fk.systems.VanDerPol(a=3.0)\nother = 4\n", encoding="utf-8"
    )
    assert load_system("model.py:mine").parameters["a"] == 3.0
    assert load_system("model.py:mine", {"a": 1.0}).parameters["a"] == 1.0
    with pytest.raises(fk.InputError, match="is a int, not a System"):
        load_system("model.py:other")


def test_states_seen_one_by_one_are_read_off() -> None:
    x = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    sensor = fk.LinearSensor([[0, 0, 2], [1, 1, 0]], [0.5, 0.0, 0.5])
    z = (x - sensor.offset) @ np.asarray(sensor.matrix).T
    np.testing.assert_allclose(seen_alone(sensor, z, 3), [[np.nan, np.nan, 3], [np.nan, np.nan, 6]])


def test_a_function_sensor_shows_no_state_by_itself() -> None:
    sensor = fk.FunctionSensor(lambda x: x[:1] ** 2, 1)
    assert np.isnan(seen_alone(sensor, np.ones((4, 1)), 3)).all()
