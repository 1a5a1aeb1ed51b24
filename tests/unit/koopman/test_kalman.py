"""The Koopman filter: the textbook's on linear networks, and worth having on learned ones."""

import jax
import numpy as np
import pytest
from reference.filters import central_jacobian, linearised
from reference.problems import linear

import fedkoopman as fk
from fedkoopman.errors import InputError
from fedkoopman.koopman import DeepKoopman
from fedkoopman.koopman.kalman import KoopmanFilter, lift_noise
from fedkoopman.koopman.kinds.paper import Layer, PaperNetwork, Weights

CASE = linear(steps=60)
A = np.stack([CASE.f(e) for e in np.eye(4)], axis=1)
C = np.stack([CASE.h(e) for e in np.eye(4)], axis=1)
Z = CASE.z.copy()
Z[10], Z[20:23, 1], Z[-1, 0] = np.nan, np.nan, np.nan


def affine(encoder, operator, decoder, dim=4, window=1, **more):
    """A network without hidden layers, which is two matrices and K."""
    architecture = PaperNetwork(dim, len(operator), hidden_layers=0, window=window)

    def layer(matrix):
        return (Layer(np.column_stack([matrix, np.zeros(len(matrix))])),)

    weights = Weights(layer(encoder), operator, layer(decoder))
    return DeepKoopman.from_weights(architecture, weights, dt=0.1, **more)


def textbook():
    return linearised(
        CASE.f, CASE.h, Z, CASE.q, CASE.r, CASE.mean, CASE.cov, lambda _: A, lambda _: C
    )


def check_against_the_textbook(model, noise, relift):
    kalman = KoopmanFilter(
        model,
        CASE.sensor,
        observation_noise=CASE.r,
        process_noise=noise,
        initial_mean=CASE.mean,
        initial_cov=CASE.cov,
        relift=relift,
    )
    means, covs, smoothed, smoothed_covs, log_likelihood = textbook()
    close = {"rtol": 1e-9, "atol": 1e-9}
    found = kalman.filter(Z)
    np.testing.assert_allclose(found.mean, means[1:], **close)
    np.testing.assert_allclose(found.cov, covs[1:], **close)
    np.testing.assert_allclose(found.log_likelihood, log_likelihood, **close)
    found = kalman.smooth(Z)
    np.testing.assert_allclose(found.mean, smoothed[1:], **close)
    np.testing.assert_allclose(found.cov, smoothed_covs[1:], **close)
    np.testing.assert_allclose(found.initial_mean, smoothed[0], **close)
    np.testing.assert_allclose(found.initial_cov, smoothed_covs[0], **close)
    assert found.ok and found.smoothed and found.method == "koopman"


@pytest.mark.parametrize("relift", [True, False])
@pytest.mark.parametrize("components", [7, pytest.param(4, marks=pytest.mark.slow)])
def test_a_linear_network_gives_the_kalman_filter_and_smoother(components, relift):
    encoder = np.random.default_rng(0).normal(size=(components, 4))
    decoder = np.linalg.pinv(encoder)
    model = affine(encoder, encoder @ A @ decoder, decoder)
    noise = encoder @ CASE.q @ encoder.T
    np.testing.assert_allclose(lift_noise(model, CASE.q), noise, rtol=1e-12)
    check_against_the_textbook(model, noise, relift)


@pytest.mark.parametrize("relift", [True, False])
def test_so_does_one_with_delays(relift):
    """y = (x_{k−1}, x_k), of which K moves the newer to the front."""
    zero, one = np.zeros((4, 4)), np.eye(4)
    operator = np.block([[zero, one], [zero, A]])
    model = affine(np.eye(8), operator, np.eye(8), window=2)
    noise = np.block([[zero, zero], [zero, CASE.q]])
    np.testing.assert_allclose(lift_noise(model, CASE.q), noise)
    check_against_the_textbook(model, noise, relift)


def test_the_noise_of_a_linear_system_is_found():
    rng = np.random.default_rng(1)
    encoder = rng.normal(size=(4, 4))
    model = affine(encoder, encoder @ A @ np.linalg.inv(encoder), np.linalg.inv(encoder))
    x = [rng.multivariate_normal(np.zeros(4), CASE.cov, size=100)]
    for _ in range(200):
        x.append(x[-1] @ A.T + rng.multivariate_normal(np.zeros(4), CASE.q, size=100))
    kalman = KoopmanFilter(model, CASE.sensor).fit_noise(np.stack(x, axis=1))
    expected = encoder @ CASE.q @ encoder.T
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert np.abs((kalman.process_noise - expected) / scale).max() < 0.1


# Networks that bend


