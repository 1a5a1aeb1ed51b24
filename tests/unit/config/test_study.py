"""A study: its default, its way to TOML and back, its parts, its values by dotted key."""

import dataclasses
import pickle
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkoopman.config import parts
from fedkoopman.config.sections import ClientsSection, TrainingSection
from fedkoopman.config.study import Study, per_client
from fedkoopman.sensors import SENSORS
from fedkoopman.systems import SYSTEMS, by_name

DEFAULT = Study.paper_default()


def again(study: Study) -> Study:
    return Study.from_dict(tomllib.loads(study.to_toml()))


# Round trips


def test_the_default_is_the_papers() -> None:
    assert Study() == DEFAULT
    assert (DEFAULT.slots, DEFAULT.clients.count, DEFAULT.segments.steps) == (200, 5, 300)
    assert DEFAULT.training.loss_weights == (1 / 3, 1 / 3, 1 / 3)
    DEFAULT.check()


@pytest.mark.parametrize("comments", [False, True])
def test_toml_gives_back_the_study(comments: bool) -> None:
    study = DEFAULT.with_values(
        {
            "name": 'quotes " and \\ and ζ',
            "system.parameters": {"dt": 0.02, "b": 27, "angles": [0, 2]},
            "clients.sensor": [
                {"kind": "linear", "matrix": [[1, 0, 0.1]], "offset": [0, 0, 1e-300]},
                {"kind": "identity"},
                {"kind": "perturbed-identity", "spread": 0.25, "seed": 7},
                {"kind": "random-frame", "observed": 1},
                {"kind": "function", "function": "sub/own.py:first", "dim": 1, "angles": [0]},
            ],
            "clients.process_noise": [1, 2, {"diagonal": [1, 2, 3]}, 4, {"matrix": np.eye(3)}],
            "clients.dynamics": {"b": [28, 27, 28, 28, 29], "a": 10},
        }
    )
    assert Study.from_dict(tomllib.loads(study.to_toml(comments))) == study
    assert Study.from_dict(study.to_dict()) == study
    assert pickle.loads(pickle.dumps(study)) == study


finite = st.floats(allow_nan=False, allow_infinity=False)
above = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
share = st.floats(0, 1)
words = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1)


@given(
    name=words,
    seed=st.integers(0, 2**63 - 1),
    probability=st.lists(share, min_size=3, max_size=3) | share,
    noise=finite.map(abs),
    rate=above,
    beta=finite,
    dynamics=st.dictionaries(words, finite),
    parameters=st.dictionaries(words, finite | st.integers(-(2**40), 2**40)),
)
def test_floats_and_text_come_back_exactly(
    name: str,
    seed: int,
    probability: Any,
    noise: float,
    rate: float,
    beta: float,
    dynamics: dict[str, float],
    parameters: dict[str, float],
) -> None:
    study = Study(
        name=name,
        seed=seed,
        clients={
            "count": 3,
            "probability": probability,
            "observation_noise": {"diagonal": [noise, 0.1]},
            "dynamics": dynamics,
        },
        training=TrainingSection(learning_rate=rate),
        estimation={"beta": beta},
        system={"parameters": parameters},
    )
    assert again(study) == study
    assert again(study).digest() == study.digest()
    assert again(study).to_toml() == study.to_toml()


def test_any_value_of_the_right_kind_is_brought_to_one_form() -> None:
    clients = ClientsSection(count=2, probability=np.array([1, 0.5]), observation_noise=4)
    assert clients == ClientsSection(
        count=np.int64(2), probability=(1.0, 0.5), observation_noise=4.0
    )
    assert clients.probability == (1.0, 0.5)
    assert isinstance(clients.observation_noise, float)
    assert Study(slots=np.int64(7)).to_toml() == Study(slots=7).to_toml()


def test_the_default_of_one_study_is_not_shared_with_another() -> None:
    Study().system.parameters["b"] = 1.0
    assert Study().system.parameters == {}


def test_a_study_keeps_no_hold_of_what_it_was_made_from() -> None:
    table = {"system": {"parameters": {"b": 27.0}}}
    study = Study.from_dict(table)
    table["system"]["parameters"]["b"] = 1.0
    study.to_dict()["system"]["parameters"]["b"] = 2.0
    assert study.system.parameters == {"b": 27.0}


# Digest


