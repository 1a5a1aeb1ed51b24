"""Process noise of simulated clients: the level of largest likelihood, by seed and client alone."""

from dataclasses import replace

import numpy as np
import pytest

from fedkoopman.config.study import Study
from fedkoopman.errors import InputError
from fedkoopman.federation.process_noise import LEVELS, best_level, changes
from fedkoopman.federation.sites import Address, Sites
from fedkoopman.federation.workers import Workers
from fedkoopman.runs.experiment import experiment_of

GOOD = {
    "estimation.method": "ukf-resampled",
    "estimation.initial_mean": "auto",
    "estimation.initial_cov": "auto",
    "clients.process_noise": "auto",
}


def experiment(seed: int = 0, **values):
    return experiment_of(Study.paper_default(slots=20).with_values({**GOOD, **values}), seed)


def rms(given) -> float:
    wanted = [Address(slot, n) for slot in (1, 2, 3) for n in range(len(given.clients))]
    with Workers(1) as workers:
        truth = Sites(given, perfect=True).segments(wanted, workers)
        found = Sites(given, perfect=False).segments(wanted, workers)
    return float(np.sqrt(np.mean([(found[a] - truth[a]) ** 2 for a in wanted])))


def test_a_parabola_finds_the_top_between_levels_and_the_ends_stay() -> None:
    exponents = np.log10(LEVELS)
    parabola = -((exponents + 2.3) ** 2)
    assert best_level(np.tile(parabola, (5, 1))) == pytest.approx(10**-2.3)
    assert best_level(np.tile(-exponents, (5, 1))) == pytest.approx(LEVELS[0])
    assert best_level(np.tile(exponents, (5, 1))) == LEVELS[-1]


def test_lost_segments_are_outvoted_and_diverged_ones_do_not_count() -> None:
    exponents = np.log10(LEVELS)
    honest = np.tile(-((exponents + 3.0) ** 2), (6, 1))
    lost = np.tile(1000 * exponents, (4, 1))
    diverged = np.full((3, len(LEVELS)), -np.inf)
    assert best_level(np.concatenate([honest, lost, diverged])) == pytest.approx(1e-3, rel=0.5)
    assert best_level(diverged) == LEVELS[0] == best_level(diverged[:0])


def test_right_dynamics_are_hardly_doubted_and_wrong_ones_are() -> None:
    right, wrong = experiment(), experiment(**{"clients.dynamics": {"b": 26.0}})
    scale = changes(right, right.clients[0])
    assert np.diag(right.clients[0].process_noise) == pytest.approx(LEVELS[0] * scale)
    assert right.clients[0].process_noise[0, 0] < 1e-4  # about 1e-5 is known to be good
    doubt = wrong.clients[0].process_noise[0, 0]
    assert doubt > 1e3 * right.clients[0].process_noise[0, 0]
    sure = replace(
        wrong,
        clients=tuple(
            replace(c, process_noise=right.clients[0].process_noise) for c in wrong.clients
        ),
    )
    assert rms(right) < 0.2
    assert rms(wrong) < 0.7 * rms(sure)


def test_clients_that_believe_otherwise_choose_for_themselves() -> None:
    given = experiment(**{"clients.dynamics": {"b": [28.0, 26.0, 28.0, 26.0, 28.0]}})
    noise = [client.process_noise[0, 0] for client in given.clients]
    assert noise[0] == noise[2] == noise[4] < noise[1] == noise[3]


def test_only_those_who_ask_are_estimated() -> None:
    given = experiment(**{"clients.process_noise": [1.0, "auto", 2.0, "auto", 1.0]})
    noise = [client.process_noise[0, 0] for client in given.clients]
    assert noise[0] == noise[4] == 1.0
    assert noise[2] == 2.0
    assert noise[1] == noise[3] < 0.01


def test_the_estimate_is_the_seeds_and_the_same_every_time() -> None:
    first, again = experiment(seed=3), experiment(seed=3)
    np.testing.assert_array_equal(first.clients[0].process_noise, again.clients[0].process_noise)
    # what only later slots, other schemes or the network decide does not matter
    other = experiment(seed=3, scheme="single-client", **{"network.width": 5, "slots": 40})
    np.testing.assert_array_equal(first.clients[0].process_noise, other.clients[0].process_noise)


@pytest.mark.parametrize("method", ["ukf", "ekf", "particle"])
def test_every_method_has_a_likelihood_to_estimate_with(method: str) -> None:
    given = experiment(**{"estimation.method": method, "estimation.particles": 50})
    assert given.filter.method == method
    assert given.clients[0].process_noise[0, 0] < 0.01


def test_nobody_arrives_and_nothing_is_known() -> None:
    given = experiment(**{"clients.probability": 0.0})
    scale = changes(given, given.clients[0])
    assert np.diag(given.clients[0].process_noise) == pytest.approx(LEVELS[0] * scale)


def test_the_initial_law_is_the_filters_and_its_covariance_is_about_the_mean_given() -> None:
    law = experiment().filter
    np.testing.assert_allclose(law.initial_cov, 100 / 3 * np.eye(3))
    given = experiment(
        **{"estimation.initial_mean": [1.0, 0.0, 0.0], "clients.process_noise": 1.0}
    ).filter
    np.testing.assert_allclose(given.initial_mean, [1.0, 0.0, 0.0])
    np.testing.assert_allclose(np.diag(given.initial_cov), [103 / 3, 100 / 3, 100 / 3])


def test_good_settings_make_good_states() -> None:
    paper = experiment_of(Study.paper_default(slots=20), 0)
    assert rms(experiment()) < 0.4 * rms(paper)


def test_lost_segments_are_left_out_when_that_is_asked() -> None:
    values = {"system.name": "pendulum", "estimation.alpha": 1, "estimation.kappa": 0}
    kept = experiment(seed=100, **values)
    dropped = experiment(seed=100, **values, **{"estimation.lost_track": "drop"})
    wanted = [Address(slot, n) for slot in range(1, 13) for n in range(5)]
    with Workers(1) as workers:
        truth = Sites(kept, perfect=True).segments(wanted, workers)
        all_of_them = Sites(kept, perfect=False).segments(wanted, workers)
        found = Sites(dropped, perfect=False).segments(wanted, workers)
        both = replace(dropped, filter=replace(dropped.filter, gate=3.0))
        gated = Sites(both, perfect=False).segments(wanted, workers)
    gone = [a for a in wanted if found[a] is None]
    error = {a: np.sqrt(np.mean((all_of_them[a] - truth[a]) ** 2)) for a in wanted}
    assert 0 < len(gone) < 12
    assert min(error[a] for a in gone) > 1.0
    for a in wanted:
        if found[a] is not None:
            np.testing.assert_array_equal(found[a], all_of_them[a])
    # A gate leaves samples out of what is kept, and brings back nothing that is lost.
    assert all(gated[a] is None for a in gone)
    assert any(gated[a] is not None and np.isnan(gated[a]).any() for a in wanted)


def test_what_cannot_be_is_refused_by_its_key() -> None:
    study = Study.paper_default()
    with pytest.raises(InputError, match=r'lost_track is "drop".*"ukf-resampled"'):
        study.with_values({"estimation.lost_track": "drop"}).check()
    for name in ("estimation.lost_track", "clients.process_noise", "estimation.initial_cov"):
        with pytest.raises(InputError, match=name):
            study.with_values({name: "often"})
    with pytest.raises(InputError, match=r"estimation.initial_mean is 'high'"):
        study.with_values({"estimation.initial_mean": "high"})
