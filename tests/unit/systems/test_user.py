"""Systems that users declare."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import fields
from reference.compiling import quick
from scipy.integrate import solve_ivp

import fedkoopman as fk
from fedkoopman.errors import InputError
from fedkoopman.systems import Lorenz63, VanDerPol, simulate


def lorenz(x):
    return jnp.stack([10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]])


def oscillator(x, a, k):
    return jnp.stack([x[1], a * (1 - x[0] ** 2) * x[1] - k * x[0]])


def test_a_function_gives_the_same_system_as_the_built_in_one():
    ours = fk.System.from_function(lorenz, dim=3, dt=0.02)
    x = jnp.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(ours.step(x), Lorenz63().step(x), rtol=1e-14)
    a, b = (simulate(s, 50, initial=[1.0, 2.0, 3.0]) for s in (ours, Lorenz63()))
    np.testing.assert_allclose(a, b, rtol=1e-9)
    assert ours.names == ("x1", "x2", "x3")
    assert ours.units == ("1", "1", "1")
    assert (ours.dim, ours.input_dim, ours.substeps, ours.stiff) == (3, 0, 1, False)


def test_parameters_are_handed_to_the_function_and_can_be_replaced_and_traced():
    system = fk.System.from_function(oscillator, 2, 0.02, parameters={"a": 2, "k": 1.0})
    x = jnp.array([1.0, -1.0])
    assert system.parameters == {"a": 2.0, "k": 1.0}
    np.testing.assert_allclose(system.step(x), VanDerPol().step(x), rtol=1e-14)
    other = system.with_parameters(a=3.0)
    assert other.parameters == {"a": 3.0, "k": 1.0}
    np.testing.assert_allclose(other.step(x), VanDerPol(a=3.0).step(x), rtol=1e-14)
    slope = quick(jax.grad(lambda a: system.with_parameters(a=a).step(x)[1]))(2.0)
    np.testing.assert_allclose(slope, quick(jax.grad(lambda a: VanDerPol(a=a).step(x)[1]))(2.0))
    np.testing.assert_allclose(
        simulate(system, 30, initial=x), simulate(VanDerPol(), 30, initial=x), rtol=1e-9
    )
    with pytest.raises(InputError, match="did you mean 'k'"):
        system.with_parameters(kk=1.0)


def test_declared_names_units_angles_and_substeps_are_kept():
    system = fk.System.from_function(
        lambda x: jnp.stack([x[1], -jnp.sin(x[0])]), 2, 0.1,
        names=["theta", "omega"], units=["rad", "rad/s"], angles=[0], substeps=4,
    )  # fmt: skip
    assert system.names == ("theta", "omega")
    assert system.units == ("rad", "rad/s")
    assert system.angles == (0,)
    assert system.substeps == 4


def test_initial_state_laws():
    key = jax.random.key(0)

    def made(initial):
        return fk.System.from_function(lorenz, 3, 0.02, initial=initial)

    keys = jax.random.split(key, 500)
    x = np.asarray(jax.vmap(made(None).initial_state)(keys))
    assert (np.abs(x) <= 1).all() and (x.max(0) > 0.9).all() and (x.min(0) < -0.9).all()
    np.testing.assert_array_equal(made([1, 2, 3]).initial_state(key), [1, 2, 3])
    x = np.asarray(jax.vmap(made([[0, 0, 5], [1, 2, 5]]).initial_state)(keys))
    assert (x >= [0, 0, 5]).all() and (x <= [1, 2, 5]).all() and x[:, 1].max() > 1.8
    law = made(lambda k: 5 + jax.random.normal(k, (3,)))
    np.testing.assert_array_equal(law.initial_state(key), 5 + jax.random.normal(key, (3,)))
    assert simulate(law, 2, batch=3).shape == (3, 3, 3)


def test_a_map_is_iterated():
    system = fk.System.from_map(lambda x, r: r * x * (1 - x), 1, parameters={"r": 3.7})
    x = simulate(system, 20, initial=[0.3])
    y = [0.3]
    for _ in range(20):
        y.append(3.7 * y[-1] * (1 - y[-1]))
    np.testing.assert_allclose(x[:, 0], y, rtol=1e-9)
    assert system.dt == 1.0
    with pytest.raises(InputError, match="fixed steps"):
        system.step(jnp.array([0.3]), dt=0.5)
    with pytest.raises(InputError, match="no vector field"):
        system.vector_field(jnp.array([0.3]))


def test_a_map_takes_inputs():
    a, b = np.array([[0.9, 0.1], [0.0, 0.8]]), np.array([[1.0], [2.0]])
    system = fk.System.from_map(lambda x, u: a @ x + b @ u, 2, input_dim=1)
    u = np.random.default_rng(0).normal(size=(10, 1))
    x = simulate(system, 10, initial=[1.0, 0.0], inputs=u)
    np.testing.assert_allclose(x[1:], x[:-1] @ a.T + u @ b.T, rtol=1e-13)


def test_a_network_is_a_vector_field_and_its_weights_are_leaves():
    network = eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0))
    system = fk.System.from_function(network, 2, 0.1)
    x = jnp.array([0.1, 0.2])
    plain = fk.System.from_function(lambda y: network(y), 2, 0.1)
    np.testing.assert_allclose(jax.jit(lambda s: s.step(x))(system), plain.step(x), rtol=1e-12)
    slopes = eqx.filter_grad(lambda s: jnp.sum(s.step(x)))(system)
    assert any(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(slopes) if np.ndim(leaf))


def robertson(x):
    slow, fast = 0.04 * x[0], 3e7 * x[1] ** 2
    mixed = 1e4 * x[1] * x[2]
    return jnp.stack([-slow + mixed, slow - mixed - fast, fast])


def test_a_stiff_system_is_simulated_and_stepped():
    system = fk.System.from_function(robertson, 3, 10.0, stiff=True, initial=[1.0, 0.0, 0.0])
    x = simulate(system, 10)
    reference = solve_ivp(
        lambda t, y: np.asarray(robertson(y)), (0, 100), [1.0, 0, 0], method="LSODA",
        t_eval=np.arange(0, 101, 10.0), rtol=1e-10, atol=1e-14,
    ).y.T  # fmt: skip
    np.testing.assert_allclose(x, reference, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(x.sum(-1), 1, atol=1e-8)
    stepped = quick(jax.vmap(system.step))(x[:-1])
    np.testing.assert_allclose(stepped, x[1:], atol=2e-6)


@pytest.mark.slow  # compiling takes long
def test_a_stiff_step_differentiates_in_both_modes_and_keeps_its_precision():
    def field(x, mu):
        return jnp.stack([x[1], mu * (1 - x[0] ** 2) * x[1] - x[0]])

    system = fk.System.from_function(field, 2, 0.5, stiff=True, parameters={"mu": 1000.0})
    x = jnp.array([2.0, 0.0])
    exact = fields.solve(
        lambda y: fields.van_der_pol(y, 1000.0), np.asarray(x), [0, 0.5], "Radau", 1e-10
    )[-1]
    step = quick(system.step)
    np.testing.assert_allclose(step(x), exact, atol=1e-5)
    forward = quick(jax.jacfwd(system.step))(x)
    np.testing.assert_allclose(forward, quick(jax.jacrev(system.step))(x), atol=1e-8)
    h = jnp.array([1e-3, 0.0])
    np.testing.assert_allclose(forward[:, 0], (step(x + h) - step(x - h)) / 2e-3, atol=1e-3)
    single = step(x.astype(jnp.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, exact, atol=1e-3)


def raises(x):
    raise RuntimeError("no such\nfield")


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((lambda x: x[:2], 3, 0.1), {}, ["f returned shape (2,)", "(3,)"]),
        ((lambda x: jnp.sum(x), 3, 0.1), {}, ["f returned shape ()"]),
        ((lambda x: [x[0], x[1], x[2]], 3, 0.1), {}, ["f returned a list", "jnp.stack"]),
        ((lambda x: None, 3, 0.1), {}, ["f returned a NoneType"]),
        ((lambda x: x.astype(int), 3, 0.1), {}, ["int64", "real numbers"]),
        ((lambda x: x + 1j, 3, 0.1), {}, ["complex128", "real numbers"]),
        ((raises, 3, 0.1), {}, ["f failed", "RuntimeError: no such"]),
        ((lambda x: np.sin(x), 3, 0.1), {}, ["f failed", "jax.numpy"]),
        ((lambda x: x if x[0] > 0 else -x, 3, 0.1), {}, ["f failed", "Tracer"]),
        ((lambda x: x[5] * x @ jnp.eye(4), 3, 0.1), {}, ["f failed"]),
        ((lambda x, u: x, 3, 0.1), {}, ["f failed", "TypeError"]),
        ((lambda x: x, 3, 0.1), {"input_dim": 2}, ["f failed", "TypeError"]),
        ((lambda x: x, 3, 0.1), {"parameters": {"a": 1.0}}, ["f failed", "'a'"]),
        ((oscillator, 2, 0.1), {"parameters": {"a": 1.0, "k": "x"}}, ["parameter k is 'x'"]),
        ((42, 3, 0.1), {}, ["f is an int (42)", "function"]),
        ((lorenz, 0, 0.1), {}, ["dim is 0", "at least 1"]),
        ((lorenz, -3, 0.1), {}, ["dim is -3"]),
        ((lorenz, 3.0, 0.1), {}, ["dim is 3.0"]),
        ((lorenz, 3, 0), {}, ["dt is 0"]),
        ((lorenz, 3, -0.1), {}, ["dt is -0.1"]),
        ((lorenz, 3, "fast"), {}, ["dt is 'fast'"]),
        ((lorenz, 3, 0.1), {"names": ["a", "b"]}, ["names has 2 entries", "3 components"]),
        ((lorenz, 3, 0.1), {"names": ["a", "b", "a"]}, ["names repeats"]),
        ((lorenz, 3, 0.1), {"names": "xyz"}, ["names has 1 entries"]),
        ((lorenz, 3, 0.1), {"units": ["m"]}, ["units has 1 entries"]),
        ((lorenz, 3, 0.1), {"angles": (3,)}, ["angles contains 3"]),
        ((lorenz, 3, 0.1), {"substeps": 0}, ["substeps is 0"]),
        ((lorenz, 3, 0.1), {"input_dim": -1}, ["input_dim is -1"]),
        ((lorenz, 3, 0.1), {"initial": [1.0, 2.0]}, ["initial has shape (2,)", "(2, 3)"]),
        ((lorenz, 3, 0.1), {"initial": [1.0, np.nan, 2.0]}, ["initial contains nan"]),
        ((lorenz, 3, 0.1), {"initial": "zero"}, ["initial"]),
        ((lorenz, 3, 0.1), {"initial": [[1, 1, 1], [0, 2, 2]]}, ["from 1 to 0", "component 0"]),
        ((lorenz, 3, 0.1), {"initial": lambda k: jnp.zeros(2)}, ["initial returned shape (2,)"]),
    ],
)
def test_wrong_declarations_are_refused_in_one_line(arguments, options, words):
    with pytest.raises(InputError) as refusal:
        fk.System.from_function(*arguments, **options)
    assert "\n" not in str(refusal.value)
    for word in words:
        assert word in str(refusal.value)


def test_wrong_maps_are_refused_alike():
    with pytest.raises(InputError, match=r"f returned shape \(1,\)"):
        fk.System.from_map(lambda x: x[:1], 2)
    with pytest.raises(InputError, match="dim is 0"):
        fk.System.from_map(lambda x: x, 0)


def test_a_callable_that_cannot_be_hashed_is_refused():
    class Unhashable:
        __hash__ = None

        def __call__(self, x):
            return x

    with pytest.raises(InputError, match="unhashable Unhashable"):
        fk.System.from_function(Unhashable(), 2, 0.1)
