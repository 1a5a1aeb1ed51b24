"""Driven systems whose equations are known, and a study of three laboratories that watch one."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

A = np.array([[0.9, 0.2], [-0.1, 0.8]])
B = np.array([[0.1, -0.3], [0.5, 0.2]])
N = np.array([[[0.05, 0.1], [0.0, -0.1]], [[0.0, -0.05], [0.08, 0.02]]])

DYNAMICS = """import jax.numpy as jnp


def pendulum(x, u):
    return jnp.array([x[1], -9.8 * jnp.sin(x[0]) - 0.3 * x[1] + u[0]])
"""
STUDY = """name = "driven"
slots = 8
seed = 3
[system]
name = "dynamics.py:pendulum"
states = ["theta", "omega"]
[system.parameters]
dt = 0.05
[clients]
count = 3
probability = 0.8
[sites]
files = ["lab-a/site.toml", "lab-b/site.toml", "lab-c/site.toml"]
[network]
kind = "edmd"
inputs = ["torque"]
[segments]
steps = 60
[policy]
segments = 1
[training]
epochs = 1
[evaluation]
trajectories = 2
"""
SITE = """name = "{name}"
[data]
files = ["data.csv"]
columns = ["angle"]
inputs = ["{torque}"]
{more}
[sensor]
kind = "linear"
matrix = [[1, 0]]
[noise]
observation = 0.0004
process = 1e-6
[initial]
mean = [0, 0]
cov = 1.0
"""


def linear(x: Array, u: Array) -> Array:
    return A @ x + B @ u


def bilinear(x: Array, u: Array) -> Array:
    return A @ x + B @ u + u[0] * N[0] @ x + u[1] * N[1] @ x


def trajectories(step: Any, count: int = 8, length: int = 60, seed: int = 0) -> tuple[list, list]:
    """States and inputs of a map x' = f(x, u), the inputs with a mean that is not zero."""
    random = np.random.default_rng(seed)
    U = [0.4 * random.normal(size=(length, 2)) + [0.3, -0.1] for _ in range(count)]
    X = []
    for inputs in U:
        states = [random.normal(size=2) + 1]
        for u in inputs[:-1]:
            states.append(step(states[-1], u))
        X.append(np.array(states))
    return X, U


def pendulum(x: Array, u: float, dt: float) -> Array:
    """One interval of the pendulum in `DYNAMICS`, by many small steps of Heun's method."""

    def slope(x: Array) -> Array:
        return np.array([x[1], -9.8 * np.sin(x[0]) - 0.3 * x[1] + u])

    h = dt / 50
    for _ in range(50):
        first = slope(x)
        x = x + h / 2 * (first + slope(x + h * first))
    return x


def write_study(folder: Path, more: str = "") -> Path:
    """A study of three laboratories that observe a driven pendulum's angle; lab-c calls the torque
    otherwise."""
    random = np.random.default_rng(5)
    folder.mkdir(parents=True)
    (folder / "dynamics.py").write_text(DYNAMICS)
    (folder / "study.toml").write_text(STUDY)
    for name in ("lab-a", "lab-b", "lab-c"):
        torque = "motor" if name == "lab-c" else "torque"
        rows = [f"segment,angle,{torque}"]
        for segment in range(4):
            x = random.uniform(-0.8, 0.8, 2)
            u = np.repeat(random.uniform(-3, 3, 12), 5)
            for one in u:
                x = pendulum(x, one, 0.05)
                rows.append(f"{segment},{x[0] + 0.02 * random.normal():.6f},{one:.6f}")
        (folder / name).mkdir()
        (folder / name / "data.csv").write_text("\n".join(rows) + "\n")
        (folder / name / "site.toml").write_text(SITE.format(name=name, torque=torque, more=more))
    return folder / "study.toml"


CIRCUIT = """name = "circuit"
slots = 6
seed = 0
[system]
name = "random-walk"
parameters = { states = ["voltage"], order = 0, dt = 0.2 }
[clients]
count = 2
probability = 1.0
[sites]
files = ["lab-a/site.toml", "lab-b/site.toml"]
[estimation]
method = "ekf"
kappa = 0
[network]
kind = "edmd"
window = 3
degree = 3
ridge = 1e-9
inputs = ["drive"]
[segments]
steps = 150
[policy]
segments = 1
"""
CIRCUIT_SITE = """name = "{name}"
[data]
files = ["data.csv"]
columns = ["voltage"]
inputs = ["drive"]
[sensor]
kind = "identity"
[noise]
observation = 1e-8
process = 1.0
"""


def circuit(count: int, length: int, seed: int) -> tuple[list[Array], list[Array]]:
    """A damped Duffing oscillator driven by a held voltage: one voltage in, one out.

    Row k of the outputs is what the inputs up to row k made.
    """
    random = np.random.default_rng(seed)
    Y, U = [], []
    for _ in range(count):
        x, seen = np.zeros(2), []
        u = np.repeat(1.5 * random.normal(size=length // 3), 3)
        for one in u:
            for _ in range(20):
                v = x[1] + 0.01 * (one - 0.5 * x[1] - x[0] - x[0] ** 3)
                x = np.array([x[0] + 0.01 * v, v])
            seen.append(x[0])
        Y.append(np.array(seen)[:, None])
        U.append(u[:, None])
    return Y, U


def write_circuit(folder: Path) -> Path:
    """A study of two laboratories that know no equations and see one output."""
    folder.mkdir(parents=True)
    (folder / "study.toml").write_text(CIRCUIT)
    for i, name in enumerate(("lab-a", "lab-b")):
        rows = ["segment,voltage,drive"]
        for k, (y, u) in enumerate(zip(*circuit(4, 150, i), strict=True)):
            rows += [f"{k},{a:.9f},{b:.9f}" for a, b in zip(y[:, 0], u[:, 0], strict=True)]
        (folder / name).mkdir()
        (folder / name / "data.csv").write_text("\n".join(rows) + "\n")
        (folder / name / "site.toml").write_text(CIRCUIT_SITE.format(name=name))
    return folder / "study.toml"
