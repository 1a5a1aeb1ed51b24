"""Names of a package are loaded on first use, and only those that it states."""

import subprocess
import sys

import pytest

import fedkoopman as fk
from fedkoopman import estimation, sensors, systems


@pytest.mark.parametrize("package", [estimation, sensors, systems], ids=lambda p: p.__name__)
def test_every_name_is_there(package) -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None


def test_submodules_are_attributes_as_usual() -> None:
    assert fk.systems.lorenz63.Lorenz63 is fk.systems.Lorenz63
    assert fk.estimation.methods.ESTIMATORS is fk.estimation.ESTIMATORS


@pytest.mark.parametrize("name", ["Lorenz64", "__wrapped__", "_hidden"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"'fedkoopman.systems' has no attribute '{name}'"):
        getattr(systems, name)


def test_listing_names_loads_no_jax() -> None:
    code = """
import sys
from fedkoopman.estimation.methods import ESTIMATORS
from fedkoopman.sensors import SENSORS
from fedkoopman.systems import SYSTEMS
from fedkoopman.config.study import Study
Study(clients={"sensor": {"kind": "linear", "matrix": [[1, 0, 0]]}}).to_toml(comments=True)
assert {"ukf", "ekf"} < set(ESTIMATORS) and "linear" in SENSORS and "yni" in SYSTEMS
ESTIMATORS.check_name("ukf")
assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
