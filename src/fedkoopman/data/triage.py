"""What becomes of a segment: it is trained on, held out for evaluation, or dropped for a reason.

Samples outside of the site's bounds are left out in any case, those that the study's gate holds for
too uncertain of training only, so that scores with and without a gate are of the same samples. What
is trained on may be cut by that into several stretches. Of a held-out segment the longest stretch
is scored on, if it is at least half of the segment.

The rules are the same for sites that have recorded all they will and for sites that go on.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.study import Study
from fedkoopman.data.segments import Segment
from fedkoopman.errors import InputError, unknown_name
from fedkoopman.estimation.left_out import kept_samples, longest_stretch, without


class Estimated(NamedTuple):
    """A segment and its states, with all that speaks against them."""

    segment: Segment
    states: NDArray[np.float64]
    """(T, d)."""
    useless: str = ""
    """Why the estimator takes the whole of it for useless; empty if it does not."""
    outside: NDArray[np.bool_] | None = None
    """Samples outside of the bounds, (T,); None: there are none."""
    example: str = ""
    """One of them, in words."""
    uncertain: NDArray[np.bool_] | None = None
    """Samples that are more uncertain than the gate allows, (T,); None: there are none."""
    std: NDArray[np.float64] | None = None
    """Standard deviations of the states without inputs, (T, d)."""


class Fate(NamedTuple):
    """What becomes of a segment."""

    kind: Literal["train", "held-out", "dropped"]
    reason: str
    """Why it is dropped; of a segment in use, how many samples are left out and why, beginning with
    their number, or nothing."""
    states: NDArray[np.float64]
    """What is used: to train on with rows of NaN between stretches, held out in one stretch."""
    observations: NDArray[np.float64] | None = None
    """Of a held-out segment, those of its states."""
    std: NDArray[np.float64] | None = None
    """Of a held-out segment, standard deviations of its states, where they are known."""


def triage(study: Study, found: Estimated, held_out: bool) -> Fate:
    """Decide what becomes of a segment whose states are estimated."""
    segment, states = found.segment, found.states
    observed = not np.isnan(segment.observations).all()
    reason = useless(study, len(states), observed, held_out) or found.useless
    if reason:
        return Fate("dropped", reason, states)
    nobody = np.zeros(len(states), bool)
    beyond = nobody if found.outside is None else found.outside
    doubted = nobody if found.uncertain is None or held_out else found.uncertain & ~beyond
    bad, least = beyond | doubted, least_samples(study, held_out)
    if held_out:
        place = longest_stretch(bad)
        used, seen = states[place], segment.observations[place]
        std = None if found.std is None else found.std[place]
        least = max(least, -(-len(states) // 2))
    else:
        used, seen, std = without(states, bad, least), None, None
    count = kept_samples(used)
    why = _reasons(study, found.example, int(beyond.sum()), int(doubted.sum()))
    if count < least:
        return Fate("dropped", f"{why}: no {least} samples in a row are left", states)
    reason = f"{len(states) - count} of {len(states)} samples are left out: {why}"
    if (also := len(states) - count - int(bad.sum())) > 0:
        where = "beside the longest stretch" if held_out else "in stretches that are too short"
        reason += f", and {also} {where}"
    kind: Literal["train", "held-out"] = "held-out" if held_out else "train"
    return Fate(kind, reason if bad.any() else "", used, seen, std)


def _reasons(study: Study, example: str, beyond: int, doubted: int) -> str:
    """Why samples are left out.

    Arguments:
        beyond, doubted: how many are outside of the bounds, and how many more are too uncertain.
    """
    parts = [f"{example} ({beyond} such)"] if beyond else []
    if doubted:
        gate = f"{study.estimation.gate:g} times as uncertain as usual"
        parts.append(f"{doubted} are more than {gate}")
    return ", ".join(parts)


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
