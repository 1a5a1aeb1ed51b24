"""What becomes of a segment: it is trained on, held out for evaluation, or dropped for a reason.

The rules are the same for sites that have recorded all they will and for sites that go on.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from fedkoopman.config.study import Study
from fedkoopman.data.segments import Segment
from fedkoopman.errors import InputError, unknown_name


class Fate(NamedTuple):
    """What becomes of a segment, and why it is dropped if it is."""

    kind: Literal["train", "held-out", "dropped"]
    reason: str = ""


def triage(
    study: Study, segment: Segment, states: np.ndarray, implausible: str, held_out: bool
) -> Fate:
    """Decide what becomes of a segment whose states are estimated.

    Arguments:
        implausible: why the estimator takes them for useless; empty if it does not.
    """
    observed = not np.isnan(segment.observations).all()
    reason = useless(study, len(states), observed, held_out) or implausible
    if reason:
        return Fate("dropped", reason)
    return Fate("held-out" if held_out else "train")


def useless(study: Study, samples: int, observed: bool, held_out: bool) -> str:
    """Why nothing can be learned from a segment, or scored with it; empty if it can."""
    least = least_samples(study, held_out)
    if samples < least:
        purpose = "evaluation" if held_out else "training"
        return f"{samples} samples, fewer than the {least} that {purpose} needs"
    return "" if observed else "nothing was observed"


def least_samples(study: Study, held_out: bool) -> int:
    """Samples of the shortest segment with a training pair or, held out, with a prediction."""
    ahead = study.evaluation.horizon if held_out else 1
    return study.network.window + study.network.depth * ahead


def holds_out(wanted: float | tuple[str, ...], place: int, names: Sequence[str]) -> bool:
    """Whether a segment is kept for evaluation; nothing that comes later changes it.

    A share takes every k-th segment: as many as the share of all that came so far, rounded down. So
    a site whose share does not make up one segment yet holds out none. A site that goes on
    recording cannot do better; where all is recorded, `held_out` then takes the last segment.

    Arguments:
        place: how many segments came before.
        names: of this segment, and of the one that it is a piece of.
    """
    if isinstance(wanted, tuple):
        return not set(wanted).isdisjoint(names)
    return math.floor((place + 1) * wanted + 1e-9) > math.floor(place * wanted + 1e-9)


def held_out(
    wanted: float | tuple[str, ...], names: Sequence[str], pieces_of: Sequence[str]
) -> tuple[bool, ...]:
    """For each segment of a site that has recorded all it will, whether it is held out.

    This is `holds_out`. So that there is something to score with, a share that is not 0 takes at
    least the last segment if there are two; a site with one segment keeps it for training.

    Arguments:
        pieces_of: the names of the uncut segments.
    """
    count = len(names)
    found = [
        holds_out(wanted, i, pair) for i, pair in enumerate(zip(names, pieces_of, strict=True))
    ]
    if not isinstance(wanted, tuple):
        if wanted > 0 and count > 1 and not any(found):
            found[-1] = True
        return tuple(found)
    known = {*names, *pieces_of}
    for name in wanted:
        if name not in known:
            raise unknown_name("segment in data.held_out", name, dict.fromkeys(pieces_of))
    if all(found):
        raise InputError(
            f"data.held_out names all {count} segment{'s' * (count > 1)}: leave one to learn from"
        )
    return tuple(found)
