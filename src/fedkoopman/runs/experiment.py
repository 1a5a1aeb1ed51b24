"""From a study and a seed to the experiment that the federation runs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedkoopman.config.parts import believed_systems, method_of, noise_of, sensor_of, system_of
from fedkoopman.config.recordings import recordings_of
from fedkoopman.config.study import Study, per_client
from fedkoopman.federation.deliveries import Deliveries
from fedkoopman.federation.experiment import Client, Experiment, Filter
from fedkoopman.federation.policies import Policy, Random, RoundRobin, Threshold
from fedkoopman.federation.streams import subseed
from fedkoopman.koopman.network import Architecture
from fedkoopman.koopman.training import Training
from fedkoopman.runs.site_preparation import Sites, prepared_sites
from fedkoopman.sensors import SENSORS
from fedkoopman.systems import System
from fedkoopman.user_code import load_object

__all__ = ["Parts", "experiment_of", "parts_of"]


@dataclass(frozen=True, eq=False)
class Parts:
    """What everybody in a federation agrees on, wherever the data are.

    Attributes:
        seed: of everything random.
        system: what is observed.
        architecture, training: of the network; the learning rate is the server's.
        policy: who trains in a slot.
        slots: M.
        steps: ζ, samples per segment.
        clients: how many.
        rates, probabilities: η_n and p_n of each.
        test_trajectories, horizon, valid_error: see `evaluation.TestSet`.
    """

    seed: int
    system: System
    architecture: Architecture
    training: Training
    policy: Policy
    slots: int
    steps: int
    clients: int
    rates: tuple[float, ...]
    probabilities: tuple[float, ...]
    test_trajectories: int
    horizon: int
    valid_error: float


def parts_of(study: Study, seed: int, clients: int, system: System | None = None) -> Parts:
    """What a study says of everybody; sites' files are not looked at.

    Arguments:
        clients: how many take part.
        system: with its parameters estimated, where the study leaves some open.
    """
    system = system or system_of(study)
    network, training, evaluation = study.network, study.training, study.evaluation
    w1, w2, w3 = training.loss_weights
    return Parts(
        seed=seed,
        system=system,
        architecture=Architecture(
            state_dim=system.dim,
            components=network.components_for(system.dim),
            hidden_layers=network.hidden_layers,
            width=network.width,
            activation=network.activation,
            window=network.window,
            depth=network.depth,
        ),
        training=Training(
            epochs=training.epochs,
            batch=training.batch,
            # The server's own, where it trains; clients have theirs.
            learning_rate=float(np.mean(training.learning_rate)),
            weight_decay=training.weight_decay,
            decay=training.decay,
            loss_weights=(w1, w2, w3),
            precision=training.precision,
        ),
        policy=_policy(study),
        slots=study.slots,
        steps=study.segments.steps,
        clients=clients,
        rates=per_client(training.learning_rate, clients),
        probabilities=per_client(study.clients.probability, clients),
        test_trajectories=evaluation.trajectories,
        horizon=evaluation.horizon,
        valid_error=evaluation.valid_error,
    )


def experiment_of(study: Study, seed: int) -> Experiment:
    """The experiment of one seed; random sensors are drawn from it, one per client."""
    sites = prepared_sites(study) if study.sites.files else None
    system = system_of(study) if sites is None else sites.system
    count = study.clients.count if sites is None else len(sites.sites)
    parts = parts_of(study, seed, count, system)
    return Experiment(
        seed=seed,
        system=system,
        clients=_clients(study, parts) if sites is None else _site_clients(parts, sites),
        architecture=parts.architecture,
        training=parts.training,
        policy=parts.policy,
        slots=parts.slots,
        steps=parts.steps,
        restart=study.segments.restart,
        scheme=study.scheme,
        common=study.trajectories == "common",
        filter=_filter(study, system),
        test_trajectories=parts.test_trajectories,
        horizon=parts.horizon,
        valid_error=parts.valid_error,
        recordings=recordings_of(study, system),
        deliveries=None if sites is None else _deliveries(study, sites),
    )


def _clients(study: Study, parts: Parts) -> tuple[Client, ...]:
    count, given, system, seed = parts.clients, study.clients, parts.system, parts.seed
    made: dict[tuple[str, int], Any] = {}

    def once(make: Callable[[], Any], form: Any, dim: int) -> Any:
        """What many clients have in common is made once, and shared."""
        key = repr(form), dim
        if key not in made:
            made[key] = make()
        return made[key]

    def client(n: int, dynamics: System, table: dict, observed: Any, doubt: Any) -> Client:
        drawn = SENSORS.find(table["kind"], study.root).random
        make = partial(
            sensor_of, table, system.dim, seed=subseed(table.get("seed", seed), "sensor", n),
            folder=study.root, key="clients.sensor",
        )  # fmt: skip
        sensor = make() if drawn else once(make, table, 0)
        m, d = sensor.dim, system.dim
        return Client(
            identity=n,
            sensor=sensor,
            dynamics=dynamics,
            probability=parts.probabilities[n],
            observation_noise=once(
                partial(noise_of, observed, m, "clients.observation_noise"), observed, m
            ),
            process_noise=once(partial(noise_of, doubt, d, "clients.process_noise"), doubt, d),
            learning_rate=parts.rates[n],
        )

    columns = (
        believed_systems(study, system),
        per_client(given.sensor, count),
        per_client(given.observation_noise, count),
        per_client(given.process_noise, count),
    )
    return tuple(map(client, range(count), *columns))


def _site_clients(parts: Parts, sites: Sites) -> tuple[Client, ...]:
    """Clients that hold data of their own; how it was estimated is behind them."""
    return tuple(
        Client(
            identity=n,
            sensor=site.sensor,
            dynamics=sites.system,
            probability=parts.probabilities[n],
            observation_noise=site.observation_noise,
            process_noise=site.process_noise,
            learning_rate=parts.rates[n],
        )
        for n, site in enumerate(sites.sites)
    )


def _deliveries(study: Study, sites: Sites) -> Deliveries:
    return Deliveries(
        train=tuple(site.train for site in sites.sites),
        held_out=tuple(tuple(one.states for one in site.held_out) for site in sites.sites),
        repeat=study.sites.repeat and study.sites.arrivals == "drawn",
        every_slot=study.sites.arrivals == "live",
    )


def _policy(study: Study) -> Policy:
    name = study.policy.name
    if name == "threshold":
        return Threshold(study.policy.segments)
    if name == "random":
        return Random()
    if name == "round-robin":
        return RoundRobin()
    return load_object(name, study.root)  # type: ignore[return-value]


def _filter(study: Study, system: System) -> Filter:
    options = study.estimation
    mean = np.broadcast_to(np.asarray(options.initial_mean, float), (system.dim,))
    return Filter(
        method=method_of(study),
        smooth=options.smooth,
        alpha=options.alpha,
        beta=options.beta,
        kappa=options.kappa,
        particles=options.particles,
        initial_mean=np.array(mean),
        initial_cov=noise_of(options.initial_cov, system.dim, "estimation.initial_cov"),
    )
