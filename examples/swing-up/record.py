"""Write the recordings of three laboratories, each of which lets the pendulum move elsewhere:

    python record.py FOLDER

`lab-low` about hanging, `lab-side` about horizontal, `lab-top` about upright; none sees a swing
from below to the top.
"""

import sys
from pathlib import Path

import numpy as np
from pendulum import STRONGEST, SYSTEM, seen

import fedkoopman as fk

RANGES = {"lab-low": (0.0, 1.8, 6.5), "lab-side": (0.5, 2.5, 5.5), "lab-top": (1.4, np.pi, 4.5)}
"""Of |θ| in each, and the fastest start; the rig stops a recording that leaves its range."""
NOISE = 0.001
SEGMENTS, STEPS, LEAST = 200, 30, 11

STUDY = """name = "swing-up"
slots = 100
[system]
name = "random-walk"  # nobody knows the equation
parameters = { states = ["cosine", "sine", "rate"], order = 0, dt = 0.05 }
[estimation]
method = "ekf"
[clients]
count = 3
probability = 0.9
[sites]
files = ["lab-low/site.toml", "lab-side/site.toml", "lab-top/site.toml"]
[network]
kind = "spectral"
components = 20
degree = 2
horizon = 8
inputs = ["torque"]
bilinear = true
[segments]
steps = 10
[policy]
segments = 1
"""
SITE = """name = "{name}"
[data]
files = ["data.csv"]
columns = ["cosine", "sine", "rate"]
inputs = ["torque"]
[sensor]
kind = "identity"
[noise]
observation = 1e-6
process = {{ diagonal = [0.1, 0.1, 1.0] }}  # far above the noise: observations are handed on
"""


def main(folder: Path) -> None:
    """Write study, site files and recordings."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(STUDY)
    for name, (least, most, fastest) in RANGES.items():
        rows = ["segment,cosine,sine,rate,torque"]
        for segment in range(SEGMENTS):
            x = np.array([random.choice([-1, 1]) * random.uniform(least, most), 0.0])
            x[1] = random.uniform(-fastest, fastest)
            u = np.repeat(random.uniform(-STRONGEST, STRONGEST, (STEPS // 2, 1)), 2, axis=0)
            path = fk.simulate(SYSTEM, STEPS, initial=x, inputs=u)[1:]
            apart = np.abs(np.mod(path[:, 0] + np.pi, 2 * np.pi) - np.pi)
            inside = np.cumprod((apart >= least) & (apart <= most)).sum()
            if inside < LEAST:
                continue
            z = seen(path[:inside]) + NOISE * random.normal(size=(inside, 3))
            rows += [
                ",".join([str(segment), *(f"{v:.6f}" for v in (*row, *torque))])
                for row, torque in zip(z, u[:inside], strict=True)
            ]
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "data.csv").write_text("\n".join(rows) + "\n")
        (folder / name / "site.toml").write_text(SITE.format(name=name))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python record.py FOLDER")
    main(Path(sys.argv[1]))
