"""Unknown parameters: exact where the problem is linear, recovered and covered where it is not."""

import jax.numpy as jnp
import numpy as np
import pytest
from reference import filters
from scipy import stats

import fedkoopman as fk
from fedkoopman.estimation import DivergenceWarning

pytestmark = pytest.mark.slow  # compiling takes minutes: `make test-slow`

STEPS = 30
Q, R, P0, GUESS, STD = 0.3, 0.8, 2.0, 0.2, 0.7


@pytest.fixture(scope="module")
def walk():
    """x' = x + b with an unknown constant b: linear in (x, b)."""
    system = fk.System.from_map(lambda x, b: x + b, 1, parameters={"b": 0.0})
    return system, fk.LinearSensor.identity(1)


def walk_data(b, steps=STEPS, seed=0):
    """Observations of x' = x + b + noise from x_0 ~ N(0, P0); b may change from step to step."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, np.sqrt(P0)) + np.cumsum(b + rng.normal(0, np.sqrt(Q), steps))
    return (x + rng.normal(0, np.sqrt(R), steps))[:, None]


def kalman(z, drift=0.0):
    """The exact filter and smoother of (x, b)."""
    a, c = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    return filters.linearised(
        lambda x: a @ x,
        lambda x: c @ x,
        z,
        np.diag([Q, drift**2]),
        np.array([[R]]),
        np.array([0.0, GUESS]),
        np.diag([P0, STD**2]),
        lambda x: a,
        lambda x: c,
    )


def regression(trajectories, q=(Q, Q, Q)):
    """The posterior of b by conditioning one joint Gaussian of b and every observation.

    z_k = x_0 + k b + w_1 + … + w_k + v_k; trajectories share b and nothing else.
    """
    rows, covs = [], []
    for z, variance in zip(trajectories, q, strict=False):
        k = np.arange(1.0, len(z) + 1)
        rows.append(k)
        covs.append(P0 + variance * np.minimum(k[:, None], k) + R * np.eye(len(z)))
    slope = np.concatenate(rows)
    noise = np.zeros((len(slope), len(slope)))
    start = 0
    for cov in covs:
        noise[start : start + len(cov), start : start + len(cov)] = cov
        start += len(cov)
    weighted = np.linalg.solve(noise, slope)
    variance = 1 / (1 / STD**2 + weighted @ slope)
    return variance * (GUESS / STD**2 + weighted @ np.concatenate(trajectories)[:, 0]), variance


def estimate_b(walk, z, **options):
    given = {"process_noise": Q, "observation_noise": R, "initial_cov": P0, "std": STD}
    return fk.estimate_parameters(*walk, z, {"b": GUESS}, **{**given, **options})


def close(ours, theirs, tolerance=1e-9):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * max(1, np.abs(theirs).max()))


@pytest.mark.parametrize("method", ["ukf-resampled", "ekf"])
def test_an_unknown_constant_input_is_a_kalman_problem(walk, method):
    z = walk_data(1.0)
    z[7] = np.nan
    means, covs, smoothed, smoothed_covs, log_likelihood = kalman(z)
    found = estimate_b(walk, z, method=method)
    assert found.ok and found.names == ("b",)
    close(found.mean, means[-1, 1:])
    close(found.cov, covs[-1, 1:, 1:])
    close(found.std, np.sqrt(covs[-1, 1, 1]))
    assert found.values == {"b": found.mean[0]}
    (states,) = found.states
    close(states.mean, smoothed[1:, :1])
    close(states.cov, smoothed_covs[1:, :1, :1])
    close(states.initial_mean, smoothed[0, :1])
    close(states.initial_cov, smoothed_covs[0, :1, :1])
    close(states.log_likelihood, log_likelihood)


def test_the_path_is_the_filtered_one(walk):
    z = walk_data(1.0)
    means, *_ = kalman(z)
    found = estimate_b(walk, z)
    close(found.path[0], means[1:, 1:])


def test_several_trajectories_are_one_regression(walk):
    """A batch, and a ragged list: exact recursive Bayes is the joint posterior, and tighter."""
    z = [walk_data(1.0, seed=seed) for seed in range(3)]
    batch = estimate_b(walk, np.stack(z))
    mean, variance = regression(z)
    close(batch.mean, [mean])
    close(batch.cov, [[variance]])
    assert len(batch.states) == len(batch.path) == 3

    ragged_z = [z[0], z[1][:12], z[2][:5]]
    ragged = estimate_b(walk, ragged_z)
    mean, variance = regression(ragged_z)
    close(ragged.mean, [mean])
    close(ragged.cov, [[variance]])
    assert [s.mean.shape for s in ragged.states] == [(30, 1), (12, 1), (5, 1)]
    assert [p.shape for p in ragged.path] == [(30, 1), (12, 1), (5, 1)]

    one = estimate_b(walk, z[0])
    assert batch.std[0] < ragged.std[0] < one.std[0]
    assert batch.std[0] == pytest.approx(one.std[0] / np.sqrt(3), rel=0.05)


def test_noise_per_trajectory(walk):
    z = [walk_data(1.0, seed=seed) for seed in range(2)]
    q = np.ones((2, STEPS, 1, 1)) * np.array([Q, 9 * Q])[:, None, None, None]
    found = estimate_b(walk, np.stack(z), process_noise=q)
    mean, variance = regression(z, (Q, 9 * Q))
    close(found.mean, [mean])
    close(found.cov, [[variance]])


def test_initial_states_per_trajectory(walk):
    """Shifting a trajectory and its initial state alike changes nothing about b."""
    z = np.stack([walk_data(1.0, seed=seed) for seed in range(2)])
    shift = np.array([[5.0], [-3.0]])
    plain = estimate_b(walk, z)
    moved = estimate_b(
        walk,
        z + shift[:, None],
        initial_mean=shift,
        initial_cov=np.full((2, 1, 1), P0),
        process_noise=np.full((1, 1, 1, 1), Q),
        observation_noise=np.full((STEPS, 1, 1), R),
    )
    close(moved.mean, plain.mean)
    close(moved.cov, plain.cov)
    wrong = estimate_b(walk, z + shift[:, None])
    assert abs(wrong.mean[0] - plain.mean[0]) > 1e-3


def test_drift_follows_a_changing_parameter(walk):
    b = np.where(np.arange(60) < 30, 1.0, -2.0)
    z = walk_data(b, steps=60)
    fixed, free = estimate_b(walk, z), estimate_b(walk, z, drift=0.4)
    means, covs, *_ = kalman(z, drift=0.4)
    close(free.mean, means[-1, 1:])
    close(free.cov, covs[-1, 1:, 1:])
    assert abs(free.mean[0] + 2) < 3 * free.std[0]
    assert abs(fixed.mean[0] + 2) > 10 * fixed.std[0]
    # before the change and after it, whether the path is filtered or smoothed
    assert abs(free.path[0][25, 0] - 1) < 1.0 and abs(free.path[0][-1, 0] + 2) < 1.0


def test_another_pass_starts_from_the_estimate_with_the_first_uncertainty(walk):
    z = walk_data(3.0)
    once = estimate_b(walk, z, std=0.1)
    twice = estimate_b(walk, z, std=0.1, passes=2)
    again = fk.estimate_parameters(
        *walk, z, once.values, std=0.1, process_noise=Q, observation_noise=R, initial_cov=P0
    )
    close(twice.mean, again.mean, 1e-12)
    close(twice.cov, again.cov, 1e-12)
    assert abs(twice.mean[0] - 3) < abs(once.mean[0] - 3)


@pytest.fixture(scope="module")
def oscillator():
    """ẍ = −k x − 0.2 ẋ with k unknown: linear in the state, not in (x, k)."""
    system = fk.System.from_function(
        lambda x, k: jnp.stack([x[1], -k * x[0] - 0.2 * x[1]]), 2, 0.1, parameters={"k": 1.0}
    )
    return system, fk.LinearSensor([[1.0, 0.0]])


def oscillations(oscillator, k, seed, batch=None):
    """Model-consistent data: the initial state from its prior, process noise in every step."""
    system, sensor = oscillator
    start = np.array([2.0, 0.0]) + 0.3 * np.random.default_rng(seed).normal(size=(batch or 1, 2))
    x = fk.simulate(
        system.with_parameters(k=k),
        steps=100,
        seed=seed,
        initial=start if batch else start[0],
        process_noise=1e-3,
    )
    return fk.observe(sensor, x[..., 1:, :], noise=0.05, seed=seed)


OSCILLATOR = {
    "process_noise": 1e-3,
    "observation_noise": 0.05,
    "initial_mean": [2.0, 0.0],
    "initial_cov": 0.09,
}


def test_uncertainty_covers_the_truth(oscillator):
    """k ~ N(2, 0.4²) drawn 20 times: Σ (k̂ − k)²/σ̂² is χ² with 20 degrees of freedom."""
    draws = 2.0 + 0.4 * np.random.default_rng(0).normal(size=20)
    errors, stds = [], []
    for seed, k in enumerate(draws):
        z = oscillations(oscillator, k, seed)
        found = fk.estimate_parameters(*oscillator, z, {"k": 2.0}, std=0.4, **OSCILLATOR)
        errors.append(found.mean[0] - k)
        stds.append(found.std[0])
    statistic = np.sum(np.square(errors) / np.square(stds))
    lower, upper = stats.chi2.ppf([0.005, 0.995], 20)
    assert lower < statistic < upper
    assert np.max(stds) < 0.2, "the data must say more than the prior"


def test_more_trajectories_tighten_the_posterior(oscillator):
    z = oscillations(oscillator, 2.3, seed=5, batch=4)
    given = {"std": 0.4, **OSCILLATOR}
    stds = []
    for count in (1, 2, 4):
        found = fk.estimate_parameters(*oscillator, z[:count], {"k": 2.0}, **given)
        assert abs(found.mean[0] - 2.3) < 3 * found.std[0]
        stds.append(found.std[0])
    assert stds[0] > 1.2 * stds[1] > 1.2**2 * stds[2]


@pytest.fixture(scope="module")
def lorenz():
    system, sensor = fk.systems.Lorenz63(), fk.LinearSensor.random_frame(3, seed=0)
    x = fk.simulate(system, steps=300, seed=1, batch=3, process_noise=1e-3)
    return system, sensor, x, fk.observe(sensor, x[:, 1:], noise=1.0, seed=1)


LORENZ = {"process_noise": 1e-3, "observation_noise": 1.0, "initial_cov": 30.0}


@pytest.mark.parametrize(
    "guess", [{"b": 20.0}, {"b": 35.0}, {"a": 7.0, "b": 22.0}], ids=["low", "high", "joint"]
)
def test_lorenz63_is_recovered_from_a_wrong_guess(lorenz, guess):
    system, sensor, x, z = lorenz
    truth = np.array([system.parameters[name] for name in guess])
    for b in range(3):
        found = fk.estimate_parameters(system, sensor, z[b], guess, **LORENZ)
        assert found.ok and found.names == tuple(guess)
        assert (np.abs(found.mean - truth) < 3 * found.std).all(), str(found)
        assert (found.std < 0.05 * truth).all()
        inside = np.abs(found.states[0].mean - x[b, 1:]) < 4 * found.states[0].std
        assert inside.mean() > 0.98
    joint = len(guess) > 1
    assert found.cov.shape == (1 + joint, 1 + joint)
    if joint:
        assert abs(found.cov[0, 1]) > 0


def test_a_wrong_parameter_left_alone_spoils_the_states(lorenz):
    """What the joint estimation is for: the same wrong guess, not estimated."""
    _, sensor, x, z = lorenz
    given = {**LORENZ, "method": "ukf-resampled"}
    wrong = fk.estimate(fk.systems.Lorenz63(b=20.0), sensor, z[0], **given)
    found = fk.estimate_parameters(fk.systems.Lorenz63(), sensor, z[0], {"b": 20.0}, **LORENZ)
    assert np.abs(found.states[0].mean - x[0, 1:]).mean() < 0.3
    assert np.abs(wrong.mean - x[0, 1:]).mean() > 1.0


def test_it_prints_for_a_person(walk):
    found = estimate_b(walk, walk_data(1.0))
    assert str(found) == f"b = {found.mean[0]:.4g} ± {found.std[0]:.2g}"


def test_the_default_uncertainty_is_half_the_guess(walk):
    z = np.full((3, 1), np.nan)  # nothing seen: the posterior is the prior
    for guess, std in ((-3.0, 1.5), (0.0, 1.0)):
        found = fk.estimate_parameters(*walk, z, {"b": guess})
        close(found.mean, [guess])
        close(found.std, [std])


def test_known_inputs_are_used():
    """x' = b x + u: without the inputs, b would be wrong."""
    system = fk.System.from_map(lambda x, u, b: b * x + u, 1, input_dim=1, parameters={"b": 0.0})
    rng = np.random.default_rng(0)
    u, x = rng.normal(size=(STEPS, 1)), [np.zeros(1)]
    for k in range(STEPS):
        x.append(0.7 * x[-1] + u[k] + rng.normal(0, 0.03, 1))
    z = np.array(x[1:]) + rng.normal(0, 0.1, (STEPS, 1))
    given = {"process_noise": 1e-3, "observation_noise": 1e-2, "initial_cov": 1e-6, "std": 1.0}
    sensor = fk.LinearSensor.identity(1)
    found = fk.estimate_parameters(system, sensor, z, {"b": 0.0}, inputs=u, **given)
    assert abs(found.mean[0] - 0.7) < 3 * found.std[0] < 0.3
    both = fk.estimate_parameters(
        system, sensor, np.stack([z, z]), {"b": 0.0}, inputs=np.stack([u, u]), **given
    )
    assert both.std[0] == pytest.approx(found.std[0] / np.sqrt(2), rel=0.2)


