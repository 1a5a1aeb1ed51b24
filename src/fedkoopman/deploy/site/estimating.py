"""From a site's files to estimated states: what `intake` has computed, in this process or another.

Nothing is kept between calls but the system and the sensor; everything else is an argument, so that
a worker that was ended between two calls is not missed.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from fedkoopman.config.parts import check_site, sensor_for, system_of
from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.data.beliefs import Knowledge, beliefs_of
from fedkoopman.data.estimator import Estimator
from fedkoopman.data.filter_beliefs import ENOUGH, Beliefs
from fedkoopman.data.segments import segments
from fedkoopman.data.triage import Estimated, holds_out
from fedkoopman.deploy.site.intake import names_of, with_files
from fedkoopman.survey.survey import survey
from fedkoopman.systems import System

__all__ = ["Estimating", "site_system"]


class Estimating:
    """One site's estimation of states. Where `files` are given, the site has these only."""

    def __init__(self, site: SiteFile, study: Study) -> None:
        """What does not fit together is refused."""
        self.site, self.study = site, study
        self.system = site_system(study, site)
        self.sensor = sensor_for(site, self.system.dim)
        self.dt = float(self.system.dt)

    def survey(self) -> tuple[list[str], int]:
        """Names of the held-out segments of all that is recorded, and how many segments it is."""
        facts = survey(self.site, self.dt).segments
        return list(dict.fromkeys(one.name for one in facts if one.held_out)), len(facts)

    def first_held_out(self, files: Sequence[str]) -> tuple[list[str], int]:
        """Which of the first segments are not to be learned from, and the samples of the others,
        as far as noise is estimated from them."""
        site, held, count = with_files(self.site, files), list[str](), 0
        for place, segment in enumerate(segments(site, self.dt)):
            names = names_of(segment, segment.file, segment.file.stem)
            if holds_out(site.data.held_out, place, (*names, segment.name)):
                held.append(segment.name)
            else:
                count += len(segment.observations)
            if count >= ENOUGH:
                break
        return held, count

    def learn(self, files: Sequence[str] | None, held_out: Sequence[str]) -> Beliefs:
        """Noise and initial state: as declared or, where that is "auto", as estimated.

        Arguments:
            held_out: names of segments that teach nothing.
        """
        known = Knowledge(with_files(self.site, files), self.sensor, held_out)
        return beliefs_of(self.study, self.system, known, lambda *_: None)

    def estimated(
        self, beliefs: Beliefs, files: Sequence[str] | None, skip: int
    ) -> Iterator[Estimated]:
        """Segments with their states, but not the first `skip` of them."""
        stream = islice(segments(with_files(self.site, files), self.dt), skip, None)
        return Estimator(self.study, self.system, self.sensor, self.site, beliefs)(stream)


def site_system(study: Study, site: SiteFile) -> System:
    """The study's system, as a site alone sees it; what does not fit the site is refused.

    Other sites' files are elsewhere, so that the study is made one of this site only.
    """
    files = (str(site.path.absolute()),)
    alone = Study.from_dict(
        {"system": study.system, "sites": {"files": files}, "clients": {"count": 1}}, study.folder
    )
    system = system_of(alone)
    check_site(alone, site, system)
    return system
