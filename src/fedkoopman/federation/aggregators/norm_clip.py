"""Norm clipping: steps that are much longer than usual are shortened; then the mean.

One client moves the model by no more than `clip` usual lengths in a slot, whatever it sends and
however many samples it claims.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedkoopman.federation.aggregators.aggregator import Step
from fedkoopman.federation.aggregators.clipping import clipped_mean
from fedkoopman.federation.aggregators.history import (
    History,
    first_history,
    step_of,
    usual_length,
)
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
        """The mean of shortened steps, weighted by capped sizes.

        Lengths are remembered as they were sent: a few clients do not move their median.
        """
        steps = {n: step_of(current, update) for n, update in updates.items()}
        history = History(**memory).with_slot(problem.clients, steps, sizes)
        radius = problem.aggregation.clip * usual_length(history.norms)
        found = clipped_mean(current, updates, steps, sizes, history, radius=radius)
        told = {"shortened": found.shortened} if found.shortened else {}
        return Step(found.arrays, history._asdict(), told)


AGGREGATOR = NormClip()
