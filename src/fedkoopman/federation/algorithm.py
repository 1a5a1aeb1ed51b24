"""The seam: what an algorithm is, and the problem that it is given.

Both engines drive this and nothing else. An algorithm is a set of pure functions. It knows no
processes, files or networks; the engines know no algorithm. In every slot

    ask       the server: whom to ask what, given its state and how much data waits at each site
    answer    a site: from the request and its segments to a reply
    conclude  the server: from the replies to its next state

The server's state is a set of named arrays, so that it can be saved and compared. Phases, if an
algorithm has some, are part of that state or follow from the slot. Which messages exist, and what
each may hold, is listed in `messages`: replies are checked against it before `conclude` sees them,
requests before a site answers them.

`federation/algorithms/` holds our own, one file each, and says how to add one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.messages import Arrays, Message, Schema
from fedkoopman.federation.options import (
    AggregationOptions,
    BufferOptions,
    PrivacyOptions,
    ServerOptions,
)

if TYPE_CHECKING:  # a site's agent reads messages, and has no room for JAX
    from fedkoopman.federation.aggregators import Aggregator
    from fedkoopman.federation.policies import Policy
    from fedkoopman.federation.server_steps import ServerStep
    from fedkoopman.koopman.kind import Kind
    from fedkoopman.koopman.training import Training
    from fedkoopman.systems import System


def _no_step() -> "ServerStep":
    from fedkoopman.federation.server_steps.none import none

    return none


@dataclass(frozen=True, eq=False)
class Problem:
    """What everybody in a federation agrees on, wherever the data are.

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
        aggregation, server, privacy, buffering: see `federation.options`.
        server_step: what the server makes of the aggregate.
        secret: of the server's noise, where it adds some; empty: noise comes from the seed.
    """

    seed: int
    system: "System"
    architecture: "Kind"
    training: "Training"
    algorithm: "Algorithm"
    aggregator: "Aggregator"
    policy: "Policy"
    segments: tuple[float, ...]
    slots: int
    steps: int
    clients: int
    rates: tuple[float, ...]
    probabilities: tuple[float, ...]
    test_trajectories: int
    horizon: int
    valid_error: float
    aggregation: AggregationOptions = field(default_factory=AggregationOptions)
    server: ServerOptions = field(default_factory=ServerOptions)
    privacy: PrivacyOptions = field(default_factory=PrivacyOptions)
    buffering: BufferOptions = field(default_factory=BufferOptions)
    server_step: "ServerStep" = field(default_factory=_no_step)
    secret: bytes = b""

    @property
    def dtype(self) -> np.dtype:
        """Of training."""
        return np.dtype(self.training.precision)

    @property
    def model_dtype(self) -> np.dtype:
        """Of the model's weights."""
        return np.dtype(self.architecture.precision or self.training.precision)

    @property
    def thresholds(self) -> NDArray[np.float64]:
        """ρ_n of every client; those that were enrolled later have the highest."""
        given = list(self.segments[: self.clients])  # a list may name sites that are yet to come
        return np.array(given + [max(given)] * (self.clients - len(given)), np.float64)

    def rate(self, client: int) -> float:
        """η_n; clients that were enrolled later have the last."""
        return self.rates[min(client, len(self.rates) - 1)]

    def probability(self, client: int) -> float:
        """p_n, likewise."""
        return self.probabilities[min(client, len(self.probabilities) - 1)]


class Ready(NamedTuple):
    """What the server knows of the sites when it asks."""

    waiting: NDArray[Any]
    """Samples that wait at each client, |D_n|; 0 for a client that cannot be asked."""
    present: NDArray[Any]
    """Whether each client can be asked."""
    owed: NDArray[Any]
    """For each client, the slot of the first request that it still owes an answer to; 0 if it owes
    none. Only requests whose schema is `lasting` are owed."""

    def asked(self, client: int, slot: int) -> int:
        """The slot in which a client was first asked what it will be asked now."""
        return int(self.owed[client]) or slot


