"""All that a site observed, as it was recorded: whole segments at their own instants, in memory.

For files larger than memory, and for segments on a study's grid, see `segments`.
"""

from dataclasses import dataclass

import numpy as np

from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.site_sections import AUTO
from fedkoopman.data.row_blocks import open_recording, wanted_of
from fedkoopman.data.segments import recorded
from fedkoopman.paths import shown

__all__ = ["REGULAR", "Observations", "columns_taken", "observations_of"]

REGULAR = 0.01
"""Sampling intervals this close to each other, relatively, count as one regular interval."""


@dataclass(frozen=True)
class Observations:
    """What a site observed.

    Attributes:
        source: the file's name, for messages.
        trajectories: arrays (T_i, m), NaN where an observation is missing.
        labels: the name of each trajectory; None for one trajectory without a name.
        times: the sampling instants (T_i,) of each trajectory, where the file has them.
    """

    source: str
    trajectories: tuple[np.ndarray, ...]
    labels: tuple[str, ...] | None = None
    times: tuple[np.ndarray, ...] | None = None

    @property
    def dim(self) -> int:
        """Number m of observed components."""
        return int(self.trajectories[0].shape[1])

    def where(self, index: int) -> str:
        """Names one trajectory, for messages."""
        return (
            self.source if self.labels is None else f"segment {self.labels[index]} of {self.source}"
        )

    def intervals(self) -> float | tuple[np.ndarray, ...] | None:
        """Sampling intervals: one number if regular, else an array (T_i,) per trajectory.

        None without times, or without two of them in any trajectory. The instant before a
        trajectory's first sample is not in the file: the interval that leads to the first sample
        is the trajectory's median one, or the file's where it has a single sample.
        """
        steps = [np.diff(t) for t in self.times or ()]
        together = np.concatenate([*steps, []])
        if not together.size:
            return None
        mean = float(np.mean(together))
        if np.all(np.abs(together - mean) <= REGULAR * mean):
            return mean
        usual = np.median(together)
        return tuple(np.concatenate([[np.median(d) if len(d) else usual], d]) for d in steps)


def observations_of(site: SiteFile) -> Observations:
    """Read the one file of a site, as `config.sensor_file` makes them."""
    [path] = site.files()
    found = list(recorded(site))
    labels = tuple(rows.label for rows in found if rows.label is not None)
    times = tuple(rows.times for rows in found if rows.times is not None)
    data = site.data
    return Observations(
        shown(path),
        tuple(rows.observed * data.scale + np.asarray(data.shift) for rows in found),
        labels or None,
        times or None,
    )


def columns_taken(site: SiteFile, otherwise: str = 'data.{} = ""') -> str:
    """What is to be told of columns that serve as segments or instants though nobody named them.

    Arguments:
        otherwise: how to do without, with braces in place of "segment" or "time".
    """
    uses = {"segment": "tells segments apart", "time": "gives the sampling instants"}
    asked = [key for key in uses if getattr(site.data, key) == AUTO]
    for path in site.files() if asked else ():
        wanted = wanted_of(open_recording(path, site.data.columns), site.data, shown(path))
        taken = [key for key in asked if getattr(wanted, key)]
        if taken:
            said = " and ".join(f"the column {key!r} {uses[key]}" for key in taken)
            remedy = " or ".join(otherwise.format(key) for key in taken)
            return f"in {shown(path)} {said}: give {remedy} to do without"
    return ""
