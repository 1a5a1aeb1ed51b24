"""The particle filter and smoother against exact Kalman results, with Monte-Carlo bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import filters
from reference.compiling import quick
from reference.problems import Case

import fedkoopman as fk
from fedkoopman.estimation.methods.particle import Cloud, _resample

pytestmark = pytest.mark.slow  # compiling takes minutes: `make test-slow`

STEPS, RUNS = 20, 24
FEW, MANY = 100, 1600


def damped_rotation(q):
    """A linear case with correlated noise, mild enough for the bootstrap filter's convergence."""
    a = 0.9 * np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
    c = np.array([[1.0, 0.5], [-0.3, 1.0]])
    r = np.array([[0.8, 0.3], [0.3, 0.6]])
    mean, cov = np.array([1.0, -1.0]), np.array([[0.5, 0.1], [0.1, 0.3]])
    rng = np.random.default_rng(33)  # no outliers (NIS < 5): they would need far more particles
    x = [rng.multivariate_normal(mean, cov)]
    for _ in range(STEPS):
        x.append(a @ x[-1] + rng.multivariate_normal(np.zeros(2), q))
    z = np.array(x[1:]) @ c.T + rng.multivariate_normal(np.zeros(2), r, size=STEPS)
    system, sensor = fk.System.from_map(lambda x: a @ x, 2), fk.LinearSensor(c)
    return Case(system, sensor, lambda y: a @ y, lambda y: c @ y, z, np.array(x), q, r, mean, cov)


@pytest.fixture(scope="module")
def case():
    return damped_rotation(np.array([[0.5, 0.1], [0.1, 0.3]]))


@pytest.fixture(scope="module", params=["complete", "gaps"])
def z(request, case):
    """Observations, complete or with two lost rows and some lost components."""
    z = case.z.copy()
    if request.param == "gaps":
        z[[4, 5]] = np.nan
        z[9:12, 0] = np.nan
        z[14, 1] = np.nan
    return z


class Exact:
    """The Kalman filter's and the Rauch-Tung-Striebel smoother's results on a linear case."""

    def __init__(self, case, z):
        q = case.q
        a = filters.central_jacobian(case.f, 1.0)(case.mean)
        c = filters.central_jacobian(case.h, 1.0)(case.mean)
        means, covs, smoothed, smoothed_covs, self.log_likelihood = filters.linearised(
            case.f, case.h, z, q, case.r, case.mean, case.cov, lambda x: a, lambda x: c
        )
        self.mean, self.cov = means[1:], covs[1:]
        self.smoothed, self.smoothed_cov = smoothed, smoothed_covs
        self.innovations = z - means[:-1] @ (c @ a).T
        self.innovation_cov = c @ (a @ covs[:-1] @ a.T + q) @ c.T + case.r

    @property
    def std(self):
        return np.sqrt(np.diagonal(self.cov, axis1=-2, axis2=-1))


def runs(case, z, *, count=RUNS, particles, smooth, **options):
    """`count` independent runs on the same observations: every row of a batch has its own key."""
    given = {"process_noise": case.q, "observation_noise": case.r, **options}
    return fk.estimate(
        case.system,
        case.sensor,
        np.broadcast_to(z, (count, *z.shape)),
        initial_mean=case.mean,
        initial_cov=case.cov,
        method="particle",
        particles=particles,
        smooth=smooth,
        **given,
    )


def rms(error):
    return float(np.sqrt(np.mean(np.square(error))))


def test_filtered_means_converge_to_the_kalman_filters(case, z):
    """The error is about one posterior standard deviation over √N, and shrinks like 1/√N."""
    exact = Exact(case, z)
    error = {}
    for particles in (FEW, MANY):
        e = runs(case, z, particles=particles, smooth=False)
        assert e.ok.all()
        error[particles] = rms((e.mean - exact.mean) / exact.std)
        assert 0.3 / np.sqrt(particles) < error[particles] < 3 / np.sqrt(particles)
    assert 2.5 < error[FEW] / error[MANY] < 6  # √(1600/100) = 4


