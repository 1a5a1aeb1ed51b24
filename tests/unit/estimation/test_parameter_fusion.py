"""Parameters that sites share: what they know together is what pooled data would tell."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.estimation.parameters import combine_parameters

pytestmark = pytest.mark.slow  # compiling takes minutes: `make test-slow`

STEPS, Q, P0 = 25, 0.3, 2.0
PRIOR = (np.array([0.2, -0.1]), np.diag([0.49, 1.0]))
# sensor and noise of each site: one sees x_1, one x_2, one only their sum
SITES = (
    (np.array([[1.0, 0.0]]), 0.8),
    (np.array([[0.0, 2.0], [0.0, 1.0]]), 0.5),
    (np.array([[1.0, 1.0]]), 0.1),
)
DRIFT = fk.System.from_map(
    lambda x, b, c: x + jnp.stack([b, c]), 2, parameters={"b": 0.0, "c": 0.0}
)


def site_data(matrix, r, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, np.sqrt(P0), size=2)
    z = []
    for _ in range(STEPS):
        x = x + [1.0, -0.5] + np.sqrt(Q) * rng.normal(size=2)
        z.append(matrix @ x + np.sqrt(r) * rng.normal(size=len(matrix)))
    return np.array(z)


DATA = [site_data(*site, seed) for seed, site in enumerate(SITES)]


def pooled():
    """(b, c) given the data of all sites: one joint Gaussian, conditioned."""
    k = np.arange(1.0, STEPS + 1)
    path = P0 + Q * np.minimum(k[:, None], k)  # of x_0 + w_1 + … + w_k, each component
    rows, covs = [], []
    for matrix, r in SITES:
        rows.append(np.kron(k[:, None], matrix))
        covs.append(np.kron(path, matrix @ matrix.T) + r * np.eye(STEPS * len(matrix)))
    weighted = [np.linalg.solve(cov, row) for cov, row in zip(covs, rows, strict=True)]
    prior = np.linalg.inv(PRIOR[1])
    information = prior + sum(w.T @ row for w, row in zip(weighted, rows, strict=True))
    vector = prior @ PRIOR[0] + sum(w.T @ z.ravel() for w, z in zip(weighted, DATA, strict=True))
    cov = np.linalg.inv(information)
    return cov @ vector, cov


@pytest.fixture(scope="module")
def found():
    """What each site finds for itself."""
    return [
        fk.estimate_parameters(
            DRIFT, fk.LinearSensor(matrix), z, {"b": 0.2, "c": -0.1}, std={"b": 0.7, "c": 1.0},
            process_noise=Q, observation_noise=r, initial_cov=P0, method="ekf",
        )
        for (matrix, r), z in zip(SITES, DATA, strict=True)
    ]  # fmt: skip


def test_linear_sites_together_know_what_the_pooled_data_tell(found):
    mean, cov = combine_parameters(PRIOR, found)
    expected_mean, expected_cov = pooled()
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-9)
    np.testing.assert_allclose(cov, expected_cov, rtol=1e-9, atol=1e-14)
    # no site alone: the first says nothing of c
    assert found[0].std[1] == pytest.approx(1.0, rel=1e-9)
    assert (np.sqrt(np.diag(cov)) < np.min([f.std for f in found], axis=0)).all()


def test_order_and_form_do_not_matter_and_nothing_known_adds_nothing(found):
    one = combine_parameters(PRIOR, found)
    pairs = [(f.mean, f.cov) for f in reversed(found)]
    other = combine_parameters((PRIOR[0], [0.49, 1.0]), [*pairs, PRIOR])
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-10)
    np.testing.assert_allclose(one.cov, other.cov, rtol=1e-10)
    np.testing.assert_allclose(one.std, np.sqrt(np.diag(one.cov)))
    alone = combine_parameters(PRIOR, found[:1])
    np.testing.assert_allclose(alone.mean, found[0].mean, rtol=1e-10)
    np.testing.assert_allclose(alone.cov, found[0].cov, rtol=1e-10, atol=1e-15)


def test_an_unknown_length_seen_by_three_sensors():
    """A pendulum: angle, angular velocity, height of the bob above its lowest point per length."""
    true, guess, std = 1.3, 1.1, 0.15
    start = [1.2, 0.0]
    sensors = (
        (fk.LinearSensor([[1.0, 0.0]]), 0.05),
        (fk.LinearSensor([[0.0, 1.0]]), 0.3),
        (fk.FunctionSensor(lambda x: jnp.stack([1 - jnp.cos(x[0])]), 1), 0.02),
    )
    system = fk.systems.Pendulum()
    truth = fk.simulate(system.with_parameters(length=true), 200, initial=start)
    given = {"process_noise": 1e-6, "initial_mean": start, "initial_cov": 0.01}

    def seen(place, guess, std):
        sensor, noise = sensors[place]
        z = fk.observe(sensor, truth[1:], noise=noise, seed=place)
        return fk.estimate_parameters(
            system, sensor, z, {"length": guess}, std=std, observation_noise=noise, **given
        )

    alone = [seen(place, guess, std) for place in range(3)]
    mean, cov = combine_parameters((guess, std**2), alone)
    [spread] = np.sqrt(np.diag(cov))
    assert abs(mean[0] - true) < 3 * spread
    assert spread < min(f.std[0] for f in alone) < std / 3
    assert abs(mean[0] - true) < 0.2 * abs(guess - true)
    # handing the posterior on from site to site is the other way to pool; filters are not exact
    passed = (guess, std)
    for place in range(3):
        one = seen(place, *passed)
        passed = (one.mean[0], one.std[0])
    assert mean[0] == pytest.approx(passed[0], abs=0.75 * spread)
    assert spread == pytest.approx(passed[1], rel=0.25)


@pytest.mark.parametrize(
    ("prior", "change", "words"),
    [
        (PRIOR, lambda f: [], ["posteriors is empty"]),
        (PRIOR, lambda f: [replace(f[0], ok=False)], ["posteriors[0]", "diverged", "leave it out"]),
        (PRIOR, lambda f: [f[0], replace(f[1], names=("c", "b"))], ["different parameters"]),
        (PRIOR, lambda f: [([1.0], 1.0)], ["posteriors[0] has a mean of shape (1,)", "2 param"]),
        (PRIOR, lambda f: [([1.0, np.nan], 1.0)], ["posteriors[0] contains nan"]),
        (PRIOR, lambda f: [([1.0, 0.0], 0.0)], ["covariance of posteriors[0]", "definite"]),
        (PRIOR, lambda f: [([1.0, 0.0], [1.0, -1.0])], ["covariance of posteriors[0]"]),
        ((PRIOR[0], 0.0), lambda f: f, ["covariance of prior", "definite"]),
        (([[1.0]], 1.0), lambda f: f, ["prior has a mean of shape (1, 1)"]),
    ],
)
def test_wrong_input_is_refused_in_one_line(found, prior, change, words):
    with pytest.raises(InputError) as refusal:
        combine_parameters(prior, change(found))
    assert "\n" not in str(refusal.value)
    for word in words:
        assert word in str(refusal.value)


def test_posteriors_wider_than_the_prior_are_no_posteriors_of_it(found):
    with pytest.raises(ComputationError, match="know less than the prior"):
        combine_parameters(PRIOR, [(PRIOR[0], 2 * PRIOR[1])] * 3)
