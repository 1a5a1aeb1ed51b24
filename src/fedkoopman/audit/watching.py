"""What the server sees: every request and reply of a federation, noted where an algorithm passes.

`Watching` stands around any algorithm and changes nothing in it. What a reply was computed from
never reaches a server; it is noted too, as the auditor needs it to tell whether an attack is right.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.algorithm import Algorithm, Answered, Asked, Problem, Ready
from fedkoopman.federation.experiment import Experiment
from fedkoopman.federation.messages import Arrays, Message
from fedkoopman.federation.simulation import simulate_federation
from fedkoopman.federation.workers import Workers

__all__ = ["Update", "Watching", "distinct", "spread_out", "watched"]


@dataclass(frozen=True, eq=False)
class Update:
    """One reply that became part of the server's state.

    Attributes:
        slot, client: when it came, and from whom.
        request, reply: what was said.
        samples: how many it was computed from, which the server is told.
        segments: the states that it was computed from, which the server is not told.
        asked: what belonged to the request at the site.
    """

    slot: int
    client: int
    request: Message
    reply: Message
    samples: int
    segments: tuple[NDArray[Any], ...]
    asked: Asked


class _Made(NamedTuple):
    """A reply with what it came from; holding it keeps its identity its own."""

    reply: Message
    request: Message
    segments: tuple[NDArray[Any], ...]
    asked: Asked


class Watching:
    """An algorithm that notes what passes through it."""

    def __init__(self, inner: Algorithm) -> None:
        self.inner = inner
        self.updates: list[Update] = []
        self._made: dict[int, _Made] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def messages(self, problem: Problem) -> Mapping[str, Any]:
        """As the algorithm has them."""
        return self.inner.messages(problem)

    def begin(self, problem: Problem) -> Arrays:
        """Likewise."""
        return self.inner.begin(problem)

    def ask(self, problem: Problem, state: Arrays, slot: int, ready: Ready) -> dict[int, Message]:
        """Likewise."""
        return self.inner.ask(problem, state, slot, ready)

    def answer(
        self, problem: Problem, request: Message, segments: Sequence[NDArray[Any]], asked: Asked
    ) -> Message:
        """Likewise, with a note for the auditor."""
        reply = self.inner.answer(problem, request, segments, asked)
        self._made[id(reply)] = _Made(reply, request, tuple(segments), asked)
        return reply

    def conclude(
        self, problem: Problem, state: Arrays, slot: int, replies: Mapping[int, Answered]
    ) -> tuple[Arrays, dict[str, Any]]:
        """Likewise, with a note of every reply."""
        for client, answered in replies.items():
            made = self._made.get(id(answered.message))
            if made is not None:
                self.updates.append(
                    Update(slot, client, made.request, made.reply, answered.samples,
                           made.segments, made.asked)
                )  # fmt: skip
        self._made.clear()
        return self.inner.conclude(problem, state, slot, replies)

    def model(self, problem: Problem, state: Arrays) -> Arrays:
        """As the algorithm has it."""
        return self.inner.model(problem, state)

    def warm(self, problem: Problem, samples: int) -> None:
        """Likewise."""
        self.inner.warm(problem, samples)


def watched(
    experiment: Experiment, workers: Workers, tell: Callable[[int, int], None] = lambda *_: None
) -> list[Update]:
    """All updates of a federation, in the order in which they came.

    Arguments:
        tell: called with how many slots are done, and how many there are.
    """
    watching = Watching(experiment.algorithm)
    for outcome in simulate_federation(replace(experiment, algorithm=watching), workers):
        tell(outcome.state.slot, experiment.slots)
    return watching.updates


def distinct(arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Each array once; real sites' segments arrive again after the last of them."""
    found: dict[bytes, NDArray[Any]] = {}
    for array in arrays:
        found.setdefault(np.ascontiguousarray(array).tobytes(), array)
    return list(found.values())


def spread_out(updates: Sequence[Update], count: int) -> list[Update]:
    """Some updates, evenly over time, and of as many sites as there can be."""
    places = np.linspace(0, len(updates) - 1, min(count, len(updates))).round().astype(int)
    found, seen = list[Update](), set[int]()
    for place in places:
        near = sorted(range(len(updates)), key=lambda i: abs(i - place))
        fresh = [i for i in near[:20] if updates[i].client not in seen] or near
        found.append(updates[fresh[0]])
        seen.add(updates[fresh[0]].client)
    return found
