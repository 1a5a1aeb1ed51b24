"""What the server believes of a site's answers: what fits, is finite and is of a plausible size.

A site is enrolled, and may still be broken or lie. One update that is not finite, or a thousand
times too large, would spoil the shared model for everybody. Every rule here is a pure function of
the reply and of what the server knows itself, and gives the reason for a refusal, or nothing.
Those for scores, and for what the finished model needs, are in `scores`.

What this cannot do: an update of ordinary size in a harmful direction passes, as does a claim of
twice the samples. Those are for the guard (`federation.guard`), which needs other sites' data.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedkoopman.deploy.wire import Answered, Polled, message_digest
from fedkoopman.errors import short
from fedkoopman.federation.messages import Arrays, Message, Schema
from fedkoopman.federation.slot import fault_of

RECENT = 20
"""Accepted updates that are remembered, to judge the next ones by."""
ENOUGH = 5
"""Fewer than so many of them say nothing."""
TIMES = 10.0
"""How many times larger than the median of the recent ones an update may be. In the pendulum
example honest ones reach 5.2 times the median (random policy: those with most data)."""
FIRST = 10.0
"""How many times larger than the model itself an update may be, at any time. In the pendulum
example the first updates change it by 0.07 to 0.13 of its norm, by 0.27 with twenty segments at a
time, by 0.31 with ten times the learning rate: this is generous, as nothing is known yet."""
MOST_SAMPLES = 10**9
"""Nobody waits with more."""
SAMPLES_PER_SEGMENT = 10**6
"""A site cuts longer ones (`data.longest`, 10,000 unless it says otherwise)."""


class Accepted(NamedTuple):
    """An update that became part of the server's state."""

    norm: float
    """‖ω_n − ω‖, ω being the arrays that the site was given."""
    samples: int


class Expected(NamedTuple):
    """What an answer is measured against."""

    site: str
    slot: int
    request: Message
    """What the site was asked."""
    samples: int
    """As the site told before."""
    schemas: Mapping[str, Schema]
    """Of the study's algorithm."""


class Verdict(NamedTuple):
    """What is thought of an answer."""

    reason: str = ""
    """Why it is refused; empty if it is not."""
    norm: float = math.nan
    stale: bool = False
    """Whether it answers another question than was asked, so that no data are spent."""


def check_polled(reply: Polled, slot: int, drawn: bool) -> str:
    """Why a site's count of its data cannot be; empty if it can.

    Arguments:
        slot: the one that was asked for.
        drawn: whether at most one segment arrives per slot.
    """
    buffered, segments = reply.buffered, reply.segments
    if reply.slot != slot:
        return f"counts for slot {reply.slot}, not {slot}"
    if (buffered == 0) != (segments == 0) or segments > buffered:
        return f"claims {buffered:,} samples in {segments:,} segments"
    if drawn and segments > slot:
        return f"claims {segments:,} segments in slot {slot}, though one arrives per slot"
    if buffered > MOST_SAMPLES or buffered > SAMPLES_PER_SEGMENT * segments:
        return f"claims {buffered:,} samples in {segments:,} segments, more than is plausible"
    return ""


def check_answered(reply: Answered, asked: Expected, recent: Sequence[Accepted]) -> Verdict:
    """Whether an answer may become part of the server's state."""
    if reply.site != asked.site:
        return Verdict(f"speaks for {short(reply.site)}", stale=True)
    if reply.slot != asked.slot:
        return Verdict(f"answers for slot {reply.slot}, not {asked.slot}", stale=True)
    if reply.base != message_digest(asked.request):
        return Verdict("answers another message than it was sent", stale=True)
    data = asked.schemas[asked.request.kind].data
    if data == "waiting" and (reply.samples != asked.samples or reply.samples == 0):
        return Verdict(f"claims {reply.samples:,} samples where {asked.samples:,} waited")
    if reply.samples > MOST_SAMPLES:
        return Verdict(f"claims {reply.samples:,} samples, more than is plausible")
    if reason := fault_of(asked.schemas, asked.request, reply.message):
        return Verdict(reason)
    if not asked.schemas[reply.message.kind].changes:
        return Verdict()
    given = {name: asked.request.arrays[name] for name in reply.message.arrays}
    norm = _norm(reply.message.arrays, given)
    bound = norm_bound(_norm(given), reply.samples, recent)
    if not norm <= bound:
        return Verdict(f"changes the model by {norm:.4g}, more than {bound:.4g}", norm)
    return Verdict(norm=norm)


def norm_bound(model: float, samples: int, recent: Sequence[Accepted]) -> float:
    """How large ‖ω_n − ω‖ may be.

    Updates grow with the number of steps, and so with the data, at most in proportion: a site that
    was away for long and comes back with a hundred segments is no liar.

    Arguments:
        model: ‖ω‖.
        samples: that the update was trained on.
        recent: accepted updates of earlier slots.
    """
    bound = FIRST * model
    if len(recent) < ENOUGH:
        return bound
    usual = statistics.median(one.norm for one in recent)
    size = statistics.median(one.samples for one in recent)
    return min(bound, TIMES * usual * max(1.0, samples / size))


def _norm(model: Arrays, other: Arrays | None = None) -> float:
    """‖ω‖, or ‖ω − ω'‖, in float64; infinite where that overflows."""
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for name, leaf in model.items():
            wide = leaf.astype(np.float64)
            wide = wide if other is None else wide - other[name].astype(np.float64)
            total += float((wide**2).sum())
    return math.sqrt(total) if math.isfinite(total) else math.inf
