"""What is known of an update before it counts: its length, its likeness to others, its harm.

Opinions of single judges are not believed. Of all judges the lower median counts, so that less than
half of them can lie without making an update look worse, or better, than an honest judge says.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.aggregators.history import lower_median
from fedkoopman.federation.messages import Arrays, Message

__all__ = ["Evidence", "copied", "hash_of", "likeness", "opinion", "sketch"]

BUCKETS = 4096
"""Numbers of a sketch. A step with no more entries is its own sketch; in a longer one, entries that
are drawn together are added up with random signs, which keeps angles to about 1.6 %."""
JUDGES = 2
"""Fewer say nothing: a single one may lie."""
SAME = 1e-3
"""Two steps are the same if they differ by less than this share of their length: float32 does not
give back exactly what was added to it."""


@dataclass(frozen=True)
class Evidence:
    """What speaks for or against one site's update.

    Attributes:
        length: ‖δ‖, of what it changes.
        samples: from which the site says that it comes.
        harm: logarithm of the factor by which it changes the loss at the other sites; NaN if nobody
            could judge it.
        judges: how many judged it.
        distance: from the others' latest updates, in usual lengths; NaN where there are none.
        cosine: of the angle to their mean; NaN likewise.
        copy: whether it repeats what the site sent before.
    """

    length: float
    samples: int
    harm: float = math.nan
    judges: int = 0
    distance: float = math.nan
    cosine: float = math.nan
    copy: bool = False


def opinion(place: int, own: int, judged: Mapping[int, Message]) -> tuple[float, int]:
    """The harm of an update as the other sites see it, and how many of them could judge.

    Arguments:
        place: of the update among those that were judged.
        own: the client that sent it, who is not asked.
        judged: replies of judges, by client.
    """
    harms = []
    for judge, reply in judged.items():
        losses, current = reply.arrays["losses"], float(reply.arrays["current"][0])
        usable = reply.arrays["windows"][0] > 0 and math.isfinite(current) and current > 0
        if judge == own or not usable or place >= len(losses):
            continue
        harms.append(_log(float(losses[place]) / current))
    return lower_median(harms) if len(harms) >= JUDGES else math.nan, len(harms)


def sketch(step: NDArray[np.float64]) -> NDArray[np.float64]:
    """A step in at most `BUCKETS` numbers, with nearly the same angles."""
    if len(step) <= BUCKETS:
        return step
    random = np.random.default_rng(len(step))
    bucket = random.integers(BUCKETS, size=len(step))
    sign = random.choice((-1.0, 1.0), size=len(step))
    return np.bincount(bucket, step * sign, BUCKETS).astype(np.float64)


def likeness(
    own: NDArray[np.float64], others: Sequence[NDArray[np.float64]], usual: float
) -> tuple[float, float]:
    """Distance from the coordinate median of the others' steps, and cosine to their mean.

    Arguments:
        own, others: sketches.
        usual: the usual length of a step.
    """
    if not others or not 0 < usual < math.inf:
        return math.nan, math.nan
    mean, middle = np.mean(others, axis=0), np.median(others, axis=0)
    scale = float(np.linalg.norm(own) * np.linalg.norm(mean))
    distance = float(np.linalg.norm(own - middle)) / usual
    return distance, float(own @ mean) / scale if scale > 0 else math.nan


def copied(own: NDArray[np.float64], earlier: Sequence[NDArray[np.float64]]) -> bool:
    """Whether a step is one that the same site took before."""
    length = float(np.linalg.norm(own))
    return length > 0 and any(np.linalg.norm(own - one) < SAME * length for one in earlier)


def hash_of(arrays: Arrays) -> float:
    """52 bits of a hash, as a number that float64 holds exactly; never 0."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return float(int.from_bytes(found.digest()[:8], "big") % 2**52 + 1)


def _log(ratio: float) -> float:
    """log, where what is not finite is the worst there is."""
    if not math.isfinite(ratio):
        return math.inf
    return math.log(ratio) if ratio > 0 else -math.inf


def told(evidence: Evidence) -> dict[str, Any]:
    """The numbers for a record; what is not finite is null."""

    def number(value: float) -> float | None:
        return float(f"{value:.4g}") if math.isfinite(value) else None

    return {
        "distance": number(evidence.distance),
        "cosine": number(evidence.cosine),
        "harm": number(math.exp(min(evidence.harm, 200.0))),
        "judges": evidence.judges,
    }
