"""What all sites have, told before anything is computed; refused if nobody can learn from it."""

from collections.abc import Callable, Sequence
from functools import partial

from fedkoopman.errors import InputError
from fedkoopman.studies.config import Study
from fedkoopman.studies.site_file import SiteFile
from fedkoopman.studies.source_file import shown
from fedkoopman.studies.survey import SegmentFacts, Survey, survey
from fedkoopman.systems import System

__all__ = ["least_samples", "surveys_of", "usable"]


def surveys_of(
    study: Study, system: System, files: Sequence[SiteFile], tell: Callable[[str, int, int], None]
) -> list[Survey]:
    """The sites' data in figures; refused where it leaves nothing to train on or to score with."""
    found = []
    for site in files:
        one = survey(site, float(system.dt), partial(tell, f"reading {site.name}"))
        found.append(one)
        if not any(usable(study, facts) and not facts.held_out for facts in one.segments):
            raise InputError(
                f"{shown(site.path)}: of {len(one.segments)} segments, {len(one.held_out)} held "
                f"out, none is left to train on with the {least_samples(study)} samples that it "
                "takes: record longer ones, or hold out fewer"
            )
    if not any(usable(study, facts) and facts.held_out for one in found for facts in one.segments):
        raise InputError(
            "no site holds out a segment: record more than one, or give data.held_out a share"
        )
    return found


def least_samples(study: Study) -> int:
    """Samples of the shortest segment with a training pair."""
    return study.network.window + study.network.depth


def usable(study: Study, facts: SegmentFacts) -> bool:
    """Whether a segment is long enough, and something in it was observed."""
    return facts.samples >= least_samples(study) and facts.missing < 1
