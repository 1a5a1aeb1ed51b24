"""Was a segment trained on: found where training remembers it, and not where it cannot."""

import numpy as np
import pytest
from scipy.stats import norm
from tests.reference.federations import experiment

from fedkoopman.audit.membership import likelihood_ratios, membership_attack
from fedkoopman.audit.statistics import area_under_curve
from fedkoopman.audit.watching import watched
from fedkoopman.federation.algorithms.fedavg_m import FedAvgM
from fedkoopman.federation.messages import Message
from fedkoopman.federation.workers import Workers
from fedkoopman.koopman.training import Training


def drawn(apart, seed=0, shadows=200, candidates=40):
    random = np.random.default_rng(seed)
    inside = random.random((shadows, candidates)) < 0.5
    level = random.standard_normal(candidates) * 5
    facts = level + random.standard_normal(inside.shape) - apart * inside
    return facts[..., None], inside


@pytest.mark.parametrize("apart", [0.0, 1.0, 2.5])
def test_the_area_of_normal_facts_is_the_closed_form(apart):
    facts, inside = drawn(apart)
    for scores in likelihood_ratios(facts, inside):
        area = area_under_curve(scores.ravel(), inside.ravel())
        assert area == pytest.approx(norm.cdf(apart / np.sqrt(2)), abs=0.02)


def test_a_shadow_is_not_judged_by_itself():
    """Facts that mean nothing give no advantage, also with few shadows."""
    areas = []
    for seed in range(40):
        facts, inside = drawn(0.0, seed, shadows=6, candidates=10)
        areas.append(area_under_curve(likelihood_ratios(facts, inside)[0].ravel(), inside.ravel()))
    assert np.mean(areas) < 0.52


class Deaf(FedAvgM):
    """Sites whose updates do not depend on their data."""

    def answer(self, problem, request, segments, asked):
        random = np.random.default_rng(asked.seed)
        moved = {n: a + 1e-3 * random.standard_normal(a.shape) for n, a in request.arrays.items()}
        return Message("update", moved)


def attacked(algorithm, training, **options):
    e = experiment(algorithm=algorithm, training=training, slots=8)
    with Workers(2) as workers:
        updates = watched(e, workers)
        return membership_attack(
            e.problem, updates, workers, **{"victims": 3, "shadows": 16, "seed": 0, **options}
        )


LONG = Training(epochs=60, batch=16, learning_rate=1e-2, precision="float64")


def test_very_many_epochs_are_remembered():
    found = attacked(FedAvgM(), LONG)
    assert found.area.value >= 0.9
    assert found.area.verdict == "leaks"
    assert found.found.value > 0.5


def test_data_that_were_not_used_are_not_found():
    found = attacked(Deaf(), LONG)
    assert 0.35 < found.area.value < 0.65
    assert found.area.low < 0.5 + 0.05


def test_a_sum_hides_more_than_an_update():
    alone, summed = (attacked(FedAvgM(), LONG, together=n) for n in (1, 3))
    assert summed.area.value < alone.area.value
    assert summed.together == 3


def test_the_same_seed_gives_the_same_numbers():
    assert attacked(Deaf(), LONG, victims=1) == attacked(Deaf(), LONG, victims=1)
