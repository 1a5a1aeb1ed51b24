"""Swing the pendulum up with learned models, and hold it there, from random starts:

    python swing_up.py STARTS MODEL…        as python swing_up.py 50 shared/model.safetensors

Success: within 0.2 rad of upright for the last 2 s of 10 s, with a motor that cannot lift it.
"""

import sys
from contextlib import suppress

import numpy as np
from pendulum import DT, STRONGEST, SYSTEM, seen

import fedkoopman as fk
from fedkoopman.errors import ComputationError

UPRIGHT = (-1.0, 0.0, 0.0)
STEPS, HELD = round(10 / DT), round(2 / DT)


def controller(model):
    """The same for every model."""
    return fk.control.MPC(
        model, UPRIGHT, horizon=30, Q=[5, 5, 0.1], R=0.01, u_min=-STRONGEST, u_max=STRONGEST,
        relift=True, iterations=2, explore=10,
    )  # fmt: skip


def stands(states):
    """Whether the pendulum was upright at the end."""
    apart = np.mod(states[-HELD:, 0], 2 * np.pi) - np.pi
    return bool(np.abs(apart).max() < 0.2)


def successes(model, starts, seed=0):
    """From how many random starts the model swings the pendulum up."""
    random, mpc = np.random.default_rng(seed), controller(model)
    found = 0
    for _ in range(starts):
        initial = [random.uniform(-np.pi, np.pi), random.uniform(-2, 2)]
        with suppress(ComputationError):  # the model's plans lead nowhere
            found += stands(fk.control.closed_loop(SYSTEM, mpc, initial, STEPS, seen=seen).states)
    return found


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python swing_up.py STARTS MODEL…")
    for file in sys.argv[2:]:
        print(f"{file}: {successes(fk.load_model(file), int(sys.argv[1]))} of {sys.argv[1]}")
