"""What the server believes of a site's replies: what fits, is finite and is of a plausible size.

A site is enrolled, and may still be broken or lie. One update that is not finite, or a thousand
times too large, would spoil the shared model for everybody; one such score, the record. Every rule
here is a pure function of the reply and of what the server knows itself, and gives the reason for a
refusal, or nothing.

What this cannot do: an update of ordinary size in a harmful direction passes, as does a claim of
twice the samples. Robust means are another matter.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.deploy.wire import Evaluated, Polled, Trained
from fedkoopman.errors import short
from fedkoopman.evaluation import Metrics

__all__ = [
    "RECENT",
    "Accepted",
    "Expected",
    "Verdict",
    "believed_scores",
    "believed_sums",
    "check_evaluated",
    "check_measured",
    "check_polled",
    "check_trained",
    "norm_bound",
]

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
FAR = 1e6
"""A score so many times the median of the sites' is not averaged in."""

Tensors = Mapping[str, NDArray[Any]]


class Accepted(NamedTuple):
    """An update that became part of the model."""

    norm: float
    """‖ω_n − ω‖."""
    samples: int


class Expected(NamedTuple):
    """What an update is measured against."""

    site: str
    slot: int
    base: str
    """Digest of the model that was sent."""
    model: Tensors
    """That model."""
    samples: int
    """As the site told before."""


class Verdict(NamedTuple):
    """What is thought of an update."""

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


def check_trained(reply: Trained, asked: Expected, recent: Sequence[Accepted]) -> Verdict:
    """Whether an update may become part of the model.

    Arguments:
        recent: accepted updates of earlier slots.
    """
    if reply.site != asked.site:
        return Verdict(f"speaks for {short(reply.site)}", stale=True)
    if reply.slot != asked.slot:
        return Verdict(f"sends an update for slot {reply.slot}, not {asked.slot}", stale=True)
    if reply.base != asked.base:
        return Verdict("sends an update of another model than it was given", stale=True)
    if reply.samples != asked.samples or reply.samples == 0:
        return Verdict(f"claims {reply.samples:,} samples where {asked.samples:,} waited")
    if reason := _other_form(reply.model, asked.model):
        return Verdict(reason)
    if not all(np.isfinite(leaf).all() for leaf in reply.model.values()):
        return Verdict("sends a model that is not finite")
    norm = _norm(reply.model, asked.model)
    bound = norm_bound(_norm(asked.model), reply.samples, recent)
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


def check_evaluated(
    reply: Evaluated, site: str, slot: int, base: str, *, most: int, steps: int
) -> str:
    """Why a site's scores cannot be; empty if they can. Those of a diverged model are NaN.

    Arguments:
        slot, base: the model that was sent.
        most: windows that a site scores on.
        steps: of a window.
    """
    if reply.site != site:
        return f"speaks for {short(reply.site)}"
    if reply.slot != slot or reply.base != base:
        return "sends scores of another model than it was given"
    if reply.windows > most:
        return f"claims {reply.windows:,} held-out windows where {most:,} are the most"
    if reply.windows and set(reply.metrics) != set(Metrics._fields):
        return f"sends the scores {short(list(reply.metrics))}"
    if any(value < 0 for value in reply.metrics.values()):
        return "sends scores below zero"
    if reply.windows and reply.metrics["horizon"] > steps:
        return f"claims {reply.metrics['horizon']:,.0f} valid steps of {steps:,}"
    return ""


def believed_scores(
    scores: Mapping[str, tuple[Metrics, int]],
) -> tuple[dict[str, tuple[Metrics, int]], tuple[str, ...]]:
    """The scores that are averaged, and the sites whose are not.

    Where a model diverges it does so for everybody, and the record says so. A site that alone has
    scores which are not finite, or a million times the median, is left out: the others' scores
    still say how good the model is. (A local run would average them in; this is the only case in
    which the records of honest sites differ.)
    """
    fine = {site: one for site, one in scores.items() if np.isfinite(one[0]).all()}
    if not fine:
        return dict(scores), ()
    if len(fine) > 2:
        middle = [
            statistics.median(column) for column in zip(*(m for m, _ in fine.values()), strict=True)
        ]
        fine = {
            site: one
            for site, one in fine.items()
            if all(v <= FAR * m or m == 0 for v, m in zip(one[0], middle, strict=True))
        }
    return fine, tuple(site for site in scores if site not in fine)


