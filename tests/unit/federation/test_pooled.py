"""The kind `edmd` in a federation equals least squares on the pooled data, by NumPy and SciPy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from reference import dictionaries as twin
from unit.deploy.in_memory import LABS, Sites, small_study

import fedkoopman as fk
from fedkoopman.deploy.wire import Ask
from fedkoopman.federation.sites import schedule
from fedkoopman.koopman.dictionary import Dictionary
from fedkoopman.runs.experiment import experiment_of
from fedkoopman.runs.site_preparation import prepared_sites

VALUES = {"network.kind": "edmd", "network.components": "auto", "slots": 8}


@pytest.fixture(autouse=True)
def no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take longer than the slots."""
    monkeypatch.setattr("fedkoopman.reports.run.write_report", lambda folder: folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pooled")


@pytest.fixture(scope="module")
def prepared(folder: Path) -> Any:
    """What the sites estimate, which no setting here changes."""
    return prepared_sites(small_study(folder / "study", VALUES))


def came(study, prepared) -> list[list[tuple[int, np.ndarray]]]:
    """For every slot, the segments that come and the sites they come to, by the schedule."""
    e = experiment_of(study, study.seed, prepared)
    return [
        [(n, e.deliveries.train[n][place]) for n, place in slot.items()] for slot in schedule(e)
    ]


def functions(u, weights, dictionary):
    if dictionary == "polynomial":
        return twin.monomials(u, 1 if len(weights["operator"]) == 1 + u.shape[1] else 3)
    random = twin.fourier(u, weights["frequencies"])
    return np.hstack([np.ones((len(u), 1)), u, random])


def assert_pooled(model, segments, early, dictionary="polynomial", window=1, depth=1):
    """K and the predictions are those of LAPACK's least squares on all pairs of windows."""
    weights = {name: np.asarray(leaf) for name, leaf in model.weights_.items()}
    mean, std = twin.scale(early)
    np.testing.assert_allclose(weights["mean"], mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(weights["std"], std, rtol=1e-10)
    scaled = [(one - mean) / std for one in segments]
    now, later, _ = twin.windows(scaled, window, depth)
    psi, following = (functions(one, weights, dictionary) for one in (now, later))
    size = np.linalg.norm(psi, axis=0)
    solutions = [
        np.linalg.lstsq(psi / size, following, rcond=None)[0] / size[:, None],
        scipy.linalg.lstsq(psi / size, following, lapack_driver="gelsy")[0] / size[:, None],
    ]
    found = weights["operator"].T
    for expected in solutions:
        one = psi @ expected
        np.testing.assert_allclose(psi @ found, one, atol=1e-8 * np.abs(one).max())
        if np.linalg.cond(psi / size) < 1e4:
            np.testing.assert_allclose(found, expected, atol=1e-8 * np.abs(expected).max())
    # And what a user gets, in the states' units.
    d = len(mean)
    states = segments[0]
    u = twin.windows([(states - mean) / std], window, depth)[0]
    lifted = functions(u, weights, dictionary)
    columns = slice(1 + (window - 1) * d, 1 + window * d)
    for steps in (1, 3):
        expected = (lifted @ np.linalg.matrix_power(solutions[0], steps))[:, columns] * std + mean
        ahead = model.predict(states, steps, relift=0)[: len(u)]
        np.testing.assert_allclose(ahead, expected, atol=1e-7)


CASES = {
    "monomials": {},
    "delays": {"network.window": 2, "network.depth": 3, "network.degree": 1},
    "fourier": {"network.dictionary": "fourier", "network.features": 12},
    "without repeats": {"sites.repeat": False},
    "a site without data": {"clients.probability": [0.7, 0.0, 0.9]},
    "in double precision": {"training.precision": "float64"},
}
SLOW = {"fourier", "delays", "in double precision"}


@pytest.mark.parametrize(
    "case",
    [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in CASES],
)
def test_a_run_equals_pooled_least_squares(case, folder, prepared):
    study = small_study(folder / "study", {**VALUES, **CASES[case]})
    slots = came(study, prepared)
    segments = [one for slot in slots for _, one in slot]
    first = next(slot for slot in slots if slot)
    network = study.network
    model = fk.run(study).model
    assert_pooled(
        model,
        segments,
        [one for _, one in first],
        network.dictionary,
        network.window,
        network.depth,
    )
    if case == "a site without data":
        assert {n for slot in slots for n, _ in slot} == {0, 2}


def test_simulated_clients_equal_pooled_least_squares_of_what_they_estimate():
    from reference.federations import segments as estimated

    study = fk.Study.paper_default().with_values(
        {
            "slots": 5,
            "segments.steps": 40,
            "clients.count": 4,
            "clients.probability": 0.6,
            "evaluation.trajectories": 2,
            "network.kind": "edmd",
            "network.degree": 3,
        }
    )
    run = fk.run(study)
    addresses = [(one["slot"], n) for one in run.records for n in one["arrived"]]
    found = {
        k: v for k, v in estimated(experiment_of(study, 0), addresses).items() if v is not None
    }
    first = min(slot for slot, _ in found)
    early = [states for (slot, _), states in found.items() if slot == first]
    assert_pooled(run.model, list(found.values()), early)


class Absent(Sites):
    """Sites of which some are away in some slots."""

    def __init__(self, study, folder, away):
        super().__init__(study, folder)
        self.plan, self.slot = away, 1

    def online(self):
        self.away = {name for name, slots in self.plan.items() if self.slot in slots}
        return super().online()


@pytest.mark.parametrize(
    "away",
    [
        *(pytest.param(one, marks=pytest.mark.slow) for one in ({}, {"lab-b": {1, 2, 3, 4}})),
        {"lab-a": {3, 5}, "lab-c": {1, 6}},
    ],
)
def test_a_served_federation_equals_pooled_least_squares_whoever_was_away(
    away, folder, prepared, tmp_path
):
    study = small_study(folder / "study", VALUES)
    sites = Absent(study, tmp_path / "sites", away)

    def next_slot(event):
        sites.slot = event.slot + 1

    sites.serve(tmp_path / "served", tell=next_slot, wait_for=1)
    arrived, trained, waiting = sites.account()
    sites.close()
    assert arrived == trained > 0 and waiting == 0
    slots = came(study, prepared)
    segments = [one for slot in slots for _, one in slot]
    assert trained == sum(map(len, segments))
    model = fk.load_model(tmp_path / "served" / "model.safetensors")
    here = [n for n, name in enumerate(LABS) if 1 not in away.get(name, ())]
    early = [one for n, one in slots[1] if n in here]
    assert early, "nobody who is there has data in the first slot: choose another seed"
    assert_pooled(model, segments, early)


@pytest.mark.parametrize("dropped", ["add-all", pytest.param("add", marks=pytest.mark.slow)])
def test_a_reply_that_is_lost_is_counted_once_when_it_comes_again(
    dropped, folder, prepared, tmp_path
):
    study = small_study(folder / "study", VALUES)
    lost: list[int] = []

    def lose(site, requests, replies):
        """The first two replies of a site to such a request come to nobody."""
        asked = [one for one in requests if isinstance(one, Ask) and one.message.kind == dropped]
        if site == "lab-b" and asked and len(lost) < 2:
            lost.append(asked[0].slot)
            return None
        return replies

    sites = Sites(study, tmp_path / "sites", twist=lose)
    sites.serve(tmp_path / "served")
    arrived, trained, waiting = sites.account()
    sites.close()
    slots = came(study, prepared)
    segments = [one for slot in slots for _, one in slot]
    assert len(lost) == 2 and waiting == 0 and arrived == trained == sum(map(len, segments))
    model = fk.load_model(tmp_path / "served" / "model.safetensors")
    assert_pooled(model, segments, [one for _, one in slots[1]])


def test_baselines_are_the_same_model_from_all_data_in_one_place(folder, prepared):
    """`fk.EDMD` and a federation in which everything arrives at once."""
    values = {**VALUES, "clients.probability": 1.0, "sites.repeat": False}
    study = small_study(folder / "study", values)
    slots = came(study, prepared)
    segments = [one for slot in slots for _, one in slot]
    local = fk.EDMD(3).fit(segments)
    assert_pooled(local, segments, segments)
    run = fk.run(replace(study, slots=8)).model
    x = segments[0]
    # Another scale spans the same functions.
    assert Dictionary(x.shape[1], 3).size == run.n_components_ == local.n_components_
    np.testing.assert_allclose(
        run.predict(x, 2, relift=0), local.predict(x, 2, relift=0), atol=1e-7
    )
    one, other = (np.sort(np.abs(model.eigenvalues_)) for model in (run, local))
    np.testing.assert_allclose(one, other, atol=1e-6)
