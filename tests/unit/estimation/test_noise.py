"""Noise covariances: the textbook's maximum likelihood, covered by their errors, and guarded."""

import jax.numpy as jnp
import numpy as np
import pytest
from reference import filters
from scipy import optimize

import fedkoopman as fk
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.estimation import Linearised, Unscented, nis
from fedkoopman.estimation.estimator import problem_of
from fedkoopman.estimation.likelihood import score
from fedkoopman.estimation.noise import estimate_noise, likelihoods, tracked
from fedkoopman.estimation.noise_structure import STRUCTURES, structure_of

pytestmark = pytest.mark.slow  # compiling takes minutes: `make test-slow`

A = np.array([[0.9, 0.3], [-0.3, 0.8]])
C = np.array([[1.0, 0.0], [1.0, 1.0]])
Q, R = np.diag([0.2, 0.4]), np.array([[0.5, 0.2], [0.2, 1.0]])
MAP = fk.System.from_map(lambda x: jnp.asarray(A) @ x, 2)
SENSOR = fk.LinearSensor(C)


def linear_data(steps=60, batch=2, seed=0, q=Q, r=R):
    """Observations (B, T, 2) of the map from x_0 ~ N(0, I)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(batch, 2))
    z = []
    for _ in range(steps):
        x = x @ A.T + rng.multivariate_normal(np.zeros(2), q, size=batch)
        z.append(x @ C.T + rng.multivariate_normal(np.zeros(2), r, size=batch))
    return np.stack(z, axis=1)


def kalman_likelihood(trajectories, q, r):
    """log p(z) of the textbook's Kalman filter."""
    model = (lambda x: A @ x, lambda x: C @ x)
    slopes = (lambda x: A, lambda x: C)
    start = (np.zeros(2), np.eye(2))
    return sum(filters.linearised(*model, z, q, r, *start, *slopes)[-1] for z in trajectories)


GAPPY = linear_data()
GAPPY[0, 5], GAPPY[1, 20:25, 0] = np.nan, np.nan
FORMS = {
    # structure: how the twin builds Q and R from its own parameters, and how many there are
    "diagonal": (lambda t: (np.diag(np.exp(t[:2])), np.diag(np.exp(t[2:]))), 4),
    "scalar": (lambda t: (np.exp(t[0]) * np.eye(2), np.exp(t[1]) * np.diag([1.0, 2.0])), 2),
    "full": (lambda t: (np.diag(np.exp(t[:2])), _lower(t[2:]) @ _lower(t[2:]).T), 5),
}


def _lower(t):
    return np.array([[np.exp(t[0]), 0.0], [t[2], np.exp(t[1])]])


@pytest.mark.parametrize("structure", FORMS)
def test_on_a_linear_system_it_is_the_textbooks_maximum(structure):
    """The same optimum as scipy finds for a plain NumPy Kalman filter, gaps and all."""
    build, size = FORMS[structure]
    best = optimize.minimize(
        lambda t: -kalman_likelihood(GAPPY, *build(t)), np.zeros(size), method="BFGS", tol=1e-4
    )
    q, r = build(best.x)
    found = estimate_noise(
        MAP,
        SENSOR,
        GAPPY,
        observation_noise=[1.0, 2.0],
        structure=structure,
        process_structure="diagonal" if structure == "full" else None,
        method="ekf",
    )
    assert found.converged and found.used.all()
    assert found.log_likelihoods[-1] == pytest.approx(-best.fun, abs=1e-4)
    error = np.nanmax(np.concatenate([found.process_error, found.observation_error]))
    np.testing.assert_allclose(found.process_noise, q, atol=0.01 * error * q.max())
    np.testing.assert_allclose(found.observation_noise, r, atol=0.01 * error * r.max())
    assert np.all(np.diff(found.log_likelihoods) > 0)
    start = kalman_likelihood(GAPPY, np.eye(2), np.diag([1.0, 2.0]))
    assert found.log_likelihoods[0] == pytest.approx(start, abs=1e-9)


