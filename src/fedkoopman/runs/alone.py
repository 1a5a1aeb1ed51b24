"""The model that a site would have by itself: the study's own algorithm, with this site only.

A model trained in another manner would say how good that manner is, not what the other sites
bring. So a site goes through the same slots with the same arrivals, and is asked what a server asks
that knows nobody else. It costs as much as the site's share of the run.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import ComputationError
from fedkoopman.estimation.left_out import kept_samples
from fedkoopman.federation.algorithm import Asked, Problem
from fedkoopman.federation.messages import Arrays
from fedkoopman.federation.options import BufferOptions
from fedkoopman.federation.slot import Judged, answer, ask, concluded, fault_of
from fedkoopman.federation.streams import subseed

__all__ = ["model_alone"]


def model_alone(
    problem: Problem,
    identity: int,
    segments: Sequence[NDArray[np.float64]],
    arrivals: Sequence[tuple[int, int]],
) -> Arrays | None:
    """The model after the last slot, by name; None if its training ends in no numbers.

    Arguments:
        problem: of the whole federation.
        identity: the site's place in it.
        segments: states (T_i, d).
        arrivals: slots, rising, each with the place in `segments` of what arrived then.
    """
    rate = problem.rate(identity)
    own = replace(
        problem,
        clients=1,
        segments=(float(problem.thresholds[identity]),),
        rates=(rate,),
        probabilities=(problem.probability(identity),),
        buffering=BufferOptions(buffer=1),  # nobody else is waited for
    )
    schemas = own.algorithm.messages(own)
    state = own.algorithm.begin(own)
    arrived, spent, coming = list[NDArray[np.float64]](), 0, list(arrivals)
    for slot in range(1, own.slots + 1):
        while coming and coming[0][0] <= slot:
            arrived.append(segments[coming.pop(0)[1]])
        samples = sum(map(kept_samples, arrived[spent:]))
        request = ask(own, state, slot, np.array([samples], np.int64)).get(0)
        if request is None:
            continue
        schema = schemas[request.kind]
        held = {"waiting": arrived[spent:], "arrived": arrived, "none": []}[schema.data]
        asked = Asked(slot, subseed(own.seed, "training", slot, identity), rate)
        reply = answer(own, request, held, asked)
        reason = fault_of(schemas, request, reply)
        judged = Judged(0, sum(map(kept_samples, held)), reply, reason)
        try:
            state, _ = concluded(own, state, slot, [judged])
        except ComputationError:
            return None
        if schema.spends:
            spent = len(arrived)
    return own.algorithm.model(own, state)