def test_filtered_moments_and_innovations_are_the_kalman_filters(case, z):
    """Averaged over runs, every time and component, means within 4 standard errors of the runs."""
    exact = Exact(case, z)
    e = runs(case, z, particles=MANY, smooth=False)
    for ours, truth in ((e.mean, exact.mean), (e.innovations, exact.innovations)):
        seen = ~np.isnan(truth)
        np.testing.assert_array_equal(np.isnan(ours[0]), ~seen)
        error = (ours.mean(axis=0) - truth)[seen]
        spread = ours.std(axis=0, ddof=1)[seen] / np.sqrt(RUNS)
        assert (spread > 0).all()
        assert (np.abs(error) < 4.5 * spread + 1e-3).all()
    np.testing.assert_allclose(e.cov.mean(axis=0), exact.cov, atol=0.05 * exact.cov.max())
    both = ~np.isnan(z)[:, :, None] & ~np.isnan(z)[:, None, :]
    np.testing.assert_allclose(
        e.innovation_cov.mean(axis=0)[both],
        exact.innovation_cov[both],
        atol=0.05 * exact.innovation_cov.max(),
    )


def test_likelihood_converges_and_is_unbiased(case, z):
    """E[exp(log p̂ − log p)] = 1 for any number of particles (Del Moral 2004, 7.4.1)."""
    exact = Exact(case, z).log_likelihood
    few = runs(case, z, count=400, particles=FEW, smooth=False).log_likelihood - exact
    many = runs(case, z, particles=MANY, smooth=False).log_likelihood - exact
    ratio = np.exp(few)
    standard_error = ratio.std(ddof=1) / np.sqrt(len(ratio))
    assert 0 < standard_error < 0.1, "the bound would mean nothing"
    assert abs(ratio.mean() - 1) < 4 * standard_error
    assert few.mean() < -2 * few.std() / np.sqrt(len(few))  # Jensen: the logarithm is biased low
    assert rms(many) < 0.5 * rms(few)
    assert rms(many) < 0.3


def test_smoothed_moments_are_the_rts_smoothers(case, z):
    exact = Exact(case, z)
    e = runs(case, z, particles=500, smooth=True)
    mean = np.concatenate([e.initial_mean[:, None], e.mean], axis=1)
    cov = np.concatenate([e.initial_cov[:, None], e.cov], axis=1)
    std = np.sqrt(np.diagonal(exact.smoothed_cov, axis1=-2, axis2=-1))
    # 24 runs of 256 paths: 0.013 for independent paths, more for paths that share ancestors.
    assert np.abs((mean.mean(axis=0) - exact.smoothed) / std).max() < 0.12
    assert rms((mean.mean(axis=0) - exact.smoothed) / std) < 0.04
    scale = std[:, :, None] * std[:, None, :]
    assert np.abs((cov.mean(axis=0) - exact.smoothed_cov) / scale).max() < 0.15
    assert rms((cov.mean(axis=0) - exact.smoothed_cov) / scale) < 0.05
    filtered = np.concatenate([case.mean[None], exact.mean])
    assert rms((filtered - exact.smoothed) / std) > 0.3, "smoothing would change nothing here"


def test_smoothing_leaves_likelihood_and_innovations_alone(case):
    filtered = runs(case, case.z, count=2, particles=500, smooth=False)
    smoothed = runs(case, case.z, count=2, particles=500, smooth=True)
    np.testing.assert_allclose(smoothed.log_likelihood, filtered.log_likelihood, rtol=1e-12)
    np.testing.assert_allclose(smoothed.innovations, filtered.innovations, atol=1e-12)
    np.testing.assert_array_equal(filtered.initial_mean, np.tile(case.mean, (2, 1)))
    np.testing.assert_array_equal(filtered.initial_cov, np.tile(case.cov, (2, 1, 1)))
    assert filtered.method == smoothed.method == "particle"


def test_a_noise_free_component_is_filtered_but_not_smoothed():
    """Q singular: the filter still is Kalman's; the smoother has no density to weigh by."""
    case = damped_rotation(np.diag([0.5, 0.0]))
    exact = Exact(case, case.z)
    e = runs(case, case.z, particles=MANY, smooth=False)
    assert rms((e.mean - exact.mean) / exact.std) < 3 / np.sqrt(MANY)
    with pytest.raises(fk.InputError, match=r"process_noise .* positive definite.*smooth=False"):
        runs(case, case.z, particles=FEW, smooth=True)


