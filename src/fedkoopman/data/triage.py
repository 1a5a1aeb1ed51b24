"""What becomes of a segment: it is trained on, held out, or dropped for a reason."""

from typing import Literal, NamedTuple

import numpy as np

from fedkoopman.config.study import Study
from fedkoopman.data.segments import Segment

__all__ = ["Fate", "least_samples", "triage", "useless"]


class Fate(NamedTuple):
    """What becomes of a segment, and why it is dropped if it is."""

    kind: Literal["train", "held-out", "dropped"]
    reason: str = ""


def triage(
    study: Study, segment: Segment, states: np.ndarray, implausible: str, held_out: bool
) -> Fate:
    """Decide what becomes of a segment whose states are estimated.

    Arguments:
        states: (T, d).
        implausible: why the estimator takes them for useless; empty if it does not.
        held_out: whether the segment is kept for evaluation.
    """
    observed = not np.isnan(segment.observations).all()
    reason = useless(study, len(states), observed, held_out) or implausible
    if reason:
        return Fate("dropped", reason)
    return Fate("held-out" if held_out else "train")


def useless(study: Study, samples: int, observed: bool, held_out: bool) -> str:
    """Why nothing can be learned from a segment, or scored with it; empty if it can.

    Arguments:
        samples: how many it has.
        observed: whether anything was observed in it.
        held_out: whether it is kept for evaluation.
    """
    least = least_samples(study, held_out)
    if samples < least:
        purpose = "evaluation" if held_out else "training"
        return f"{samples} samples, fewer than the {least} that {purpose} needs"
    return "" if observed else "nothing was observed"


def least_samples(study: Study, held_out: bool) -> int:
    """Samples of the shortest segment with a training pair or, held out, with a prediction."""
    ahead = study.evaluation.horizon if held_out else 1
    return study.network.window + study.network.depth * ahead
