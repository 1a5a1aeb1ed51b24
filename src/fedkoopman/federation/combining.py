"""From the updates of a slot to the server's next arrays, for every algorithm that has updates.

    rule      the updates become one (`federation/aggregators/`), or
    noise     they become one that hides each of them (`federation/central_privacy.py`)
    step      the server moves by what that changes (`federation/server_steps/`)
    average   the moving average of what comes of it (`federation/averaging.py`)

What must be remembered from slot to slot is part of the algorithm's state, as arrays whose names
begin with one of `MEMORY`; a study that needs no memory has none.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.aggregators.aggregator import Remembering, aggregate, take_step
from fedkoopman.federation.algorithm import Answered, Problem
from fedkoopman.federation.averaging import averaged, first_average
from fedkoopman.federation.central_privacy import noised_mean
from fedkoopman.federation.messages import Arrays
from fedkoopman.federation.privacy import PRIVACY
from fedkoopman.federation.server_steps import first_steps, stepped
from fedkoopman.federation.server_steps.none import none

__all__ = ["MEMORY", "average_of", "combined", "first_memory", "without_memory"]

RULE, SERVER, AVERAGE = "rule.", "server.", "average."
MEMORY = (RULE, SERVER, AVERAGE, PRIVACY)
"""Before the names of what is remembered."""


def first_memory(problem: Problem, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """What is remembered before the first update.

    Arguments:
        arrays: what updates change, before the first slot.
    """
    rule, step = problem.aggregator, problem.server_step
    found = _put(RULE, rule.begin(problem, arrays)) if isinstance(rule, Remembering) else {}
    if not _takes_the_aggregate(problem):
        found |= _put(SERVER, first_steps(step, problem.server, arrays))
    if problem.server.average:
        found |= _put(AVERAGE, first_average(arrays))
    return found


def without_memory(state: Arrays) -> dict[str, NDArray[Any]]:
    """The part of a state that is not memory."""
    return {name: leaf for name, leaf in state.items() if not name.startswith(MEMORY)}


def average_of(problem: Problem, state: Arrays, current: Arrays) -> dict[str, NDArray[Any]]:
    """The average of the server's arrays, where the study asks for one; else the current ones."""
    if not problem.server.average:
        return dict(current)
    memory = _get(AVERAGE, state)
    return {name: memory[name].astype(leaf.dtype) for name, leaf in current.items()}


def combined(
    problem: Problem, state: Arrays, current: Arrays, replies: Mapping[int, Answered]
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]], dict[str, Any]]:
    """The next arrays, the memory after this slot, and what else the slot's record should tell.

    Arguments:
        state: of the algorithm, in which the memory is.
        current: what the clients were given.
        replies: by client, in ascending order; at least one.
    """
    found, memory, told = _aggregated(problem, state, current, replies)
    if not _takes_the_aggregate(problem):
        step, options, before = problem.server_step, problem.server, _get(SERVER, state)
        found, after = stepped(step, options, before, current, found)
        memory |= _put(SERVER, after)
    if problem.server.average:
        memory |= _put(AVERAGE, averaged(problem.server.average, _get(AVERAGE, state), found))
    return found, memory, told


def _aggregated(
    problem: Problem, state: Arrays, current: Arrays, replies: Mapping[int, Answered]
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]], dict[str, Any]]:
    """As `combined`, by the rule alone."""
    rule = problem.aggregator
    updates = {n: reply.message.arrays for n, reply in replies.items()}
    sizes = {n: reply.samples for n, reply in replies.items()}
    if problem.privacy.mode == "central":
        return noised_mean(problem, current, updates), {}, {}
    if not isinstance(rule, Remembering):
        return aggregate(rule, current, list(updates.values()), list(sizes.values())), {}, {}
    step = take_step(rule, problem, _get(RULE, state), current, updates, sizes)
    return dict(step.arrays), _put(RULE, step.memory), dict(step.told)


def _takes_the_aggregate(problem: Problem) -> bool:
    """Whether the aggregate is the next model, which then is the same to the last bit."""
    return problem.server_step is none and problem.server.rate(1.0) == 1


def _put(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {f"{prefix}{name}": np.asarray(leaf) for name, leaf in arrays.items()}


def _get(prefix: str, state: Arrays) -> dict[str, NDArray[Any]]:
    return {
        name.removeprefix(prefix): leaf for name, leaf in state.items() if name.startswith(prefix)
    }
