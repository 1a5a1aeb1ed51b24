"""Centred clipping: steps are shortened towards where the model has been going; then the mean.

Reference: Karimireddy, He, Jaggi, "Learning from History for Byzantine Robust Optimization", ICML
2021. There the centre is the last aggregate of the clients' momenta; clients here have no momentum,
so the server keeps one of the steps that it takes:

    step = c + Σ_n share_n (δ_n − c) min(1, τ / ‖δ_n − c‖),   c ← β c + (1 − β) step

A step within the radius counts as it was sent, so the centre is applied only in place of what was
cut off.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedkoopman.federation.aggregators.aggregator import Step
from fedkoopman.federation.aggregators.clipping import clipped_mean
from fedkoopman.federation.aggregators.history import first_history, step_of, with_slot
from fedkoopman.federation.messages import Arrays

if TYPE_CHECKING:
    from fedkoopman.federation.algorithm import Problem

MOMENTUM = 0.5
"""β: a centre of one or two steps, as later ones go elsewhere."""


class CentredClip:
    """Remembers the centre, and what `norm-clip` does."""

    def begin(self, problem: "Problem", arrays: Arrays) -> Arrays:
        """The model has been going nowhere."""
        centre = np.zeros(sum(leaf.size for leaf in arrays.values()))
        history = first_history(problem.clients, problem.aggregation.history)
        return {"centre": centre, **history._asdict()}

    def step(
        self,
        problem: "Problem",
        memory: Arrays,
        current: Arrays,
        updates: Mapping[int, Arrays],
        sizes: Mapping[int, int],
    ) -> Step:
        """The mean of steps that are shortened towards the centre, weighted by capped sizes."""
        steps = {n: step_of(current, update) for n, update in updates.items()}
        history = with_slot(memory, problem.clients, steps, sizes)
        centre = memory["centre"]
        found = clipped_mean(problem, current, updates, steps, sizes, history, centre=centre)
        taken = step_of(current, found.arrays)
        after = MOMENTUM * centre + (1 - MOMENTUM) * taken
        return found._replace(memory={"centre": after, **found.memory})


AGGREGATOR = CentredClip()
