"""What becomes of a slot's updates: each is judged, those that pass make the next model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.deploy.server.rounds import Answers
from fedkoopman.deploy.server.validation import Accepted, Expected, Tensors, check_trained
from fedkoopman.deploy.wire import Trained, weights_of
from fedkoopman.federation.aggregation import aggregate
from fedkoopman.koopman.network import Architecture, Weights

__all__ = ["Update", "judged", "learned"]


@dataclass(frozen=True)
class Update:
    """What a site that was asked to train did.

    Attributes:
        samples: that waited there.
        answered: whether its data are spent, since what it sent was judged.
        reason: why it was rejected; empty if it was not.
        norm: ‖ω_n − ω‖.
        model: ω_n, if it was accepted.
    """

    site: str
    samples: int
    answered: bool = False
    reason: str = ""
    norm: float = np.nan
    model: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def judged(
    answers: Answers,
    asked: Mapping[str, int],
    slot: int,
    base: str,
    model: Tensors,
    recent: Sequence[Accepted],
) -> tuple[Update, ...]:
    """What every site that was asked did, in the order of the roster.

    Arguments:
        asked: samples by site, in that order.
        base: the digest of the model.
        model: what they were given.
        recent: accepted updates of earlier slots.
    """
    found = []
    for site, samples in asked.items():
        [reply] = answers.replies.get(site, (None,))
        if not isinstance(reply, Trained):
            found.append(Update(site, samples, reason=answers.broken.get(site, "")))
            continue
        verdict = check_trained(reply, Expected(site, slot, base, model, samples), recent)
        kept = {} if verdict.reason else reply.model
        found.append(Update(site, samples, not verdict.stale, verdict.reason, verdict.norm, kept))
    return tuple(found)


def learned(
    architecture: Architecture, weights: Weights, updates: Sequence[Update]
) -> tuple[Weights, tuple[Accepted, ...]]:
    """The next model, and what it is made of; without a usable update the model stays."""
    good = [one for one in updates if one.answered and not one.reason]
    if not good:
        return weights, ()
    models = [weights_of(architecture, one.model) for one in good]
    sizes = [one.samples for one in good]
    return aggregate(models, sizes), tuple(Accepted(one.norm, one.samples) for one in good)
