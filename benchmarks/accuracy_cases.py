"""The data of every accuracy protocol: the same draws for us and for every peer.

Each case has a test draw, which the page reports, and a validation draw of the same law, on which
settings are chosen (`validation=True`). Trajectories are (runs, time, state), states in the
system's own units.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
VALIDATION = 1000
"""Added to the seeds of a test draw, it gives the seeds of the validation draw."""


def lorenz(x: Array, beta: float = 8 / 3) -> Array:
    a, b, c = np.moveaxis(x, -1, 0)
    return np.stack([10 * (b - a), a * (28 - c) - b, a * b - beta * c], axis=-1)


def duffing(x: Array) -> Array:
    q, p = np.moveaxis(x, -1, 0)
    return np.stack([p, q - q**3 - 0.3 * p], axis=-1)


def pendulum(x: Array) -> Array:
    return np.stack([x[..., 1], -9.8 * np.sin(x[..., 0])], axis=-1)


def trajectories(
    f: Callable[[Array], Array], initial: Array, dt: float, samples: int, substeps: int = 20
) -> Array:
    """x_0 … x_{samples−1} from each row of `initial`, by Runge-Kutta's fourth-order rule.

    Independent of the package's own integrator. With the usual 20 steps per sample its error is
    below 1e-9 for every case here but dysts', which asks for more steps.
    """
    h, x, found = dt / substeps, np.asarray(initial, np.float64), [initial]
    for _ in range(samples - 1):
        for _ in range(substeps):
            k1 = f(x)
            k2 = f(x + h / 2 * k1)
            k3 = f(x + h / 2 * k2)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + f(x + h * k3))
        found.append(x)
    return np.stack(found, axis=1)


@dataclass(frozen=True)
class Case:
    """Training and test trajectories, and where forecasts start if not from the truth."""

    dt: float
    train: Array
    test: Array
    starts: Array | None = None


def lorenz_case(dt: float, validation: bool = False, noise: float = 0.0) -> Case:
    """200 + 20 trajectories of 300 samples from the cube [−10, 10]³; noise on training data."""
    more = VALIDATION if validation else 0
    first, second = (np.random.default_rng(seed + more) for seed in (0, 1))
    train = trajectories(lorenz, first.uniform(-10, 10, (200, 3)), dt, 300)
    test = trajectories(lorenz, second.uniform(-10, 10, (20, 3)), dt, 300)
    return Case(dt, train + noise * first.normal(size=train.shape), test)


def duffing_case(validation: bool = False) -> Case:
    """A damped double well: noise .01 on 40 training trajectories, none on 40 test ones."""
    rng = np.random.default_rng(VALIDATION if validation else 0)
    train = trajectories(duffing, rng.uniform(-2, 2, (40, 2)), 0.05, 201)
    train = train + rng.normal(0, 0.01, train.shape)
    return Case(0.05, train, trajectories(duffing, rng.uniform(-2, 2, (40, 2)), 0.05, 201))


def pendulum_case(validation: bool = False) -> Case:
    """Swings below 2.2 rad, noise .05; forecasts start from noisy states, too."""
    rng = np.random.default_rng(VALIDATION if validation else 0)

    def initial(n: int) -> Array:
        return np.stack([rng.uniform(-2.2, 2.2, n), rng.uniform(-1, 1, n)], axis=-1)

    train, test = (trajectories(pendulum, x, 0.02, 201) for x in (initial(20), initial(40)))
    train = train + rng.normal(0, 0.05, train.shape)
    return Case(0.02, train, test, test[:, 0] + rng.normal(0, 0.05, test.shape)[:, 0])


def dysts_case(noise: float = 0.0, validation: bool = False) -> Case:
    """20 trajectories of 812 samples on the attractor; `train` holds their first 512.

    Arguments:
        noise: in standard deviations of each coordinate, on the training samples only.
    """
    rng = np.random.default_rng(VALIDATION if validation else 0)
    dt = 1 / (30 * 0.8917)

    def f(x: Array) -> Array:
        return lorenz(x, 2.667)

    initial = rng.normal((0, 0, 25), 1, (20, 3))
    on_attractor = trajectories(f, initial, dt, 400, 60)[:, -1]
    whole = trajectories(f, on_attractor, dt, 812, 120)
    train = whole[:, :512]
    train = train + noise * train.std(axis=1, keepdims=True) * rng.normal(size=train.shape)
    return Case(dt, train, whole[:, 512:], train[:, -1])


def fit_time_case(validation: bool = False) -> tuple[Array, Array]:
    """kooplearn's own data: its generator and its split, standardised as it does.

    Its right-hand side lacks the term −y of Lorenz63 and is integrated at default tolerances, so
    that a floor of about .00055 remains; only its own generator gives these data.
    """
    from kooplearn.datasets import make_lorenz63

    first = np.array([2.0, 1.0, 0.5]) if validation else np.ones(3)
    data = make_lorenz63(first, n_steps=8000).to_numpy()
    train, test = data[1000:6000], data[-1000:]
    mean, std = train.mean(axis=0), train.std(axis=0)
    return (train - mean) / std, (test - mean) / std


# The measured double pendulum

FIRST, LAST = 2600, 38000
"""Samples after the release, in each trial."""
PARABOLA, DELAY = 15, 5
"""Samples before the present one that velocities are fitted to; how old the delayed state is."""


def measured_trials(folder: Path) -> list[Array]:
    """Angles of both links in radians, (38827, 2), of trials 1, 2 and 3."""
    names = ("DPmean_data_RB0.csv", "DPmean_data_RB1.csv")
    return [
        np.radians(
            np.stack(
                [np.loadtxt(folder / f"Trial{i}" / n, delimiter=",")[:, 1] for n in names], axis=-1
            )
        )
        for i in (1, 2, 3)
    ]


def measured_states(angles: Array, first: int = FIRST) -> Array:
    """(cos θ, sin θ, ω) of both links, from the past alone, from some sample on.

    ω is the slope, at the present sample, of the parabola through it and the 15 before.
    """
    time = np.arange(-PARABOLA, 1) * 0.002
    weights = np.linalg.pinv(np.vander(time, 3, increasing=True))[1]
    windows = np.lib.stride_tricks.sliding_window_view(angles, PARABOLA + 1, axis=0)
    now = angles[PARABOLA:]
    states = np.concatenate([np.cos(now), np.sin(now), windows @ weights], axis=-1)
    return states[first - PARABOLA : LAST - PARABOLA]


def with_delays(states: Array, delays: int) -> Array:
    """Each state beside those 5, 10, … samples ago, the newest first."""
    n = len(states) - delays * DELAY
    return np.concatenate([states[i * DELAY :][:n] for i in range(delays, -1, -1)], axis=-1)


def angles_of(states: Array) -> Array:
    """Both angles in (−π, π]."""
    return np.arctan2(states[..., 2:4], states[..., 0:2])


def wrapped(angle: Array) -> Array:
    """The same angle in [−π, π)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi
