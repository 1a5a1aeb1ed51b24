"""Norm clipping: steps that are much longer than usual are shortened; then the mean.

One client moves the model by no more than `clip` usual lengths in a slot, whatever it sends and
however many samples it claims.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedkoopman.federation.aggregators.aggregator import Step
from fedkoopman.federation.aggregators.clipping import clipped_mean
from fedkoopman.federation.aggregators.history import first_history, step_of, with_slot
from fedkoopman.federation.messages import Arrays

if TYPE_CHECKING:
    from fedkoopman.federation.algorithm import Problem


class NormClip:
    """Remembers how long the clients' last steps were, and how many samples they claimed."""

    def begin(self, problem: "Problem", arrays: Arrays) -> Arrays:
        """Nothing is known."""
        return first_history(problem.clients, problem.aggregation.history)._asdict()

    def step(
        self,
        problem: "Problem",
        memory: Arrays,
        current: Arrays,
        updates: Mapping[int, Arrays],
        sizes: Mapping[int, int],
    ) -> Step:
        """The mean of shortened steps, weighted by capped sizes."""
        steps = {n: step_of(current, update) for n, update in updates.items()}
        history = with_slot(memory, problem.clients, steps, sizes)
        return clipped_mean(problem, current, updates, steps, sizes, history)


AGGREGATOR = NormClip()