def test_per_step_noise(case):
    """Constant matrices given step by step are the same filter; others are not."""
    q, r = (np.broadcast_to(c, (STEPS, 2, 2)).copy() for c in (case.q, case.r))
    constant = runs(case, case.z, count=2, particles=FEW, smooth=False)
    stepwise = runs(
        case, case.z, count=2, particles=FEW, smooth=False, process_noise=q, observation_noise=r
    )
    np.testing.assert_allclose(stepwise.mean, constant.mean, atol=1e-12)
    r[7] *= 100
    other = runs(
        case, case.z, count=2, particles=FEW, smooth=False, process_noise=q, observation_noise=r
    )
    np.testing.assert_allclose(other.mean[:, :7], constant.mean[:, :7], atol=1e-12)
    assert np.abs(other.mean[:, 7] - constant.mean[:, 7]).max() > 1e-2
    r[7] = 0
    with pytest.raises(fk.InputError, match=r"observation_noise .* positive definite"):
        runs(case, case.z, particles=FEW, smooth=False, observation_noise=r)


def test_a_seed_gives_the_same_numbers_and_another_seed_others(case):
    one, again, other = (
        runs(case, case.z, count=2, particles=500, smooth=True, seed=seed) for seed in (3, 3, 4)
    )
    for name in ("mean", "cov", "log_likelihood", "initial_mean", "innovations"):
        np.testing.assert_array_equal(getattr(one, name), getattr(again, name))
        assert (getattr(one, name) != getattr(other, name)).any()
    assert (one.mean[0] != one.mean[1]).any(), "rows of a batch must not share their draws"


def test_draws_do_not_depend_on_the_callers_default_generator(case):
    plain = runs(case, case.z, count=2, particles=500, smooth=True)
    with jax.default_prng_impl("rbg"):
        other = runs(case, case.z, count=2, particles=500, smooth=True)
    np.testing.assert_array_equal(other.mean, plain.mean)


def test_a_trajectory_does_not_depend_on_its_batch(case):
    z = case.z + np.arange(4.0)[:, None, None]
    given = {
        "process_noise": case.q,
        "observation_noise": case.r,
        "initial_mean": case.mean,
        "initial_cov": case.cov,
        "method": "particle",
        "particles": 500,
    }
    batch = fk.estimate(case.system, case.sensor, z, **given)
    fewer = fk.estimate(case.system, case.sensor, z[:2], **given)
    single = fk.estimate(case.system, case.sensor, z[0], **given)
    for name in ("mean", "cov", "log_likelihood", "innovations", "innovation_cov"):
        np.testing.assert_array_equal(getattr(batch, name)[:2], getattr(fewer, name))
        np.testing.assert_array_equal(getattr(batch, name)[0], getattr(single, name))


def test_a_ragged_list_is_its_members(case):
    z = [case.z, case.z[:7], case.z]
    given = {
        "process_noise": case.q,
        "observation_noise": case.r,
        "initial_mean": case.mean,
        "initial_cov": case.cov,
        "method": "particle",
        "particles": 500,
    }
    ragged = fk.estimate(case.system, case.sensor, z, **given)
    full = fk.estimate(case.system, case.sensor, np.stack([case.z] * 3), **given)
    short = fk.estimate(case.system, case.sensor, np.stack([case.z[:7]] * 2), **given)
    assert [len(m) for m in ragged.mean] == [STEPS, 7, STEPS]
    assert [s.shape for s in ragged.innovation_cov] == [(STEPS, 2, 2), (7, 2, 2), (STEPS, 2, 2)]
    for b, member in enumerate((full, short, full)):
        np.testing.assert_array_equal(ragged.mean[b], member.mean[b])
        np.testing.assert_array_equal(ragged.cov[b], member.cov[b])
        np.testing.assert_array_equal(ragged.initial_mean[b], member.initial_mean[b])
        np.testing.assert_array_equal(ragged.log_likelihood[b], member.log_likelihood[b])