def check_measured(measured: Tensors, dim: int, lifted: int) -> str:
    """Why a site's sums for the finished model cannot be; empty if they can.

    Arguments:
        dim: of the state.
        lifted: of the lifted state.
    """
    names = {"states", "count", "moments", "counts", "spans"}
    if set(measured) != names:
        return f"sends the sums {short(list(measured))}"
    steps = len(measured["counts"]) if measured["counts"].ndim else 0
    shapes = {
        "states": (dim,),
        "count": (1,),
        "moments": (steps, lifted, lifted),
        "counts": (steps,),
        "spans": (steps,),
    }
    for name, shape in shapes.items():
        if measured[name].shape != shape or measured[name].dtype != np.float64:
            return f"sends sums {name} of shape {measured[name].shape}"
    counts = [measured[name] for name in ("count", "counts", "spans")]
    if not steps or not all((c >= 1).all() and (c <= MOST_SAMPLES).all() for c in counts):
        return "sends sums of nothing, or of too much"
    if not all(_is_moment(one) for one in measured["moments"] if np.isfinite(one).all()):
        return "sends moments that are none: not symmetric, or with squares below zero"
    return ""


def _is_moment(matrix: NDArray[Any]) -> bool:
    """Whether a matrix is symmetric and positive semi-definite, up to rounding."""
    size = float(np.abs(matrix).max())
    if size == 0.0:
        return True
    scaled = matrix / size
    return bool(
        np.allclose(scaled, scaled.T, rtol=0, atol=1e-9)
        and np.linalg.eigvalsh((scaled + scaled.T) / 2)[0] >= -1e-9
    )


def believed_sums(sums: Mapping[str, Tensors]) -> dict[str, Tensors]:
    """The sums that are added up: those that are finite and not a million times the median.

    If none are finite, all are: then it is the model that diverged.
    """
    fine = {
        site: one
        for site, one in sums.items()
        if all(np.isfinite(leaf).all() for leaf in one.values())
    }
    if len(fine) > 2:
        sizes = {site: _sizes(one) for site, one in fine.items()}
        middle = [statistics.median(column) for column in zip(*sizes.values(), strict=True)]
        near = {
            site: all(v <= FAR * m or m == 0 for v, m in zip(sizes[site], middle, strict=True))
            for site in fine
        }
        fine = {site: one for site, one in fine.items() if near[site]}
    return fine or dict(sums)


def _sizes(sums: Tensors) -> tuple[float, ...]:
    """How large a site says that its states, and the model's errors there, are on average."""
    state = float(np.abs(sums["states"]).max() / sums["count"][0])
    with np.errstate(over="ignore"):
        return state, float(np.trace(sums["moments"][0]) / sums["counts"][0])


def _other_form(model: Tensors, like: Tensors) -> str:
    if list(model) != list(like):
        return f"sends the tensors {short(list(model))}, not {short(list(like))}"
    for name, leaf in model.items():
        known = like[name]
        if leaf.shape != known.shape:
            return f"sends {name} of shape {leaf.shape}, not {known.shape}"
        if leaf.dtype != known.dtype:
            return f"sends {name} as {leaf.dtype}, not {known.dtype}"
    return ""


def _norm(model: Tensors, other: Tensors | None = None) -> float:
    """‖ω‖, or ‖ω − ω'‖, in float64; infinite where that overflows."""
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for name, leaf in model.items():
            wide = leaf.astype(np.float64)
            wide = wide if other is None else wide - other[name].astype(np.float64)
            total += float((wide**2).sum())
    return math.sqrt(total) if math.isfinite(total) else math.inf
