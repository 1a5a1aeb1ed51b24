"""What all sites have, told before anything is computed; refused if nobody can learn from it."""

from collections.abc import Callable, Sequence
from functools import partial

from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.errors import InputError
from fedkoopman.paths import shown
from fedkoopman.survey.survey import SegmentFacts, Survey, survey
from fedkoopman.systems import System

__all__ = ["surveys_of", "too_short", "useless"]


def surveys_of(
    study: Study, system: System, files: Sequence[SiteFile], tell: Callable[[str, int, int], None]
) -> list[Survey]:
    """The sites' data in figures; refused where it leaves nothing to train on or to score with."""
    found, scored = [], False
    for site in files:
        one = survey(site, float(system.dt), partial(tell, f"reading {site.name}"))
        found.append(one)
        good = [facts for facts in one.segments if not useless(study, facts)]
        scored = scored or any(facts.held_out for facts in good)
        if all(facts.held_out for facts in good):
            raise InputError(
                f"{shown(site.path)}: of {len(one.segments)} segments, {len(one.held_out)} held "
                f"out, none is left to train on with the {_least(study, False)} samples that it "
                "takes: record longer ones, or hold out fewer"
            )
    if not scored:
        raise InputError(
            f"no site holds out a segment of the {_least(study, True)} samples that "
            "evaluation.horizon takes: record more than one, or give data.held_out a share"
        )
    return found


def useless(study: Study, facts: SegmentFacts) -> str:
    """Why nothing can be learned from a segment, or scored with it; empty if it can."""
    reason = too_short(study, facts.samples, facts.held_out)
    return reason or ("nothing was observed" if facts.missing == 1 else "")


def too_short(study: Study, samples: int, held_out: bool) -> str:
    """Why a segment of so many samples is of no use; empty if it is."""
    least = _least(study, held_out)
    if samples >= least:
        return ""
    purpose = "evaluation" if held_out else "training"
    return f"{samples} samples, fewer than the {least} that {purpose} needs"


def _least(study: Study, held_out: bool) -> int:
    """Samples of the shortest segment with a training pair or, held out, with a prediction."""
    ahead = study.evaluation.horizon if held_out else 1
    return study.network.window + study.network.depth * ahead
