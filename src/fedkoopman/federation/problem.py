"""What everybody in a federation agrees on, wherever the data are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.aggregators import Aggregator
from fedkoopman.federation.policies import Policy
from fedkoopman.koopman.kind import Kind
from fedkoopman.koopman.training import Training
from fedkoopman.systems import System

if TYPE_CHECKING:
    from fedkoopman.federation.algorithm import Algorithm

__all__ = ["Problem"]

Entry = TypeVar("Entry")


@dataclass(frozen=True, eq=False)
class Problem:
    """What a study says of everybody.

    Attributes:
        seed: of everything random.
        system: what is observed.
        architecture: the model kind with its sizes.
        training: of a client; its learning rate is the server's.
        algorithm: what server and sites say to each other.
        aggregator: how updates become one.
        policy: who trains in a slot.
        segments: ρ_n, segments from which on the threshold policy activates a client.
        slots: M.
        steps: ζ, samples per segment.
        clients: how many.
        rates, probabilities: η_n and p_n of each.
        test_trajectories, horizon, valid_error: see `evaluation.TestSet`.
    """

    seed: int
    system: System
    architecture: Kind
    training: Training
    algorithm: "Algorithm"
    aggregator: Aggregator
    policy: Policy
    segments: tuple[float, ...]
    slots: int
    steps: int
    clients: int
    rates: tuple[float, ...]
    probabilities: tuple[float, ...]
    test_trajectories: int
    horizon: int
    valid_error: float

    @property
    def dtype(self) -> np.dtype:
        """Of weights and training."""
        return np.dtype(self.training.precision)

    @property
    def thresholds(self) -> NDArray[np.float64]:
        """ρ_n of every client; those that were enrolled later have the highest."""
        given = list(self.segments)
        return np.array(given + [max(given)] * (self.clients - len(given)), np.float64)

    def rate(self, client: int) -> float:
        """η_n; clients that were enrolled later have the last."""
        return _entry(self.rates, client)

    def probability(self, client: int) -> float:
        """p_n, likewise."""
        return _entry(self.probabilities, client)


def _entry(values: Sequence[Entry], place: int) -> Entry:
    return values[min(place, len(values) - 1)]
