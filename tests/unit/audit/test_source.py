"""Which site sent an update: found where sites leave a mark, and not where they do not."""

from dataclasses import replace

import numpy as np
import pytest
from tests.reference.federations import client, experiment

from fedkoopman.audit.features import Sample, crossed, sample_of, time_blocks
from fedkoopman.audit.source import source_attack
from fedkoopman.audit.watching import watched
from fedkoopman.federation.algorithms.fedavg_m import FedAvgM
from fedkoopman.federation.messages import Message
from fedkoopman.federation.workers import Workers


class Marking(FedAvgM):
    """Every site adds a direction of its own, a fifth as long as its step."""

    def answer(self, problem, request, segments, asked):
        reply = super().answer(problem, request, segments, asked)
        site = round((asked.learning_rate - 1e-3) * 1e9)
        arrays = {}
        for place, (name, leaf) in enumerate(reply.arrays.items()):
            mark = np.random.default_rng([site, place]).standard_normal(leaf.shape)
            step = np.linalg.norm(leaf - request.arrays[name])
            arrays[name] = leaf + 0.2 * step * mark / np.linalg.norm(mark)
        return Message(reply.kind, arrays)


def seen(algorithm, slots=30):
    """Sites that differ in nothing but the mark: one sensor, and rates apart by 1e-9."""
    sensor = client(0).sensor
    clients = tuple(client(n, sensor=sensor, learning_rate=1e-3 + n * 1e-9) for n in range(3))
    e = experiment(clients=clients, algorithm=algorithm, slots=slots)
    with Workers(2) as workers:
        return e.problem, watched(e, workers)


@pytest.fixture(scope="module")
def marked():
    return seen(Marking())


def attack(problem, updates, **options):
    schemas = problem.algorithm.messages(problem)
    return source_attack(sample_of(schemas, updates, seed=0, **options), seed=0)


def test_a_planted_mark_is_found(marked):
    found = attack(*marked)
    assert found.area.value >= 0.9
    assert found.area.verdict == "leaks"
    assert found.accuracy.low > found.accuracy.chance


def test_shuffled_labels_are_not(marked):
    problem, updates = marked
    order = np.random.default_rng(0).permutation(len(updates))
    mixed = [replace(u, client=updates[i].client) for u, i in zip(updates, order, strict=True)]
    found = attack(problem, mixed)
    assert found.area.low < 0.5 < found.area.high or found.area.value < 0.6
    assert found.accuracy.value < 0.5


def test_equal_sites_are_not_told_apart():
    found = attack(*seen(FedAvgM()))
    assert found.area.low <= 0.5 + 0.1
    assert found.area.value < 0.7


def test_a_sum_does_not_tell_whose_part_is_whose(marked):
    found = attack(*marked, summed=True)
    assert found.area.value == 0.5
    assert found.area.verdict == "hidden"
    assert found.accuracy.value == pytest.approx(found.accuracy.chance)
    slots = [u.slot for u in marked[1]]
    assert found.alone == sum(slots.count(slot) == 1 for slot in slots)


def test_a_sum_is_the_weighted_mean_of_its_slot(marked):
    problem, updates = marked
    schemas = problem.algorithm.messages(problem)
    sample = sample_of(schemas, updates, seed=0, summed=True)
    for slot in np.unique(sample.slots):
        rows = sample.features[sample.slots == slot]
        assert len(rows) > 1
        assert (rows == rows[0]).all()


def test_one_site_is_too_few():
    sample = Sample(np.ones((5, 2)), np.zeros(5, int), np.arange(5))
    assert "fewer than two sites" in source_attack(sample, seed=0)


def test_predictions_are_those_of_ridge_regression_on_the_other_blocks():
    random = np.random.default_rng(0)
    x, y, slots = random.standard_normal((30, 4)), random.standard_normal(30), np.arange(30)
    blocks = time_blocks(slots, 3)
    found = crossed(x, blocks) @ y
    for block in range(3):
        rest = blocks != block
        penalty = 0.1 * np.trace(x[rest] @ x[rest].T) / rest.sum()
        coefficients = np.linalg.solve(
            x[rest].T @ x[rest] + penalty * np.eye(4), x[rest].T @ y[rest]
        )
        np.testing.assert_allclose(found[~rest], x[~rest] @ coefficients, rtol=1e-9)