class Asked(NamedTuple):
    """At a site: what belongs to a request beside its content."""

    slot: int
    seed: int
    """Of all that is random in the answer; another one for every slot and client."""
    learning_rate: float
    """η_n."""
    delivered: int = 0
    """Segments that were delivered: fewer than there are in hand, where samples were left out in
    the midst of one; 0: nobody counted."""
    secret: int = 0
    """Of noise that protects the site's records, up to 128 bits. At a real site it comes from the
    site's own secret, as the server knows every seed; in a simulation from the seed."""


class Answered(NamedTuple):
    """At the server: a reply that fits its schema."""

    message: Message
    samples: int
    """How many samples it was computed from."""
    clients: tuple[int, ...]
    """Whose samples; more than one client's where the server computes the answer itself."""
    request: Message | None = None
    """What it answers."""
    asked: int = 0
    """The slot in which it was first asked for; see `Ready.owed`."""


class Algorithm(Protocol):
    """What sites and server say to each other, and what each makes of it.

    One that does not learn every model kind may have `check_kind(kind)` too, which raises an
    `InputError` with a remedy: it is called when a study is checked. One whose slots have a second
    exchange is `Reviewing`. One that combines updates by `combining.combined`, and so does what the
    section `server` says, has `check_server(kind)`; it raises an `InputError` for kinds that have
    no updates. Without it, that section is refused.

    One whose sites can protect their records (`privacy.mode = "site"`) has
    `planned(problem, request, segments)` too: what an answer will release, as a
    `koopman.private_training.Plan`. The answer tells the same by `federation.privacy.numbers_of`.

    One that can tell a lying site from the replies alone may have
    `screen(problem, state, slot, replies)`: the replies that `conclude` may see, and by client a
    `screening.Finding` for each that it may not.
    """

    def messages(self, problem: Problem) -> Mapping[str, Schema]:
        """All messages that exist, by kind."""
        ...

    def begin(self, problem: Problem) -> Arrays:
        """The server's state before the first slot."""
        ...

    def ask(self, problem: Problem, state: Arrays, slot: int, ready: Ready) -> dict[int, Message]:
        """Requests by client; clients that are not asked are left out."""
        ...

    def answer(
        self, problem: Problem, request: Message, segments: Sequence[NDArray[Any]], asked: Asked
    ) -> Message:
        """A site's reply, from its segments (T_i, d) in the order in which they arrived.

        All samples of a segment are consecutive: where some were left out, it comes in pieces.
        """
        ...

    def conclude(
        self, problem: Problem, state: Arrays, slot: int, replies: Mapping[int, Answered]
    ) -> tuple[Arrays, dict[str, Any]]:
        """The next state, and what else the slot's record should tell.

        Arguments:
            replies: by client, in ascending order; at least one.
        """
        ...

    def model(self, problem: Problem, state: Arrays) -> Arrays:
        """The model that a state holds, as `problem.architecture.from_named` takes it."""
        ...

    def warm(self, problem: Problem, samples: int) -> None:
        """Have compiled what an answer from so many samples needs; may do nothing."""
        ...


@runtime_checkable
class Reviewing(Protocol):
    """An algorithm that asks the sites a second time in a slot, about the replies to the first."""

    def review(
        self,
        problem: Problem,
        state: Arrays,
        slot: int,
        replies: Mapping[int, Answered],
        present: Sequence[int],
    ) -> dict[int, Message]:
        """Requests by client, of those that are there; they must not spend data."""
        ...

    def settle(
        self,
        problem: Problem,
        state: Arrays,
        slot: int,
        replies: Mapping[int, Answered],
        reviews: Mapping[int, Message],
        broken: Mapping[int, str],
    ) -> tuple[Arrays, dict[str, Any]]:
        """As `conclude`, which is not called, with the replies to the second requests too.

        Arguments:
            replies: may be none, if some are broken.
            reviews: by client, in ascending order; who did not answer is not among them.
            broken: by client, why its reply breaks a rule, so that it is not among the replies.
        """
        ...
