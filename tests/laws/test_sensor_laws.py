"""Laws that every kind of sensor obeys: ours, and one from a file of another package."""

from pathlib import Path

import numpy as np
import pytest
from reference.extension import file_of

import fedkoopman as fk
from fedkoopman.config.parts import sensor_of
from fedkoopman.config.study import Study
from fedkoopman.config.tables import Sensor as SensorRule
from fedkoopman.config.user_files import user_files
from fedkoopman.errors import InputError
from fedkoopman.sensors import SENSORS

DIM = 3
RANGE = f"{file_of('ranges')}:SENSOR"
EXAMPLES = {
    "function": {"function": "own.py:first", "observed": 1, "angles": [0]},
    "identity": {"angles": [2]},
    "linear": {"matrix": [[1, 0, 0], [0, 2, 0]], "offset": [1, 0, 0]},
    "perturbed-identity": {"spread": 0.1, "seed": 3},
    "random-frame": {"observed": 1, "seed": 3},
    RANGE: {"beacons": [[5, 0, 0], [0, 5, 0]]},
}
EVERY = pytest.mark.parametrize("name", EXAMPLES, ids=lambda name: Path(name).stem)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text("def first(x):\n    return x[:1]\n")
    return tmp_path


def made(name, folder, seed=0):
    kind = SENSORS.find(name)
    values = kind.values(kind.read({"kind": name, **EXAMPLES[name]}, "sensor"))
    values.pop("seed", None)
    return kind.make(values, DIM, seed, folder), kind, values


def test_every_kind_has_an_example_here():
    assert set(EXAMPLES) - {RANGE} == set(SENSORS)


@EVERY
def test_a_kind_states_its_keys(name):
    kind = SENSORS.find(name)
    assert set(EXAMPLES[name]) <= set(kind.keys)
    assert set(kind.required) <= set(kind.keys)
    assert ("seed" in kind.keys) is kind.random
    assert set(kind.former_names.values()) <= set(kind.keys)
    for key in kind.required:
        left = {other: value for other, value in EXAMPLES[name].items() if other != key}
        with pytest.raises(InputError, match=f"has no {key}"):
            kind.read({"kind": name, **left}, "sensor")
    with pytest.raises(InputError, match="unknown key in sensor"):
        kind.read({"kind": name, **EXAMPLES[name], "nonsense": 1}, "sensor")


@EVERY
def test_reading_twice_changes_nothing(name):
    rule = SensorRule()
    table = rule.read({"kind": name, **EXAMPLES[name]}, "sensor")
    assert rule.read(table, "sensor") == table
    study = Study(clients={"sensor": table})
    assert Study.from_dict(study.to_dict()).digest() == study.digest()


@EVERY
def test_the_sensor_observes_what_its_kind_says(name, folder):
    sensor, kind, values = made(name, folder)
    assert sensor.dim == kind.observed(values, DIM)
    assert kind.observed(values, None) in (None, sensor.dim)
    sensor.check_state(DIM)
    x = np.random.default_rng(0).normal(size=(4, DIM))
    z = fk.observe(sensor, x)
    assert z.shape == (4, sensor.dim) and z.dtype == np.float64
    np.testing.assert_allclose(z, np.stack([sensor(row) for row in x]), atol=1e-12)


@EVERY
def test_only_a_random_kind_depends_on_the_seed(name, folder):
    x = np.array([1.0, 2.0, 3.0])
    one, again, other = (np.asarray(made(name, folder, seed)[0](x)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert np.array_equal(one, other) is not SENSORS.find(name).random


@EVERY
def test_a_site_says_from_which_seed_its_sensor_is_drawn(name):
    table = {"kind": name, **EXAMPLES[name]}
    table.pop("seed", None)
    if SENSORS.find(name).random:
        with pytest.raises(InputError, match=r"sensor\.kind is .* give its seed"):
            SensorRule(own=True).read(table, "sensor")
        table["seed"] = 3
    assert SensorRule(own=True).read(table, "sensor")["kind"] == name


def test_beacons_of_another_space_are_refused(folder):
    with pytest.raises(InputError, match="beacons have 2 coordinates but the state has 3"):
        SENSORS.find(RANGE).make({"beacons": ((1.0, 2.0),)}, DIM, 0, folder)


def test_a_former_name_is_read_and_stays_as_it_was_written():
    """So that the digest of an older study stays."""
    older = {"kind": "function", "function": "own.py:first", "dim": 1}
    assert SensorRule().read(older, "sensor") == older
    assert SENSORS.find("function").values(older)["observed"] == 1
    with pytest.raises(InputError, match="has both dim and observed: keep observed"):
        SensorRule().read({**older, "observed": 1}, "sensor")


def test_a_kind_of_ones_own_is_a_file(folder):
    (folder / "own_kind.py").write_text(
        "import numpy as np\n"
        "from fedkoopman.rules import Real\n"
        "from fedkoopman.sensors import LinearSensor, SensorKind\n"
        "def make(values, state_dim, seed, folder):\n"
        "    return LinearSensor(values['gain'] * np.eye(state_dim)[:1])\n"
        "GAIN = SensorKind(make, {'gain': Real()}, ('gain',), observed=lambda *_: 1)\n"
    )
    table = {"kind": "own_kind.py:GAIN", "gain": 2}
    study = Study(clients={"count": 1, "sensor": table}, folder=folder)
    study.check()
    sensor = sensor_of(table, DIM, seed=0, folder=folder, key="clients.sensor")
    assert sensor(np.ones(DIM)) == 2.0
    assert user_files(study) == [Path("own_kind.py")]
    wrong = Study(clients={"count": 1, "sensor": {**table, "gian": 2}}, folder=folder)
    with pytest.raises(InputError, match="did you mean 'gain'"):
        wrong.check()
