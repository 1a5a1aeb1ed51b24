"""Room for longer trajectories: calls of different lengths share compiled code, bit for bit."""

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.errors import InputError

SYSTEM, SENSOR = fk.systems.Lorenz63(), fk.LinearSensor(np.eye(3)[:2])


@pytest.fixture(scope="module")
def z() -> np.ndarray:
    x = fk.simulate(SYSTEM, steps=50, seed=0)
    return fk.observe(SENSOR, x[1:], noise=1.0, seed=0)


@pytest.mark.parametrize("method", ["ukf", "ukf-resampled", "ekf"])
def test_room_changes_no_state(z: np.ndarray, method: str) -> None:
    plain = fk.estimate(SYSTEM, SENSOR, z, method=method)
    roomy = fk.estimate(SYSTEM, SENSOR, z, method=method, room=128)
    for name in ("mean", "cov", "initial_mean", "innovations", "innovation_cov"):
        np.testing.assert_allclose(getattr(roomy, name), getattr(plain, name), rtol=0, atol=1e-12)
    assert roomy.log_likelihood == pytest.approx(plain.log_likelihood, rel=1e-12)
    assert roomy.ok


def test_room_holds_an_unstable_system_in_its_bounds() -> None:
    """What is added is no part of the trajectory, and so is not predicted either."""
    growing = fk.System.from_function(lambda x: 40.0 * x, dim=1, dt=0.1, substeps=8)
    seen = fk.LinearSensor(np.eye(1))
    z = np.exp(4.0 * np.arange(1, 6))[:, None]
    found = fk.estimate(growing, seen, z, kappa=2.0, room=1024)
    assert found.ok and found.mean.shape == (5, 1)


def test_room_must_hold_the_trajectory_and_noise_be_constant(z: np.ndarray) -> None:
    with pytest.raises(InputError, match="at least 50"):
        fk.estimate(SYSTEM, SENSOR, z, room=49)
    with pytest.raises(InputError, match="process_noise changes with time"):
        fk.estimate(SYSTEM, SENSOR, z, process_noise=np.tile(np.eye(3), (50, 1, 1)), room=64)
