"""One time slot, for both engines: who is asked what, what counts of the replies, the next state.

Everything here is a pure function of the problem, the server's state and what came from the sites.
Who computes an answer, and where, is the engine's business: in-process (`federation.simulation`)
or at a site behind Flower (`deploy.server`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import ComputationError
from fedkoopman.estimation.left_out import stretches
from fedkoopman.federation.algorithm import Answered, Asked, Problem, Ready, Reviewing
from fedkoopman.federation.messages import Arrays, Message, Schema
from fedkoopman.federation.policies.threshold import threshold
from fedkoopman.federation.privacy import accounted

FEWEST = 2
"""Sites of a sum, where only sums may be seen."""


@dataclass(frozen=True)
class State:
    """What the next slot needs.

    Attributes:
        slot: the last finished slot.
        arrays: the algorithm's state.
        buffers: for each client, the slots whose segments wait to be trained on.
        spent: for each client, the slots whose segments were trained on; kept only for algorithms
            that look at them again.
    """

    slot: int
    arrays: Arrays
    buffers: tuple[tuple[int, ...], ...] = ()
    spent: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Judged:
    """What became of a request.

    Attributes:
        client: who was asked.
        samples: that it was asked to compute from.
        reply: what it answered, if that fits its schema.
        reason: why what it sent is refused; empty if it is not.
        answered: whether it sent something that could be judged, so that its data are spent.
        together: clients whose data the reply is computed from, where it is not this one alone.
        request: what it was asked.
        asked: the slot in which it was first asked for, where that is another one.
    """

    client: int
    samples: int
    reply: Message | None = None
    reason: str = ""
    answered: bool = True
    together: tuple[int, ...] = ()
    request: Message | None = None
    asked: int = 0

    @property
    def accepted(self) -> bool:
        """Whether the reply becomes part of the next state."""
        return self.reply is not None and not self.reason


def ask(
    problem: Problem,
    state: Arrays,
    slot: int,
    waiting: NDArray[np.int64],
    present: Sequence[bool] | None = None,
    owed: Sequence[int] | None = None,
) -> dict[int, Message]:
    """Whom the algorithm asks what, in the order of the clients.

    Arguments:
        waiting: |D_n|, samples that wait at each client.
        present: whether each client can be asked; None for all.
        owed: for each client, the slot of a request that it owes an answer to; None: nobody does.
    """
    here = np.ones(len(waiting), bool) if present is None else np.asarray(present, bool)
    debts = np.asarray([0] * len(here) if owed is None else owed, np.int64)
    asked = problem.algorithm.ask(problem, state, slot, Ready(waiting * here, here, debts))
    return {n: asked[n] for n in sorted(asked) if here[n]}


def summable(
    problem: Problem, asked: Mapping[int, Message]
) -> tuple[dict[int, Message], tuple[int, ...]]:
    """Whom to ask where the server may see only sums, and who has to wait until others are ready.

    A sum of one hides nothing.
    """
    if problem.aggregation.secure and len(asked) < FEWEST:
        return {}, tuple(asked)
    return dict(asked), ()


def parts_of(
    problem: Problem, segments: Sequence[NDArray[np.float64]]
) -> list[NDArray[np.float64]]:
    """Segments without the samples that were left out: one or more stretches of each.

    Where a whole segment is what privacy protects it must stay one, so its longest stretch counts.
    """
    parts = [stretches(states) for states in segments]
    if problem.privacy.mode == "site" and problem.privacy.record == "segment":
        parts = [[max(some, key=len)] for some in parts if some]
    return [part for some in parts for part in some]


def answer(
    problem: Problem, request: Message, segments: Sequence[NDArray[np.float64]], asked: Asked
) -> Message:
    """A site's answer, from segments of which samples may have been left out (`left_out`)."""
    parts = parts_of(problem, segments)
    counted = asked._replace(delivered=len(segments))
    return problem.algorithm.answer(problem, request, parts, counted)


def looks_again(schemas: Mapping[str, Schema]) -> bool:
    """Whether an algorithm looks at segments that it has spent before."""
    return any(schema.data == "arrived" for schema in schemas.values())


