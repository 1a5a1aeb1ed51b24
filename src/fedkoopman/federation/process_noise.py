"""How far simulated clients should doubt their dynamics: the process noise of largest likelihood.

The covariance is a level times the mean squared change of each state from one sample to the next,
which does not depend on units. Clients filter their first segments at a few levels, and those that
believe in the same dynamics choose together: each tells the log-likelihoods, a handful of numbers
per segment and no data. Of one client they say little where the truth has no noise.

The median over segments decides, not the sum: a segment on which the filter lost track asks for a
thousand times the noise, so that the track is found again, and would outvote all others. (Chosen
on seeds 100 to 109 of Lorenz63, Van der Pol and the pendulum: means without the worst quarter of
each client took the highest level for Van der Pol in half of them.)

All goes through the filter that the clients run anyway, at its width: nothing more is compiled, and
the result depends on nothing but the seed and the clients.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np
from numpy.typing import NDArray

from fedkoopman.estimation import ESTIMATORS, GaussianEstimator
from fedkoopman.estimation.estimates import cores
from fedkoopman.federation.experiment import Client, Experiment
from fedkoopman.federation.sites import Address, Sites, arrived
from fedkoopman.federation.workers import Workers
from fedkoopman.systems import simulate

LEVELS = 10.0 ** np.arange(-5, 1)
"""Variances of the process noise, relative to the mean squared change of a state. The lowest is the
floor. There noise moves a state by a third of a percent of what the dynamics do: less made no
difference to the states of three systems, and a filter without doubt cannot find back."""
SEGMENTS, CLIENTS = 32, 8
"""Segments, and clients with the same dynamics, that are looked at."""
TRAJECTORIES = 8
"""Simulated with a client's dynamics, to see how fast they change."""


def with_process_noise(experiment: Experiment, unknown: Sequence[int]) -> Experiment:
    """The experiment with the process noise of some clients estimated.

    Arguments:
        unknown: the clients, by their place in the list; their data are simulated.
    """
    clients = list(experiment.clients)
    for group in _groups(experiment, unknown):
        noise = _estimated(experiment, group)
        for n in group:
            clients[n] = replace(clients[n], process_noise=noise)
    return replace(experiment, clients=tuple(clients))


def changes(experiment: Experiment, client: Client) -> NDArray[np.float64]:
    """The mean squared change (d,) of each state per sample, as the client's dynamics have it or,
    where the truth is measured, as the recordings have it."""
    if experiment.recordings is not None:
        paths = list(experiment.recordings.train)
    else:
        paths = list(simulate(client.dynamics, experiment.steps, seed=0, batch=TRAJECTORIES))
    steps = np.concatenate([np.diff(path, axis=0) for path in paths])
    found: NDArray[np.float64] = np.mean(steps**2, axis=0)
    moving = found[found > 0]
    # a state that never moves needs some noise too, or a smoother has nothing to divide by
    return np.where(found > 0, found, moving.min() if len(moving) else 1.0)


def best_level(curves: NDArray[np.float64]) -> float:
    """The level of largest likelihood, with a parabola between three levels.

    Arguments:
        curves: log-likelihoods (segments, levels); -inf where a filter diverged.
    """
    curves = curves[np.isfinite(curves).any(axis=1)]
    if not len(curves):
        return float(LEVELS[0])
    lost = np.median(curves - curves.max(axis=1, keepdims=True), axis=0)
    place = int(np.argmax(lost))
    exponent = float(np.log10(LEVELS[place]))
    if 0 < place < len(LEVELS) - 1 and np.isfinite(lost[place - 1 : place + 2]).all():
        left, middle, right = lost[place - 1 : place + 2]
        bend = left - 2 * middle + right
        exponent += 0.5 * (left - right) / bend if bend < 0 else 0.0
    return float(10.0**exponent)


def _groups(experiment: Experiment, unknown: Sequence[int]) -> list[list[int]]:
    """The clients in groups that believe in the same dynamics."""
    groups: dict[tuple, list[int]] = {}
    for n in unknown:
        leaves, form = jax.tree.flatten(experiment.clients[n].dynamics)
        key = form, *(np.asarray(leaf).tobytes() for leaf in leaves)
        groups.setdefault(key, []).append(n)
    return list(groups.values())


def _estimated(experiment: Experiment, group: Sequence[int]) -> NDArray[np.float64]:
    """The covariance (d, d) for clients with the same dynamics."""
    scale = changes(experiment, experiment.clients[group[0]])
    wanted = _first_segments(experiment, group)
    noises = [level * np.diag(scale) for level in LEVELS]
    judges = replace(experiment, filter=replace(experiment.filter, method=_method(experiment)))
    with Workers(cores()) as workers:
        found = Sites(judges, perfect=False).log_likelihoods(wanted, noises, workers)
    curves = np.array([found[address] for address in wanted]).reshape(-1, len(LEVELS))
    return best_level(curves) * np.diag(scale)


def _first_segments(experiment: Experiment, group: Sequence[int]) -> list[Address]:
    """For the first clients of a group, the first segments that come to each."""
    waiting = dict.fromkeys(group[:CLIENTS], -(-SEGMENTS // len(group[:CLIENTS])))
    found = []
    for slot in range(1, experiment.slots + 1):
        if not any(waiting.values()):
            break
        for n in arrived(experiment, slot):
            if waiting.get(n):
                waiting[n] -= 1
                found.append(Address(slot, n))
    return found


def _method(experiment: Experiment) -> str:
    """The study's filter, if it has a consistent likelihood; otherwise the next one that has."""
    method = experiment.filter.method
    estimator = ESTIMATORS.find(method)
    if isinstance(estimator, GaussianEstimator):
        return method if estimator.consistent else "ukf-resampled"
    return "ekf"
