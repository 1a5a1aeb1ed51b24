"""A later version of fedkoopman takes up the runs, kits, consents and stores of this one.

The later version is played: a study with one more key and one more section, and another
`__version__`, in every module that uses them.
"""
# ruff: noqa: RUF009 - what `_part` returns is a field with a factory

import json
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from reference.examples import write_example
from unit.deploy.site_lab import asked, make_site, make_study

import fedkoopman as fk
from fedkoopman.config import study as study_module
from fedkoopman.config.loader import Section, key, part
from fedkoopman.config.sections import TrainingSection
from fedkoopman.config.study import Study
from fedkoopman.deploy.provisioning.provision import provision, shared_study
from fedkoopman.deploy.site.agent import Agent
from fedkoopman.deploy.site.join import Joining, agreed, consent, prepare
from fedkoopman.deploy.wire import Acknowledge, Acknowledged, Envelope, Refused
from fedkoopman.rules import Choice, Real
from fedkoopman.runs.run import run
from fedkoopman.version import NUMERICS, __version__

RECORDED = {
    "a92ed26be2ab434e620f88ce4e06104c2ad5718229f348bd6a696f47a1fa6794": {},
    "02fac3ee150b80552f6eb654a847b0adf97c02a6e03b8e27f18d856a6b1cf1df": {"training.epochs": 3},
    "6168ddb02f408bb89689c84be79e1ad63c7da72ae48bf28c801cdb64bef05b7c": {
        "clients.count": 3,
        "policy.segments": [1, 2, 3],
    },
    "1eaa82beeceaea23473c5686db319d4eb7e2e89934bb2fdb1260a2e2c55a67c3": {
        "system.name": "pendulum",
        "clients.sensor": {"kind": "linear", "matrix": [[1.0, 0.0]]},
        "estimation.method": "particle",
    },
}
"""Digests that version 0.3.0 gave, when they covered all keys."""
TINY = {
    "slots": 4,
    "segments.steps": 30,
    "training.epochs": 1,
    "policy.segments": 1,
    "clients.count": 2,
    "clients.probability": 1.0,
    "evaluation.trajectories": 2,
    "scheme": "perfect-data",
}


@dataclass(frozen=True)
class LaterTraining(TrainingSection):
    """Training with one more key."""

    clip: float = key(0.0, Real(low=0), "Largest norm of a gradient; 0 for any")


@dataclass(frozen=True)
class Rounding(Section):
    """A section that was added."""

    section: ClassVar[str] = "rounding"
    mode: str = key("nearest", Choice(("nearest", "down")), "How to round")


@dataclass(frozen=True)
class LaterStudy(Study):
    """A study of a later version."""

    training: LaterTraining = part(LaterTraining)
    rounding: Rounding = part(Rounding)


def everywhere(patch: pytest.MonkeyPatch, name: str, old: object, new: object) -> None:
    """Replace a name in every module of fedkoopman that has it."""
    for module, found in list(sys.modules.items()):
        if module.startswith("fedkoopman") and vars(found).get(name) is old:
            patch.setattr(found, name, new)