def test_the_unscented_filter_finds_the_same_there():
    found = {
        method: estimate_noise(MAP, SENSOR, GAPPY, method=method, kappa=0.0)
        for method in ("ekf", "ukf-resampled")
    }
    for name in ("process_noise", "observation_noise", "process_error", "observation_error"):
        first, second = (getattr(f, name) for f in found.values())
        np.testing.assert_allclose(first, second, rtol=1e-6)


def test_it_is_covered_by_its_stated_errors():
    """Over repeated experiments, (estimate − truth) / stated error is standard normal."""
    r = np.diag([0.5, 1.0])
    scores = []
    for seed in range(25):
        z = linear_data(steps=150, batch=3, seed=seed, r=r)
        found = estimate_noise(MAP, SENSOR, z, method="ekf", process_structure="scalar",
                               process_noise=5 * Q)  # fmt: skip
        ratio = np.concatenate([
            np.log(np.diag(found.observation_noise) / np.diag(r)) / found.observation_error,
            np.log(np.diag(found.process_noise) / np.diag(Q))[:1] / found.process_error[:1],
        ])  # fmt: skip
        scores.append(ratio)
    scores = np.array(scores)
    assert np.abs(scores.mean(axis=0)).max() < 4 / np.sqrt(25)
    assert scores.std(axis=0).min() > 0.6 and scores.std(axis=0).max() < 1.5


