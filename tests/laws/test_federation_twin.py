"""The whole federation, from draws to scores, against plain NumPy.

The twin is given the draws (initial weights, initial states, noise, arrivals, orders of samples)
and does everything else by itself: filter, smoother, gradients, Adam, averages, scores.
"""

import numpy as np
import pytest
from reference import koopman as twin
from reference.federations import ARCHITECTURE, STEPS, client, clients, experiment, params_of, run

import fedkoopman as fk
from fedkoopman.covariance import noise_roots
from fedkoopman.federation.arrivals import arrivals
from fedkoopman.federation.simulation import first_state
from fedkoopman.federation.streams import generator, subseed
from fedkoopman.koopman.kinds.paper import PaperNetwork
from fedkoopman.koopman.training import Training, shuffled

# All clients at once, in the address of a trajectory.
COMMON = 2**32 - 1


def lorenz63(a=10.0, b=28.0, c=8 / 3, dt=0.02):
    """One RK4 step, in NumPy."""

    def field(x):
        return np.array([a * (x[1] - x[0]), x[0] * (b - x[2]) - x[1], x[0] * x[1] - c * x[2]])

    def step(x):
        k1 = field(x)
        k2 = field(x + dt / 2 * k1)
        k3 = field(x + dt / 2 * k2)
        k4 = field(x + dt * k3)
        return x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return step


def observations(e, slot, n):
    """z = (x − o) Bᵀ + v, with x and v at their documented addresses."""
    site = e.clients[n]
    who = COMMON if e.common else site.identity
    seed = subseed(e.seed, "trajectory", slot - 1, who)
    x = fk.simulate(e.system, e.steps, seed=seed)[1:]
    v = generator(e.seed, "noise", slot, site.identity).standard_normal((e.steps, site.sensor.dim))
    # Any root has the right law; which one it is counts among the draws.
    root = noise_roots(site.observation_noise, site.sensor.dim, 1, 1, "observation_noise")[0, 0]
    np.testing.assert_allclose(root @ root.T, site.observation_noise, atol=1e-14)
    return (x - site.sensor.offset) @ site.sensor.matrix.T + v @ root.T


def twin_segment(e, slot, n):
    site = e.clients[n]
    (segment,) = twin.smoothed_segments(
        lorenz63(b=site.dynamics.b),
        lambda x: site.sensor.matrix @ (x - site.sensor.offset),
        [observations(e, slot, n)],
        site.process_noise,
        site.observation_noise,
        e.filter.initial_mean,
        e.filter.initial_cov,
    )
    return segment


def twin_federation(e, threshold):
    """Slot by slot: the twin's records and models, and its scores."""
    arrived = []
    for slot in range(1, e.slots + 1):
        who = np.flatnonzero(arrivals(e.seed, slot, e.clients))
        arrived.append({int(n): twin_segment(e, slot, n) for n in who})

    def orders(slot, n, starts):
        seed = subseed(e.seed, "training", slot, e.clients[n].identity)
        return shuffled(starts, e.training.epochs, seed)

    mu, tau = e.architecture.window, e.architecture.depth
    rounds = twin.federate(
        params_of(first_state(e).arrays, e.architecture),
        arrived,
        orders,
        clients=len(e.clients),
        threshold=np.array(threshold) * e.steps,
        eta=[site.learning_rate for site in e.clients],
        mu=mu,
        tau=tau,
        weights=e.training.loss_weights,
        batch=e.training.batch,
        weight_decay=e.training.weight_decay,
        decay=e.training.decay,
    )
    held_out = fk.simulate(
        e.system, e.steps, seed=subseed(e.seed, "test"), batch=e.test_trajectories
    )
    for each in rounds:
        scores = twin.evaluate(each["model"], held_out, mu=mu, tau=tau, horizon=e.horizon)
        loss = np.dot(e.training.loss_weights, [scores["l1"], scores["l2"], scores["l3"]])
        each["scores"] = {**scores, "loss": loss}
    return rounds


def assert_equal_rounds(found, expected, architecture=ARCHITECTURE):
    """Everything in every slot; counts exactly, numbers to 1e-8."""
    assert found[0].record["slot"] == 0
    for ours, theirs in zip(found[1:], expected, strict=True):
        for key in ("slot", "arrived", "buffered", "active", "samples"):
            assert ours.record[key] == theirs[key]
        assert ours.record["dropped"] == []
        scores = {key: ours.record[key] for key in theirs["scores"]}
        assert scores == pytest.approx(theirs["scores"], rel=1e-8, abs=1e-8)
        model = params_of(ours.state.arrays, architecture)
        for one, other in zip(twin.leaves(model), twin.leaves(theirs["model"]), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)


def test_every_slot_is_the_twins():
    """Three clients, four slots, threshold 1: weights and all scores."""
    e = experiment()
    expected = twin_federation(e, threshold=1)
    assert sum(bool(each["active"]) for each in expected) >= 2
    assert max(len(each["active"]) for each in expected) >= 2
    found = run(e)
    assert_equal_rounds(found, expected)
    moved = twin.leaves(params_of(found[-1].state.arrays))
    first = twin.leaves(params_of(found[0].state.arrays))
    assert max(np.abs(a - b).max() for a, b in zip(moved, first, strict=True)) > 1e-3


def test_every_slot_is_the_twins_with_clients_that_differ():
    """Own noise, learning rate, beliefs, probability and threshold; windows and depths above 1;
    data that waits for several slots; a trajectory per client."""
    correlated = np.array([[0.8, 0.3], [0.3, 0.5]])
    mixed = (
        client(0, probability=1.0, observation_noise=correlated),
        client(5, probability=0.8, dynamics=fk.systems.Lorenz63(b=27.0), learning_rate=4e-3),
        client(2, probability=0.6, process_noise=np.diag([0.5, 1.0, 2.0]), learning_rate=5e-4),
    )
    e = experiment(
        clients=mixed,
        architecture=PaperNetwork(3, 5, 1, 8, window=2, depth=2),
        training=Training(2, 16, 1e-3, 1e-2, 0.9, (0.2, 0.5, 1.0), "float64"),
        segments=(2, 1, 1),
        common=False,
        seed=8,
        slots=4,
    )
    expected = twin_federation(e, threshold=(2, 1, 1))
    assert max(each["buffered"][0] for each in expected) == 2 * STEPS
    assert {n for each in expected for n in each["active"]} == {0, 1, 2}
    assert_equal_rounds(run(e), expected, e.architecture)


def test_a_slot_without_anyone_active_is_the_twins():
    e = experiment(clients=clients(3, probability=0.3), segments=2, slots=6)
    expected = twin_federation(e, threshold=2)
    idle = [each["slot"] for each in expected if not each["active"]]
    assert idle
    assert len(idle) < 6
    assert_equal_rounds(run(e), expected)
