import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import fields
from reference.compiling import quick
from scipy.linalg import expm

from fedkoopman.systems import Lorenz63, Lorenz96, VanDerPol
from fedkoopman.systems.solvers import _rk4_vector, rk4, solve


def test_rk4_converges_with_order_four():
    x0 = np.array([1.0, -1.0])
    exact = fields.solve(fields.van_der_pol, x0, [0.0, 1.0])[-1]
    errors = [
        np.abs(rk4(VanDerPol().vector_field, jnp.asarray(x0), 1.0, n) - exact).max()
        for n in (20, 40, 80, 160)
    ]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    np.testing.assert_allclose(orders, 4, atol=0.15)
    assert abs(orders[-1] - 4) < 0.05


def test_rk4_of_a_linear_field_is_the_exponential_series_to_fourth_order():
    a = np.random.default_rng(0).normal(size=(3, 3))
    x = jnp.array([1.0, 2.0, 3.0])
    ah = 0.1 * a
    series = sum(np.linalg.matrix_power(ah, k) / np.prod(np.arange(1, k + 1)) for k in range(5))
    np.testing.assert_allclose(rk4(lambda y: a @ y, x, 0.1), series @ x, rtol=1e-14)
    assert np.abs(rk4(lambda y: a @ y, x, 0.1) - expm(ah) @ x).max() < 1e-3


def test_substeps_are_that_many_shorter_steps():
    field, x = Lorenz63().vector_field, jnp.array([1.0, 2.0, 3.0])
    y = x
    for _ in range(5):
        y = rk4(field, y, 0.004)
    np.testing.assert_allclose(rk4(field, x, 0.02, 5), y, rtol=1e-13)


@pytest.mark.parametrize("dim", [4, 8, 9, 20])
def test_components_and_vectors_give_the_same_map(dim):
    system = Lorenz96(dim)
    x = system.initial_state(jax.random.key(1))
    expected = _rk4_vector(system.vector_field, x, jnp.asarray(0.02))
    np.testing.assert_allclose(rk4(system.vector_field, x, 0.02), expected, rtol=1e-13)


@pytest.mark.parametrize("substeps", [1, 3])
@pytest.mark.parametrize("dim", [4, 12])
def test_rk4_differentiates_in_both_modes_and_batches(dim, substeps):
    system = Lorenz96(dim)

    def step(x):
        return rk4(system.vector_field, x, 0.05, substeps)

    x = system.initial_state(jax.random.key(0))
    forward, reverse = quick(jax.jacfwd(step))(x), quick(jax.jacrev(step))(x)
    np.testing.assert_allclose(forward, reverse, atol=1e-13)
    e = 1e-5 * jnp.eye(dim)
    batch = quick(jax.vmap(step))
    differences = (batch(x + e) - batch(x - e)).T / 2e-5
    np.testing.assert_allclose(forward, differences, atol=1e-8)
    last = quick(jax.vmap(step, -1, -1))(jnp.stack([x, x], -1))
    np.testing.assert_allclose(last[:, 1], quick(step)(x))


def test_rk4_keeps_single_precision_and_turns_whole_numbers_to_real():
    field = Lorenz63().vector_field
    single = rk4(field, jnp.ones(3, jnp.float32), jnp.asarray(0.02), 2)
    assert single.dtype == jnp.float32
    whole = rk4(field, jnp.array([1, 2, 3]), 0.02)
    np.testing.assert_array_equal(whole, rk4(field, jnp.array([1.0, 2.0, 3.0]), 0.02))


@pytest.mark.parametrize("stiff", [False, True])
def test_both_adaptive_solvers_meet_their_tolerance_on_a_linear_field(stiff):
    a = np.array([[-1.0, 5.0], [-5.0, -1.0]])
    x = jnp.array([1.0, 2.0])
    end = quick(lambda x: solve(lambda y: a @ y, x, 1.0, stiff=stiff))(x)
    np.testing.assert_allclose(end, expm(a) @ x, atol=1e-7)


@pytest.mark.parametrize("stiff", [False, True])
def test_a_failed_solve_is_nan_and_no_exception(stiff):
    flow = quick(lambda x: solve(lambda y: y**2, x, 2.0, stiff=stiff))
    end = flow(jnp.array([1.0]))  # blows up at t = 1
    assert np.isnan(end).all()


def test_the_adaptive_solver_differentiates_as_the_flow_does():
    a = np.array([[-1.0, 5.0], [-5.0, -1.0]])

    def flow(x):
        return solve(lambda y: a @ y, x, 1.0, stiff=False, adjoint=diffrax.DirectAdjoint())

    x = jnp.array([1.0, 2.0])
    np.testing.assert_allclose(quick(jax.jacfwd(flow))(x), expm(a), atol=1e-7)
    np.testing.assert_allclose(quick(jax.jacrev(flow))(x), expm(a), atol=1e-7)