def test_the_digest_changes_with_every_key_but_the_seed() -> None:
    others = {
        "name": "x", "slots": 3, "scheme": "centralized", "trajectories": "per-client",
        "system.name": "pendulum", "system.parameters": {"b": 27.0}, "segments.steps": 20,
        "segments.restart": 2, "clients.count": 6, "clients.least": 2, "clients.probability": 0.5,
        "clients.observation_noise": 2, "clients.process_noise": 2,
        "clients.sensor": {"kind": "identity"}, "clients.dynamics": {"b": 2.0},
        "estimation.method": "ekf", "estimation.smooth": False, "estimation.alpha": 1,
        "estimation.beta": 1, "estimation.kappa": 1, "estimation.initial_mean": 1,
        "estimation.initial_cov": 2, "estimation.particles": 7, "estimation.lost_track": "keep",
        "network.components": 5,
        "network.hidden_layers": 2, "network.width": 3, "network.activation": "tanh",
        "network.window": 2, "network.depth": 2, "training.epochs": 3, "training.batch": 3,
        "training.learning_rate": 1, "training.weight_decay": 1, "training.decay": 1,
        "training.loss_weights": [1, 0, 0], "training.precision": "float64",
        "network.kind": "own.py:Linear", "network.degree": 2, "network.dictionary": "rbf",
        "network.features": 7, "network.learned": False, "network.horizon": 4,
        "network.discount": 0.5, "network.ridge": 1e-6, "network.margin": 0.5,
        "network.inputs": ["u"], "network.bilinear": True,
        "algorithm.name": "fedavg-m", "aggregation.rule": "own.py:median",
        "policy.name": "random", "policy.segments": 2, "evaluation.trajectories": 3,
        "evaluation.horizon": 2, "evaluation.tail_slots": 2, "evaluation.valid_error": 1,
        "recordings.windows": "consecutive", "system.states": ["a"], "sites.repeat": False,
        "sites.arrivals": "live", "estimation.gate": 3, "training.proximal": 0.1,
        "training.huber": 2, "algorithm.buffer": 2, "algorithm.staleness": 1,
        "aggregation.liars": 2, "aggregation.clip": 3, "aggregation.history": 4,
        "aggregation.guard": "on", "aggregation.secure": True, "server.learning_rate": 0.5,
        "server.average": 0.9, "server.step": "adam", "server.momentum": 0.3,
        "server.second_momentum": 0.5, "server.epsilon": 0.1, "algorithm.delays": 1,
        "privacy.mode": "site", "privacy.record": "segment",
        "privacy.clip": 2, "privacy.noise": 2, "privacy.delta": 1e-6,
    }  # fmt: skip
    of_sites = {"sites.files": [f"{i}.toml" for i in range(5)], "system.unknown": {"b": 20.0}}
    both_or_none = {"recordings.train": ["a.csv"], "recordings.test": ["b.csv"]}
    flat = {
        f"{name}.{inner}" if isinstance(value, dict) else name
        for name, value in DEFAULT.to_dict().items()
        for inner in (value if isinstance(value, dict) else [""])
    }
    assert {*others, *both_or_none, *of_sites} == flat - {"seed"}
    digests = {DEFAULT.with_values({name: value}).digest() for name, value in others.items()}
    assert len(digests | {DEFAULT.digest()}) == len(others) + 1
    recorded = DEFAULT.with_values(both_or_none)
    digests = {recorded.with_values({name: ["c.csv"]}).digest() for name in both_or_none}
    assert len(digests | {DEFAULT.digest(), recorded.digest()}) == 4
    sited = DEFAULT.with_values({"sites.files": of_sites["sites.files"]})
    assert len({DEFAULT.digest(), sited.digest(), DEFAULT.with_values(of_sites).digest()}) == 3
    assert DEFAULT.with_values({"seed": 5}).digest() == DEFAULT.digest()
    assert dataclasses.replace(DEFAULT, folder=Path("elsewhere")).digest() == DEFAULT.digest()


# Loading


def test_a_file_finds_its_own_python_beside_it(folder: Path) -> None:
    path = folder / "study.toml"
    path.write_text(
        '[system]\nname = "own.py:decay"\nparameters = { rate = 3.0 }\n'
        "[clients]\ncount = 2\ndynamics = { rate = [3, 4] }\n"
        'sensor = { kind = "function", function = "own.py:first", dim = 1 }\n'
        '[policy]\nname = "own.py:policy"\n',
        encoding="utf-8",
    )
    study = Study.load(path)
    assert study.folder == folder
    system = parts.system_of(study)
    assert system.parameters == {"rate": 3.0}
    assert [s.parameters["rate"] for s in parts.believed_systems(study, system)] == [3.0, 4.0]
    assert dataclasses.replace(study, slots=3).folder == folder
    assert study.with_values({"slots": 3}).folder == folder


def test_values_replace_the_files_before_it_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text("[network]\ncomponents = 2\n", encoding="utf-8")
    assert Study.load(path, {"system.name": "van-der-pol"}).network.components == 2


def test_one_belief_for_all_is_one_system() -> None:
    study = DEFAULT.with_values({"clients.dynamics.b": 27})
    believed = parts.believed_systems(study, parts.system_of(study))
    assert [system.parameters["b"] for system in believed] == [27.0] * 5


