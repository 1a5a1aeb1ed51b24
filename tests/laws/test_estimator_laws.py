"""Laws that every estimator obeys: those of the registry, and one from a file of a user's own.

The problem is linear, so that predictions are known exactly. A method that draws at random obeys
within its sampling error; whether it draws is found out by asking with two seeds.
"""

from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest
from reference.extension import file_of

import fedkoopman as fk
from fedkoopman.errors import InputError
from fedkoopman.estimation import ESTIMATORS, Options

CUBATURE = f"{file_of('cubature')}:ESTIMATOR"
EVERY = pytest.mark.parametrize(
    "method", [*ESTIMATORS.names, CUBATURE], ids=lambda name: Path(name).stem
)
F, C = np.array([[0.9, 0.3], [-0.3, 0.8]]), np.array([[1.0, 0.5]])
Q, R, P0, X0 = np.diag([0.1, 0.2]), np.array([[0.3]]), np.eye(2), np.array([1.0, -1.0])
STEPS, BATCH = 6, 3
Z = np.random.default_rng(0).normal(size=(BATCH, STEPS, 1))
SYSTEM, SENSOR = fk.System.from_map(lambda x: F @ x, 2), fk.LinearSensor(C)
PER_STEP = ("mean", "cov", "innovations", "innovation_cov")


def run(z, method, **options):
    given = {
        "process_noise": Q,
        "observation_noise": R,
        "initial_mean": X0,
        "initial_cov": P0,
        "particles": 1000,
    }
    return fk.estimate(SYSTEM, SENSOR, z, method=method, **{**given, **options})


@cache
def draws(method):
    one, other = run(Z[0], method), run(Z[0], method, seed=1)
    return not np.array_equal(one.mean, other.mean)


def close(method, ours, theirs, exact=1e-10):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=0.25 if draws(method) else exact)


def kalman(z):
    """Means, covariances and log-likelihood of the textbook's filter; NaN is missing."""
    x, p, total, means, covs = X0, P0, 0.0, [], []
    for row in z:
        x, p = F @ x, F @ p @ F.T + Q
        if not np.isnan(row).any():
            s = C @ p @ C.T + R
            gain, v = p @ C.T @ np.linalg.inv(s), row - C @ x
            x, p = x + gain @ v, p - gain @ s @ gain.T
            total -= 0.5 * (v @ np.linalg.solve(s, v) + np.log(np.linalg.det(2 * np.pi * s)))
        means.append(x)
        covs.append(p)
    return np.array(means), np.array(covs), total


@EVERY
def test_observations_that_are_all_missing_leave_the_prediction(method):
    z = np.full((STEPS, 1), np.nan)
    mean, cov, _ = kalman(z)
    for smooth in (False, True):
        e = run(z, method, smooth=smooth)
        close(method, e.mean, mean)
        close(method, e.cov, cov)
        assert e.log_likelihood == pytest.approx(0.0, abs=1e-12)
        assert np.isnan(e.innovations).all()


@EVERY
def test_a_consistent_method_is_the_kalman_filter_on_a_linear_system(method):
    z = Z[0].copy()
    z[2] = np.nan
    mean, cov, likelihood = kalman(z)
    e = run(z, method, smooth=False)
    if not ESTIMATORS.find(method).consistent:
        assert np.abs(e.cov - cov).max() > 1e-3
        return
    close(method, e.mean, mean)
    close(method, e.cov, cov)
    close(method, e.log_likelihood, likelihood)


@EVERY
def test_a_batch_equals_its_members(method):
    together = run(Z, method)
    alone = run(Z[0], method)  # the first has the draws of a trajectory by itself
    for name in (*PER_STEP, "initial_mean", "initial_cov", "log_likelihood"):
        np.testing.assert_allclose(getattr(together, name)[0], getattr(alone, name), atol=1e-12)
    if ESTIMATORS.find(method).widest(2) == 1:
        np.testing.assert_array_equal(together.mean[0], alone.mean)


@EVERY
def test_permuting_trajectories_permutes_results(method):
    order = [2, 0, 1]
    before, after = run(Z, method), run(Z[order], method)
    for name in ("mean", "cov", "initial_mean"):
        close(method, getattr(after, name), getattr(before, name)[order], 1e-12)


@EVERY
def test_ragged_trajectories_are_estimated_each_for_itself(method):
    e = run([Z[0][:3], Z[1]], method)
    short = run(Z[0][:3], method)
    np.testing.assert_allclose(e.mean[0], short.mean, atol=1e-12)
    assert [len(path) for path in e.mean] == [3, STEPS]


@EVERY
def test_room_for_more_steps_changes_nothing(method):
    e, filled = run(Z[0], method), run(Z[0], method, room=2 * STEPS)
    for name in PER_STEP:
        np.testing.assert_allclose(getattr(filled, name), getattr(e, name), atol=1e-12)


@EVERY
def test_results_are_float64_repeatable_and_leave_jax_as_it_was(method):
    with jax.enable_x64(False):
        e = run(Z[0].astype(np.float32), method)
        assert not jax.config.jax_enable_x64
    again = run(Z[0].astype(np.float32), method)
    for name in (*PER_STEP, "initial_mean", "initial_cov"):
        assert getattr(e, name).dtype == np.float64
        np.testing.assert_array_equal(getattr(e, name), getattr(again, name))


@EVERY
def test_covariances_are_symmetric_and_semi_definite(method):
    for smooth in (False, True):
        e = run(Z, method, smooth=smooth)
        assert e.ok.all()
        np.testing.assert_allclose(e.cov, np.swapaxes(e.cov, -1, -2), atol=1e-12)
        assert np.linalg.eigvalsh(e.cov).min() > -1e-12


@EVERY
def test_the_last_smoothed_state_is_the_last_filtered_one(method):
    filtered, smoothed = run(Z[0], method, smooth=False), run(Z[0], method)
    close(method, smoothed.mean[-1], filtered.mean[-1])
    close(method, smoothed.cov[-1], filtered.cov[-1])


@EVERY
def test_the_default_options_suit_systems_of_several_sizes(method):
    for dim in (2, 3, 7, 20):
        ESTIMATORS.find(method).check(Options(), dim)
        assert ESTIMATORS.find(method).widest(dim) >= 1


@EVERY
def test_noise_without_a_density_is_refused_where_one_is_needed(method):
    names = ("observation_noise", "process_noise")
    needed = ESTIMATORS.find(method).needs_density(smooth=True)
    assert set(needed) <= set(names)
    for name in names:
        if name in needed:
            with pytest.raises(InputError, match=f"{name} has the eigenvalue 0"):
                run(Z[0], method, **{name: 0.0})
        else:
            assert run(Z[0], method, **{name: 0.0}).ok
