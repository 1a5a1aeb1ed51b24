"""How well the gates are found from the voltage: estimated states beside those of record.py.

python compare.py [STUDY.toml]
"""

import sys
from pathlib import Path

import numpy as np

import fedkoopman as fk
from fedkoopman.config.parts import site_files
from fedkoopman.data.segments import segments
from fedkoopman.runs.site_preparation import prepared_sites


def errors(study: fk.Study, skip: int = 0) -> dict[str, np.ndarray]:
    """Root mean square errors (7,) of the states that sites train on or hold out, by site.

    Arguments:
        skip: milliseconds at the start of each recording that do not count.
    """
    sites = prepared_sites(study)
    found = {}
    for file, site in zip(site_files(study), sites.sites, strict=True):
        if site.dropped:
            raise SystemExit(f"{site.name} dropped {', '.join(site.dropped)}")
        kept = {one.name: one.states for one in site.held_out}
        train = iter(site.train)
        wrong = []
        for segment in segments(file, float(sites.system.dt)):
            states = kept[segment.name] if segment.name in kept else next(train)
            truth = np.load(study.root / "truth" / site.name / f"{segment.name}.npy")
            first = round(segment.start_time) - 1
            wrong.append((states - truth[first : first + len(states)])[skip:])
        found[site.name] = np.sqrt(np.mean(np.concatenate(wrong) ** 2, axis=0))
    return found


def main(study: Path) -> None:
    """Print two lines per site."""
    names = fk.systems.YNI().names
    print(f"{'root mean square error':34}" + "".join(f"{name:>8}" for name in names))
    for skip in (0, 100):
        for site, values in errors(fk.Study.load(study), skip).items():
            title = f"{site} after {skip} ms" if skip else site
            print(f"{title:34}" + "".join(f"{value:8.4f}" for value in values))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "study.toml"))
