"""What a study says of aggregation, the server's step and privacy, for both engines."""

from dataclasses import dataclass

__all__ = ["AggregationOptions", "PrivacyOptions", "ServerOptions"]


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
    """Of what the server makes of an aggregate; see the section `server`."""

    learning_rate: float = 1.0
    average: float = 0.0


@dataclass(frozen=True)
class PrivacyOptions:
    """Of differential privacy; see the section `privacy`."""

    mode: str = "none"
    record: str = "sample"
    clip: float = 1.0
    noise: float = 1.0
    delta: float = 1e-5