@pytest.fixture(scope="module")
def pendulum():
    """A small model of a swinging pendulum, and swings it has not seen, with angles observed."""
    system, rng = fk.systems.Pendulum(), np.random.default_rng(0)
    start = np.column_stack([rng.uniform(-2, 2, 60), rng.uniform(-1, 1, 60)])
    x = fk.simulate(system, steps=200, initial=start)
    model = DeepKoopman(
        12,
        dt=system.dt,
        epochs=100,
        activation="tanh",
        width=32,
        learning_rate=3e-3,
        decay=0.98,
        kind="paper",
    ).fit(x[:40])
    sensor = fk.LinearSensor([[1.0, 0.0]])
    z = fk.observe(sensor, x[40:, 1:], noise=0.01, seed=3)
    options = {
        "observation_noise": 0.01,
        "initial_mean": x[40:, 0] + 0.5 * np.random.default_rng(1).normal(size=(20, 2)),
        "initial_cov": 0.25,
    }
    return system, model, sensor, x[40:], z, options


def error(found, truth):
    return np.sqrt(np.mean((found.mean - truth[:, 1:]) ** 2, axis=(0, 1)))


def test_a_learned_model_tells_states_from_observations(pendulum):
    """Far better than the observations, and not much worse than the filter with the equations."""
    system, model, sensor, x, z, options = pendulum
    kalman = KoopmanFilter(model, sensor, **options)
    filtered, smoothed = kalman.filter(z), kalman.smooth(z)
    observed = np.sqrt(np.mean((z[..., 0] - x[:, 1:, 0]) ** 2))
    exact = fk.estimate(
        system, sensor, z, process_noise=1e-8, method="ukf-resampled", smooth=False, **options
    )
    assert error(filtered, x)[0] < 0.5 * observed
    assert error(smoothed, x)[0] < 0.3 * observed
    assert (error(filtered, x) < 1.7 * error(exact, x)).all()
    assert (error(smoothed, x) < 0.8 * error(filtered, x)).all()
    # the noise that the model brings along is of the right size
    assert 0.9 < fk.estimation.nis(filtered).value < 1.1


def test_lifting_anew_helps_a_learned_model(pendulum):
    _, model, sensor, x, z, options = pendulum
    with_it = KoopmanFilter(model, sensor, **options)
    without = KoopmanFilter(model, sensor, relift=False, **options)
    angle, velocity = error(with_it.filter(z), x) / error(without.filter(z), x)
    assert angle < 0.8 and velocity < 0.5
    assert error(without.smooth(z), x)[0] < 0.05  # which still halves the noise of 0.1


def test_covariances_go_through_the_decoders_jacobian(pendulum):
    _, model, sensor, _, z, options = pendulum
    options = {**options, "initial_mean": [0.5, 0.0]}
    found = KoopmanFilter(model, sensor, **options).filter(z[0, :20])
    for k in (0, 19):
        slope = central_jacobian(lambda y: model.inverse_transform(y))(found.lifted_mean[k])
        np.testing.assert_allclose(
            found.cov[k], slope @ found.lifted_cov[k] @ slope.T, rtol=1e-6, atol=1e-10
        )
        np.testing.assert_allclose(found.mean[k], model.inverse_transform(found.lifted_mean[k]))


def test_without_observations_it_is_the_models_own_simulation(pendulum):
    _, model, sensor, _, _, _ = pendulum
    kalman = KoopmanFilter(model, sensor, initial_mean=[0.5, 0.1], relift=False)
    found = kalman.filter(np.full((30, 1), np.nan))
    np.testing.assert_allclose(found.mean, model.simulate([0.5, 0.1], 30), rtol=1e-9, atol=1e-12)
    assert found.log_likelihood == 0
    np.testing.assert_allclose(
        found.initial_mean, model.inverse_transform(model.transform(np.array([0.5, 0.1])))
    )


def test_a_gap_costs_accuracy_only_while_it_lasts(pendulum):
    _, model, sensor, x, z, options = pendulum
    gap = z.copy()
    gap[:, 80:110] = np.nan
    kalman = KoopmanFilter(model, sensor, **options)
    std, whole = kalman.filter(gap).std[..., 0], kalman.filter(z).std[..., 0]
    assert (std[:, 109] > 1.5 * whole[:, 109]).all()
    np.testing.assert_allclose(std[:, 180:], whole[:, 180:], rtol=0.1)
    assert error(kalman.smooth(gap), x)[0] < 0.05


