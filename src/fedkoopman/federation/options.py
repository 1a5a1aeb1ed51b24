"""What a study says of aggregation, the server's step and privacy, for both engines."""

from dataclasses import dataclass

__all__ = ["AggregationOptions", "BufferOptions", "PrivacyOptions", "ServerOptions"]


@dataclass(frozen=True)
class AggregationOptions:
    """Of rules that look at single updates; see the section `aggregation` of a study.

    Attributes:
        liars: f, sites that may lie at a time.
        clip: times the usual length beyond which an update is shortened.
        history: updates of each site by which the usual length is known.
        secure: whether the server may see sums only.
    """

    liars: int = 1
    clip: float = 2.0
    history: int = 8
    secure: bool = False


@dataclass(frozen=True)
class ServerOptions:
    """Of what the server makes of an aggregate; see the section `server`.

    Attributes:
        learning_rate: η_s, or "auto" for what is usual with a step.
        momentum: β₁, share of the old mean of changes.
        second_momentum: β₂, share of the old mean of squared changes.
        epsilon: τ, changes that are small beside it are not enlarged.
        average: share of the old average in the average of server models; 0: no average is kept.
    """

    learning_rate: float | str = "auto"
    momentum: float = 0.5
    second_momentum: float = 0.99
    epsilon: float = 1e-3
    average: float = 0.0

    def rate(self, usual: float) -> float:
        """The learning rate of a step for which `usual` is a good one."""
        return usual if isinstance(self.learning_rate, str) else self.learning_rate


@dataclass(frozen=True)
class BufferOptions:
    """Of the algorithm fedbuff; see the section `algorithm`.

    Attributes:
        buffer: K, updates that are gathered before the server takes a step.
        staleness: a, by which an update that is s steps old counts (1 + s)^−a.
        delays: slots that simulated clients are behind; one for all, or one per client.
    """

    buffer: int = 3
    staleness: float = 0.5
    delays: int | tuple[int, ...] = 0

    def delay(self, client: int) -> int:
        """Of a client; those that were enrolled later have the last."""
        given = self.delays if isinstance(self.delays, tuple) else (self.delays,)
        return given[min(client, len(given) - 1)]


@dataclass(frozen=True)
class PrivacyOptions:
    """Of differential privacy; see the section `privacy`."""

    mode: str = "none"
    record: str = "sample"
    clip: float = 1.0
    noise: float = 1.0
    delta: float = 1e-5