@pytest.mark.parametrize(
    ("start", "speed", "wraps"),
    [(1.0, 0.5, False), (np.pi, 0.0, True)],
    ids=["turning", "at the cut, with a map that wraps"],
)
def test_an_angle_is_filtered_and_smoothed_on_the_circle(start, speed, wraps):
    """A noisy rotor: the exact Kalman results on the line, taken modulo 2π."""
    steps, q, r = STEPS, np.array([[0.02]]), np.array([[0.05]])
    rng = np.random.default_rng(5)
    x = start + np.cumsum(speed + rng.normal(0, np.sqrt(q[0]), steps))
    z = (x + rng.normal(0, np.sqrt(r[0]), steps))[:, None]
    wrapped = np.arctan2(np.sin(z), np.cos(z))
    assert (np.abs(np.diff(wrapped[:, 0])) > np.pi).any()

    def one(x):
        return np.ones((1, 1))

    prior = np.array([start]), 0.1 * np.eye(1)
    _, _, smoothed, smoothed_covs, log_likelihood = filters.linearised(
        lambda x: x + speed, lambda x: x, z, q, r, *prior, one, one
    )

    def advance(x):
        x = x + speed
        return jnp.arctan2(jnp.sin(x), jnp.cos(x)) if wraps else x

    e = fk.estimate(
        fk.System.from_map(advance, 1, angles=(0,)),
        fk.LinearSensor([[1.0]], angles=(0,)),
        np.broadcast_to(wrapped, (RUNS, steps, 1)),
        process_noise=q,
        observation_noise=r,
        initial_mean=prior[0],
        initial_cov=prior[1],
        method="particle",
        particles=500,
    )
    assert (np.abs(e.mean) <= np.pi).all()
    std = np.sqrt(smoothed_covs[1:, 0, 0])
    error = np.angle(np.exp(1j * (e.mean[..., 0] - smoothed[1:, 0])))
    assert rms(error / std) < 0.2
    assert np.abs(error.mean(axis=0) / std).max() < 0.12
    np.testing.assert_allclose(e.cov.mean(axis=0), smoothed_covs[1:], rtol=0.1)
    assert np.abs(e.log_likelihood.mean() - log_likelihood) < 0.2


def test_resampling_is_unbiased_and_systematic():
    """Every particle has N w copies on average, and never one more or less than that."""
    weight = np.array([0.5, 0.23, 0.17, 0.04, 0.03, 0.02, 0.01, 0.0])
    cloud = Cloud(jnp.arange(8.0)[None], jnp.log(weight))
    keys = jax.random.split(jax.random.key(0), 2000)
    resampled = quick(jax.vmap(_resample, (None, 0)))
    new = resampled(cloud, keys)
    copies = np.array([(new.x[:, 0] == i).sum(axis=1) for i in range(8)])
    np.testing.assert_allclose(new.log_weight, -np.log(8))
    assert (np.abs(copies - 8 * weight[:, None]) < 1).all()
    np.testing.assert_allclose(copies.mean(axis=1), 8 * weight, atol=4 * 0.5 / np.sqrt(2000))
    even = Cloud(cloud.x, jnp.log(np.array([0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])))
    for kept, given in zip(resampled(even, keys), even, strict=True):
        np.testing.assert_array_equal(kept, np.broadcast_to(given, kept.shape))


@pytest.mark.parametrize("particles", [1, 0, -5, 2.5, True, "many"])
def test_a_number_of_particles_that_is_none(case, particles):
    with pytest.raises(fk.InputError, match=r"particles is .* at least 2"):
        runs(case, case.z, particles=particles, smooth=False)


@pytest.mark.parametrize("r", [0.0, np.diag([1.0, 0.0]), np.ones((2, 2))])
@pytest.mark.parametrize("smooth", [False, True])
def test_a_noise_free_sensor_is_refused(case, r, smooth):
    with pytest.raises(fk.InputError, match=r"observation_noise .* positive definite") as caught:
        runs(case, case.z, particles=FEW, smooth=smooth, observation_noise=r)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("argument", ["process_noise", "observation_noise"])
def test_noise_that_is_singular_to_rounding_is_refused(case, argument):
    with pytest.raises(fk.InputError, match=rf"{argument} .* positive definite"):
        runs(case, case.z, particles=500, smooth=True, **{argument: np.diag([0.5, 1e-18])})


def test_nis_of_gaps_is_the_kalman_filters(case):
    """A lost component must not leak into the whitened innovations of the others."""
    z = case.z.copy()
    z[::2, 0] = np.nan
    exact = Exact(case, z)
    total = 0.0
    for v, s in zip(exact.innovations, exact.innovation_cov, strict=True):
        seen = ~np.isnan(v)
        total += v[seen] @ np.linalg.solve(s[np.ix_(seen, seen)], v[seen])
    e = runs(case, z, particles=MANY, smooth=False)
    ours = fk.estimation.nis(e).value
    assert ours == pytest.approx(total / np.sum(~np.isnan(z)), rel=0.02)
