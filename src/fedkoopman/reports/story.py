"""What a run's directory tells, as plain data in the order of the questions that people ask.

Everything comes from the records that a run leaves: nothing is computed here but means and spreads.
With several runs, the first one's story is told and the others stand beside it.
"""

from collections.abc import Sequence
from pathlib import Path

from fedkoopman.reports.blocks import Story
from fedkoopman.reports.run_files import RunFiles, read_run

__all__ = ["story", "story_of"]


def story(directories: Sequence[Path]) -> Story:
    """The story of runs in these directories, finished or still going on."""
    return story_of([read_run(Path(directory)) for directory in directories])


def story_of(runs: Sequence[RunFiles]) -> Story:
    """The story of runs that were read; the first one is told, the others stand beside it."""
    first = runs[0]
    return {
        "title": str(first.study.get("name", "unnamed study")),
        "lede": "",
        "finished": all(run.summary is not None for run in runs),
        "sections": [],
    }
