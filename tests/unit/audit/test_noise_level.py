"""Whose sensor is noisier: found where updates show it, and not where they do not."""

import numpy as np
from tests.reference.federations import experiment

from fedkoopman.audit.features import Sample
from fedkoopman.audit.noise_level import _alone, levels_of, noise_attack, with_noise_levels


def planted(strength, seed=0, sites=10, times=12):
    """Updates that show their site's level in a few of many features."""
    random = np.random.default_rng(seed)
    clients, slots = np.tile(np.arange(sites), times), np.repeat(np.arange(times), sites)
    levels = random.standard_normal(sites)
    features = random.standard_normal((len(clients), 30))
    features[:, :3] += strength * levels[clients][:, None]
    return Sample(features - features.mean(axis=0), clients, slots), levels


def test_levels_that_show_are_found():
    found = noise_attack(*planted(2.0), seed=0)
    assert found.pairs.value >= 0.9
    assert found.pairs.verdict == "leaks"


def test_levels_that_do_not_show_are_not():
    """Over many draws: leaving sites out must not turn into a hint by itself."""
    found = [noise_attack(*planted(0.0, seed), seed=0).pairs.value for seed in range(30)]
    assert abs(np.mean(found) - 0.5) < 0.06


def test_shuffled_levels_are_not_found():
    found = [noise_attack(*planted(2.0, seed), seed=seed).shuffled for seed in range(30)]
    assert abs(np.mean(found) - 0.5) < 0.08


def test_sums_are_compared_by_the_mean_of_those_who_took_part():
    random = np.random.default_rng(0)
    levels, rows, clients, slots = random.standard_normal(6), [], [], []
    for slot in range(60):
        who = random.permutation(6)[:2]
        row = np.append(levels[who].mean() * 3, random.standard_normal(5))
        rows += [row, row]
        clients += who.tolist()
        slots += [slot, slot]
    features = np.array(rows) - np.mean(rows, axis=0)
    sample = Sample(features, np.array(clients), np.array(slots), shared=True)
    found = noise_attack(sample, levels, seed=0)
    assert found.cases == 60
    assert found.pairs.value >= 0.9


def test_equal_sites_have_nothing_to_rank():
    sample, _ = planted(1.0)
    assert "too few" in noise_attack(sample, np.zeros(10), seed=0)


def test_a_federation_with_noise_levels_is_the_study_s_but_for_them():
    e = experiment(segments=(1, 2, 3))
    noisy = with_noise_levels(e, 7, seed=0)
    levels = levels_of(noisy)
    assert len(set(levels.round(6))) == 7
    np.testing.assert_allclose([levels.min(), levels.max()], np.log([1 / 8, 8]))
    assert [c.sensor for c in noisy.clients[3:6]] == [c.sensor for c in e.clients]
    assert [c.identity for c in noisy.clients] == list(range(7))
    assert noisy.segments == (1, 2, 3, 1, 2, 3, 1)


def test_levels_that_do_not_show_are_seldom_called_a_leak():
    """The interval must be as wide as the luck of few sites: 5 % of the draws, two-sided."""
    found = [noise_attack(*planted(0.0, seed), seed=0).pairs.verdict for seed in range(60)]
    assert found.count("leaks") <= 6


def test_both_of_a_pair_are_left_out():
    """Their own levels change no answer about them."""
    sample, _ = planted(1.0)
    shares, pairs = _alone(sample, np.arange(10))
    rows = np.arange(len(pairs.first))
    assert (shares == np.eye(10)).all()
    assert (pairs.weights[rows, pairs.first] == 0).all()
    assert (pairs.weights[rows, pairs.second] == 0).all()
    np.testing.assert_allclose(pairs.weights.sum(axis=1), 0, atol=1e-12)