@pytest.mark.parametrize("smooth", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_batch_is_each_trajectory_for_itself(pendulum, smooth):
    _, model, sensor, _, z, options = pendulum
    parts = [z[0, :30], z[1, :12]]
    kalman = KoopmanFilter(
        model, sensor, **{**options, "initial_mean": options["initial_mean"][:2]}
    )
    run = kalman.smooth if smooth else kalman.filter
    together = run(parts)
    assert [m.shape for m in together.mean] == [(30, 2), (12, 2)]
    for i, part in enumerate(parts):
        mine = {**options, "initial_mean": options["initial_mean"][i]}
        one = KoopmanFilter(model, sensor, **mine)
        alone = one.smooth(part) if smooth else one.filter(part)
        np.testing.assert_allclose(together.mean[i], alone.mean, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(together.cov[i], alone.cov, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(together.log_likelihood[i], alone.log_likelihood, rtol=1e-9)


def test_the_filter_starts_from_the_mean_of_the_training(pendulum):
    _, model, sensor, _, z, _ = pendulum
    default = KoopmanFilter(model, sensor).filter(z[0, :5])
    given = KoopmanFilter(model, sensor, initial_mean=model.reference_).filter(z[0, :5])
    np.testing.assert_array_equal(default.mean, given.mean)


def test_with_delays_a_window_may_be_given(pendulum):
    _, _, sensor, x, z, _ = pendulum
    model = DeepKoopman(6, n_delays=2, epochs=1, activation="tanh", kind="paper").fit(x[:2])
    one = KoopmanFilter(model, sensor, initial_mean=[0.3, 0.1]).filter(z[0, :5])
    window = np.tile([0.3, 0.1], (3, 1))
    for mean in (window, window[None]):
        same = KoopmanFilter(model, sensor, initial_mean=mean).filter(z[0, :5])
        np.testing.assert_array_equal(one.mean, same.mean)
    both = KoopmanFilter(model, sensor, initial_mean=np.tile([0.3, 0.1], (2, 1))).filter(z[:2, :5])
    np.testing.assert_allclose(both.mean[0], one.mean, rtol=1e-9)


def test_a_forecast_goes_on_where_the_filter_ends(pendulum):
    _, model, sensor, x, z, options = pendulum
    kalman = KoopmanFilter(model, sensor, **options)
    found = kalman.forecast(z[:, :140], 60)
    assert found.mean.shape == (20, 60, 2) and found.cov.shape == (20, 60, 2, 2)
    inside = np.abs(found.mean - x[:, 141:201]) < 2 * found.std
    assert inside.mean() > 0.85
    assert np.sqrt(np.mean((found.mean - x[:, 141:201])[:, 0] ** 2, axis=0))[0] < 0.06
    one = KoopmanFilter(model, sensor, **{**options, "initial_mean": options["initial_mean"][0]})
    alone = one.forecast(z[0, :140], 60)
    np.testing.assert_allclose(alone.mean, found.mean[0], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(alone.time, 0.02 * np.arange(1, 61))


def test_a_nonlinear_sensor_and_angles(pendulum):
    _, model, _, x, _, options = pendulum
    sensor = fk.FunctionSensor(
        lambda s: jax.numpy.stack([jax.numpy.sin(s[0]), 2 * s[0]]), 2, angles=[1]
    )
    clean = fk.observe(sensor, x[:, 1:])
    z = fk.observe(sensor, x[:, 1:], noise=0.01, seed=5)
    assert np.abs(clean[..., 1]).max() > np.pi
    z[..., 1] = np.pi - np.mod(np.pi - z[..., 1], 2 * np.pi)
    found = KoopmanFilter(model, sensor, **options).smooth(z)
    assert error(found, x)[0] < 0.03


# What is refused


def test_what_does_not_fit_is_refused_with_one_line(pendulum):
    _, model, sensor, _, z, _ = pendulum

    def refused(message, act):
        with pytest.raises(InputError, match=message) as caught:
            act()
        assert "\n" not in str(caught.value)

    refused("model is a str: give a fitted", lambda: KoopmanFilter("model", sensor))
    refused("not fitted yet", lambda: KoopmanFilter(DeepKoopman(kind="paper"), sensor))
    refused("sensor is a list", lambda: KoopmanFilter(model, [sensor]))
    refused(
        "matrix has 3 columns but the state has 2",
        lambda: KoopmanFilter(model, fk.LinearSensor(np.eye(3))),
    )
    refused(
        r"process_noise has shape \(2, 2\) but dimension 12",
        lambda: KoopmanFilter(model, sensor, process_noise=np.eye(2)),
    )
    refused(
        "give one matrix",
        lambda: KoopmanFilter(model, sensor, process_noise=np.tile(np.eye(12), (5, 1, 1))),
    )
    refused(
        r"initial_mean has shape \(3,\): give \(2,\) or one row per trajectory, \(20, 2\)",
        lambda: KoopmanFilter(model, sensor, initial_mean=np.zeros(3)).filter(z),
    )
    refused(
        "initial_mean contains nan",
        lambda: KoopmanFilter(model, sensor, initial_mean=[0, np.nan]).filter(z),
    )
    refused("z has 2 columns", lambda: KoopmanFilter(model, sensor).filter(np.zeros((5, 2))))
    refused("features", lambda: KoopmanFilter(model, sensor).fit_noise(np.zeros((9, 3))))
    refused("no trajectory has the 2", lambda: KoopmanFilter(model, sensor).fit_noise([[[0, 1]]]))


def test_a_model_that_does_not_know_its_error_asks_for_it():
    model = affine(np.eye(4), A, np.eye(4))
    kalman = KoopmanFilter(model, CASE.sensor)
    with pytest.raises(InputError, match="does not say how far off it is: give process_noise, or"):
        kalman.filter(Z)
    found = kalman.fit_noise(CASE.x).filter(Z)
    assert found.ok
    assert model.noise_ is None  # the filter's business, not the model's
    same = KoopmanFilter(model.measure_noise(CASE.x), CASE.sensor).filter(Z)
    np.testing.assert_array_equal(same.mean, found.mean)
    np.testing.assert_array_equal(model.noise_, kalman.process_noise)
