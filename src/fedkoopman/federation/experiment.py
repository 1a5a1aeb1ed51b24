"""What a federation is made of: clients that observe one system, and how they learn together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedkoopman.errors import unknown_name
from fedkoopman.federation.aggregators import Aggregator
from fedkoopman.federation.aggregators.mean import mean
from fedkoopman.federation.algorithm import Algorithm, Problem
from fedkoopman.federation.algorithms.fedavg_m import FedAvgM
from fedkoopman.federation.arrivals import Deliveries, Recordings
from fedkoopman.federation.options import (
    AggregationOptions,
    BufferOptions,
    PrivacyOptions,
    ServerOptions,
)
from fedkoopman.federation.policies import Policy
from fedkoopman.federation.policies.threshold import threshold
from fedkoopman.federation.server_steps import ServerStep
from fedkoopman.federation.server_steps.none import none
from fedkoopman.koopman.kind import Kind
from fedkoopman.koopman.training import Training
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System


@dataclass(frozen=True, eq=False)
class Client:
    """One site.

    Attributes:
        identity: names its draws; unique, and it stays the client's wherever it stands in a list.
        sensor: h_n.
        dynamics: f_n, what its filter believes of the system.
        probability: p_n, of a successful observation in a slot.
        observation_noise: Σ_h of the data and of the filter, (m, m).
        process_noise: Σ_f, the filter's doubt in f_n, (d, d).
        learning_rate: η_n.
        budget: ε at the study's δ, after which it takes part no more.
    """

    identity: int
    sensor: Sensor
    dynamics: System
    probability: float
    observation_noise: np.ndarray
    process_noise: np.ndarray
    learning_rate: float
    budget: float = math.inf


@dataclass(frozen=True, eq=False)
class Filter:
    """How observations become states: the arguments of `fk.estimate`, common to all clients; and
    what is left out: segments on which the filter lost track, and samples that are more uncertain
    than so many times the usual (`estimation.left_out`)."""

    method: str = "ukf"
    smooth: bool = True
    alpha: float = 0.1
    beta: float = 2.0
    kappa: float = -1.0
    particles: int = 1000
    initial_mean: Any = None
    initial_cov: Any = None
    drop_lost: bool = False
    gate: float = 0.0


@dataclass(frozen=True, eq=False)
class Experiment:
    """One federation, up to its randomness, which the seed decides.

    Attributes:
        seed: of everything random.
        system: the truth f.
        clients: who takes part.
        architecture, training: of the network.
        algorithm, aggregator, policy, aggregation, server, privacy, buffering, server_step: see
            `federation.algorithm.Problem`.
        segments: ρ, of the threshold policy; one for all, or one per client.
        slots: M.
        steps: ζ, samples per successful observation.
        restart: ξ, slots after which the system starts anew.
        scheme: a name in `SCHEMES`.
        common: whether all clients see the same trajectory.
        filter: how observations become states.
        test_trajectories, horizon, valid_error: see `evaluation.TestSet`.
        recordings: measured states that take the place of simulated ones; `restart` is then 1.
        deliveries: what sites have estimated from data of their own; nothing is simulated then.
    """

    seed: int
    system: System
    clients: tuple[Client, ...]
    architecture: Kind
    training: Training = field(default_factory=Training)
    algorithm: Algorithm = field(default_factory=FedAvgM)
    aggregator: Aggregator = mean
    policy: Policy = threshold
    aggregation: AggregationOptions = field(default_factory=AggregationOptions)
    server: ServerOptions = field(default_factory=ServerOptions)
    privacy: PrivacyOptions = field(default_factory=PrivacyOptions)
    buffering: BufferOptions = field(default_factory=BufferOptions)
    server_step: ServerStep = none
    segments: float | Sequence[float] = 5.0
    slots: int = 200
    steps: int = 300
    restart: int = 1
    scheme: str = "kf-fedkl"
    common: bool = True
    filter: Filter = field(default_factory=Filter)
    test_trajectories: int = 20
    horizon: int = 5
    valid_error: float = 0.4
    recordings: Recordings | None = None
    deliveries: Deliveries | None = None

    @cached_property
    def problem(self) -> Problem:
        """What the clients and the server agree on."""
        one = isinstance(self.segments, int | float)
        common = {f.name: getattr(self, f.name) for f in fields(Problem) if hasattr(self, f.name)}
        own = {
            "segments": (self.segments,) if one else tuple(self.segments),  # type: ignore[arg-type]
            "clients": len(self.clients),
            "rates": tuple(client.learning_rate for client in self.clients),
            "probabilities": tuple(client.probability for client in self.clients),
        }
        return Problem(**common | own)


@dataclass(frozen=True)
class Scheme:
    """How a scheme departs from KF-FedKL, the paper's (Section V-B).

    All schemes share arrivals, trajectories, noise and the first model of a seed, so that they can
    be compared in pairs.

    Attributes:
        alone: only the first client takes part, and its model is the result.
        perfect: clients hold the true states instead of estimates.
        central: clients send their data instead of training; the server trains on all of it at
            once and discards it.
        raw: clients hold their observations instead of estimates, so that the model is one of
            observations, and is tested on what each client's sensor shows of the test trajectories.
    """

    alone: bool = False
    perfect: bool = False
    central: bool = False
    raw: bool = False


SCHEMES = {
    "kf-fedkl": Scheme(),
    "single-client": Scheme(alone=True),
    "perfect-data": Scheme(perfect=True),
    "centralized": Scheme(central=True),
    "observations": Scheme(raw=True),
}


def scheme_of(experiment: Experiment) -> tuple[Experiment, Scheme]:
    """The scheme of an experiment, and the experiment with the clients that take part in it."""
    if experiment.scheme not in SCHEMES:
        raise unknown_name("scheme", experiment.scheme, SCHEMES)
    scheme = SCHEMES[experiment.scheme]
    if scheme.alone:
        first, segments = experiment.clients[:1], experiment.segments
        own = segments[0] if isinstance(segments, Sequence) else segments
        experiment = replace(experiment, clients=first, segments=own)
    return experiment, scheme
