"""Every Python file that a study names is found, whichever key names it."""

from pathlib import Path

import pytest

from fedkoopman.config.study import Study
from fedkoopman.config.user_files import moved, user_files
from fedkoopman.registry import Registry
from fedkoopman.rules import Auto

OWN = "own.py:thing"
KEYS = {
    "system.name": OWN,
    "estimation.method": OWN,
    "network.kind": OWN,
    "algorithm.name": OWN,
    "aggregation.rule": OWN,
    "server.step": OWN,
    "policy.name": OWN,
    "clients.sensor": {"kind": "function", "function": OWN, "observed": 1},
}


@pytest.mark.parametrize("key", KEYS)
def test_the_file_that_a_key_names_is_found(key: str) -> None:
    assert user_files(Study().with_values({key: KEYS[key]})) == [Path("own.py")]


def test_every_key_that_takes_a_file_is_tried_here() -> None:
    """So that a key which is added later cannot be forgotten."""
    inner = {
        key: rule.rule if isinstance(rule, Auto) else rule for key, rule in Study.rules().items()
    }
    taking = {key for key, rule in inner.items() if getattr(rule, "reference", None)}
    choosing = {
        key for key, rule in inner.items() if isinstance(getattr(rule, "names", None), Registry)
    }
    assert taking == choosing == set(KEYS) - {"clients.sensor"}


def test_files_of_several_keys_are_told_once_each() -> None:
    sensors = [{"kind": "kinds.py:GAIN", "gain": 2}, {**KEYS["clients.sensor"]}]
    study = Study().with_values(
        {
            "clients.count": 2,
            "clients.sensor": sensors,
            "policy.name": "rules/own.py:mine",
            "aggregation.rule": "rules/own.py:median",
        }
    )
    assert user_files(study) == [Path("kinds.py"), Path("own.py"), Path("rules/own.py")]


def test_a_text_that_looks_like_a_file_names_none() -> None:
    assert user_files(Study(name="about own.py:thing")) == []


def test_a_moved_study_names_the_same_files(tmp_path: Path) -> None:
    """From a folder beside it, of every kind of key that names files."""
    home, there = tmp_path / "home", tmp_path / "out" / "deep"
    absolute = str(tmp_path / "far.py") + ":thing"
    study = Study.from_dict(
        {
            "clients": {"count": 1, "sensor": [KEYS["clients.sensor"] | {"kind": "s.py:GAIN"}]},
            "recordings": {"train": ["a.csv"], "test": ["days/b.npy"]},
            "policy": {"name": "rules/own.py:mine"},
            "aggregation": {"rule": absolute},
            "network": {"kind": OWN},
        },
        home,
    )
    found = moved(study, there)
    assert found.root == there.resolve()
    assert found.recordings.train == ("../../home/a.csv",)
    assert found.recordings.test == ("../../home/days/b.npy",)
    assert found.policy.name == "../../home/rules/own.py:mine"
    assert found.network.kind == "../../home/own.py:thing"
    assert found.aggregation.rule == absolute
    [sensor] = found.clients.sensor
    assert sensor["kind"] == "../../home/s.py:GAIN"
    assert sensor["function"] == "../../home/own.py:thing"
    assert moved(found, home) == study


def test_a_moved_study_of_sites_finds_them(tmp_path: Path) -> None:
    study = Study.from_dict(
        {"sites": {"files": ["a/site.toml"]}, "clients": {"count": 1}}, tmp_path
    )
    assert moved(study, tmp_path / "tuned").sites.files == ("../a/site.toml",)
    assert moved(Study(), tmp_path) == Study()
