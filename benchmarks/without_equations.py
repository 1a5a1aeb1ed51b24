"""What a site can know without equations: a pendulum of which only the angle is observed.

    .venv/bin/python benchmarks/without_equations.py

20 pendulums from the paper's initial law, 10 s each, sampled every 0.02 s with a standard deviation
of 0.2 rad. All noise covariances are estimated from the observations alone. Errors are root mean
squares over all pendulums and samples: of the smoothed states, and of the angle predicted from
the filtered state so many seconds before, without any later observation.
"""

import jax
import numpy as np

import fedkoopman as fk
from fedkoopman.estimation import nis, whiteness
from fedkoopman.estimation.noise import estimate_noise

NOISE, STEPS, AHEAD = 0.04, 500, (5, 25, 50)


def root_mean_square(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(error**2)))


def predictions(system: fk.System, filtered: np.ndarray, truth: np.ndarray) -> list[float]:
    """Errors of the angle after each of the horizons."""
    step = jax.jit(jax.vmap(jax.vmap(lambda x: system.step(x))))
    errors, x = {}, filtered
    for k in range(1, max(AHEAD) + 1):
        x = np.asarray(step(x))
        errors[k] = root_mean_square(x[:, :-k, 0] - truth[:, k:, 0])
    return [errors[k] for k in AHEAD]


def row(name: str, system: fk.System, z: np.ndarray, truth: np.ndarray, start: dict) -> None:
    """Estimate noise, then states, and print the errors."""
    sensor = fk.LinearSensor(np.eye(system.dim)[:1])
    found = estimate_noise(system, sensor, z, structure="scalar", kappa=0.0, **start)
    given = {
        "initial_cov": start["initial_cov"],
        "process_noise": found.process_noise,
        "observation_noise": found.observation_noise,
        "method": "ukf-resampled",
        "kappa": 0.0,
    }
    smoothed = fk.estimate(system, sensor, z, **given).mean
    filtered = fk.estimate(system, sensor, z, smooth=False, **given)
    velocity = (
        np.gradient(smoothed[..., 0], float(system.dt), axis=1)
        if system.dim == 1
        else smoothed[..., 1]
    )
    cells = [
        root_mean_square(smoothed[..., 0] - truth[..., 0]),
        root_mean_square(velocity - truth[..., 1]),
        *predictions(system, filtered.mean, truth),
    ]
    white = "yes" if whiteness(filtered).consistent else "no"
    cells_text = " | ".join(f"{cell:.3f}" for cell in cells)
    r = float(found.observation_noise[0, 0])
    print(f"| {name} | {cells_text} | {r:.4f} | {nis(filtered).value:.2f} | {white} |")


def main() -> None:
    pendulum = fk.systems.Pendulum()
    x = fk.simulate(pendulum, STEPS, batch=20, seed=0)
    z = fk.observe(fk.LinearSensor([[1.0, 0.0]]), x[:, 1:], noise=NOISE, seed=1)
    truth = x[:, 1:]
    ahead = " | ".join(f"angle {k * 0.02:g} s ahead" for k in AHEAD)
    print(f"| | angle | velocity | {ahead} | R found ({NOISE:g}) | NIS | white |")
    print("|" + "---|" * (6 + len(AHEAD)))
    raw = [root_mean_square(z[..., 0] - truth[..., 0])]
    raw.append(root_mean_square(np.gradient(z[..., 0], 0.02, axis=1) - truth[..., 1]))
    raw += [root_mean_square(z[:, :-k, 0] - truth[:, k:, 0]) for k in AHEAD]
    print(f"| raw, with differences | {' | '.join(f'{e:.3f}' for e in raw)} | | | |")
    for order in range(3):
        system = fk.systems.LocalPolynomial(("angle",), order, 0.02)
        start = {
            "process_noise": system.process_noise(1.0),
            "initial_cov": np.diag([20.0, 50.0, 200.0][: order + 1]),
        }
        row(f"`random-walk`, order {order}", system, z, truth, start)
    start = {"process_noise": 1e-4, "initial_cov": np.diag([20.0, 50.0])}
    row("the equations", pendulum, z, truth, start)


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
