"""Deviation-adaptive weights: a client's model weighs less, the further it is from the server's.

The paper's remark on erroneous data: "aggregation weights can be adaptively adjusted based on the
deviation of local models from the central server's model". With d_n = ‖δ_n‖ over the usual length,
s_n the capped size and k = `clip`:

    φ_n = min(1, (k / d_n)²),   step = max_n φ_n · Σ_n s_n φ_n δ_n / Σ_n s_n φ_n

Steps of usual length have φ = 1 and are averaged as ever: shrinking them would cost accuracy. The
influence φ_n ‖δ_n‖ of a step falls beyond k usual lengths, where that of a clipped one stays. The
factor in front leaves the server's model where it is when nobody else is there to outweigh a lie.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedkoopman.federation.aggregators.aggregator import Step
from fedkoopman.federation.aggregators.clipping import weighted_mean
from fedkoopman.federation.aggregators.history import (
    capped_sizes,
    first_history,
    flat,
    norm_of,
    step_of,
    usual_length,
    with_slot,
)
from fedkoopman.federation.messages import Arrays

if TYPE_CHECKING:
    from fedkoopman.federation.algorithm import Problem


class Adaptive:
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
        """The mean by weights that fall with the deviation."""
        steps = {n: step_of(current, update) for n, update in updates.items()}
        history = with_slot(memory, problem.clients, steps, sizes)
        most = problem.aggregation.clip * usual_length(history.norms)
        factors = {n: _factor(norm_of(step), most) for n, step in steps.items()}
        capped, largest = capped_sizes(sizes, history.sizes), max(factors.values())
        weights = {n: capped[n] * factor for n, factor in factors.items()}
        vectors = {n: flat(update, current) for n, update in updates.items()}
        if largest < 1:
            model = flat(current)
            vectors = {n: model + largest * step for n, step in steps.items()}
        lighter = [n for n, factor in factors.items() if factor < 1]
        told = {"weighed_down": lighter} if lighter else {}
        return Step(weighted_mean(current, vectors, weights), history._asdict(), told)


def _factor(length: float, most: float) -> float:
    """φ of a step; 1 up to the longest that is usual."""
    return 1.0 if length <= most else (most / length) ** 2


AGGREGATOR = Adaptive()
