"""What sites are asked in each round of a slot, and what is thought of their answers."""

from collections.abc import Callable, Mapping, Sequence

from fedkoopman.deploy.server.rounds import Answers
from fedkoopman.deploy.server.server_state import ServerState
from fedkoopman.deploy.server.validation import Accepted, Expected, check_answered
from fedkoopman.deploy.wire import Acknowledge, Answered, Ask, Evaluate, Poll, Request
from fedkoopman.federation.messages import Arrays, Message, Schema
from fedkoopman.federation.slot import Judged

Requests = Callable[[str], Sequence[Request]]
"""By site."""


def first_requests(state: ServerState, model: Arrays) -> Requests:
    """Acknowledge the last slot, score its model if it is new, and count for the next slot."""

    def requests(name: str) -> Sequence[Request]:
        standing = state.of(name)
        batch: list[Request] = [Acknowledge(state.slot, standing.included)]
        if state.scores is None and not standing.set_aside:
            batch.append(Evaluate(state.slot, model))
        return [*batch, Poll(state.slot + 1)]

    return requests


def slot_requests(slot: int, asked: Mapping[str, Message]) -> dict[str, list[Request]]:
    """What the algorithm asks, by site."""
    return {name: [Ask(slot, message)] for name, message in asked.items()}


def last_requests(state: ServerState, model: Arrays) -> Requests:
    """Acknowledge the last slot, and measure the finished model."""

    def requests(name: str) -> Sequence[Request]:
        standing = state.of(name)
        batch: list[Request] = [Acknowledge(state.slot, standing.included)]
        return batch if standing.set_aside else [*batch, Evaluate(state.slot, model, True)]

    return requests


def judged(
    answers: Answers,
    asked: Mapping[str, tuple[int, int, Message]],
    slot: int,
    schemas: Mapping[str, Schema],
    recent: Sequence[Accepted],
) -> tuple[tuple[Judged, ...], tuple[Accepted, ...]]:
    """What became of every request, and the updates that will be remembered.

    Arguments:
        asked: by site in the order of the roster, its place, the samples that waited there, and
            what it was asked.
        schemas: of the algorithm's messages.
        recent: accepted updates of earlier slots.
    """
    found, accepted = [], []
    for site, (place, samples, request) in asked.items():
        [reply] = answers.replies.get(site, (None,))
        if not isinstance(reply, Answered):
            reason = answers.broken.get(site, "")
            found.append(Judged(place, samples, reason=reason, answered=False))
            continue
        verdict = check_answered(reply, Expected(site, slot, request, samples, schemas), recent)
        fresh = not verdict.stale
        size = reply.samples if fresh and not verdict.reason else samples
        found.append(Judged(place, size, reply.message, verdict.reason, fresh))
        if fresh and not verdict.reason and verdict.norm == verdict.norm:
            accepted.append(Accepted(verdict.norm, reply.samples))
    return tuple(found), tuple(accepted)
