"""Made-up recordings for the example swing-up: a driven pendulum at three laboratories.

θ̈ = −9.8 sin θ − 0.2 θ̇ + u, with a motor of |u| ≤ 5. Each laboratory lets it move elsewhere, and its
rig stops a recording that leaves the laboratory's range: none sees a swing from below to the top.
"""

import math

import numpy as np

from fedkoopman.config.example_recordings import Files

__all__ = ["PLACES", "swing_up_recordings"]

PLACES = {"lab-low": (0.0, 1.8, 6.5), "lab-side": (0.5, 2.5, 5.5), "lab-top": (1.4, math.pi, 4.5)}
"""By laboratory: the range of |θ|, and the fastest start."""
DT, STRONGEST, NOISE = 0.05, 5.0, 0.001
SEGMENTS, STEPS, LEAST = 200, 30, 11
SMALL = 20
"""Steps of the fourth-order Runge-Kutta per sample."""


def swing_up_recordings() -> Files:
    """One table per laboratory: cosine, sine and rate with noise, and the torque up to each row."""
    random, found = np.random.default_rng(0), {}
    for lab, (least, most, fastest) in PLACES.items():
        rows = ["segment,cosine,sine,rate,torque"]
        for segment in range(SEGMENTS):
            angle = random.choice([-1, 1]) * random.uniform(least, most)
            start = (float(angle), float(random.uniform(-fastest, fastest)))
            torque = np.repeat(random.uniform(-STRONGEST, STRONGEST, STEPS // 2), 2)
            path = np.array(_swing(start, torque.tolist()))
            apart = np.abs(np.mod(path[:, 0] + np.pi, 2 * np.pi) - np.pi)
            inside = int(np.cumprod((apart >= least) & (apart <= most)).sum())
            if inside < LEAST:
                continue
            angles, rates = path[:inside].T
            z = np.stack([np.cos(angles), np.sin(angles), rates], axis=1)
            z += NOISE * random.normal(size=(inside, 3))
            rows += [
                ",".join([str(segment), *(f"{value:.6f}" for value in (*seen, put))])
                for seen, put in zip(z, torque, strict=False)
            ]
        found[f"{lab}/data.csv"] = ("\n".join(rows) + "\n").encode()
    return found


def _swing(x: tuple[float, float], torque: list[float]) -> list[tuple[float, float]]:
    """Angle and rate after each sample, the torque held in between."""
    h, (angle, rate), found = DT / SMALL, x, []
    for u in torque:
        for _ in range(SMALL):
            a1, r1 = rate, _pull(angle, rate, u)
            a2, r2 = rate + h / 2 * r1, _pull(angle + h / 2 * a1, rate + h / 2 * r1, u)
            a3, r3 = rate + h / 2 * r2, _pull(angle + h / 2 * a2, rate + h / 2 * r2, u)
            a4, r4 = rate + h * r3, _pull(angle + h * a3, rate + h * r3, u)
            angle += h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
            rate += h / 6 * (r1 + 2 * r2 + 2 * r3 + r4)
        found.append((angle, rate))
    return found


def _pull(angle: float, rate: float, u: float) -> float:
    return -9.8 * math.sin(angle) - 0.2 * rate + u
