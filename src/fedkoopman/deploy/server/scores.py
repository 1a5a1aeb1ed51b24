"""How good the shared model is, from what sites say of it, and which of that the server believes.

One score that is not finite would spoil the record for everybody; one such sum, the model's own
noise. As in `validation`, a check returns the reason for a refusal, or nothing.
"""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedkoopman.deploy.provisioning.roster import Roster
from fedkoopman.deploy.server.rounds import Answers
from fedkoopman.deploy.server.validation import MOST_SAMPLES
from fedkoopman.deploy.wire import Evaluated
from fedkoopman.errors import short
from fedkoopman.evaluation import Metrics, combined, scores_of
from fedkoopman.federation.algorithm import Problem
from fedkoopman.federation.messages import Arrays
from fedkoopman.koopman.agreement import is_moment
from fedkoopman.koopman.kind import Kind
from fedkoopman.koopman.rollout import HORIZONS, WAYS
from fedkoopman.koopman.staged import Staged
from fedkoopman.runs.results import METRICS

ERRORS = ("state_error", "observation_error", "held_error")
COUNTS = ("train_segments", "train_samples", "held_out_segments")
NOISES = ("observation_noise", "process_noise")
LONGEST, LARGEST, MOST = 1000, 1e100, 10**15
"""Of a site's own table: entries of a list, a number, a count."""
FAR = 1e6
"""A score so many times the median of the sites' is not averaged in."""


@dataclass(frozen=True)
class Scored:
    """What is known of a model.

    Attributes:
        scores: as they stand in a record; None where nobody had any.
        left_out: sites whose scores are not part of it.
        broken: by site, which rule its reply breaks.
    """

    scores: dict[str, float | None] | None = None
    left_out: tuple[str, ...] = ()
    broken: dict[str, str] = field(default_factory=dict)

    def completing(
        self, record: Mapping[str, Any], roster: Roster, seconds: float
    ) -> dict[str, Any]:
        """A slot's record with its model's scores; `unscored` are sites that are not part of it."""
        left_out = [site.identity for site in roster.sites if site.name in self.left_out]
        notes = {"unscored": left_out} if left_out else {}
        return {**record, **notes, **self.or_unknown(), "seconds": round(seconds, 3)}

    def or_unknown(self) -> dict[str, float | None]:
        """The scores, or that there are none."""
        return dict.fromkeys(METRICS) if self.scores is None else self.scores


def evaluated(answers: Answers, roster: Roster) -> list[Evaluated]:
    """What sites said of a model, in the order of the roster."""
    return [
        reply
        for site in roster.sites
        for reply in answers.replies.get(site.name, ())
        if isinstance(reply, Evaluated)
    ]


def scored(replies: Iterable[Evaluated], slot: int, base: str, problem: Problem) -> Scored:
    """The mean over all sites' windows.

    Arguments:
        replies: in the order of the roster, from sites that are told apart by their names.
        slot, base: the model that they were given.
    """
    broken, found = dict[str, str](), dict[str, tuple[Metrics, int]]()
    for reply in replies:
        reason = check_evaluated(
            reply, reply.site, slot, base, most=problem.test_trajectories, steps=problem.steps
        )
        if reason:
            broken[reply.site] = reason
        elif reply.windows:
            found[reply.site] = Metrics(**reply.metrics), reply.windows
    if not found:
        return Scored(broken=broken)
    believed, left_out = believed_scores(found)
    scores = scores_of(combined(list(believed.values())), problem.training)
    # What is not finite is null, as in the records of a local run.
    told = {name: value if math.isfinite(value) else None for name, value in scores.items()}
    return Scored(told, left_out, broken)


def check_table(table: Mapping[str, Any], horizon: int) -> str:
    """Why a site's own table cannot stand in the summary; empty if it can.

    Arguments:
        horizon: how many steps ahead it tells errors for.
    """
    if set(table) - {"left_out"} != {*ERRORS, *COUNTS, *NOISES, "dropped"}:
        return f"has the entries {short(sorted(table))}"
    for name in ERRORS:
        rows = table[name]
        if not isinstance(rows, list) or len(rows) != horizon:
            return f"has no {name} for {horizon} steps"
        if not all(row is None or _numbers(row, or_none=True) for row in rows):
            return f"has a {name} that is no list of numbers"
    for name in COUNTS:
        if type(table[name]) is not int or not 0 <= table[name] <= MOST:
            return f"has no count {name}"
    for name in NOISES:
        if not _numbers(table[name]):
            return f"has no numbers {name}"
    for name in ("dropped", "left_out"):
        told = table.get(name, [])
        if not _short(told) or not all(isinstance(one, str) for one in told):
            return f"has no list of what is {name.replace('_', ' ')}"
    return ""


def _numbers(values: Any, or_none: bool = False) -> bool:
    return _short(values) and all(
        (value is None and or_none) or (type(value) in (int, float) and 0 <= value <= LARGEST)
        for value in values
    )


def _short(values: Any) -> bool:
    return isinstance(values, list) and len(values) <= LONGEST


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
    usual = near({site: metrics for site, (metrics, _) in fine.items()})
    fine = {site: fine[site] for site in usual}
    return fine, tuple(site for site in scores if site not in fine)


def check_measured(measured: Arrays, kind: Kind) -> str:
    """Why a site's sums for the finished model cannot be; empty if they can."""
    dim, lifted = kind.state_dim, kind.components
    ways = {"ways": (len(WAYS), len(HORIZONS)), "reached": (len(HORIZONS),)}
    ways = ways if isinstance(kind, Staged) else {}
    names = {"states", "count", "moments", "counts", "spans", *ways}
    if set(measured) != names:
        return f"sends the sums {short(list(measured))}"
    steps = len(measured["counts"]) if measured["counts"].ndim else 0
    shapes = {
        "states": (dim,),
        "count": (1,),
        "moments": (steps, lifted, lifted),
        "counts": (steps,),
        "spans": (steps,),
        **ways,
    }
    for name, shape in shapes.items():
        if measured[name].shape != shape or measured[name].dtype != np.float64:
            return f"sends sums {name} of shape {measured[name].shape}"
    counts = [measured[name] for name in ("count", "counts", "spans")]
    if not steps or not all((c >= 1).all() and (c <= MOST_SAMPLES).all() for c in counts):
        return "sends sums of nothing, or of too much"
    if not all((measured[name] >= 0).all() for name in ways):
        return "sends sums of squares below zero"
    if not all(is_moment(one) for one in measured["moments"] if np.isfinite(one).all()):
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
    usual = near({site: _sizes(one) for site, one in fine.items()})
    return {site: fine[site] for site in usual} or dict(sums)


def near(values: Mapping[str, tuple[float, ...]]) -> list[str]:
    """Sites none of whose values is far above the median of all; of two sites, both."""
    if len(values) <= 2:
        return list(values)
    middle = [statistics.median(column) for column in zip(*values.values(), strict=True)]
    return [
        site
        for site, own in values.items()
        if all(v <= FAR * m or m == 0 for v, m in zip(own, middle, strict=True))
    ]


def _sizes(sums: Arrays) -> tuple[float, ...]:
    """How large a site says that its states, and the model's errors there, are on average."""
    state = float(np.abs(sums["states"]).max() / sums["count"][0])
    with np.errstate(over="ignore"):
        return state, float(np.trace(sums["moments"][0]) / sums["counts"][0])
