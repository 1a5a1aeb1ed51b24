"""The paper's scheme and the benchmarks it is compared with (Section V-B).

All share arrivals, trajectories, noise and the first model of a seed, so that they can be compared
in pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedkoopman.errors import unknown_name
from fedkoopman.federation.experiment import Experiment

__all__ = ["SCHEMES", "Scheme", "scheme_of"]


@dataclass(frozen=True)
class Scheme:
    """How a scheme departs from KF-FedKL.

    Attributes:
        alone: only the first client takes part, and its model is the result.
        perfect: clients hold the true states instead of estimates.
        central: clients send their data instead of training; the server trains on all of it at
            once and discards it.
    """

    alone: bool = False
    perfect: bool = False
    central: bool = False


SCHEMES = {
    "kf-fedkl": Scheme(),
    "single-client": Scheme(alone=True),
    "perfect-data": Scheme(perfect=True),
    "centralized": Scheme(central=True),
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
