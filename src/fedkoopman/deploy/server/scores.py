"""How good the shared model is, from what sites say of it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedkoopman.deploy.provisioning.roster import Roster
from fedkoopman.deploy.server.rounds import Answers
from fedkoopman.deploy.server.score_validation import believed_scores, check_evaluated
from fedkoopman.deploy.wire import Evaluated
from fedkoopman.errors import short
from fedkoopman.evaluation import Metrics, combined, scores_of
from fedkoopman.federation.algorithm import Problem
from fedkoopman.runs.results import METRICS

__all__ = ["Scored", "check_table", "evaluated", "scored"]

ERRORS = ("state_error", "observation_error", "held_error")
COUNTS = ("train_segments", "train_samples", "held_out_segments")
NOISES = ("observation_noise", "process_noise")
LONGEST, LARGEST, MOST = 1000, 1e100, 10**15
"""Of a site's own table: entries of a list, a number, a count."""


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
    if set(table) != {*ERRORS, *COUNTS, *NOISES, "dropped"}:
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
    dropped = table["dropped"]
    if not _short(dropped) or not all(isinstance(one, str) for one in dropped):
        return "has no list of dropped segments"
    return ""


def _numbers(values: Any, or_none: bool = False) -> bool:
    return _short(values) and all(
        (value is None and or_none) or (type(value) in (int, float) and 0 <= value <= LARGEST)
        for value in values
    )


def _short(values: Any) -> bool:
    return isinstance(values, list) and len(values) <= LONGEST
