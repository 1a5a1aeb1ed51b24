"""Edge aggregators: an algorithm whose replies reach the server as one reply for many sites.

    sites ─▶ edge ─▶ server        messages, requests and state are those of the algorithm

An edge aggregator stands between some sites and the server. It hands the server's requests on, and
makes one reply of theirs, of the same kind: of updates the mean by samples, of sums the sum, each
from the samples of all (`joined`). Sums are associative, so the server, to which an edge is one
more client, concludes what it would have concluded from every single reply, but for rounding; and
edges may stand behind edges.

That holds where the server needs only the sum over sites (`Schema.additive`). Rules that compare
single updates (medians, Krum, clipping), the guard, fedbuff with its staleness, noise on clipped
updates and the account of noise from sites do not have that, and are refused. So is secure
aggregation: whose masks cancel are the sites of one session, which would have to be an edge's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError
from fedkoopman.federation.algorithm import (
    Algorithm,
    Answered,
    Asked,
    Problem,
    Ready,
    Reviewing,
)
from fedkoopman.federation.messages import Arrays, Message, Schema

__all__ = ["Edged", "check_edges", "joined"]


def joined(schema: Schema, replies: Sequence[Answered]) -> Answered:
    """One reply that counts as much as several of the same kind.

    Arguments:
        schema: of the replies; additive.
        replies: in the order of their clients; at least one, and of updates all to one request.
    """
    if len(replies) == 1:
        return replies[0]
    first, sizes = replies[0], np.array([one.samples for one in replies], np.float64)
    if schema.changes and not sizes.sum():
        sizes = np.ones(len(replies))  # nobody learned anything: all sent what they were given
    shares = sizes / sizes.sum() if schema.changes else np.ones(len(replies))
    arrays = {}
    for name, field in schema.arrays.items():
        # One after the other, so that memory does not grow with their number.
        total = shares[0] * np.float64(first.message.arrays[name])
        for one, share in zip(replies[1:], shares[1:], strict=True):
            total += share * one.message.arrays[name]
        arrays[name] = total.astype(field.dtype)
    numbers = {name: sum(one.message.numbers[name] for one in replies) for name in schema.numbers}
    return Answered(
        Message(first.message.kind, arrays, numbers),
        sum(one.samples for one in replies),
        tuple(n for one in replies for n in one.clients),
        first.request,
        first.asked,
    )


def check_edges(problem: Problem) -> None:
    """Refuse what needs every single reply."""
    why = "edge aggregators send the server one reply for many sites, but "
    if isinstance(problem.algorithm, Reviewing):
        raise InputError(f'{why}the guard judges single replies: give aggregation.guard = "off"')
    if problem.privacy.mode != "none":
        raise InputError(
            f'{why}privacy.mode is "{problem.privacy.mode}", which bounds or accounts for every '
            'single one: give "none"'
        )
    if problem.aggregation.secure:
        raise InputError(f"{why}aggregation.secure masks them for one sum of all: leave it out")
    schemas = problem.algorithm.messages(problem)
    for kind in (one.reply for one in schemas.values() if one.reply):
        if not schemas[kind].additive:
            raise InputError(
                f"{why}the server needs every single {kind!r}, not only their sum: give "
                'aggregation.rule = "mean", or another algorithm.name'
            )


class Edged:
    """An algorithm behind edge aggregators."""

    def __init__(self, inner: Algorithm, edges: Sequence[Sequence[int]]) -> None:
        """Arguments:

        inner: itself perhaps behind edges, whose clients are then these edges' first sites.
        edges: the clients behind each edge; who is behind none speaks for itself.
        """
        self.inner = inner
        self._edge = {n: place for place, clients in enumerate(edges) for n in clients}
        if len(self._edge) < sum(map(len, edges)):
            raise InputError("a client is behind two edge aggregators: put it behind one")

    def messages(self, problem: Problem) -> Mapping[str, Schema]:
        """Those of the algorithm."""
        return self.inner.messages(problem)

    def begin(self, problem: Problem) -> Arrays:
        """As the algorithm."""
        return self.inner.begin(problem)

    def ask(self, problem: Problem, state: Arrays, slot: int, ready: Ready) -> dict[int, Message]:
        """As the algorithm: edges tell how much waits at each site, and hand requests on."""
        return self.inner.ask(problem, state, slot, ready)

    def answer(
        self, problem: Problem, request: Message, segments: Sequence[NDArray[Any]], asked: Asked
    ) -> Message:
        """A site's, as in the algorithm."""
        return self.inner.answer(problem, request, segments, asked)

    def gathered(self, problem: Problem, replies: Mapping[int, Answered]) -> dict[int, Answered]:
        """What reaches the server: a reply per edge and kind, under the edge's first client."""
        schemas, groups = self.messages(problem), dict[tuple[int, str], list[int]]()
        for n, reply in replies.items():
            key = self._edge.get(n, -1 - n), reply.message.kind
            groups.setdefault(key, []).append(n)
        return {
            members[0]: joined(schemas[kind], [replies[n] for n in members])
            for (_, kind), members in sorted(groups.items(), key=lambda group: group[1])
        }

    def conclude(
        self, problem: Problem, state: Arrays, slot: int, replies: Mapping[int, Answered]
    ) -> tuple[Arrays, dict[str, Any]]:
        """As the algorithm, from the edges' replies."""
        check_edges(problem)
        return self.inner.conclude(problem, state, slot, self.gathered(problem, replies))

    def model(self, problem: Problem, state: Arrays) -> Arrays:
        """As the algorithm."""
        return self.inner.model(problem, state)

    def warm(self, problem: Problem, samples: int) -> None:
        """As the algorithm."""
        self.inner.warm(problem, samples)
