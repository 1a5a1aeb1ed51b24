"""What an aggregator is: from the clients' updates to the server's next arrays."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedkoopman.errors import InputError
from fedkoopman.federation.messages import Arrays, Message, Schema, arrays_like
from fedkoopman.user_code import calling, finished, place_of

if TYPE_CHECKING:
    from fedkoopman.federation.algorithm import Problem


class Aggregator(Protocol):
    """From updates to one."""

    def __call__(self, current: Arrays, updates: Sequence[Arrays], sizes: Sequence[int]) -> Arrays:
        """The next arrays, with the names, shapes and types of the current ones.

        Arguments:
            current: what the clients were given.
            updates: what each made of it; at least one.
            sizes: |D_n|, how many samples each update was computed from.
        """
        ...


class Step(NamedTuple):
    """What a rule with a memory makes of a slot's updates."""

    arrays: Arrays
    """The next arrays."""
    memory: Arrays
    """What it remembers from now on, as arrays by name."""
    told: Mapping[str, Any]
    """What else the slot's record should tell."""


@runtime_checkable
class Remembering(Protocol):
    """A rule that needs more than one slot's updates: earlier ones, who sent them, or options.

    A slot has one or two active clients more often than five, so a rule that compares updates
    compares them with those of earlier slots. It may have `check(options, clients)` too, with the
    study's `AggregationOptions` and the number of sites, which raises an `InputError` with a remedy
    when a study is checked.
    """

    def begin(self, problem: "Problem", arrays: Arrays) -> Arrays:
        """The memory before the first slot; `arrays` have the names and shapes of updates."""
        ...

    def step(
        self,
        problem: "Problem",
        memory: Arrays,
        current: Arrays,
        updates: Mapping[int, Arrays],
        sizes: Mapping[int, int],
    ) -> Step:
        """The next arrays and the next memory.

        Arguments:
            current: what the clients were given.
            updates: by client, in ascending order; at least one. Clients may be enrolled later, so
                that there are more than the memory knows.
            sizes: |D_n|, by client.
        """
        ...


def aggregate(
    rule: Aggregator, current: Arrays, updates: Sequence[Arrays], sizes: Sequence[int]
) -> dict[str, Any]:
    """What a rule makes of updates, held to its form."""
    with calling(rule, "the aggregator failed"):
        found = finished(rule(current, updates, sizes))
    return _like(current, found, rule)


def take_step(
    rule: Remembering,
    problem: "Problem",
    memory: Arrays,
    current: Arrays,
    updates: Mapping[int, Arrays],
    sizes: Mapping[int, int],
) -> Step:
    """What a rule with a memory makes of updates, held to its form."""
    with calling(rule.step, "the aggregator failed"):
        found = finished(rule.step(problem, memory, current, updates, sizes))
    if not isinstance(found, Step):
        raise InputError(
            f"the aggregator gave a {type(found).__name__} ({place_of(rule.step)}): give "
            "Step(arrays, memory, told)"
        )
    arrays = _like(current, found.arrays, rule.step)
    return Step(arrays, _named(found.memory, rule.step), dict(found.told))


def _named(found: Any, rule: object) -> dict[str, Any]:
    """Arrays by name, as a rule gave them."""
    try:
        return {name: np.asarray(found[name]) for name in found}
    except (TypeError, KeyError, ValueError) as error:
        raise InputError(
            f"the aggregator gave a {type(found).__name__} ({place_of(rule)}): give arrays by name"
        ) from error


def _like(current: Arrays, found: Any, rule: object) -> dict[str, Any]:
    """Arrays like the current ones, as a rule should give them."""
    arrays = _named(found, rule)
    if fault := Schema("", arrays_like(current)).fault(Message("update", arrays)):
        raise InputError(
            f"the aggregator gave {fault} ({place_of(rule)}): give arrays like the current ones"
        )
    return arrays