def lorenz_data(q=0.5, r=(2.0, 0.5)):
    system = fk.systems.Lorenz63()
    sensor = fk.LinearSensor(np.eye(3)[:2])
    start = np.random.default_rng(1).normal(size=(6, 3))
    x = fk.simulate(system, 200, seed=2, batch=6, initial=start, process_noise=q)
    return system, sensor, x, fk.observe(sensor, x[:, 1:], noise=r, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("start", [0.01, 50.0])
def test_lorenz63_recovers_both_and_becomes_consistent(start):
    system, sensor, _, z = lorenz_data()
    found = estimate_noise(
        system, sensor, z, observation_noise=start, process_noise=1 / start,
        process_structure="scalar",
    )  # fmt: skip
    assert found.converged
    relative = np.log(np.diag(found.observation_noise) / [2.0, 0.5]) / found.observation_error
    assert np.abs(relative).max() < 3 and found.observation_error.max() < 0.1
    assert abs(np.log(found.process_noise[0, 0] / 0.5)) < 3 * found.process_error[0]

    def judged(q, r):
        e = fk.estimate(system, sensor, z, process_noise=q, observation_noise=r,
                        method="ukf-resampled", smooth=False)  # fmt: skip
        return nis(e)

    before = judged(1 / start, start)
    after = judged(found.process_noise, found.observation_noise)
    assert not before.consistent and after.consistent
    assert abs(np.log(after.value)) < 0.1 * abs(np.log(before.value))


def test_a_pendulum_without_process_noise_ends_at_the_floor():
    """The truth is deterministic: R is recovered and Q stops where it no longer matters."""
    system = fk.systems.Pendulum()
    sensor = fk.LinearSensor([[1.0, 0.0]])
    start = np.random.default_rng(0).normal(size=(4, 2))
    x = fk.simulate(system, 250, batch=4, initial=start)
    z = fk.observe(sensor, x[:, 1:], noise=0.04, seed=1)
    found = estimate_noise(
        system, sensor, z, process_noise=1e-3, process_structure="scalar", floor=1e-4
    )
    assert found.converged
    [ratio] = found.observation_noise[0] / 0.04
    assert abs(np.log(ratio)) < 3 * found.observation_error[0] < 0.2
    changes = np.mean(np.diff(x[:, 1:], axis=1) ** 2, axis=(0, 1))
    assert found.process_noise[0, 0] == pytest.approx(1e-4 * changes.min(), rel=0.5)
    assert found.process_floored.all() and np.isnan(found.process_error).all()
    assert not found.observation_floored.any()
    done = fk.estimate(
        system, sensor, z, process_noise=found.process_noise,
        observation_noise=found.observation_noise, method="ukf-resampled",
    )  # fmt: skip
    assert done.ok.all() and nis(done).consistent


# What enters, and what stays


def test_a_dead_channel_keeps_its_noise_and_changes_nothing_else():
    system, sensor, _, z = lorenz_data()
    z = z[:2, :60].copy()
    alone = estimate_noise(
        system, fk.LinearSensor(np.eye(3)[:1]), z[..., :1], method="ekf",
        process_structure="fixed", process_noise=0.5,
    )  # fmt: skip
    z[..., 1] = np.nan
    for structure in ("diagonal", "scalar", "blocks", "full"):
        given = [[1.0, 0.8], [0.8, 7.0]] if structure in ("full", "diagonal") else [1.0, 7.0]
        found = estimate_noise(
            system, sensor, z, method="ekf", observation_noise=given, process_noise=0.5,
            structure=structure, process_structure="fixed",
        )  # fmt: skip
        expected = [alone.observation_noise[0, 0], 7.0]
        np.testing.assert_allclose(found.observation_noise, np.diag(expected), rtol=1e-4)
        assert np.isnan(found.observation_error[1])
        assert found.observation_error[0] == pytest.approx(alone.observation_error[0], rel=1e-3)
        np.testing.assert_array_equal(found.process_noise, 0.5 * np.eye(3))


def test_a_drifting_state_does_not_raise_the_floor():
    """An unwrapped angle of a pendulum that turns over and over spreads without end."""
    system, sensor = fk.systems.Pendulum(), fk.LinearSensor([[1.0, 0.0]])
    start = np.array([[0.0, 9.0], [0.0, 8.0], [1.0, 0.0]])
    x = fk.simulate(system, 400, initial=start, process_noise=1e-5)
    z = fk.observe(sensor, x[:, 1:], noise=0.01, seed=1)
    assert 1e-6 * np.var(x[:2, :, 0]) > 1e-5 * 10
    found = estimate_noise(
        system, sensor, z, process_noise=1e-2, initial_mean=start, process_structure="scalar"
    )
    assert abs(np.log(found.process_noise[0, 0] / 1e-5)) < 3 * found.process_error[0] < 2
    assert not found.process_floored.any()


def test_what_is_given_as_zero_stays_zero():
    found = estimate_noise(MAP, SENSOR, GAPPY, process_noise=[0.0, 1.0], method="ekf")
    assert found.process_noise[0, 0] == 0 < found.process_noise[1, 1]
    assert np.isnan(found.process_error[0]) and np.isfinite(found.process_error[1])


def test_a_ragged_list_is_its_trajectories_together():
    long, short = linear_data(steps=60, batch=1)[0], linear_data(steps=40, batch=1, seed=1)[0]
    found = estimate_noise(MAP, SENSOR, [long, short], method="ekf")
    padded = np.full((2, 60, 2), np.nan)
    padded[0], padded[1, :40] = long, short
    same = estimate_noise(MAP, SENSOR, padded, method="ekf")
    np.testing.assert_allclose(found.process_noise, same.process_noise, rtol=1e-3)
    np.testing.assert_allclose(found.observation_noise, same.observation_noise, rtol=1e-3)
    expected = kalman_likelihood([long, short], found.process_noise, found.observation_noise)
    assert found.log_likelihoods[-1] == pytest.approx(expected, abs=1e-9)


def test_skipped_samples_do_not_count():
    """A wrong initial state inflates the noise unless the first samples are left out."""
    z = linear_data(steps=150, batch=3, r=np.diag([0.5, 1.0]))
    given = {"method": "ekf", "process_structure": "fixed", "process_noise": Q,
             "initial_mean": [30.0, 30.0], "initial_cov": 0.01}  # fmt: skip
    fooled = estimate_noise(MAP, SENSOR, z, **given)
    found = estimate_noise(MAP, SENSOR, z, skip=20, **given)
    assert np.diag(fooled.observation_noise).min() > 2
    np.testing.assert_allclose(np.diag(found.observation_noise), [0.5, 1.0], rtol=0.4)


def test_diverging_trajectories_are_left_out_and_named():
    system = fk.System.from_map(lambda x: 0.5 * x + 0.0 * jnp.sqrt(20.0 - x), 1)
    rng = np.random.default_rng(0)
    z = 0.3 * rng.normal(size=(3, 30, 1))
    given = {"method": "ekf", "process_noise": 1e-3, "initial_cov": 1e-3}
    start = np.array([[0.1], [50.0], [0.1]])
    found = estimate_noise(system, fk.LinearSensor.identity(1), z, initial_mean=start, **given)
    assert found.used.tolist() == [True, False, True]
    kept = estimate_noise(
        system, fk.LinearSensor.identity(1), z[[0, 2]], initial_mean=start[[0, 2]], **given
    )
    np.testing.assert_allclose(found.observation_noise, kept.observation_noise, rtol=1e-3)
    with pytest.raises(ComputationError, match="diverged on all 3"):
        estimate_noise(
            system, fk.LinearSensor.identity(1), z, initial_mean=np.full((3, 1), 50.0), **given
        )


def test_noise_per_step_is_scaled_as_a_whole():
    """A local polynomial with irregular intervals: the density is what is estimated."""
    rng = np.random.default_rng(2)
    h = rng.uniform(0.05, 0.3, (3, 150))
    system = fk.systems.LocalPolynomial(("a",), 1, 0.1)
    sensor = fk.LinearSensor([[1.0, 0.0]])
    noise = system.process_noise(2.0, h)
    x = np.zeros((3, 2))
    z = np.empty((3, 150, 1))
    for k in range(150):
        for b in range(3):
            x[b] = [x[b, 0] + h[b, k] * x[b, 1], x[b, 1]]
            x[b] += rng.multivariate_normal(np.zeros(2), noise[b, k])
            z[b, k] = x[b, 0] + 0.2 * rng.normal()
    found = estimate_noise(
        system, sensor, z, dt=h, process_noise=system.process_noise(1.0, h),
        observation_noise=np.full((150, 1, 1), 1.0), structure="scalar", method="ekf",
    )  # fmt: skip
    assert found.process_noise.shape == (3, 150, 2, 2)
    density = found.process_noise[1, 7] / system.process_noise(1.0, h[1, 7])
    np.testing.assert_allclose(density, density[0, 0], rtol=1e-10)
    assert abs(np.log(density[0, 0] / 2.0)) < 3 * found.process_error[0] < 0.6
    assert abs(np.log(found.observation_noise[3, 0, 0] / 0.04)) < 3 * found.observation_error[0]


def test_blocks_have_a_density_each():
    system = fk.systems.LocalPolynomial(("a", "b"), 1, 0.1)
    given = system.process_noise(1.0)
    shape = structure_of("blocks", given, np.zeros(4, bool), "q")
    theta = np.log([3.0, 0.2])
    np.testing.assert_allclose(shape.matrix(theta), system.process_noise([3.0, 0.2]), rtol=1e-12)


def test_known_inputs_are_passed_on():
    system = fk.System.from_map(lambda x, u: 0.9 * x + u, 1, input_dim=1)
    rng = np.random.default_rng(0)
    u, x, z = 5 * rng.normal(size=(200, 1)), 0.0, []
    for k in range(200):
        x = 0.9 * x + u[k, 0] + np.sqrt(0.1) * rng.normal()
        z.append([x + rng.normal()])
    found = estimate_noise(system, fk.LinearSensor.identity(1), z, inputs=u, method="ekf")
    assert abs(np.log(found.observation_noise[0, 0])) < 3 * found.observation_error[0]
    assert abs(np.log(found.process_noise[0, 0] / 0.1)) < 3 * found.process_error[0]


def test_progress_and_iterations():
    calls = []
    found = estimate_noise(
        MAP, SENSOR, GAPPY, method="ekf", observation_noise=100.0, iterations=2,
        progress=lambda done, total: calls.append((done, total)),
    )  # fmt: skip
    assert calls == [(1, 2), (2, 2)]
    assert not found.converged and "not converged" in str(found)
    assert len(found.log_likelihoods) <= 4  # as given, where the climb began, and two steps


# The pieces


def unit_noise(system, sensor, z):
    problem, _ = problem_of(
        system, sensor, z, process_noise=1.0, observation_noise=1.0,
        initial_mean=None, initial_cov=None, inputs=None, dt=None,
    )  # fmt: skip
    return problem


@pytest.mark.parametrize("transform", [Linearised(), Unscented(resample=True)], ids=["ekf", "ukf"])
def test_the_gradient_is_that_of_the_likelihood(transform):
    system, sensor, _, z = lorenz_data()
    z = z[:3, :12].copy()
    z[0, 3], z[1, 9, 1] = np.nan, np.nan
    problem = unit_noise(system, sensor, z)
    shape_r = structure_of("full", np.array([[1.0, 0.3], [0.3, 2.0]]), np.zeros(2, bool), "r")
    shape_q = structure_of("scalar", np.eye(3), np.zeros(3, bool), "q")
    counted = np.array([True, True, False])

    def likelihood(theta):
        e = fk.estimate(
            system, sensor, z, process_noise=shape_q.matrix(theta[3:]),
            observation_noise=shape_r.matrix(theta[:3]), smooth=False,
            method="ekf" if isinstance(transform, Linearised) else "ukf-resampled",
        )  # fmt: skip
        return e.log_likelihood

    theta = np.array([0.2, -0.3, 0.4, -0.5])
    q, r = shape_q.matrix(theta[3:]), shape_r.matrix(theta[:3])
    dq = np.concatenate([np.zeros((3, 3, 3)), shape_q.slopes(theta[3:])])
    dr = np.concatenate([shape_r.slopes(theta[:3]), np.zeros((1, 2, 2))])
    found = score(problem, transform, q, r, dq, dr, counted=counted)
    np.testing.assert_allclose(found.log_likelihood, likelihood(theta), rtol=1e-12)
    h = 1e-5 * np.eye(4)
    differences = [np.sum((likelihood(theta + e) - likelihood(theta - e))[:2]) / 2e-5 for e in h]
    np.testing.assert_allclose(found.gradient, differences, rtol=1e-6, atol=1e-5)
    assert np.linalg.eigvalsh(found.information)[0] > 0


def test_piece_by_piece_is_the_same(monkeypatch):
    z = [GAPPY[0], GAPPY[1, :50], GAPPY[1]]
    problem = unit_noise(MAP, SENSOR, z)
    slopes = np.stack([np.eye(2), np.zeros((2, 2))]), np.stack([np.zeros((2, 2)), np.eye(2)])
    given = (problem, Linearised(), Q, R, *slopes)
    counted = np.array([True, True, False])
    together = score(*given, counted=counted, skip=3)
    plain = likelihoods(tracked(problem, Q, R, {"method": "ekf"}), skip=3)
    np.testing.assert_allclose(plain, together.log_likelihood, rtol=1e-10)
    monkeypatch.setattr("fedkoopman.estimation.likelihood.MOST_NUMBERS", 1)
    for one, all_ in zip(score(*given, counted=counted, skip=3), together, strict=True):
        np.testing.assert_allclose(one, all_, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", STRUCTURES)
def test_slopes_of_a_structure_equal_differences(name):
    given = np.array([[2.0, 0.5, 0, 0], [0.5, 1.0, 0, 0], [0, 0, 3.0, 0], [0, 0, 0, 0.0]])
    held = np.array([False, False, True, False])
    shape = structure_of(name, given, held, "q")
    sizes = {"fixed": 0, "scalar": 1, "blocks": 1, "diagonal": 2, "full": 3}
    assert shape.size == sizes[name]
    np.testing.assert_array_equal(shape.free, [shape.size > 0] * 2 + [False] * 2)
    start = shape.matrix(np.zeros(shape.size))
    np.testing.assert_allclose(start, np.diag(np.diag(given)) if name == "diagonal" else given)
    theta = np.random.default_rng(0).normal(size=shape.size)
    matrix = shape.matrix(theta)
    assert matrix[2, 2] == 3.0 and matrix[3, 3] == 0.0
    assert np.linalg.eigvalsh(matrix).min() >= -1e-12
    for slope, e in zip(shape.slopes(theta), 1e-6 * np.eye(shape.size), strict=True):
        expected = (shape.matrix(theta + e) - shape.matrix(theta - e)) / 2e-6
        np.testing.assert_allclose(slope, expected, atol=1e-8)


def test_a_variance_stops_at_its_floor():
    floor = np.array([1e-3, 1e-2])
    diagonal = structure_of("diagonal", np.diag([1.0, 4.0]), np.zeros(2, bool), "q")
    np.testing.assert_allclose(np.diag(diagonal.matrix(diagonal.lowest(floor))), floor)
    scalar = structure_of("scalar", np.diag([1.0, 4.0]), np.zeros(2, bool), "q")
    np.testing.assert_allclose(np.diag(scalar.matrix(scalar.lowest(floor))), [1e-3, 4e-3])
    tiny = structure_of("diagonal", np.diag([1e-9, 4.0]), np.zeros(2, bool), "q")
    assert tiny.lowest(floor)[0] == 0  # what is given below the floor does not jump up


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "ukf"}, ["'ukf' has no consistent likelihood", "'ukf-resampled'"]),
        ({"method": "particle"}, ["'particle' has no consistent"]),
        ({"method": "uks"}, ["unknown method 'uks'"]),
        ({"structure": "diag"}, ["unknown structure 'diag'", "did you mean 'diagonal'"]),
        ({"structure": "fixed"}, ["nothing is left to estimate"]),
        ({"process_noise": 0.0, "structure": "fixed", "process_structure": "full"}, ["nothing"]),
        ({"iterations": 0}, ["iterations is 0"]),
        ({"skip": 55}, ["at most 5 observations", "10"]),
        ({"skip": -1}, ["skip is -1"]),
        ({"floor": 0.0}, ["floor is 0"]),
        ({"observation_noise": -1.0}, ["observation_noise", "semi-definite"]),
        (
            {"observation_noise": np.ones((60, 2, 2)), "structure": "full"},
            ['"full" needs one matrix', "observation_noise changes"],
        ),
        ({"process_noise": [1.0, 2.0, 3.0]}, ["process_noise has shape (3,)"]),
    ],
)
def test_wrong_input_is_refused_in_one_line(options, words):
    z = linear_data(batch=1)[0]
    with pytest.raises(InputError) as refusal:
        estimate_noise(MAP, SENSOR, z, **{"method": "ekf", **options})
    assert "\n" not in str(refusal.value)
    for word in words:
        assert word in str(refusal.value)


def test_several_systems_or_too_little_data_are_refused():
    with pytest.raises(InputError, match="give a single system"):
        estimate_noise([MAP, MAP], SENSOR, GAPPY)
    with pytest.raises(InputError, match="at most 0 observations"):
        estimate_noise(MAP, SENSOR, np.full((30, 2), np.nan), method="ekf")
