"""Laws that every system obeys: the built-in ones, and one from a file of another package."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import fields
from reference.compiling import quick
from reference.extension import file_of

from fedkoopman import systems
from fedkoopman.errors import InputError
from fedkoopman.systems import System, simulate

TWINS = {
    "van-der-pol": fields.van_der_pol,
    "pendulum": fields.pendulum,
    "lorenz63": fields.lorenz63,
    "double-pendulum": fields.double_pendulum,
    "yni": fields.yni,
    "lorenz96": fields.lorenz96,
    "rossler": fields.rossler,
}
OTHERS = {"rossler": f"{file_of('rossler')}:SYSTEM"}
"""Systems that are not built in, and where they are."""
DEFAULT_DT = {
    "van-der-pol": 0.02,
    "pendulum": 0.02,
    "lorenz63": 0.02,
    "double-pendulum": 0.002,
    "yni": 1.0,
    "lorenz96": 0.02,
    "rossler": 0.05,
}
EVERY = pytest.mark.parametrize("name", list(TWINS))


def by_name(name, **parameters):
    return systems.by_name(OTHERS.get(name, name), **parameters)


# Compiled with the system as an argument, so that tests share what is compiled.
fields_at = quick(jax.vmap(lambda s, x: s.vector_field(x), (None, 0)))
steps_at = quick(jax.vmap(lambda s, x: s.step(x), (None, 0)))
step = quick(lambda s, x, dt=None: s.step(x, dt=dt))


@pytest.fixture(scope="module")
def truth():
    """Trajectories of every system from its own initial-state law, solved once."""
    solved = {}

    def of(name):
        if name not in solved:
            few = name in ("yni", "lorenz96")
            solved[name] = simulate(by_name(name), 300, batch=4 if few else 30, seed=3)
        return solved[name]

    return of


def test_every_name_has_a_twin_here():
    without_equations = {"random-walk"}  # test_random_walk.py
    assert set(systems.names()) == set(TWINS) - set(OTHERS) | without_equations


@EVERY
def test_names_units_and_interval_are_declared(name):
    system = by_name(name)
    assert system.dt == DEFAULT_DT[name]
    assert len(system.names) == len(system.units) == system.dim
    assert len(set(system.names)) == system.dim
    assert system.input_dim == 0
    assert system.angles == ()
    assert system.stiff == (name == "yni")
    assert all(isinstance(value, float) for value in system.parameters.values())


@EVERY
def test_vector_field_equals_the_numpy_twin(name, truth):
    system, twin = by_name(name), TWINS[name]
    states = truth(name)[:2, ::10].reshape(-1, system.dim)
    ours = fields_at(system, states)
    np.testing.assert_allclose(ours, [twin(x) for x in states], rtol=1e-10, atol=1e-10)


@EVERY
def test_truth_equals_scipy(name, truth):
    system = by_name(name)
    count = 40 if name == "lorenz96" else 100  # before chaos has magnified the solvers' 1e-9
    x = truth(name)[1, : count + 1]
    method = "LSODA" if name == "yni" else "DOP853"
    times = np.arange(count + 1) * float(system.dt)
    np.testing.assert_allclose(x, fields.solve(TWINS[name], x[0], times, method), atol=2e-6)


@EVERY
def test_step_meets_its_stated_tolerance_and_the_statement_is_not_idle(name, truth):
    system, x = by_name(name), truth(name)
    stepped = steps_at(system, x[:, :-1].reshape(-1, system.dim))
    worst = np.abs(stepped - x[:, 1:].reshape(-1, system.dim)).max()
    assert system.step_tolerance / 20 < worst < system.step_tolerance


@EVERY
def test_jacobian_of_step_equals_finite_differences_in_both_modes(name, truth):
    system = by_name(name)
    x = jnp.asarray(truth(name)[0, 120])
    forward, reverse = (quick(mode(system.step))(x) for mode in (jax.jacfwd, jax.jacrev))
    np.testing.assert_allclose(forward, reverse, rtol=1e-9, atol=1e-12)
    e = 1e-6 * jnp.eye(system.dim)
    differences = (steps_at(system, x + e) - steps_at(system, x - e)).T / 2e-6
    np.testing.assert_allclose(forward, differences, rtol=1e-5, atol=1e-6)


@EVERY
def test_a_batch_steps_as_its_members_do(name, truth):
    system = by_name(name)
    states = jnp.asarray(truth(name)[:4, 50])
    one_by_one = jnp.stack([step(system, x) for x in states])
    np.testing.assert_allclose(steps_at(system, states), one_by_one, rtol=1e-12, atol=1e-12)
    last = quick(jax.vmap(system.step, -1, -1))(states.T).T
    np.testing.assert_allclose(last, one_by_one, rtol=1e-12, atol=1e-12)


@EVERY
def test_single_precision_stays_single(name, truth):
    system = by_name(name)
    x = jnp.asarray(truth(name)[0, 50], jnp.float32)
    single = step(system, x)
    assert single.dtype == jnp.float32
    exact = step(system, truth(name)[0, 50])
    np.testing.assert_allclose(single, exact, rtol=1e-4, atol=1e-4)


@EVERY
def test_step_takes_another_interval(name, truth):
    system = by_name(name)
    x = jnp.asarray(truth(name)[0, 50])
    half = type(system)(dt=system.dt / 2, substeps=system.substeps)
    np.testing.assert_allclose(step(system, x, system.dt / 2), step(half, x), rtol=1e-12)


@EVERY
def test_longer_intervals_get_more_substeps_by_themselves(name):
    kind = type(by_name(name))
    dt = DEFAULT_DT[name]
    assert kind(dt=10 * dt).substeps == 10 * kind().substeps
    assert kind(dt=dt / 10).substeps == 1
    assert kind(dt=dt, substeps=7).substeps == 7
    assert kind().substeps == (2 if name == "yni" else 1)


@EVERY
def test_parameters_can_be_replaced_traced_and_differentiated(name, truth):
    system, x = by_name(name), jnp.asarray(truth(name)[0, 120])
    values = system.parameters

    def of(values):
        return system.with_parameters(**values).step(x)

    stepped, slopes = quick(of), quick(jax.jacfwd(of))(values)
    for parameter, value in values.items():
        other = system.with_parameters(**{parameter: 1.1 * value})
        assert other.parameters == {**values, parameter: 1.1 * value}
        assert system.parameters == values
        h = 1e-5 * value
        up, down = (stepped({**values, parameter: value + d}) for d in (h, -h))
        np.testing.assert_allclose(step(other, x), stepped(other.parameters), rtol=1e-12)
        np.testing.assert_allclose(slopes[parameter], (up - down) / (2 * h), rtol=1e-4, atol=1e-8)
        assert np.abs(slopes[parameter]).max() > 0


def test_initial_states_follow_their_laws():
    box = {
        "van-der-pol": ([-2, -2], [2, 2]),
        "pendulum": ([0, 0], [2 * np.pi, 0]),
        "lorenz63": ([-10] * 3, [10] * 3),
        "double-pendulum": ([-np.pi, 0, -np.pi, 0], [np.pi, 0, np.pi, 0]),
        "yni": ([-70] + [0] * 6, [-50] + [0] * 6),
    }
    keys = jax.random.split(jax.random.key(0), 4000)
    for name, (low, high) in box.items():
        x = np.asarray(jax.vmap(by_name(name).initial_state)(keys))
        low, high = np.asarray(low, float), np.asarray(high, float)
        assert (x >= low).all() and (x <= high).all()
        error = (high - low) / np.sqrt(12 * len(x))
        assert (np.abs(x.mean(0) - (low + high) / 2) <= 4 * error).all()
        np.testing.assert_allclose(x.std(0), (high - low) / np.sqrt(12), rtol=0.03, atol=1e-12)
    x = np.asarray(jax.vmap(by_name("lorenz96").initial_state)(keys))
    np.testing.assert_allclose(x.mean(), 8, atol=0.02)
    np.testing.assert_allclose(x.std(), 1, atol=0.02)


def test_a_system_is_a_pytree_whose_leaves_are_its_numbers():
    leaves = jax.tree.leaves(by_name("lorenz63", dt=0.01))
    assert sorted(leaves) == [0.01, 8 / 3, 10.0, 28.0]


def test_by_name_hands_parameters_on():
    assert by_name("lorenz96", dim=7, dt=0.01).dim == 7
    assert by_name("van-der-pol", a=3).parameters == {"a": 3.0}
    assert by_name("pendulum", angles=[0]).angles == (0,)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: by_name("lorentz63"), ["lorentz63", "did you mean 'lorenz63'"]),
        (lambda: by_name("lorenz63", d=1.0), ["unknown parameter of lorenz63", "'d'"]),
        (lambda: by_name("pendulum", lenght=1.0), ["did you mean 'length'"]),
        (lambda: by_name("lorenz63").with_parameters(aa=1.0), ["'aa'", "did you mean 'a'"]),
        (lambda: by_name("lorenz63", dt=0.0), ["dt is 0", "above 0"]),
        (lambda: by_name("lorenz63", dt=-1), ["dt is -1", "above 0"]),
        (lambda: by_name("lorenz63", dt=np.nan), ["dt is nan", "finite"]),
        (lambda: by_name("lorenz63", a="ten"), ["a is 'ten'", "number"]),
        (lambda: by_name("lorenz63", a=[1, 2]), ["a is [1, 2]", "number"]),
        (lambda: by_name("lorenz63").with_parameters(a=np.inf), ["a is inf", "finite"]),
        (lambda: by_name("lorenz63", substeps=0), ["substeps is 0", "at least 1"]),
        (lambda: by_name("lorenz63", substeps=1.5), ["substeps is 1.5"]),
        (lambda: by_name("lorenz63", angles=(3,)), ["angles contains 3", "0 to 2"]),
        (lambda: by_name("lorenz63", angles=(-1,)), ["angles contains -1"]),
        (lambda: by_name("lorenz63", angles=(1, 1)), ["angles is (1, 1)", "once"]),
        (lambda: by_name("lorenz63", angles=0), ["angles is 0", "tuple"]),
        (lambda: by_name("pendulum", length=0), ["length is 0", "above 0"]),
        (lambda: by_name("pendulum").with_parameters(length=-1), ["length is -1", "above 0"]),
        (lambda: by_name("lorenz96", dim=3), ["dim is 3", "at least 4"]),
        (lambda: by_name("lorenz96", dim=0), ["dim is 0"]),
        (lambda: jax.jit(lambda dt: by_name("lorenz63", dt=dt).dt)(0.1), ["traced", "substeps"]),
    ],
)
def test_wrong_declarations_are_refused_in_one_line(make, words):
    with pytest.raises(InputError) as refusal:
        make()
    assert "\n" not in str(refusal.value)
    for word in words:
        assert word in str(refusal.value)


def test_a_system_that_forgets_its_vector_field_cannot_be_made():
    class Incomplete(System):
        dt: float = 1.0

    with pytest.raises(TypeError):
        Incomplete()


def test_a_package_may_offer_a_system_that_is_made_already(monkeypatch):
    own = System.from_function(lambda x, rate=1.0: -rate * x, 1, 0.1, parameters={"rate": 1.0})
    monkeypatch.setitem(systems.SYSTEMS._found, "decay", own)
    assert by_name("decay").dt == 0.1
    changed = by_name("decay", dt=0.2, rate=3.0)
    assert (changed.dt, changed.parameters) == (0.2, {"rate": 3.0})
    with pytest.raises(InputError, match="dt is -1: it must be above 0"):
        by_name("decay", dt=-1)
    with pytest.raises(InputError, match="unknown parameter 'rat'"):
        by_name("decay", rat=1.0)
