"""The pure functions differentiate: finite gradients that match finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference.compiling import quick
from reference.problems import lorenz63

from fedkoopman.estimation import Linearised, Noise, State, Unscented, model_of, track

pytestmark = pytest.mark.slow  # compiling takes minutes: `make test-slow`


@pytest.mark.parametrize(
    ("transform", "gaps"),
    [(Unscented(), False), (Unscented(resample=True), True), (Linearised(), True)],
    ids=["ukf", "ukf-resampled-gaps", "ekf-gaps"],
)
def test_gradient_of_likelihood_and_smoothed_states(transform, gaps):
    case = lorenz63(steps=25)
    z = case.z.copy()
    if gaps:
        z[3], z[7, 1] = np.nan, np.nan
    eye = jnp.eye(3)[..., None]

    def objective(theta):
        log_q, log_r, b, start = theta[0], theta[1], theta[2], theta[3:]
        system = case.system.with_parameters(b=b)
        noise = Noise.of(jnp.exp(log_q) * eye), Noise.of(jnp.exp(log_r) * jnp.eye(2)[..., None])
        result = track(
            transform,
            lambda _: model_of(system, case.sensor),
            State(start[:, None], eye),
            jnp.asarray(z)[..., None],
            (),
            lambda _: noise,
            None,
            True,
        )
        states = result.states.mean + jnp.sum(result.states.cov, axis=1)
        return jnp.sum(result.info.log_likelihood) + 0.1 * jnp.sum(states**2)

    gradient_of, objective = quick(jax.grad(objective)), quick(objective)
    theta = jnp.array([0.1, -0.2, 27.5, 0.3, -0.4, 0.5])
    gradient = gradient_of(theta)
    assert np.isfinite(gradient).all()
    step = 1e-5
    differences = [
        (objective(theta + step * e) - objective(theta - step * e)) / (2 * step) for e in np.eye(6)
    ]
    np.testing.assert_allclose(gradient, differences, rtol=2e-6, atol=1e-4)


def test_gradient_is_finite_where_the_covariance_is_singular():
    case = lorenz63(steps=5)

    def objective(start):
        noise = Noise.of(jnp.zeros((3, 3, 1))), Noise.of(jnp.eye(2)[..., None])
        result = track(
            Unscented(),
            lambda _: model_of(case.system, case.sensor),
            State(start[:, None], jnp.zeros((3, 3, 1))),
            jnp.asarray(case.z)[..., None],
            (),
            lambda _: noise,
            None,
            True,
        )
        return jnp.sum(result.info.log_likelihood)

    assert np.isfinite(quick(jax.grad(objective))(jnp.ones(3))).all()
