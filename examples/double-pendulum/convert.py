"""Turn the three measured trials of a double pendulum into what three sites would record.

python convert.py TRIALS DIR

TRIALS is the folder or the zip of Myers et al. (README.md says where to get it); without it, the
environment variable FEDKOOPMAN_DOUBLE_PENDULUM is looked at. Copies the study and the site files
into DIR and writes each site's angles beside them, in degrees, a hundred a second.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path

import numpy as np

from fedkoopman.errors import InputError
from fedkoopman.paper.double_pendulum_data import INTERVAL, read_trials

HERE = Path(__file__).parent
COLUMNS = {
    "camera": ("upper_deg", "lower_deg"),
    "encoders": ("upper_deg", "elbow_deg"),
    "elbow": ("elbow_deg", "lower_deg"),
}
"""Sites, in the order of the trials, and the two angles that each records."""
EVERY = 5
"""Samples of a trial per recorded one: from 500 to 100 a second."""
SWING = 200
"""Recorded samples per segment."""


def table(states: np.ndarray, columns: tuple[str, str], start: float, seconds: float) -> str:
    """A part of a trial as CSV, its segments numbered.

    Arguments:
        states: the trial's, (T, 4); of these the angles are used.
        columns: which two angles.
        start: the first instant, in seconds.
        seconds: how long the part is; whole segments are taken.
    """
    first = round(start / INTERVAL)
    count = min(round(seconds / INTERVAL), len(states) - first) // (EVERY * SWING) * SWING
    rows = first + EVERY * np.arange(count)
    upper, lower = np.degrees(states[rows][:, [0, 2]]).T
    for angle in (upper, lower):  # the tracker counts whole turns, which a standing start does not
        angle -= 360.0 * np.round(np.median(angle) / 360.0)
    angles = {"upper_deg": upper, "lower_deg": lower, "elbow_deg": lower - upper}
    lines = [f"swing,time,{','.join(columns)}\n"]
    for k, row in enumerate(rows):
        cells = ",".join(f"{angles[name][k]:.3f}" for name in columns)
        lines.append(f"{k // SWING + 1:02},{row * INTERVAL:.3f},{cells}\n")
    return "".join(lines)


def main() -> None:
    """Write everything."""
    say = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    usual = os.environ.get("FEDKOOPMAN_DOUBLE_PENDULUM")
    say.add_argument("trials", nargs="?" if usual else None, default=usual, type=Path)
    say.add_argument("directory", type=Path)
    say.add_argument("--start", type=float, default=40.0, help="seconds; before, links turn over")
    say.add_argument("--seconds", type=float, default=24.0, help="that are used of each trial")
    given = say.parse_args()
    try:
        trials = read_trials(Path(given.trials))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    given.directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "study.toml", given.directory)
    for states, (site, columns) in zip(trials, COLUMNS.items(), strict=True):
        folder = given.directory / site
        folder.mkdir(exist_ok=True)
        shutil.copy(HERE / site / "site.toml", folder)
        text = table(states, columns, given.start, given.seconds)
        (folder / "angles.csv").write_text(text, encoding="utf-8")
    print(f"wrote angles.csv for each of {', '.join(COLUMNS)}")
    print(f"next: fedkoopman check {given.directory / 'study.toml'}")


if __name__ == "__main__":
    main()
