"""Are the filters as good as they say? NEES and NIS on data that the model itself made.

    .venv/bin/python benchmarks/consistency.py

Lorenz63 with process noise Q = I and observation noise R = I, 200 trajectories of 300 steps, and
the largest difference from the exact Kalman filter on a random linear system.
"""

import numpy as np

import fedkoopman as fk
from fedkoopman.estimation import nees, nis


def lorenz63() -> None:
    """Print NEES and NIS per component with their 99 % bands."""
    system = fk.systems.Lorenz63()
    sensor = fk.LinearSensor.random_frame(3, seed=0)
    start = np.random.default_rng(1).normal(size=(200, 3))
    x = fk.simulate(system, steps=300, seed=2, batch=200, initial=start, process_noise=1.0)
    z = fk.observe(sensor, x[:, 1:], noise=1.0, seed=3)
    print("| method | NEES filter | NEES smoother | NIS |\n|---|---|---|---|")
    for method in ("ukf", "ukf-resampled", "ekf"):
        filtered = fk.estimate(system, sensor, z, method=method, smooth=False)
        smoothed = fk.estimate(system, sensor, z, method=method)
        tests = nees(filtered, x[:, 1:]), nees(smoothed, x[:, 1:]), nis(filtered)
        cells = [f"{t.value:.3f} ({t.lower:.3f} to {t.upper:.3f})" for t in tests]
        print(f"| `{method}` | {' | '.join(cells)} |")


def linear() -> None:
    """Print the largest difference from the Kalman filter."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(4, 4))
    a *= 0.97 / np.abs(np.linalg.eigvals(a)).max()
    c = rng.normal(size=(2, 4))
    z = rng.normal(size=(80, 2)) * 3
    x, p = np.zeros(4), np.eye(4)
    exact = []
    for zk in z:
        x, p = a @ x, a @ p @ a.T + np.eye(4)
        gain = p @ c.T @ np.linalg.inv(c @ p @ c.T + np.eye(2))
        x, p = x + gain @ (zk - c @ x), p - gain @ c @ p
        exact.append(x)
    print("\n| method | largest difference from the Kalman filter |\n|---|---|")
    for method in ("ukf", "ukf-resampled", "ekf"):
        e = fk.estimate(
            fk.System.from_map(lambda x: a @ x, 4),
            fk.LinearSensor(c),
            z,
            method=method,
            smooth=False,
        )
        print(f"| `{method}` | {np.abs(e.mean - np.array(exact)).max():.1e} |")


if __name__ == "__main__":
    lorenz63()
    linear()