@pytest.fixture
def update(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Install the later version."""

    def updated() -> None:
        everywhere(monkeypatch, "Study", Study, LaterStudy)
        everywhere(monkeypatch, "__version__", __version__, "99.0")
        assert study_module.Study is LaterStudy
        assert "clip" in LaterStudy().to_dict()["training"]

    return updated


@pytest.mark.parametrize("digest", RECORDED)
def test_digests_are_those_of_the_first_version(digest: str, update: Callable[[], None]) -> None:
    assert Study().with_values(RECORDED[digest]).digest() == digest
    update()
    assert LaterStudy().with_values(RECORDED[digest]).digest() == digest


@pytest.mark.parametrize("change", [{"training.clip": 1.0}, {"rounding.mode": "down"}])
def test_another_value_of_a_new_key_is_another_study(
    change: dict[str, Any], update: Callable[[], None]
) -> None:
    update()
    study = LaterStudy().with_values(change)
    assert study.digest() != LaterStudy().digest()
    assert study.with_values({"seed": 4}).digest() == study.digest()
    for lasting in (False, True):
        again = LaterStudy.from_dict(tomllib.loads(study.to_toml(lasting=lasting)))
        assert again == study


def test_a_new_key_is_written_where_it_is_asked_for(update: Callable[[], None]) -> None:
    before = Study().to_toml(lasting=True)
    assert "clip" not in before
    update()
    assert LaterStudy().to_toml(lasting=True) == before
    assert "clip = 0.0" in LaterStudy().to_toml() and "[rounding]" in LaterStudy().to_toml()


@pytest.mark.parametrize("seeds", [None, 2])
def test_a_run_is_gone_on_with_to_the_same_model(
    tmp_path: Path, update: Callable[[], None], seeds: int | None
) -> None:
    study = Study().with_values(TINY)
    run(study, seeds=seeds, out=tmp_path / "whole")

    def stop(event: Any) -> None:
        if event.record["slot"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(study, seeds=seeds, out=tmp_path / "cut", progress=stop)
    update()
    later = LaterStudy().with_values(TINY)
    with pytest.raises(fk.InputError, match=r"another study \(training.clip is 1.0 here and 0.0"):
        run(later.with_values({"training.clip": 1.0}), out=tmp_path / "cut", resume=True)
    run(later, seeds=seeds, out=tmp_path / "cut", resume=True)
    models = sorted((tmp_path / "whole").rglob("model.safetensors"))
    assert len(models) == (seeds or 1)
    for model in models:
        other = tmp_path / "cut" / model.relative_to(tmp_path / "whole")
        assert other.read_bytes() == model.read_bytes()


def test_a_run_of_other_numbers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study().with_values(TINY)
    run(study, out=tmp_path / "run")
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["versions"].startswith(f"fedkoopman {NUMERICS}, jaxlib")
    everywhere(monkeypatch, "NUMERICS", NUMERICS, "99.0")
    with pytest.raises(fk.InputError, match=r"begun with fedkoopman 0.* and this is fedkoopman 99"):
        run(study, out=tmp_path / "run", resume=True)


@pytest.fixture
def joined(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The file of a study with a fleet, at one of whose sites somebody has consented."""
    folder = tmp_path / "swings"
    write_example(folder)
    codes = provision(folder / "study.toml", None).codes
    consent(_ready(folder, codes))
    return folder / "study.toml", codes


def _ready(folder: Path, codes: dict[str, str]) -> Joining:
    return prepare(
        folder / "lab-a" / "site.toml",
        "127.0.0.1:8443",
        kit=folder / "fleet" / "kits" / "lab-a.kit",
        state=folder / "state",
        insecure=False,
        code=lambda _: codes["lab-a"],
    )


def test_kits_and_consents_hold(
    joined: tuple[Path, dict[str, str]], update: Callable[[], None]
) -> None:
    path, codes = joined
    before = {p.name: p.read_bytes() for p in (path.parent / "fleet" / "kits").iterdir()}
    update()
    here = _ready(path.parent, codes)
    here.kit.check_version()
    assert agreed(here)
    assert isinstance(here.kit.study, LaterStudy)
    done = provision(path)  # as a coordinator does who enrols one more site
    assert done.roster.digest == shared_study(path).digest() == here.kit.digest
    after = {p.name: p.read_bytes() for p in (path.parent / "fleet" / "kits").iterdir()}
    assert after == before
    path.write_text(path.read_text().replace("[training]", "[training]\nclip = 1.0"))
    assert any("made the kits" in line for line in provision(path).said)
    assert not agreed(_ready(path.parent, codes))


def test_kits_of_other_numbers_are_refused(
    joined: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, codes = joined
    everywhere(monkeypatch, "NUMERICS", NUMERICS, "99.0")
    with pytest.raises(fk.InputError, match=r"is for fedkoopman 0.* and this is 99.0"):
        _ready(path.parent, codes).kit.check_version()


def test_a_site_answers_a_server_of_the_other_version_and_keeps_its_store(
    tmp_path: Path, update: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    site, study = make_site(tmp_path / "lab-a"), make_study(tmp_path)
    old, table = Envelope(study.seeded_digest()), study.to_dict()
    with Agent(site, study, 0, 1, tmp_path / "state", settle=0.0):
        pass
    update()
    later = LaterStudy.from_dict(table, tmp_path)
    with Agent(site, later, 0, 1, tmp_path / "state", settle=0.0) as agent:
        assert isinstance(asked(agent, Acknowledge(0, 0), envelope=old)[0], Acknowledged)
        other = replace(old, version="98.0")
        [refused] = asked(agent, Acknowledge(0, 0), envelope=other)
        assert isinstance(refused, Refused) and "the server has fedkoopman 98.0" in refused.reason
    assert "a new study" not in caplog.text
