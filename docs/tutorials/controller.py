# %% [markdown]
# # A controller from a learned model
#
# A model that was learned with its inputs can steer the system. Two laboratories' recordings of a pendulum with a motor, one linear
# model of both, and predictive control that moves the pendulum and holds it, within the motor's bounds. It needs
# `pip install 'fedkoopman[control]'`.

# %%
import jax.numpy as jnp
import numpy as np

import fedkoopman as fk

random = np.random.default_rng(0)
pendulum = fk.System.from_function(
    lambda x, u: jnp.stack([x[1], -9.8 * jnp.sin(x[0]) - 0.3 * x[1] + u[0]]),
    dim=2,
    dt=0.05,
    names=("angle", "rate"),
    input_dim=1,
)

# %% [markdown]
# The motor is driven at random, each torque held for five samples: who learns must see what inputs do.

# %%
U = [np.repeat(random.uniform(-4, 4, (30, 1)), 5, axis=0) for _ in range(20)]
X = [fk.simulate(pendulum, 150, initial=random.uniform(-1, 1, 2), inputs=u) for u in U]
model = fk.EDMD(3, dt=0.05).fit(X[:16], U=U[:16])
print("skill on swings that were held out:", model.score(X[16:], U=U[16:]))

# %% [markdown]
# What can be said of the model about the target, in sentences:

# %%
target = [0.4, 0.0]
linear = fk.control.lqr(model, target, Q=[10.0, 1.0], R=0.1)
for sentence in fk.control.facts(model, target, linear).sentences:
    print("-", sentence)

# %% [markdown]
# Predictive control plans twenty samples ahead, within the bounds, and uses the first input of each plan.

# %%
mpc = fk.control.MPC(model, target, horizon=20, Q=[10.0, 1.0], R=0.1, u_min=-5, u_max=5)
loop = fk.control.closed_loop(pendulum, mpc, [-0.5, 0.0], steps=100)
print("at the end:", loop.states[-1], "largest torque:", abs(loop.inputs).max())
assert abs(loop.states[-1] - target).max() < 0.05
assert abs(loop.inputs).max() <= 5

# %% [markdown]
# With a federation the model comes from sites that keep their recordings: [driven systems](../driven.md#in-a-federation). A harder case is
# [the swing-up](../../examples/swing-up/README.md): a pendulum that no laboratory's own model can swing up, and the shared one can.
# On real hardware, `mpc.act` once per sample: [Control](../control.md).
