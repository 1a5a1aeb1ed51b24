"""Equations of motion straight from a Lagrangian, by automatic differentiation."""

import jax
import jax.numpy as jnp


def heights_and_speeds(theta, omega, l1, l2):
    """Cartesian heights and velocities of two bobs hanging from one another."""

    def places(angles):
        first = l1 * jnp.array([jnp.sin(angles[0]), -jnp.cos(angles[0])])
        return jnp.stack([first, first + l2 * jnp.array([jnp.sin(angles[1]), -jnp.cos(angles[1])])])

    position, velocity = jax.jvp(places, (theta,), (omega,))
    return position[:, 1], velocity


def energies(theta, omega, lengths, masses, gravity):
    """Kinetic and potential energy of the double pendulum, from Cartesian coordinates."""
    height, velocity = heights_and_speeds(theta, omega, *lengths)
    masses = jnp.asarray(masses)
    return 0.5 * jnp.sum(masses[:, None] * velocity**2), gravity * jnp.sum(masses * height)


def accelerations(theta, omega, lengths, masses, gravity):
    """θ̈ from d/dt ∂L/∂ω = ∂L/∂θ."""

    def lagrangian(theta, omega):
        kinetic, potential = energies(theta, omega, lengths, masses, gravity)
        return kinetic - potential

    mass = jax.hessian(lagrangian, 1)(theta, omega)
    mixed = jax.jacfwd(jax.grad(lagrangian, 1), 0)(theta, omega)
    return jnp.linalg.solve(mass, jax.grad(lagrangian, 0)(theta, omega) - mixed @ omega)
