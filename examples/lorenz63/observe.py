"""Write what a site would observe of a Lorenz63: two of three states, noisily, with gaps.

python examples/lorenz63/observe.py observations.csv
"""

import sys
from pathlib import Path

import numpy as np

import fedkoopman as fk

system = fk.systems.Lorenz63(dt=0.02)
sensor = fk.LinearSensor(np.eye(3)[[0, 2]])
x = fk.simulate(system, steps=500, seed=0)
z = fk.observe(sensor, x[1:], noise=1.0, seed=0)

lines = ["time,first,third"]
for k, (first, third) in enumerate(z, start=1):
    gone = 200 <= k < 225  # a sensor that falls silent for half a second leaves its cells blank
    cells = "," if gone else f"{first:.4f},{third:.4f}"
    lines.append(f"{k * system.dt:.2f},{cells}")

path = Path(sys.argv[1])
path.write_text("\n".join(lines) + "\n", encoding="utf-8")
print(f"wrote {path}: {len(z)} observations, 25 of them missing")
