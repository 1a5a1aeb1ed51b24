"""The coordinate median: of every number, the middle one of those that clients sent.

Reference: Yin, Chen, Kannan, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal
Statistical Rates", ICML 2018, which the paper's remark on erroneous data names.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedkoopman.federation.aggregators.aggregator import Step
from fedkoopman.federation.aggregators.clipping import FEW, clipped_mean
from fedkoopman.federation.aggregators.history import first_history, step_of, with_slot
from fedkoopman.federation.messages import Arrays

if TYPE_CHECKING:
    from fedkoopman.federation.algorithm import Problem


class Median:
    """Remembers what `norm-clip` does, for slots with one or two updates."""

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
        """The median; of one or two updates the mean, with steps shortened as by `norm-clip`.

        Claimed sizes play no part.
        """
        steps = {n: step_of(current, update) for n, update in updates.items()}
        history = with_slot(memory, problem.clients, steps, sizes)
        if len(updates) <= FEW:
            equal = dict.fromkeys(updates, 1)
            return clipped_mean(problem, current, updates, steps, equal, history)
        found = {
            name: np.median([np.float64(one[name]) for one in updates.values()], axis=0)
            for name in current
        }
        arrays = {name: found[name].astype(leaf.dtype) for name, leaf in current.items()}
        return Step(arrays, history._asdict(), {})


AGGREGATOR = Median()
