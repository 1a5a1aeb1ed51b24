"""What sites are asked in each round of a slot, and after the last one."""

from collections.abc import Callable, Sequence

from fedkoopman.deploy.server.server_state import ServerState
from fedkoopman.deploy.wire import Acknowledge, Evaluate, Poll, Request, Train, tensors_of

__all__ = ["Questions", "first_questions", "last_questions", "training"]

Questions = Callable[[str], Sequence[Request]]
"""By site."""


def first_questions(state: ServerState) -> Questions:
    """Acknowledge the last slot, score its model if it is new, and count for the next slot."""
    model = tensors_of(state.weights)

    def questions(name: str) -> Sequence[Request]:
        standing = state.of(name)
        batch: list[Request] = [Acknowledge(state.slot, standing.included)]
        if state.scores is None and not standing.set_aside:
            batch.append(Evaluate(state.slot, model))
        return [*batch, Poll(state.slot + 1)]

    return questions


def training(state: ServerState) -> Questions:
    """Train the model on what was counted for the next slot."""
    request = Train(state.slot + 1, tensors_of(state.weights))
    return lambda _: [request]


def last_questions(state: ServerState) -> Questions:
    """Acknowledge the last slot, and measure the finished model."""
    model = tensors_of(state.weights)

    def questions(name: str) -> Sequence[Request]:
        standing = state.of(name)
        batch: list[Request] = [Acknowledge(state.slot, standing.included)]
        return batch if standing.set_aside else [*batch, Evaluate(state.slot, model, True)]

    return questions
