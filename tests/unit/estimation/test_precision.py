"""Estimation is in float64 in a process whose JAX default is float32 (as most users' is)."""

import subprocess
import sys
import textwrap

PROGRAM = """
    import jax, numpy as np
    import fedkoopman as fk

    rng = np.random.default_rng(0)
    a, c = 0.4 * rng.normal(size=(4, 4)), rng.normal(size=(2, 4))
    z = 3 * rng.normal(size=(40, 2))
    # The matrices are closed over: JAX remembers the precision they are first traced in.
    system = fk.System.from_map(lambda x: a @ x, 4)
    sensor = fk.FunctionSensor(lambda x: c @ x, 2)
    e = fk.estimate(system, sensor, z, method="ekf", smooth=False)
    x, p = np.zeros(4), np.eye(4)
    for k, z_k in enumerate(z):
        x, p = a @ x, a @ p @ a.T + np.eye(4)
        gain = p @ c.T @ np.linalg.inv(c @ p @ c.T + np.eye(2))
        x, p = x + gain @ (z_k - c @ x), p - gain @ c @ p
        assert np.abs(e.mean[k] - x).max() < 1e-11, (k, np.abs(e.mean[k] - x).max())
    assert not jax.config.jax_enable_x64
    assert jax.numpy.ones(1).dtype == np.float32
"""


def test_closed_over_matrices_keep_their_precision():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
