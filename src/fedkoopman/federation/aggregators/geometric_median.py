"""The geometric median: the point from which the distances to all updates have the smallest sum.

Reference: Pillutla, Kakade, Harchaoui, "Robust Aggregation for Federated Learning", IEEE Trans.
Signal Processing 70 (2022): Weiszfeld's iteration x ← Σ_n β_n x_n / Σ_n β_n with the smoothed
weights β_n = w_n / max(ν, ‖x − x_n‖).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from fedkoopman.federation.aggregators.aggregator import Step
from fedkoopman.federation.aggregators.clipping import FEW, clipped_mean
from fedkoopman.federation.aggregators.history import (
    arrays_of,
    capped_sizes,
    first_history,
    flat,
    lower_median,
    step_of,
    with_slot,
)
from fedkoopman.federation.messages import Arrays

if TYPE_CHECKING:
    from fedkoopman.federation.algorithm import Problem

CAP = 1.0
"""Times the others' usual size that a claim weighs. Whoever has half of all weight *is* the
geometric median, and twice the usual would be half among three clients."""
SMOOTHING = 1e-6
"""ν in units of the usual distance from the centre."""
ITERATIONS, ENOUGH = 500, 1e-9
"""At most so many; done when a point moves by less than so many usual distances."""


def weiszfeld(
    points: Float[np.ndarray, "points coordinates"], weights: Float[np.ndarray, " points"]
) -> Float[np.ndarray, " coordinates"]:
    """The weighted geometric median, begun at the coordinate median.

    A start at the mean would let one false point, however far, decide the scale.
    """
    found = np.median(points, axis=0)
    scale = lower_median([x for x in np.linalg.norm(points - found, axis=1) if x > 0])
    if not np.isfinite(scale):  # all points are one
        return found
    for _ in range(ITERATIONS):
        distances = np.linalg.norm(points - found, axis=1)
        shares = weights / np.maximum(distances, SMOOTHING * scale)
        before, found = found, (shares / shares.sum()) @ points
        if np.linalg.norm(found - before) <= ENOUGH * scale:
            break
    return found


class GeometricMedian:
    """Remembers what `norm-clip` does: claimed sizes, and for slots with few updates lengths."""

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
        """The geometric median of the updates, by capped sizes.

        Of two, the one with the greater weight would be the geometric median: half of what was
        learned would be lost, and nothing gained, as two do not tell who lies. Their mean is taken,
        with steps shortened as by `norm-clip`.
        """
        steps = {n: step_of(current, update) for n, update in updates.items()}
        history = with_slot(memory, problem.clients, steps, sizes)
        if len(updates) <= FEW:
            return clipped_mean(problem, current, updates, steps, sizes, history)
        weights = capped_sizes(sizes, history.sizes, CAP)
        middle = weiszfeld(np.stack(list(steps.values())), np.array(list(weights.values())))
        return Step(arrays_of(current, flat(current) + middle), history._asdict(), {})


AGGREGATOR = GeometricMedian()
