"""From a study and a seed to the experiment that the federation runs."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fedkoopman.config.parts import (
    algorithm_of,
    architecture_of,
    believed_systems,
    drops_lost,
    method_of,
    noise_of,
    options_of,
    sensor_of,
    system_of,
)
from fedkoopman.config.recordings import recordings_of
from fedkoopman.config.study import Study, per_client
from fedkoopman.federation.aggregators import AGGREGATORS
from fedkoopman.federation.algorithm import Problem
from fedkoopman.federation.arrivals import Deliveries, Recordings
from fedkoopman.federation.experiment import SCHEMES, Client, Experiment, Filter
from fedkoopman.federation.options import (
    AggregationOptions,
    BufferOptions,
    PrivacyOptions,
    ServerOptions,
)
from fedkoopman.federation.policies import POLICIES
from fedkoopman.federation.process_noise import with_process_noise
from fedkoopman.federation.quantised import check_sums
from fedkoopman.federation.server_steps import SERVER_STEPS
from fedkoopman.federation.streams import subseed
from fedkoopman.koopman.training import Training
from fedkoopman.runs.site_preparation import Sites
from fedkoopman.sensors import SENSORS
from fedkoopman.systems import System
from fedkoopman.systems.initial_law import later_law, law_of_states

__all__ = ["experiment_of", "problem_of"]


def problem_of(study: Study, seed: int, clients: int, system: System | None = None) -> Problem:
    """What a study says of everybody; sites' files are not looked at.

    Arguments:
        clients: how many take part.
        system: with its parameters estimated, where the study leaves some open.
    """
    system = system or system_of(study)
    training, evaluation = study.training, study.evaluation
    w1, w2, w3 = training.loss_weights
    problem = Problem(
        seed=seed,
        system=system,
        architecture=architecture_of(study, system),
        training=Training(
            epochs=training.epochs,
            batch=training.batch,
            # The server's own, where it trains; clients have theirs.
            learning_rate=float(np.mean(training.learning_rate)),
            weight_decay=training.weight_decay,
            decay=training.decay,
            loss_weights=(w1, w2, w3),
            precision=training.precision,
            proximal=training.proximal,
            huber=training.huber,
        ),
        algorithm=algorithm_of(study),
        aggregator=AGGREGATORS.find(study.aggregation.rule, study.root),
        policy=POLICIES.find(study.policy.name, study.root),
        segments=per_client(study.policy.segments, clients),
        slots=study.slots,
        steps=study.segments.steps,
        clients=clients,
        rates=per_client(training.learning_rate, clients),
        probabilities=per_client(study.clients.probability, clients),
        test_trajectories=evaluation.trajectories,
        horizon=evaluation.horizon,
        valid_error=evaluation.valid_error,
        aggregation=options_of(AggregationOptions, study.aggregation),
        server=options_of(ServerOptions, study.server),
        privacy=options_of(PrivacyOptions, study.privacy),
        buffering=options_of(BufferOptions, study.algorithm),
        server_step=SERVER_STEPS.find(study.server.step, study.root),
    )
    if problem.aggregation.secure:
        check_sums(problem)
    return problem


def experiment_of(study: Study, seed: int, sites: Sites | None = None) -> Experiment:
    """The experiment of one seed; random sensors are drawn from it, one per client.

    Arguments:
        sites: what the study's sites have prepared; None where clients are simulated.
    """
    if study.sites.files and sites is None:
        raise ValueError("the study has site files: give what prepared_sites makes of them")
    system = system_of(study) if sites is None else sites.system
    count = study.clients.count if sites is None else len(sites.sites)
    problem = problem_of(study, seed, count, system)
    recordings = recordings_of(study, system)
    experiment = Experiment(
        seed=seed,
        system=system,
        clients=_clients(study, problem) if sites is None else _site_clients(problem, sites),
        architecture=problem.architecture,
        training=problem.training,
        algorithm=problem.algorithm,
        aggregator=problem.aggregator,
        policy=problem.policy,
        aggregation=problem.aggregation,
        server=problem.server,
        privacy=problem.privacy,
        buffering=problem.buffering,
        server_step=problem.server_step,
        segments=problem.segments,
        slots=problem.slots,
        steps=problem.steps,
        restart=study.segments.restart,
        scheme=study.scheme,
        common=study.trajectories == "common",
        filter=_filter(study, system, recordings) if sites is None else Filter(),
        test_trajectories=problem.test_trajectories,
        horizon=problem.horizon,
        valid_error=problem.valid_error,
        recordings=recordings,
        deliveries=None if sites is None else _deliveries(study, sites),
    )
    doubts = per_client(study.clients.process_noise, count)
    unknown = [n for n, doubt in enumerate(doubts) if doubt == "auto"]
    scheme = SCHEMES[study.scheme]
    if unknown and sites is None and not (scheme.perfect or scheme.raw):
        return with_process_noise(experiment, unknown)
    return experiment


def _clients(study: Study, problem: Problem) -> tuple[Client, ...]:
    count, given, system, seed = problem.clients, study.clients, problem.system, problem.seed
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
            probability=problem.probabilities[n],
            observation_noise=once(
                partial(noise_of, observed, m, "clients.observation_noise"), observed, m
            ),
            # what is to be estimated is so once the experiment is made
            process_noise=once(
                partial(noise_of, 1.0 if doubt == "auto" else doubt, d, "clients.process_noise"),
                doubt,
                d,
            ),
            learning_rate=problem.rates[n],
        )

    columns = (
        believed_systems(study, system),
        per_client(given.sensor, count),
        per_client(given.observation_noise, count),
        per_client(given.process_noise, count),
    )
    return tuple(map(client, range(count), *columns))


def _site_clients(problem: Problem, sites: Sites) -> tuple[Client, ...]:
    """Clients that hold data of their own; how it was estimated is behind them."""
    return tuple(
        Client(
            identity=n,
            sensor=site.sensor,
            dynamics=sites.system,
            probability=problem.probabilities[n],
            observation_noise=site.observation_noise,
            process_noise=site.process_noise,
            learning_rate=problem.rates[n],
            budget=site.budget,
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


def _filter(study: Study, system: System, recordings: Recordings | None) -> Filter:
    options, law = study.estimation, None
    if "auto" in (options.initial_mean, options.initial_cov):
        law = (
            later_law(system, study.segments.steps, study.segments.restart)
            if recordings is None
            else law_of_states(recordings.train)
        )
    if law is not None and options.initial_mean == "auto":
        mean = law.mean
    else:
        mean = np.array(np.broadcast_to(np.asarray(options.initial_mean, float), (system.dim,)))
    if law is not None and options.initial_cov == "auto":
        # about the state that is expected, which need not be the law's mean
        cov = law.cov + np.outer(law.mean - mean, law.mean - mean)
    else:
        cov = noise_of(options.initial_cov, system.dim, "estimation.initial_cov")
    return Filter(
        method=method_of(study),
        smooth=options.smooth,
        alpha=options.alpha,
        beta=options.beta,
        kappa=options.kappa,
        particles=options.particles,
        initial_mean=mean,
        initial_cov=cov,
        drop_lost=drops_lost(study),
        gate=study.estimation.gate,
    )
