# %% [markdown]
# # Your own data
#
# Two sites have recorded the same oscillator, each in its own way, as CSV files. We write the files, describe them, let the program
# check them, and learn one model. Replace the first cell by your own files, and the rest stays.
#
# This page is a Python file with cells, `docs/tutorials/own_data.py`; `make test-slow` runs it.

# %%
from pathlib import Path

import numpy as np

import fedkoopman as fk
from fedkoopman.cli import main as fedkoopman

home = Path("oscillator")
random = np.random.default_rng(0)
oscillator = fk.systems.VanDerPol(dt=0.02)


def record(site: str, column: int, noise: float, unit: float, lost: float) -> None:
    """Ten swings at a site: one state, in the site's own unit, with noise and lost samples."""
    folder = home / site / "data"
    folder.mkdir(parents=True)
    for n in range(10):
        x = fk.simulate(oscillator, steps=300, seed=100 * column + n)[1:, column]
        z = (x + noise * random.normal(size=len(x))) / unit
        cells = ["" if random.uniform() < lost else f"{value:.5f}" for value in z]
        rows = [f"{0.02 * k:.2f},{cell}" for k, cell in enumerate(cells)]
        (folder / f"swing-{n}.csv").write_text("time,reading\n" + "\n".join(rows) + "\n")


record("left", column=0, noise=0.1, unit=0.01, lost=0.05)  # the place, in hundredths
record("right", column=1, noise=0.2, unit=1.0, lost=0.0)  # the speed

# %% [markdown]
# What all share is the study: the equations, the sampling interval, and how to learn. What is private to a site is its site file: which
# columns, how they become the sensor's units, which states the sensor sees, and how large its noise is. `"auto"` has it estimated.

# %%
(home / "dynamics.py").write_text(
    """import jax.numpy as jnp

def oscillator(x, a=2.0):
    return jnp.stack([x[1], a * (1 - x[0] ** 2) * x[1] - x[0]])
"""
)
(home / "study.toml").write_text(
    """name = "oscillator"
slots = 60
[system]
name = "dynamics.py:oscillator"
states = ["place", "speed"]
parameters = { dt = 0.02 }
[sites]
files = ["left/site.toml", "right/site.toml"]
[clients]
count = 2
[estimation]
method = "ukf-resampled"
[network]
kind = "edmd"
degree = 5
[policy]
segments = 2
"""
)
for site, matrix, scale in (("left", "[[1, 0]]", 0.01), ("right", "[[0, 1]]", 1.0)):
    (home / site / "site.toml").write_text(
        f"""name = "{site}"
[data]
files = "data/*.csv"
columns = ["reading"]
scale = {scale}
[sensor]
kind = "linear"
matrix = {matrix}
[noise]
observation = "auto"
process = 1e-6
"""
    )

# %% [markdown]
# `fedkoopman check oscillator/study.toml` reads everything and says what does not fit. The same from Python:

# %%
assert fedkoopman(["check", str(home / "study.toml")]) == 0

# %% [markdown]
# Learning: on the command line `fedkoopman run oscillator/study.toml --out runs/oscillator`.

# %%
run = fk.run(fk.Study.load(home / "study.toml"))
model = run.model
truth = fk.simulate(oscillator, steps=300, seed=999)
forecast = model.simulate(truth[0], n_steps=50)
held = np.abs(truth[0] - truth[1:51]).mean()
print("error over 50 steps:", np.abs(forecast - truth[1:51]).mean(), "holding the first:", held)
assert np.abs(forecast - truth[1:51]).mean() < held / 3

# %% [markdown]
# The model is a file: `model.save("oscillator.safetensors")`. [Using a learned model](../models.md) says what to do with it, and
# [Your own data](../own-data.md) has every key of a site file.
