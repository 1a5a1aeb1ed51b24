"""States from gradients and updates: found where little was mixed, and not where much was."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from tests.reference.federations import TRAINING, experiment

from fedkoopman.audit import gradient_inversion
from fedkoopman.audit.gradient_inversion import gradient_attack, sent_gradient
from fedkoopman.audit.local_loss import LocalLoss, flat
from fedkoopman.audit.reconstruction import Prior, ratios
from fedkoopman.audit.unrolled import batches_of, trained
from fedkoopman.audit.update_inversion import update_attack
from fedkoopman.audit.watching import watched
from fedkoopman.federation.options import PrivacyOptions
from fedkoopman.federation.workers import Workers
from fedkoopman.koopman.training import Training


def seen(**changes):
    e = experiment(slots=5, **changes)
    with Workers(2) as workers:
        return e.problem, watched(e, workers)


@pytest.fixture(scope="module")
def usual():
    return seen()


def test_training_written_out_is_the_training_of_sites():
    training = Training(epochs=3, batch=16, precision="float64", decay=0.9, weight_decay=1e-2)
    problem, updates = seen(training=training, segments=2)
    update = updates[-1]
    loss = LocalLoss.of(problem, update)
    start, fixed = loss.given(update)
    lengths = [len(segment) for segment in update.segments]
    starts, shares, rates = batches_of(loss, training, lengths, update.asked.seed)
    assert len(lengths) > 1
    with jax.enable_x64(True):
        found = trained(
            start, fixed, np.concatenate(update.segments), starts, shares,
            rates * update.asked.learning_rate, loss=loss, weight_decay=training.weight_decay,
        )  # fmt: skip
    np.testing.assert_allclose(found, flat(update.reply.arrays), atol=1e-7)


def test_the_gradient_of_two_samples_gives_the_states_away(usual, monkeypatch):
    monkeypatch.setattr(gradient_inversion, "SAMPLES", 2)
    found = gradient_attack(*usual, victims=6, seed=0)
    assert found.ratio.value < 0.1
    assert found.ratio.verdict == "leaks"
    assert found.sampling > 1


def test_noise_protects_them(usual, monkeypatch):
    monkeypatch.setattr(gradient_inversion, "SAMPLES", 2)
    problem, updates = usual
    noised = replace(problem, privacy=PrivacyOptions(mode="site", clip=1e-3, noise=100.0))
    found = gradient_attack(noised, updates, victims=6, seed=0)
    assert found.ratio.value > 0.7


@pytest.mark.parametrize("record", ["sample", "segment"])
def test_a_private_gradient_is_clipped_by_record_and_noised(usual, record):
    problem, updates = usual
    loss = LocalLoss.of(problem, updates[0])
    start, fixed = loss.given(updates[0])
    states = np.asarray(updates[0].segments[0][:9])
    privacy = PrivacyOptions(mode="site", record=record, clip=0.5, noise=2.0)
    pieces = [states[i : i + 2] for i in range(8)] if record == "sample" else [states]
    with jax.enable_x64(True):
        random = np.random.default_rng(0)
        sent, noise = sent_gradient(loss, start, fixed, states[None], privacy, random)
        each = [np.asarray(loss.gradient(start, fixed, piece)) for piece in pieces]
    total = sum(one * min(1, 0.5 / np.linalg.norm(one)) for one in each)
    drawn = np.random.default_rng(0).standard_normal(len(start))
    assert noise == pytest.approx(2.0 * 0.5 / len(pieces))
    np.testing.assert_allclose(sent, total / len(pieces) + noise * drawn, rtol=1e-6, atol=1e-9)


def test_an_update_from_very_few_samples_gives_the_states_away():
    training = replace(TRAINING, epochs=10, batch=2, learning_rate=1e-3)
    problem, updates = seen(training=training, steps=4, horizon=2)
    found = update_attack(problem, updates, victims=4, iterations=200, seed=0)
    assert found.samples == 4
    assert found.ratio.value < 0.8


def test_an_update_over_many_samples_does_not(usual):
    found = update_attack(*usual, victims=3, iterations=30, seed=0)
    assert found.ratio.value > 0.9
    summed = update_attack(*usual, victims=3, iterations=5, summed=True, seed=0)
    assert summed.together > 1


def test_errors_are_those_of_the_mean_and_of_draws():
    random = np.random.default_rng(0)
    prior = Prior([random.standard_normal((500, 3)) * 2 + 5], np.full(3, 5.0), np.full(3, 2.0))
    truth = prior.segments[0][:200][None]
    draws = random.standard_normal((20, 1, 200, 3))
    standard = (truth - 5) / 2
    assert ratios(np.zeros((1, 200, 3)), truth, draws, prior)[0] == pytest.approx(1.0)
    assert ratios(standard, truth, draws, prior)[0] == pytest.approx(0.0, abs=1e-12)
    assert ratios(standard, truth, draws, prior)[1] == pytest.approx(np.sqrt(2), rel=0.05)
    two = np.concatenate([standard, -standard])
    swapped = np.concatenate([10 - truth, truth])
    assert ratios(two, swapped, draws, prior)[0] == pytest.approx(0.0, abs=1e-12)
