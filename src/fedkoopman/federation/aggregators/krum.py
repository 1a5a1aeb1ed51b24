"""Krum: the update that is closest to the n − f − 2 others nearest to it.

Reference: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with Adversaries: Byzantine
Tolerant Gradient Descent", NeurIPS 2017. There all n clients speak in every round. Here one or two
do, so scores are those of every client's *latest* step: this slot's where there is one, else an
earlier one. Earlier ones are only compared with. A client that speaks in this slot counts if its
step is among the n − f best of all.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from fedkoopman.errors import InputError
from fedkoopman.federation.aggregators.aggregator import Step
from fedkoopman.federation.aggregators.clipping import clipped_mean, weighted_mean
from fedkoopman.federation.aggregators.history import (
    capped_sizes,
    first_history,
    flat,
    padded,
    step_of,
    with_slot,
)
from fedkoopman.federation.messages import Arrays
from fedkoopman.federation.options import AggregationOptions

if TYPE_CHECKING:
    from fedkoopman.federation.algorithm import Problem


def krum_scores(
    steps: Float[np.ndarray, "clients coordinates"], liars: int
) -> Float[np.ndarray, " clients"]:
    """The sum of squared distances from each step to the n − f − 2 others nearest to it.

    Arguments:
        steps: more than 2f + 2 of them.
        liars: f.
    """
    nearest = len(steps) - liars - 2
    return np.array(
        [np.sort(np.sum((np.delete(steps, i, 0) - one) ** 2, 1))[:nearest].sum()
         for i, one in enumerate(steps)]
    )  # fmt: skip


class Krum:
    """Remembers every client's latest step, and what `norm-clip` does.

    Attributes:
        name: of the rule, for messages.
        several: whether all good updates of a slot are averaged (multi-Krum) or the best is taken.
    """

    def __init__(self, name: str, *, several: bool) -> None:
        self.name, self.several = name, several

    def check(self, options: AggregationOptions, clients: int) -> None:
        """Krum's bound: n > 2f + 2."""
        if clients <= 2 * options.liars + 2:
            most = (clients - 3) // 2
            fewer = f"give liars = {most}, or " if most >= 0 else "give "
            raise InputError(
                f"aggregation.liars is {options.liars}, for which {self.name} needs at least "
                f"{2 * options.liars + 3} clients, but there are {clients}: {fewer}"
                "rule = norm-clip"
            )

    def begin(self, problem: "Problem", arrays: Arrays) -> Arrays:
        """Nobody has been heard."""
        size = sum(leaf.size for leaf in arrays.values())
        history = first_history(problem.clients, problem.aggregation.history)
        return {"steps": np.zeros((problem.clients, size)), **history._asdict()}

    def step(
        self,
        problem: "Problem",
        memory: Arrays,
        current: Arrays,
        updates: Mapping[int, Arrays],
        sizes: Mapping[int, int],
    ) -> Step:
        """The best update or the mean of the good ones; without a good one, no step is taken.

        Until 2f + 3 clients have been heard there is too little to compare with, and steps are
        shortened and averaged as by `norm-clip`.
        """
        options = problem.aggregation
        fresh = {n: step_of(current, update) for n, update in updates.items()}
        history = with_slot(memory, problem.clients, fresh, sizes)
        steps = padded(memory["steps"], len(history.norms)).copy()
        for n, step in fresh.items():
            steps[n] = step
        after = {"steps": steps, **history._asdict()}
        heard = np.flatnonzero(history.heard)
        if len(heard) <= 2 * options.liars + 2:
            clipped = clipped_mean(problem, current, updates, fresh, sizes, history)
            return clipped._replace(memory=after)
        order = heard[np.argsort(krum_scores(steps[heard], options.liars), kind="stable")]
        good = [int(n) for n in order[: len(heard) - options.liars] if n in fresh]
        left_out = [n for n in fresh if n not in good]
        told = {"left_out": left_out} if left_out else {}
        if not good:
            return Step(dict(current), after, told)
        chosen = sorted(good) if self.several else good[:1]
        vectors = {n: flat(updates[n], current) for n in chosen}
        found = weighted_mean(current, vectors, capped_sizes(sizes, history.sizes))
        return Step(found, after, told)


AGGREGATOR = Krum("krum", several=False)
