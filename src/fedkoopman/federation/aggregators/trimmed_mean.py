"""The trimmed mean: of every number, the mean without the f smallest and the f largest.

Reference: Yin, Chen, Kannan, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedkoopman.errors import InputError
from fedkoopman.federation.aggregators.aggregator import Step
from fedkoopman.federation.aggregators.clipping import FEW, clipped_mean
from fedkoopman.federation.aggregators.history import first_history, step_of, with_slot
from fedkoopman.federation.messages import Arrays
from fedkoopman.federation.options import AggregationOptions

if TYPE_CHECKING:
    from fedkoopman.federation.algorithm import Problem


class TrimmedMean:
    """f is `aggregation.liars`; remembers what `norm-clip` does, for slots with few updates."""

    def check(self, options: AggregationOptions, clients: int) -> None:
        """Liars must be fewer than half."""
        if clients <= 2 * options.liars:
            raise InputError(
                f"aggregation.liars is {options.liars}, for which trimmed-mean needs at least "
                f"{2 * options.liars + 1} clients, but there are {clients}: give at most "
                f"{(clients - 1) // 2}, or rule = norm-clip"
            )

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
        """The trimmed mean; of one or two updates the mean, with steps shortened as by `norm-clip`.

        Of 2f updates or fewer, as many are dropped as leave one or two. Claimed sizes play no part.
        """
        steps = {n: step_of(current, update) for n, update in updates.items()}
        history = with_slot(memory, problem.clients, steps, sizes)
        count = len(updates)
        if count <= FEW:
            equal = dict.fromkeys(updates, 1)
            return clipped_mean(problem, current, updates, steps, equal, history)
        drop = min(problem.aggregation.liars, (count - 1) // 2)
        found = {}
        for name, value in current.items():
            ordered = np.sort([np.float64(one[name]) for one in updates.values()], axis=0)
            found[name] = ordered[drop : count - drop].mean(axis=0).astype(value.dtype)
        return Step(found, history._asdict(), {})


AGGREGATOR = TrimmedMean()
