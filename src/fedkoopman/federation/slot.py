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
from fedkoopman.federation.algorithm import Answered, Problem, Ready
from fedkoopman.federation.messages import Arrays, Message, Schema
from fedkoopman.federation.policies.threshold import threshold
from fedkoopman.federation.privacy import accounted


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
    """

    client: int
    samples: int
    reply: Message | None = None
    reason: str = ""
    answered: bool = True
    together: tuple[int, ...] = ()

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
) -> dict[int, Message]:
    """Whom the algorithm asks what, in the order of the clients.

    Arguments:
        waiting: |D_n|, samples that wait at each client.
        present: whether each client can be asked; None for all.
    """
    here = np.ones(len(waiting), bool) if present is None else np.asarray(present, bool)
    asked = problem.algorithm.ask(problem, state, slot, Ready(waiting * here, here))
    return {n: asked[n] for n in sorted(asked) if here[n]}


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


def concluded(
    problem: Problem,
    state: Arrays,
    slot: int,
    judged: Iterable[Judged],
    out: Sequence[int] = (),
) -> tuple[Arrays, dict[str, Any]]:
    """The algorithm's next state from the replies that count; without any, the state stays.

    What replies released is accounted for in any case.

    Arguments:
        out: clients whose privacy budget does not allow what they were asked.
    """
    judged = list(judged)
    sent = {one.client: one.reply for one in judged if one.reply is not None}
    spent = accounted(problem, state, slot, sent, out)
    good = {
        one.client: Answered(one.reply, one.samples, one.together or (one.client,))
        for one in judged
        if one.accepted and one.reply is not None
    }
    if not good:
        return {**state, **spent} if sent or out else state, {}
    after, told = problem.algorithm.conclude(problem, state, slot, good)
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
