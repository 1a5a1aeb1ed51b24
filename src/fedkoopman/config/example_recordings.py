"""Made-up recordings for the examples: swings of a pendulum, each seen through a noisy sensor."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RANGES", "Files", "pendulum_recordings", "regimes_recordings"]

Files = dict[str, bytes]
"""Contents by path within the new directory."""

SWINGS, SAMPLES, DT = 10, 300, 0.02
TIME = np.arange(1, SAMPLES + 1) * DT

RANGES = {"small": (0.1, 0.7), "middle": (0.7, 1.5), "large": (1.5, 2.5)}
"""By laboratory of the regimes: how far its swings go, from and to, in rad."""
TRIALS = 2
"""Swings of each range that a laboratory of the regimes records to test models on."""


def pendulum_recordings() -> Files:
    """Three laboratories that see swings of the same range."""
    found: Files = {}
    rng = np.random.default_rng(0)

    def swings() -> list[tuple[str, NDArray[np.float64]]]:
        starts = rng.uniform((0.3, -1.0), (2.0, 1.0), (SWINGS, 2))
        return [(f"swing-{i + 1:02}", _swing(x0)) for i, x0 in enumerate(starts)]

    for name, x in swings():
        angle = np.degrees(x[:, 0]) + rng.normal(0, 2.0, SAMPLES)
        found[f"lab-a/data/{name}.csv"] = _csv("time,angle_deg", TIME, angle)
    rows = []
    for name, x in swings():
        rate = x[:, 1] + rng.normal(0, 0.1, SAMPLES)
        lost = rng.random(SAMPLES) < 0.05
        rows += [
            f"{name},{t:.2f},{'' if gone else f'{value:.4f}'}"
            for t, value, gone in zip(TIME, rate, lost, strict=True)
        ]
    found["lab-b/data/gyroscope.csv"] = ("swing,time,rate\n" + "\n".join(rows) + "\n").encode()
    for name, x in swings():
        place = _bob(x) + rng.normal(0, 2.0, (SAMPLES, 2))
        kept = np.ones(SAMPLES, bool)
        for first in rng.integers(20, SAMPLES - 20, 3):
            kept[first : first + 8] = False
        columns = (TIME[kept], *place[kept].T)
        found[f"lab-c/data/{name}.csv"] = _csv("time,across_cm,up_cm", *columns)
    return found


def regimes_recordings(seed: int = 0) -> Files:
    """Three laboratories that see swings of different ranges, and each a few of all to test on."""
    found: Files = {}
    rng = np.random.default_rng(seed)
    for lab, own in RANGES.items():
        wanted = [(f"swing-{i + 1:02}", own) for i in range(SWINGS)]
        wanted += [
            (f"test-{name}-{i + 1}", ends) for name, ends in RANGES.items() for i in range(TRIALS)
        ]
        for name, (low, high) in wanted:
            x = _swing(np.array([rng.uniform(low, high), rng.normal(0, 0.1)]))
            if lab == "small":
                angle = np.degrees(x[:, 0]) + rng.normal(0, 1.0, SAMPLES)
                table = _csv("time,angle_deg", TIME, angle)
            elif lab == "middle":
                table = _csv("time,rate", TIME, x[:, 1] + rng.normal(0, 0.1, SAMPLES))
            else:
                place = _bob(x) + rng.normal(0, 2.0, (SAMPLES, 2))
                table = _csv("time,across_cm,up_cm", TIME, *place.T)
            found[f"lab-{lab}/data/{name}.csv"] = table
    return found


def _bob(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where the bob is, across and up, in centimetres."""
    return 100 * np.column_stack([np.sin(x[:, 0]), 1 - np.cos(x[:, 0])])


def _swing(x0: NDArray[np.float64]) -> NDArray[np.float64]:
    """A pendulum of one metre, (SAMPLES, 2), by small steps of the fourth-order Runge-Kutta."""
    small = 10
    h = DT / small

    def f(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([x[1], -9.8 * np.sin(x[0])])

    x, found = x0, []
    for k in range(SAMPLES * small):
        k1 = f(x)
        k2 = f(x + h / 2 * k1)
        k3 = f(x + h / 2 * k2)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + f(x + h * k3))
        if k % small == small - 1:
            found.append(x)
    return np.array(found)


def _csv(header: str, *columns: NDArray[Any]) -> bytes:
    rows = [",".join(f"{v:.4f}" for v in row) for row in np.column_stack(columns)]
    return ("\n".join([header, *rows]) + "\n").encode()
