"""Angles are points of a circle: a pendulum that turns over, seen through a wrapped angle."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.estimation import nis
from fedkoopman.estimation.gaussian import wrap

GAUSSIAN = ["ukf", "ukf-resampled", "ekf"]
METHODS = [*GAUSSIAN, "particle"]
ONE = [pytest.param(n, marks=pytest.mark.slow) if n != "ukf-resampled" else n for n in GAUSSIAN]
"""All three, of which the gate runs one."""
STEPS, NOISE = 150, 0.01
START = np.array([0.5, 9.0])  # above 2√(g/L) = 6.3 rad/s a pendulum turns over

GIVEN = {
    "process_noise": [1e-5, 1e-3],
    "observation_noise": NOISE,
    "initial_mean": START,
    "initial_cov": [0.05, 0.5],
    "particles": 800,
}


def circular(angle):
    """In (−π, π], written apart from the package."""
    return np.angle(np.exp(1j * np.asarray(angle)))


@pytest.fixture(scope="module")
def truth():
    x = fk.simulate(fk.systems.Pendulum(), steps=STEPS, initial=START)[1:]
    assert x[-1, 0] > 6 * np.pi, "it must turn over several times"
    return x


@pytest.fixture(scope="module")
def unwrapped(truth):
    return truth[:, :1] + np.random.default_rng(0).normal(0, np.sqrt(NOISE), (STEPS, 1))


@pytest.fixture(scope="module")
def z(unwrapped):
    z = circular(unwrapped)
    assert (np.abs(np.diff(z[:, 0])) > np.pi).sum() >= 3, "the observations must jump"
    return z


CIRCLE = fk.systems.Pendulum(angles=(0,)), fk.LinearSensor([[1.0, 0.0]], angles=(0,))
LINE = fk.systems.Pendulum(), fk.LinearSensor([[1.0, 0.0]])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("smooth", [False, True], ids=["filter", "smoother"])
def test_the_angle_is_tracked_over_the_top(truth, z, method, smooth):
    e = fk.estimate(*CIRCLE, z, method=method, smooth=smooth, **GIVEN)
    assert e.ok
    error = np.stack([circular(e.mean[:, 0] - truth[:, 0]), e.mean[:, 1] - truth[:, 1]], axis=1)
    assert np.sqrt(np.mean(error[30:, 0] ** 2)) < 0.5 * np.sqrt(NOISE)
    assert np.sqrt(np.mean(error[30:, 1] ** 2)) < 0.3
    assert (np.abs(error) < 5 * e.std + 1e-3).all()
    assert (e.mean[:, 0] > -np.pi).all() and (e.mean[:, 0] <= np.pi).all()
    assert (np.abs(e.innovations) < 6 * np.sqrt(e.innovation_cov[..., 0])).all()


@pytest.mark.parametrize("method", METHODS)
def test_undeclared_it_is_lost(truth, z, method):
    """At the first jump of −2π the filter believes in an enormous blow."""
    e = fk.estimate(*LINE, z, method=method, smooth=False, **GIVEN)
    assert not e.ok or np.sqrt(np.mean((e.mean[30:, 1] - truth[30:, 1]) ** 2)) > 2.0


@pytest.mark.parametrize("method", GAUSSIAN)
@pytest.mark.parametrize("smooth", [False, True], ids=["filter", "smoother"])
def test_it_is_the_unwrapped_problem(z, unwrapped, method, smooth):
    """The same numbers as on the line, where nothing ever jumps, taken modulo 2π."""
    ours = fk.estimate(*CIRCLE, z, method=method, smooth=smooth, **GIVEN)
    line = fk.estimate(*LINE, unwrapped, method=method, smooth=smooth, **GIVEN)
    assert line.mean[-1, 0] > 6 * np.pi
    np.testing.assert_allclose(circular(ours.mean[:, 0] - line.mean[:, 0]), 0, atol=1e-9)
    np.testing.assert_allclose(ours.mean[:, 1], line.mean[:, 1], rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.cov, line.cov, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.innovations, line.innovations, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.log_likelihood, line.log_likelihood, rtol=1e-9)
    np.testing.assert_allclose(ours.initial_mean, line.initial_mean, rtol=0, atol=1e-9)


def test_particles_on_the_circle_are_those_on_the_line(z, unwrapped):
    """The same draws; only the mean is circular, the same to third order in the spread."""
    ours = fk.estimate(*CIRCLE, z, method="particle", **GIVEN)
    line = fk.estimate(*LINE, unwrapped, method="particle", **GIVEN)
    assert np.abs(circular(ours.mean[:, 0] - line.mean[:, 0])).max() < 0.01
    assert np.abs(ours.mean[:, 1] - line.mean[:, 1]).max() < 0.05
    np.testing.assert_allclose(ours.log_likelihood, line.log_likelihood, atol=1e-3)


@pytest.mark.parametrize("method", ONE)
def test_a_wrapped_observation_of_a_state_that_counts_turns(z, unwrapped, method):
    """Only the sensor's component is an angle: the state stays on the line."""
    ours = fk.estimate(LINE[0], CIRCLE[1], z, method=method, **GIVEN)
    line = fk.estimate(*LINE, unwrapped, method=method, **GIVEN)
    np.testing.assert_allclose(ours.mean, line.mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.cov, line.cov, rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_whole_turns_of_the_initial_state_change_nothing(z, method):
    def started(angle):
        mean = np.array([START[0] + angle, START[1]])
        return fk.estimate(*CIRCLE, z, method=method, **{**GIVEN, "initial_mean": mean})

    plain, away, turned = started(0.0), started(8 * np.pi), started(0.1)
    np.testing.assert_allclose(away.mean, plain.mean, rtol=0, atol=1e-7)
    np.testing.assert_allclose(away.initial_mean, plain.initial_mean, rtol=0, atol=1e-7)
    assert np.abs(turned.mean[0] - plain.mean[0]).max() > 1e-3
    assert -np.pi < away.initial_mean[0] <= np.pi


@pytest.mark.parametrize("method", ONE)
def test_missing_angles(truth, z, method):
    """A gap of half a turn and more."""
    gaps = z.copy()
    gaps[60:85] = np.nan
    assert truth[85, 0] - truth[60, 0] > np.pi
    e = fk.estimate(*CIRCLE, gaps, method=method, **GIVEN)
    error = np.abs(circular(e.mean[:, 0] - truth[:, 0]))
    assert error.max() < 5 * e.std[:, 0].max()
    assert np.isfinite(e.mean).all() and e.std[72, 0] > e.std[30, 0]


@pytest.mark.parametrize("method", ONE)
def test_a_bearing_may_be_measured_from_anywhere(method):
    """A body that circles the observer, seen by its bearing: where zero lies is a convention."""
    turn = np.array([[np.cos(0.1), -np.sin(0.1)], [np.sin(0.1), np.cos(0.1)]])
    system = fk.System.from_map(lambda x: turn @ x, 2)

    def from_direction(c):
        def bearing(x):
            along = x[0] * jnp.cos(c) - x[1] * jnp.sin(c)
            across = x[1] * jnp.cos(c) + x[0] * jnp.sin(c)
            return jnp.arctan2(across, along)[None]

        return fk.FunctionSensor(bearing, 1, angles=(0,))

    rng = np.random.default_rng(0)
    x = [np.array([2.0, 0.0])]
    for _ in range(130):
        x.append(turn @ x[-1] + rng.normal(0, 0.02, 2))
    x = np.array(x[1:])
    direction = np.arctan2(x[:, 1], x[:, 0])[:, None]
    bearing = direction + rng.normal(0, 0.05, direction.shape)
    assert (np.abs(circular(bearing) - direction) > np.pi).any(), "noise must cross the cut"
    given = {
        "process_noise": 4e-4,
        "observation_noise": 0.0025,
        "initial_mean": [1.5, 0.5],
        "initial_cov": 0.3,
        "method": method,
        "alpha": 1.0,  # points far enough apart to lie on both sides of the cut
        "kappa": 1.0,
    }
    a = fk.estimate(system, from_direction(0.0), circular(bearing), **given)
    b = fk.estimate(system, from_direction(2.0), circular(bearing + 2.0), **given)
    np.testing.assert_allclose(a.mean, b.mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(a.cov, b.cov, rtol=0, atol=1e-8)
    ours = np.arctan2(a.mean[:, 1:], a.mean[:, :1])
    assert np.abs(circular(ours - direction)).max() < 0.15
    blind = fk.FunctionSensor(lambda x: jnp.stack([jnp.arctan2(x[1], x[0])]), 1)
    lost = fk.estimate(system, blind, circular(bearing), **given)
    assert not lost.ok or lost.log_likelihood < a.log_likelihood - 5


@pytest.mark.parametrize("method", ONE)
def test_a_map_may_wrap_its_own_angle(method):
    """With the component declared, it does not matter on which turn the map returns it."""

    def line(x):
        return jnp.stack([x[0] + 0.2 * x[1], 0.99 * x[1]])

    def circle(x):
        angle, speed = line(x)
        return jnp.stack([jnp.arctan2(jnp.sin(angle), jnp.cos(angle)), speed])

    rng = np.random.default_rng(0)
    x = [np.array([1.0, 2.0])]
    for _ in range(60):
        x.append(np.asarray(line(x[-1])) + rng.normal(0, [0.02, 0.05]))
    x = np.array(x[1:])
    z = circular(x[:, :1] + rng.normal(0, 0.2, (60, 1)))
    results = [
        fk.estimate(
            fk.System.from_map(f, 2, angles=(0,)),
            CIRCLE[1],
            z,
            process_noise=[4e-4, 2.5e-3],
            observation_noise=0.04,
            initial_mean=[1.0, 2.0],
            initial_cov=0.2,
            method=method,
            alpha=1.0,
            kappa=1.0,
        )
        for f in (line, circle)
    ]
    for name in ("mean", "cov", "innovations", "initial_mean", "log_likelihood"):
        ours, theirs = (getattr(e, name) for e in results)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
    assert np.abs(circular(results[1].mean[:, 0] - x[:, 0])).max() < 0.4
    assert x[-1, 0] > 4 * np.pi


def test_two_angles_of_a_double_pendulum():
    system = fk.systems.DoublePendulum(angles=(0, 2))
    sensor = fk.LinearSensor(np.eye(4), angles=(0, 2))
    start = np.array([3.0, 12.0, 3.0, 14.0])
    x = fk.simulate(system, steps=400, initial=start)[1:]
    noisy = x + np.random.default_rng(0).normal(0, 0.1, x.shape)
    z = noisy.copy()
    z[:, [0, 2]] = circular(z[:, [0, 2]])
    assert (np.abs(np.diff(z[:, [0, 2]], axis=0)) > np.pi).any(axis=0).all()
    given = {
        "process_noise": [1e-6, 1e-3, 1e-6, 1e-3],
        "observation_noise": 0.01,
        "initial_mean": start,
        "initial_cov": 0.01,
        "method": "ukf-resampled",
    }
    e = fk.estimate(system, sensor, z, **given)
    error = e.mean - x
    error[:, [0, 2]] = circular(error[:, [0, 2]])
    assert (np.abs(error) < 5 * e.std).all()
    assert np.sqrt(np.mean(error[:, [0, 2]] ** 2)) < 0.05
    assert (np.abs(e.mean[:, [0, 2]]) <= np.pi).all()
    assert (np.abs(e.mean[:, [1, 3]]) > np.pi).any(), "velocities are not wrapped"


def test_innovations_of_wrapped_angles_are_consistent():
    """NIS over model-consistent data that crosses the cut all the time."""
    system, sensor = CIRCLE
    start = START + np.random.default_rng(1).normal(size=(20, 2)) * np.sqrt([0.05, 0.5])
    x = fk.simulate(system, steps=STEPS, seed=1, initial=start, process_noise=[1e-5, 1e-3])
    z = circular(fk.observe(sensor, x[:, 1:], noise=NOISE, seed=1))
    e = fk.estimate(system, sensor, z, method="ukf-resampled", smooth=False, **GIVEN)
    assert nis(e).consistent, str(nis(e))
    lost = fk.estimate(*LINE, z, method="ukf-resampled", smooth=False, **GIVEN)
    assert not nis(lost).consistent


def test_gravity_from_a_pendulum_that_turns_over(z):
    system, sensor = CIRCLE
    given = {k: v for k, v in GIVEN.items() if k != "particles"}
    given["process_noise"] = 1e-8
    found = fk.estimate_parameters(system, sensor, z, {"gravity": 8.0}, std=2.0, **given)
    assert found.ok
    assert abs(found.mean[0] - 9.8) < 3 * found.std[0] < 2.5


def test_wrap():
    """The half-open interval (−π, π], only for the components named."""
    values = np.array([0.0, 1.0, np.pi, -np.pi, 3.5, -3.5, 7.0, 100.0, np.nan])
    wrapped = np.asarray(wrap(jnp.asarray(np.stack([values, values])), (1,)))
    np.testing.assert_array_equal(wrapped[0], values)
    expected = circular(values)
    expected[[2, 3]] = np.pi
    np.testing.assert_allclose(wrapped[1], expected, atol=1e-13)
    assert wrapped[1, 3] == np.pi