def test_inputs_of_a_ragged_list(walk):
    system = fk.System.from_map(lambda x, u, b: x + b + u, 1, input_dim=1, parameters={"b": 0.0})
    z = [walk_data(1.0), walk_data(1.0, seed=1)[:12]]
    driven = fk.estimate_parameters(
        system,
        walk[1],
        z,
        {"b": GUESS},
        std=STD,
        process_noise=Q,
        observation_noise=R,
        initial_cov=P0,
        inputs=np.zeros((STEPS, 1)),
    )
    close(driven.mean, estimate_b(walk, z).mean)


def test_divergence_is_said():
    system = fk.System.from_map(lambda x, k: k * x**3, 1, parameters={"k": 1.0})
    z = np.full((2, 20, 1), np.nan)
    with pytest.warns(DivergenceWarning):
        found = fk.estimate_parameters(
            system, fk.LinearSensor.identity(1), z, {"k": 2.0}, initial_mean=[5.0]
        )
    assert not found.ok


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"parameters": {"beta": 1.0}}, "unknown parameter 'beta'"),
        ({"parameters": {}}, "parameters"),
        ({"parameters": {"b": "x"}}, "b is 'x'"),
        ({"parameters": {"b": np.nan}}, "b is nan"),
        ({"parameters": ["b"]}, "parameters"),
        ({"std": 0.0}, "std"),
        ({"std": -1.0}, "std"),
        ({"std": np.nan}, "std"),
        ({"std": {"a": 1.0}}, "std"),
        ({"std": {"a": 1.0, "b": 1.0}}, "std"),
        ({"std": "wide"}, "std"),
        ({"drift": -0.1}, "drift"),
        ({"drift": {"c": 0.1}}, "drift"),
        ({"method": "particle"}, "particle"),
        ({"method": "kalman"}, "kalman"),
        ({"passes": 0}, "passes"),
        ({"passes": -1}, "passes"),
        ({"passes": 1.5}, "passes"),
        ({"z": np.zeros((5, 2))}, "z "),
        ({"alpha": -1.0}, "alpha"),
        ({"process_noise": np.eye(2)}, "process_noise"),
        ({"initial_mean": np.zeros(2)}, "initial_mean"),
        ({"sensor": "camera"}, "sensor"),
        ({"system": "lorenz63"}, "system"),
    ],
    ids=lambda v: None if isinstance(v, str) else "-".join(f"{k}={w}" for k, w in v.items())[:40],
)
def test_refusals(walk, options, word):
    given = {"system": walk[0], "sensor": walk[1], "z": np.zeros((5, 1)), "parameters": {"b": 1.0}}
    with pytest.raises(fk.InputError, match=word) as caught:
        fk.estimate_parameters(**{**given, **options})
    assert "\n" not in str(caught.value)


def test_a_sensor_of_the_wrong_dimension():
    sensor = fk.LinearSensor(np.ones((2, 1)))
    with pytest.raises(fk.InputError, match=r"sensor.* 3 components"):
        fk.estimate_parameters(fk.systems.Lorenz63(), sensor, np.zeros((5, 2)), {"b": 20.0})