def usual_samples(problem: Problem, client: int | None = None) -> int:
    """How many samples an answer is usually computed from.

    Arguments:
        client: whose answer; None for the client that is asked first.
    """
    most = problem.thresholds if client is None else problem.thresholds[client : client + 1]
    least = most.min() if problem.policy is threshold else 1
    return max(1, math.ceil(least)) * problem.steps


def fault_of(schemas: Mapping[str, Schema], request: Message, reply: Message) -> str:
    """Why a reply does not answer a request, after the name of who sent it; empty if it does."""
    expected = schemas[request.kind].reply
    if reply.kind != expected:
        return f"sends {reply.kind!r} in answer to {request.kind!r}, not {expected!r}"
    fault = schemas[expected].fault(reply)
    return f"sends {fault}" if fault else ""


def _good(judged: Iterable[Judged], slot: int) -> dict[int, Answered]:
    """The replies that the algorithm sees."""
    return {
        one.client: Answered(
            one.reply,
            one.samples,
            one.together or (one.client,),
            request=one.request,
            asked=one.asked or slot,
        )
        for one in judged
        if one.accepted and one.reply is not None
    }


def second_requests(
    problem: Problem, state: Arrays, slot: int, judged: Iterable[Judged], present: Sequence[int]
) -> dict[int, Message]:
    """Whom the algorithm asks what about the replies, in the order of the clients.

    Arguments:
        present: the clients that can be asked.
    """
    good = _good(judged, slot)
    if not good or not isinstance(problem.algorithm, Reviewing):
        return {}
    asked = problem.algorithm.review(problem, state, slot, good, present)
    return {n: asked[n] for n in sorted(asked)}


def concluded(
    problem: Problem,
    state: Arrays,
    slot: int,
    judged: Iterable[Judged],
    reviews: Mapping[int, Message] | None = None,
    total: Answered | None = None,
    out: Sequence[int] = (),
) -> tuple[Arrays, dict[str, Any]]:
    """The algorithm's next state from the replies that count; without any, the state stays.

    What replies released is accounted for in any case.

    Arguments:
        reviews: replies to the second requests, by client.
        total: what the replies add up to, where the server sees only that (`quantised`).
        out: clients whose privacy budget does not allow what they were asked.
    """
    judged = list(judged)
    sent = {one.client: one.reply for one in judged if one.reply is not None}
    spent = accounted(problem, state, slot, sent, out)
    state = {**state, **spent} if sent or out else state
    good = _good(judged, slot) if total is None else {min(total.clients): total}
    if isinstance(problem.algorithm, Reviewing):
        broken = {one.client: one.reason for one in judged if one.reason}
        if not good and not broken:
            return state, {}
        settle = problem.algorithm.settle
        after, told = settle(problem, state, slot, good, reviews or {}, broken)
    elif good:
        after, told = problem.algorithm.conclude(problem, state, slot, good)
    else:
        return state, {}
    for name, array in after.items():
        if not np.isfinite(array).all():
            raise ComputationError(
                f"slot {slot} leaves {name} with entries that are not finite, though every reply "
                "was finite: try a smaller learning rate, or another aggregation.rule"
            )
    return {**after, **spent}, told


def record_of(
    slot: int,
    judged: Sequence[Judged],
    *,
    arrived: Sequence[int],
    buffered: Sequence[int],
    dropped: Sequence[int] = (),
    told: Mapping[str, Any] | None = None,
    **lists: Sequence[int],
) -> dict[str, Any]:
    """A slot's record, without its model's scores; clients stand in it by their places.

    Arguments:
        judged: what became of each request.
        arrived: clients to which a segment came.
        buffered: samples that wait at each client, before the slot spends any.
        dropped: clients whose new segment is of no use.
        told: what the algorithm adds.
        lists: further lists of clients; left out where they are empty.
    """
    answers = [one for one in judged if one.answered]
    lists = {"refused": [one.client for one in answers if one.reason], **lists}
    return {
        "slot": slot,
        "arrived": list(arrived),
        "buffered": list(buffered),
        "active": [one.client for one in answers],
        "samples": sum(one.samples for one in answers),
        "dropped": list(dropped),
        **{key: list(clients) for key, clients in lists.items() if clients},
        **(told or {}),
    }
