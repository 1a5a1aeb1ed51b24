# %% [markdown]
# # Extend it
#
# A new system, sensor, policy or rule of aggregation is one object in one file. We write two and use them in a study; for all nine
# kinds of members, and for packages that bring them, see [Extending](../extending.md).

# %%
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import fedkoopman as fk

# %% [markdown]
# ## A system
#
# A function is enough: ẋ = f(x), written with `jax.numpy`, so that filters can take it apart.


# %%
def duffing(x, stiffness=1.0, damping=0.1):
    """An oscillator with two wells: ẍ = x − stiffness x³ − damping ẋ."""
    return jnp.stack([x[1], x[0] - stiffness * x[0] ** 3 - damping * x[1]])


system = fk.System.from_function(duffing, dim=2, dt=0.05, names=("place", "speed"))
x = fk.simulate(system, steps=200, initial=[0.1, 0.8])
z = fk.observe(fk.LinearSensor([[1.0, 0.0]]), x[1:], noise=0.01, seed=0)
e = fk.estimate(
    system, fk.LinearSensor([[1.0, 0.0]]), z,
    process_noise=1e-6, observation_noise=0.01, initial_mean=[0.0, 0.0], method="ukf-resampled",
)  # fmt: skip
print("error of the speed, which nobody sees:", np.abs(e.mean[:, 1] - x[1:, 1]).mean())
assert np.abs(e.mean[50:, 1] - x[51:, 1]).mean() < 0.1

# %% [markdown]
# ## A policy
#
# Who trains in a slot: here the one client at which most data wait. It must keep no state, as a resumed run calls it for the remaining
# slots only. In a study it is named by file and name.

# %%
Path("greedy.py").write_text(
    '''"""The client with the most data trains."""


def choose(situation):
    return [situation.buffered.argmax()] if situation.buffered.any() else []
'''
)
Path("study.toml").write_text('slots = 20\n[policy]\nname = "greedy.py:choose"\n')
run = fk.run(fk.Study.load("study.toml"))
print([record["active"] for record in run.records])
assert all(len(record["active"]) <= 1 for record in run.records)

# %% [markdown]
# What fails in a function of yours is told with its file and line. To give a member to others, put it into a package:
# [the example package](../../examples/extension/README.md) has one of each kind, and each has laws that a test runs over it.
