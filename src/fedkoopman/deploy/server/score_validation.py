"""What the server believes of sites' scores, and of the sums that the finished model needs.

One score that is not finite would spoil the record for everybody; one such sum, the model's own
noise. As in `validation`, a rule gives the reason for a refusal, or nothing.
"""

import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.deploy.server.validation import MOST_SAMPLES
from fedkoopman.deploy.wire import Evaluated
from fedkoopman.errors import short
from fedkoopman.evaluation import Metrics
from fedkoopman.federation.messages import Arrays

FAR = 1e6
"""A score so many times the median of the sites' is not averaged in."""


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


def check_measured(measured: Arrays, dim: int, lifted: int) -> str:
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


def believed_sums(sums: Mapping[str, Arrays]) -> dict[str, Arrays]:
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


def _sizes(sums: Arrays) -> tuple[float, ...]:
    """How large a site says that its states, and the model's errors there, are on average."""
    state = float(np.abs(sums["states"]).max() / sums["count"][0])
    with np.errstate(over="ignore"):
        return state, float(np.trace(sums["moments"][0]) / sums["counts"][0])
