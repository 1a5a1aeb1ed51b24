"""An algorithm for the tests, which spends data in some slots and looks at all of it in others.

In the second of three slots every site is asked for sums over all that ever arrived there, which
spends nothing. In the other slots sites with new data are asked for sums over it, which are spent.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.algorithm import Answered, Asked, Problem, Ready
from fedkoopman.federation.messages import ArrayField, Arrays, Message, NumberField, Schema


def looks(slot: int) -> bool:
    """Whether a slot looks at all data."""
    return slot % 3 == 2


class Census:
    """Sums of states, of what was spent and of all that was seen."""

    def messages(self, problem: Problem) -> Mapping[str, Schema]:
        sums = {"states": ArrayField((problem.system.dim,), "float64")}
        count = {"samples": NumberField(0, 1e9, whole=True)}
        return {
            "take": Schema("nothing", reply="sums"),
            "look": Schema("nothing", reply="sums", data="arrived"),
            "sums": Schema("sums of states", sums, count, additive=True),
        }

    def begin(self, problem: Problem) -> Arrays:
        nothing = np.zeros(problem.system.dim + 1)
        weights = problem.architecture.initialise(seed=problem.seed, dtype=problem.dtype)
        return {"taken": nothing, "seen": nothing, **problem.architecture.named(weights)}

    def ask(self, problem: Problem, state: Arrays, slot: int, ready: Ready) -> dict[int, Message]:
        kind, whom = ("look", ready.present) if looks(slot) else ("take", ready.waiting > 0)
        return {int(n): Message(kind) for n in np.flatnonzero(whom)}

    def answer(
        self, problem: Problem, request: Message, segments: Sequence[NDArray[Any]], asked: Asked
    ) -> Message:
        total = sum((x.sum(axis=0) for x in segments), np.zeros(problem.system.dim))
        return Message("sums", {"states": total}, {"samples": float(sum(map(len, segments)))})

    def conclude(
        self, problem: Problem, state: Arrays, slot: int, replies: Mapping[int, Answered]
    ) -> tuple[Arrays, dict[str, Any]]:
        came = np.zeros_like(state["taken"])
        for reply in replies.values():
            message = reply.message
            assert message.numbers["samples"] == reply.samples
            came = came + np.append(message.arrays["states"], message.numbers["samples"])
        sums = {"seen": came} if looks(slot) else {"taken": state["taken"] + came}
        told = {name: sums.get(name, state[name]).tolist() for name in ("taken", "seen")}
        return {**state, **sums}, told

    def model(self, problem: Problem, state: Arrays) -> Arrays:
        """The first weights, moved a little by what was seen and taken."""
        shift = 1e-6 * float(state["taken"].sum() + 2 * state["seen"].sum())
        names = [name for name, _ in problem.architecture.shapes()]
        return {name: (state[name] + shift).astype(problem.dtype) for name in names}

    def warm(self, problem: Problem, samples: int) -> None:
        """Nothing is compiled."""


ALGORITHM = Census()
