"""Privacy of real agents: the account in their stores, budgets, secrets, and parity with a run."""

import json

import pytest
from unit.deploy.in_memory import LABS, Sites, small_study

from fedkoopman.deploy.site.ledger import ledger_entries
from fedkoopman.deploy.site.privacy import PrivacyAccount
from fedkoopman.federation.privacy import Release, epsilon
from fedkoopman.federation.streams import subseed
from fedkoopman.runs.run import run

PRIVATE = {"privacy.mode": "site", "privacy.noise": 2.0, "clients.probability": 1.0, "slots": 3}


@pytest.fixture
def as_in_a_run(monkeypatch):
    """Agents draw their noise from the study's seed, as simulated sites do."""

    def secret(self, slot, base):
        place = self._store.path.parent.name
        return subseed(int(self._study.rpartition(":")[2]), "privacy", slot, LABS.index(place))

    monkeypatch.setattr(PrivacyAccount, "secret", secret)


def served(study, folder, out):
    sites = Sites(study, folder)
    try:
        return sites, sites.serve(out)
    except BaseException:
        sites.close()
        raise


@pytest.mark.parametrize("mode", ["site", "central"])
def test_a_served_private_study_gives_the_model_of_a_local_run(
    mode, tmp_path, as_in_a_run, monkeypatch
):
    if mode == "central":
        monkeypatch.setattr(
            "fedkoopman.deploy.server.coordinator.server_secret", lambda directory: b""
        )
    study = small_study(tmp_path / "study", {**PRIVATE, "privacy.mode": mode})
    local = run(study, out=tmp_path / "local")
    sites, summary = served(study, tmp_path / "sites", tmp_path / "served")
    sites.close()
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("local", "served")]
    assert models[0] == models[1]
    assert summary["privacy"] == local.summary["privacy"]
    assert summary["privacy"]["sites"]["lab-a"]["trainings"] == 3
    written = json.loads((tmp_path / "served" / "summary.json").read_text())
    assert written["privacy"] == summary["privacy"]
    assert "(ε, δ) = (" in (tmp_path / "served" / "model.md").read_text()
    assert ("benefit" in summary) == (mode == "central")


def test_budget_ledger_and_status_of_a_served_site(tmp_path):
    study = small_study(tmp_path / "study", PRIVATE)
    file = study.root / "lab-b" / "site.toml"
    one = Release(*_plan(study), level="sample")
    allowed = 1.1 * epsilon([one], 1e-5)
    file.write_text(f"{file.read_text()}\n[privacy]\nbudget = {allowed}\n")
    said: list[str] = []
    sites = Sites(study, tmp_path / "sites")
    summary = sites.serve(tmp_path / "served", say=said.append)
    status = sites.agents["lab-b"].status()
    other = sites.agents["lab-a"].status()
    sites.close()
    assert summary["privacy"]["sites"]["lab-b"]["trainings"] == 1
    assert summary["privacy"]["sites"]["lab-a"]["trainings"] == 3
    assert status["epsilon"] == pytest.approx(epsilon([one], 1e-5))
    assert status["private_trainings"] == 1 and "is spent" in status["privacy_stopped"]
    assert other["privacy_stopped"] == "" and other["privacy_budget"] == "none"
    assert any("lab-b" in line and "privacy budget" in line for line in said)
    words = [row.words for row in ledger_entries(tmp_path / "sites" / "lab-a")]
    spent = [line for line in words if "update of" in line]
    assert len(spent) == 3 and all("ε = " in line for line in spent)
    local = run(small_study(tmp_path / "study", PRIVATE))
    told = local.summary["privacy"]["sites"]["lab-b"]
    assert told["trainings"] == 1 and told["stopped"] == 2


def test_the_account_outlasts_the_study_and_noise_is_the_sites_own(tmp_path):
    first = small_study(tmp_path / "study", PRIVATE)
    sites, before = served(first, tmp_path / "sites", tmp_path / "first")
    sites.close()
    second = small_study(tmp_path / "study", {**PRIVATE, "seed": 5})
    sites, after = served(second, tmp_path / "sites", tmp_path / "second")
    spent = sites.agents["lab-a"].status()["epsilon"]
    sites.close()
    of_both = [Release(*_plan(first, 6), level="sample")]
    assert spent == pytest.approx(epsilon(of_both, 1e-5))
    assert spent > before["privacy"]["sites"]["lab-a"]["epsilon"]
    # the server knows the seed, and does not know the noise
    again, _ = served(first, tmp_path / "others", tmp_path / "third")
    again.close()
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "third")]
    assert models[0] != models[1] and after is not None


def _plan(study, times=1):
    """q, σ and steps of trainings on one segment of 300 samples, 299 examples in batches of 64."""
    rate = 2 ** (-35 / 16)
    assert study.training.batch == 64 and 64 / 299 <= rate < 64 / 299 * 2 ** (1 / 16)
    return rate, study.privacy.noise, times * study.training.epochs * 5
