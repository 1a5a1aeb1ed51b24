"""From the updates of a slot to the server's next arrays, for every algorithm that has updates.

    rule      the updates become one (`federation/aggregators/`), or
    noise     they become one that hides each of them (`federation/central_privacy.py`)

What must be remembered from slot to slot is part of the algorithm's state, as arrays whose names
begin with one of `MEMORY`; a study that needs no memory has none.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.aggregators.aggregator import Remembering, aggregate
from fedkoopman.federation.algorithm import Answered, Problem
from fedkoopman.federation.central_privacy import noised_mean
from fedkoopman.federation.messages import Arrays
from fedkoopman.federation.privacy import PRIVACY

__all__ = ["MEMORY", "combined", "first_memory", "without_memory"]

RULE = "rule."
MEMORY = (RULE, PRIVACY)
"""Before the names of what is remembered."""


def first_memory(problem: Problem, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """What is remembered before the first update.

    Arguments:
        arrays: what updates change, before the first slot.
    """
    rule = problem.aggregator
    found = rule.begin(problem, arrays) if isinstance(rule, Remembering) else {}
    return {f"{RULE}{name}": np.asarray(leaf) for name, leaf in found.items()}


def without_memory(state: Arrays) -> dict[str, NDArray[Any]]:
    """The part of a state that is not memory."""
    return {name: leaf for name, leaf in state.items() if not name.startswith(MEMORY)}


def combined(
    problem: Problem, state: Arrays, current: Arrays, replies: Mapping[int, Answered]
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]], dict[str, Any]]:
    """The next arrays, the memory after this slot, and what else the slot's record should tell.

    Arguments:
        state: of the algorithm, in which the memory is.
        current: what the clients were given.
        replies: by client, in ascending order; at least one.
    """
    rule = problem.aggregator
    updates = {n: reply.message.arrays for n, reply in replies.items()}
    sizes = {n: reply.samples for n, reply in replies.items()}
    if problem.privacy.mode == "central":
        return noised_mean(problem, current, updates), {}, {}
    if not isinstance(rule, Remembering):
        return aggregate(rule, current, list(updates.values()), list(sizes.values())), {}, {}
    before = {n.removeprefix(RULE): leaf for n, leaf in state.items() if n.startswith(RULE)}
    step = rule.step(problem, before, current, updates, sizes)
    memory = {f"{RULE}{name}": np.asarray(leaf) for name, leaf in step.memory.items()}
    return dict(step.arrays), memory, dict(step.told)
