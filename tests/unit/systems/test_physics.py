"""What is known about the classical systems without solving them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import lagrangian
from scipy.interpolate import CubicSpline
from scipy.special import ellipk

from fedkoopman.systems import DoublePendulum, Lorenz63, Lorenz96, Pendulum, VanDerPol, simulate


def test_lorenz63_rests_at_its_three_fixed_points():
    system = Lorenz63()
    r = np.sqrt(8 / 3 * 27)
    for point in ([0, 0, 0], [r, r, 27], [-r, -r, 27]):
        x = jnp.asarray(point, float)
        np.testing.assert_allclose(system.vector_field(x), 0, atol=1e-13)
        np.testing.assert_allclose(system.step(x), x, atol=1e-13)
        np.testing.assert_allclose(system.flow(x), x, atol=1e-12)


def test_lorenz63_contracts_volumes_at_a_constant_rate():
    system = Lorenz63()
    rate = -(10 + 1 + 8 / 3)
    states = np.random.default_rng(0).uniform(-20, 20, size=(5, 3))
    local = jax.jit(jax.vmap(jax.jacfwd(system.vector_field)))(states)
    np.testing.assert_allclose(np.trace(local, axis1=1, axis2=2), rate, rtol=1e-13)
    over_a_step = jax.jit(jax.vmap(jax.jacfwd(system.step)))(states)
    np.testing.assert_allclose(np.linalg.det(over_a_step), np.exp(rate * 0.02), rtol=1e-3)


def test_lorenz63_commutes_with_the_half_turn():
    system, turn = Lorenz63(), jnp.array([-1.0, -1.0, 1.0])
    x = jnp.array([3.0, -5.0, 20.0])
    np.testing.assert_allclose(system.step(turn * x), turn * system.step(x), rtol=1e-14)


def test_van_der_pol_has_the_known_limit_cycle():
    x = simulate(VanDerPol(a=2.0), 4000, initial=[[0.1, 0.0], [3.0, -3.0]])[:, 2000:, 0]
    for path in x:
        spline = CubicSpline(np.arange(len(path)) * 0.02, path)
        turning = spline.derivative().roots(extrapolate=False)
        np.testing.assert_allclose(np.abs(spline(turning)), 2.0199, atol=2e-4)
        up = [t for t in spline.roots(extrapolate=False) if spline(t, 1) > 0]
        np.testing.assert_allclose(np.diff(up), 7.6299, atol=1e-3)


@pytest.mark.parametrize("angle", [0.1, 1.0, 2.5])
def test_pendulum_has_the_elliptic_period(angle):
    length, gravity = 0.7, 9.8
    period = 4 * np.sqrt(length / gravity) * ellipk(np.sin(angle / 2) ** 2)
    x = simulate(Pendulum(length=length, dt=period / 100), 200, initial=[angle, 0.0])
    np.testing.assert_allclose(x[[100, 200]], [[angle, 0.0]] * 2, atol=1e-6)
    np.testing.assert_allclose(x[50], [-angle, 0.0], atol=1e-6)


def test_pendulum_truth_conserves_energy():
    x = simulate(Pendulum(), 3000, batch=3)
    energy = x[..., 1] ** 2 / 2 - 9.8 * np.cos(x[..., 0])
    np.testing.assert_allclose(energy, energy[:, :1] * np.ones(3001), atol=1e-5)


@pytest.fixture
def parameters():
    p = DoublePendulum().parameters
    return (p["length1"], p["length2"]), (p["mass1"], p["mass2"]), p["gravity"]


def test_the_papers_double_pendulum_equation_is_the_lagranges_equation(parameters):
    states = np.random.default_rng(0).uniform(-4, 4, size=(50, 4)) * [1, 5, 1, 5]
    ours = np.asarray(jax.jit(jax.vmap(DoublePendulum().vector_field))(states))
    theta, omega = jnp.asarray(states[:, [0, 2]]), jnp.asarray(states[:, [1, 3]])
    derive = jax.jit(jax.vmap(lambda t, w: lagrangian.accelerations(t, w, *parameters)))
    np.testing.assert_allclose(ours[:, [1, 3]], derive(theta, omega), rtol=1e-9)
    np.testing.assert_array_equal(ours[:, [0, 2]], omega)


def test_double_pendulum_truth_and_step_conserve_the_physical_energy(parameters):
    x = simulate(DoublePendulum(), 2000, batch=3, seed=1)  # 4 s

    def energy(state):
        kinetic, potential = lagrangian.energies(
            state[jnp.array([0, 2])], state[jnp.array([1, 3])], *parameters
        )
        return kinetic + potential

    energies = jax.jit(jax.vmap(jax.vmap(energy)))
    along = energies(x)
    scale = 9.8 * (0.311 * 0.172 + 0.111 * 0.315)
    np.testing.assert_allclose(along, along[:, :1] * np.ones(2001), atol=1e-6 * scale)
    stepped = jax.jit(jax.vmap(jax.vmap(DoublePendulum().step)))(x)
    np.testing.assert_allclose(energies(stepped), along, atol=1e-5 * scale)


def test_lorenz96_advection_conserves_energy_and_the_ring_has_no_beginning():
    system = Lorenz96(dim=11, forcing=0.0)
    x = jax.random.normal(jax.random.key(0), (11,))
    advection = system.vector_field(x) + x
    assert abs(float(advection @ x)) < 1e-13
    forced = Lorenz96(dim=11)
    np.testing.assert_allclose(
        forced.vector_field(jnp.roll(x, 3)), jnp.roll(forced.vector_field(x), 3), rtol=1e-14
    )
    np.testing.assert_array_equal(forced.vector_field(jnp.full(11, 8.0)), 0)