@pytest.mark.parametrize(
    ("table", "dim"),
    [
        ({"kind": "random-frame"}, 2),
        ({"kind": "random-frame", "observed": 1, "seed": 5}, 1),
        ({"kind": "identity", "angles": [1]}, 3),
        ({"kind": "perturbed-identity", "spread": 0.1}, 3),
        ({"kind": "linear", "matrix": [[1, 0, 0]], "offset": [1, 0, 0]}, 1),
        ({"kind": "function", "function": "own.py:first", "observed": 1}, 1),
        ({"kind": "function", "function": "own.py:first", "dim": 1}, 1),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_every_kind_of_sensor_is_built(folder: Path, table: dict[str, Any], dim: int) -> None:
    [form] = Study(clients={"count": 1, "sensor": [table]}).clients.sensor
    sensor = parts.sensor_of(form, 3, seed=1, folder=folder, key="clients.sensor")
    assert sensor.dim == dim
    assert sensor(np.ones(3)).shape == (dim,)
    kind = SENSORS.find(table["kind"])
    assert set(kind.values(form)) <= set(kind.keys)
    assert kind.observed(kind.values(form), 3) == dim


def test_the_older_word_for_the_observed_components_stays_valid(folder: Path) -> None:
    """And stays as it was written, so that the digest of an older study is the same."""
    table = {"kind": "function", "function": "own.py:first", "dim": 1}
    study = Study(clients={"sensor": table})
    assert study.clients.sensor == table
    sensor = parts.sensor_of(table, 3, seed=1, folder=folder, key="clients.sensor")
    assert sensor.dim == 1


@pytest.mark.parametrize(
    ("form", "matrix"),
    [
        (4.0, 4 * np.eye(2)),
        ({"diagonal": [1, 2]}, np.diag([1.0, 2.0])),
        ({"matrix": [[2, 1], [1, 2]]}, np.array([[2.0, 1], [1, 2]])),
    ],
)
def test_every_form_of_noise_is_a_matrix(form: Any, matrix: np.ndarray) -> None:
    noise = Study(clients={"process_noise": form}).clients.process_noise
    np.testing.assert_array_equal(parts.noise_of(noise, 2, "clients.process_noise"), matrix)


def test_values_per_client() -> None:
    assert per_client(0.5, 3) == (0.5, 0.5, 0.5)
    assert per_client((1.0, 2.0), 2) == (1.0, 2.0)


# Values by dotted key


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("slots", 50, 50),
        ("slots", "50", 50),
        ("slots", " 5_000 ", 5000),
        ("training.epochs", "5", 5),
        ("training.learning_rate", "1", 1.0),
        ("training.learning_rate", "1e-4", 1e-4),
        ("training.decay", ".5", 0.5),
        ("estimation.smooth", "false", False),
        ("scheme", "centralized", "centralized"),
        ("scheme", '"centralized"', "centralized"),
        ("name", "5", "5"),
        ("name", "true", "true"),
        ("name", "my study", "my study"),
        ("policy.name", "own.py:policy", "own.py:policy"),
        ("network.components", "auto", "auto"),
        ("network.components", "7", 7),
        ("clients.probability", "[1, 1, 1, 1, 0.5]", (1.0, 1.0, 1.0, 1.0, 0.5)),
        ("clients.probability", (1, 1, 1, 1, 0), (1.0, 1.0, 1.0, 1.0, 0.0)),
        ("system.parameters", "{ b = 27.0 }", {"b": 27.0}),
        ("system.parameters.b", "27", {"b": 27}),
        ("clients.dynamics.b", "[1, 2, 3, 4, 5]", {"b": (1.0, 2.0, 3.0, 4.0, 5.0)}),
        ("clients.sensor", '{ kind = "identity" }', {"kind": "identity"}),
        ("clients.sensor.kind", "identity", {"kind": "identity"}),
        ("clients.sensor.seed", 3, {"kind": "random-frame", "seed": 3}),
        ("clients.process_noise.diagonal", "[1, 2]", {"diagonal": (1.0, 2.0)}),
    ],
)
def test_a_value_is_an_object_or_toml_or_a_bare_word(name: str, given: Any, value: Any) -> None:
    found: Any = DEFAULT.with_values({name: given})
    for part in name.split(".")[:2]:
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)


def test_values_go_together() -> None:
    """Neither value would be allowed without the other."""
    study = DEFAULT.with_values({"clients.probability": [0.5, 0.6], "clients.count": 2})
    assert study.clients.probability == (0.5, 0.6)
    both = study.with_values({"training": {"epochs": 3}, "network": "{ width = 5, depth = 2 }"})
    assert (both.training.epochs, both.network.width, both.network.depth) == (3, 5, 2)
    assert both.clients == study.clients
    whole = DEFAULT.with_values({"training": TrainingSection(batch=3)})
    assert whole.training == TrainingSection(batch=3)


@pytest.mark.parametrize("name", SYSTEMS.names)
def test_every_system_has_a_default_study(name: str) -> None:
    study = DEFAULT.with_values({"system.name": name})
    study.check()
    assert parts.system_of(study).dim == by_name(name).dim
