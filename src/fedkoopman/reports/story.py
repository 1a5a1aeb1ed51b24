"""What a run's directory tells, as plain data in the order of the questions that people ask.

Everything comes from the records that a run leaves: nothing is computed here but means and spreads.
With several runs, the first one's story is told and the others stand beside it.
"""

from collections.abc import Sequence
from pathlib import Path

from fedkoopman.reports.again import again_section
from fedkoopman.reports.benefit import benefit_section
from fedkoopman.reports.blocks import Story
from fedkoopman.reports.differences import difference_section, labels
from fedkoopman.reports.forecasts import accuracy_section, forecast_section
from fedkoopman.reports.learning import learning_section, raster_section
from fedkoopman.reports.quality import overview, quality_section
from fedkoopman.reports.run_files import RunFiles, read_run
from fedkoopman.reports.sites import sites_section
from fedkoopman.reports.spectrum import inputs_section, spectrum_section
from fedkoopman.reports.trust import contribution_section

__all__ = ["story", "story_of"]


def story(directories: Sequence[Path]) -> Story:
    """The story of runs in these directories, finished or still going on."""
    return story_of([read_run(Path(directory)) for directory in directories])


def story_of(runs: Sequence[RunFiles]) -> Story:
    """The story of runs that were read; the first one is told, the others stand beside it."""
    named = labels(list(runs))
    title, first = next(iter(named.items()))
    sections = [
        quality_section(first),
        difference_section(named),
        benefit_section(first),
        contribution_section(first),
        learning_section(named),
        raster_section(first),
        sites_section(first),
        forecast_section(named),
        spectrum_section(named),
        inputs_section(first),
        accuracy_section(named),
        again_section(first),
    ]
    return {
        "title": title,
        "lede": overview(first),
        "finished": all(run.summary is not None for run in runs),
        "sections": [one for one in sections if one is not None],
    }
