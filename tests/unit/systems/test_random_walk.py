"""Systems without equations: closed forms, Van Loan's discretisation, and the Kalman filter."""

import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import filters
from scipy.linalg import block_diag, expm

import fedkoopman as fk
from fedkoopman.config.parts import system_of
from fedkoopman.config.study import Study
from fedkoopman.errors import InputError
from fedkoopman.systems import LocalPolynomial, by_name

H = 0.13
ORDERS = pytest.mark.parametrize("order", [0, 1, 2, 4])


def chain(order):
    """The nilpotent matrix of q̇ = q⁽¹⁾, …"""
    return np.diag(np.ones(order), 1)


def van_loan(order, density, h):
    """F and Q of ẋ = A x + G w from one matrix exponential (Van Loan 1978)."""
    a, n = chain(order), order + 1
    g = np.zeros((n, n))
    g[-1, -1] = density
    big = expm(h * np.block([[-a, g], [np.zeros((n, n)), a.T]]))
    f = big[n:, n:].T
    return f, f @ big[:n, n:]


def test_names_and_units_follow_from_quantities_and_order():
    plain = LocalPolynomial(("angle",), 2, 0.1)
    assert plain.names == ("angle", "angle_d1", "angle_d2")
    assert plain.units == ("1", "1/s", "1/s²")
    assert (plain.dim, plain.dt, plain.parameters, plain.input_dim) == (3, 0.1, {}, 0)
    two = LocalPolynomial(["angle", "lift"], state_units=["rad", "m"])
    assert two.names == ("angle", "angle_d1", "lift", "lift_d1")
    assert two.units == ("rad", "rad/s", "m", "m/s")
    assert LocalPolynomial(("v",), 1, state_units=("mV", "mV/ms")).units == ("mV", "mV/ms")
    assert LocalPolynomial(("v", "w"), 0).names == ("v", "w")


@ORDERS
def test_the_step_is_the_matrix_exponential(order):
    system = LocalPolynomial(("a", "b"), order, H)
    f = block_diag(*[van_loan(order, 1.0, H)[0]] * 2)
    x = np.random.default_rng(order).normal(size=system.dim)
    np.testing.assert_allclose(system.step(jnp.asarray(x)), f @ x, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(jax.jacfwd(system.step)(jnp.asarray(x)), f, atol=1e-13)
    other = expm(3 * H * block_diag(chain(order), chain(order)))
    np.testing.assert_allclose(system.step(jnp.asarray(x), None, 3 * H), other @ x, rtol=1e-12)
    field = block_diag(chain(order), chain(order)) @ x
    np.testing.assert_allclose(system.vector_field(jnp.asarray(x)), field)


@ORDERS
def test_process_noise_is_van_loans(order):
    system = LocalPolynomial(("a", "b"), order, H)
    expected = block_diag(van_loan(order, 0.7, H)[1], van_loan(order, 3.0, H)[1])
    np.testing.assert_allclose(system.process_noise((0.7, 3.0)), expected, rtol=1e-10, atol=1e-16)


def test_process_noise_of_the_usual_orders_in_closed_form():
    s, h = 2.5, 0.3
    noise = {p: LocalPolynomial(("q",), p, h).process_noise(s) for p in range(3)}
    np.testing.assert_allclose(noise[0], [[s * h]])
    np.testing.assert_allclose(noise[1], s * np.array([[h**3 / 3, h**2 / 2], [h**2 / 2, h]]))
    np.testing.assert_allclose(
        noise[2],
        s * np.array([
            [h**5 / 20, h**4 / 8, h**3 / 6],
            [h**4 / 8, h**3 / 3, h**2 / 2],
            [h**3 / 6, h**2 / 2, h],
        ]),
    )  # fmt: skip


@ORDERS
def test_two_half_steps_are_one_step(order):
    """Chapman and Kolmogorov: noise of the first half carried on, plus that of the second."""
    system = LocalPolynomial(("q",), order, H)
    half = jax.jacfwd(lambda x: system.step(x, None, H / 2))(jnp.zeros(order + 1))
    q = system.process_noise(1.0, H / 2)
    np.testing.assert_allclose(half @ q @ half.T + q, system.process_noise(1.0), rtol=1e-12)


def test_process_noise_per_step_has_the_intervals_shape():
    system = LocalPolynomial(("q",), 1, H)
    intervals = np.array([[0.1, 0.2, H], [0.3, 0.1, 0.4]])
    noise = system.process_noise(0.5, intervals)
    assert noise.shape == (2, 3, 2, 2)
    np.testing.assert_allclose(noise[0, 2], system.process_noise(0.5))
    np.testing.assert_allclose(noise[1, 0], van_loan(1, 0.5, 0.3)[1])


@pytest.mark.parametrize("method", ["ukf-resampled", "ekf"])
def test_the_filter_is_the_kalman_filter(method):
    """A smooth signal, two quantities through a mixing sensor, gaps: against the exact filter."""
    rng = np.random.default_rng(3)
    t = H * np.arange(1, 41)
    c = np.array([[1.0, 0, 0.5, 0], [0, 0, 1.0, 0]])
    signal = np.stack([np.sin(t), np.cos(t), np.cos(2 * t), -2 * np.sin(2 * t)], axis=1)
    z = signal @ c.T + 0.1 * rng.normal(size=(len(t), 2))
    z[5], z[9, 0] = np.nan, np.nan
    system = LocalPolynomial(("a", "b"), 1, H)
    block, f = van_loan(1, 2.0, H)[1], block_diag(*[van_loan(1, 1.0, H)[0]] * 2)
    q, r, p0 = block_diag(block, block), 0.01 * np.eye(2), 4 * np.eye(4)
    *_, mean, cov, log_likelihood = filters.linearised(
        lambda x: f @ x, lambda x: c @ x, z, q, r, np.zeros(4), p0, lambda x: f, lambda x: c
    )
    found = fk.estimate(
        system,
        fk.LinearSensor(c),
        z,
        process_noise=system.process_noise(2.0),
        observation_noise=0.01,
        initial_cov=4.0,
        method=method,
    )
    np.testing.assert_allclose(found.mean, mean[1:], atol=1e-10)
    np.testing.assert_allclose(found.cov, cov[1:], atol=1e-10)
    assert found.log_likelihood == pytest.approx(log_likelihood, abs=1e-9)
    # and it is of use: nearer to the signal than what was observed
    seen = ~np.isnan(z)
    error = (found.mean - signal) @ c.T
    assert np.std(error[seen]) < 0.7 * np.std((z - signal @ c.T)[seen])


def test_irregular_intervals_go_with_noise_per_step():
    rng = np.random.default_rng(4)
    h = rng.uniform(0.05, 0.3, 30)
    z = np.sin(np.cumsum(h))[:, None] + 0.05 * rng.normal(size=(30, 1))
    system = LocalPolynomial(("q",), 1, 0.1)
    found = fk.estimate(
        system,
        fk.LinearSensor([[1.0, 0.0]]),
        z,
        dt=h,
        process_noise=system.process_noise(1.0, h),
        observation_noise=0.0025,
        method="ekf",
        smooth=False,
    )
    x, p = np.zeros(2), np.eye(2)
    c = np.array([[1.0, 0.0]])
    for k, zk in enumerate(z):
        f, q = van_loan(1, 1.0, h[k])
        x, p = f @ x, f @ p @ f.T + q
        gain = p @ c.T / (c @ p @ c.T + 0.0025)
        x, p = x + gain @ (zk - c @ x), p - gain @ c @ p
        np.testing.assert_allclose(found.mean[k], x, atol=1e-11)
        np.testing.assert_allclose(found.cov[k], p, atol=1e-11)


def test_without_noise_it_stays_on_its_polynomial():
    system = LocalPolynomial(("q",), 2, 0.5)
    x = fk.simulate(system, 4, initial=[1.0, -2.0, 6.0])
    t = 0.5 * np.arange(5)
    np.testing.assert_allclose(x[:, 0], 1 - 2 * t + 3 * t**2, atol=1e-12)
    np.testing.assert_allclose(x[:, 1], -2 + 6 * t, atol=1e-12)
    np.testing.assert_allclose(x[:, 2], 6.0)


def test_with_noise_the_highest_derivative_wanders_as_stated():
    system = LocalPolynomial(("q",), 1, 0.5)
    start = np.zeros((400, 2))
    x = fk.simulate(system, 6, initial=start, process_noise=system.process_noise(2.0), seed=1)
    # √(s t) after t = 3, and the integral of it: √(s t³ / 3)
    for component, variance in ((1, 2.0 * 3), (0, 2.0 * 27 / 3)):
        assert np.var(x[:, -1, component]) == pytest.approx(variance, rel=4 * np.sqrt(2 / 400))


def test_initial_states_are_standard_normal():
    system = LocalPolynomial(("a", "b"), 1)
    keys = jax.random.split(jax.random.key(0), 4000)
    x = np.asarray(jax.vmap(system.initial_state)(keys))
    np.testing.assert_allclose(np.cov(x.T), np.eye(4), atol=0.1)
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=0.08)


def test_single_precision_stays_single():
    system = LocalPolynomial(("a",), 2, H)
    assert system.step(jnp.ones(3, jnp.float32)).dtype == jnp.float32


def test_a_declared_angle_wraps():
    system = LocalPolynomial(("angle",), 1, 0.1, angles=(0,))
    t = 0.1 * np.arange(1, 60)
    z = ((2 * t + np.pi) % (2 * np.pi) - np.pi)[:, None]
    found = fk.estimate(
        system,
        fk.LinearSensor([[1.0, 0.0]], angles=(0,)),
        z,
        process_noise=system.process_noise(1e-3),
        observation_noise=1e-4,
        initial_cov=4.0,
        method="ekf",
    )
    np.testing.assert_allclose(found.mean[:, 1], 2.0, atol=0.01)
    assert np.ptp(z) > 6  # it went round


STUDY = """
[system]
name = "random-walk"
parameters = { states = ["angle", "lift"], order = 2, dt = 0.05, state_units = ["rad", "m"] }
"""


def test_a_study_names_it_with_its_quantities():
    study = Study.from_dict(tomllib.loads(STUDY))
    assert study.system.parameters["states"] == ("angle", "lift")
    assert Study.from_dict(tomllib.loads(study.to_toml())) == study
    system = system_of(study)
    assert system == by_name(
        "random-walk", states=("angle", "lift"), order=2, dt=0.05, state_units=("rad", "m")
    )
    assert system.names[3:5] == ("lift", "lift_d1")
    assert system.units[2] == "rad/s²"
    by_key = Study().with_values(
        {"system.name": "random-walk", "system.parameters.states": '["angle"]'}
    )
    assert system_of(by_key).names == ("angle", "angle_d1")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('["a", 1]', ["system.parameters.states[1] is 1", "text"]),
        ('["a", ""]', ["system.parameters.states[1] is ''"]),
        ('"angle"', ["system.parameters.states is 'angle'", "list of whole numbers or of names"]),
        ("[[1.0]]", ["system.parameters.states[0]"]),
    ],
)
def test_a_study_refuses_other_lists(value, words):
    text = f'[system]\nname = "random-walk"\nparameters = {{ states = {value} }}\n'
    with pytest.raises(InputError) as refusal:
        Study.from_dict(tomllib.loads(text))
    for word in words:
        assert word in str(refusal.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LocalPolynomial("angle"), ["states is 'angle'", '["angle"]']),
        (lambda: LocalPolynomial(()), ["states is ()"]),
        (lambda: LocalPolynomial(("a", 1)), ["states is ('a', 1)"]),
        (lambda: LocalPolynomial(("a", "a")), ["'a' twice"]),
        (lambda: LocalPolynomial(("a", "a_d1"), 1), ["'a_d1' twice", "_d1"]),
        (lambda: LocalPolynomial(("a",), -1), ["order is -1", "at least 0"]),
        (lambda: LocalPolynomial(("a",), 1.0), ["order is 1.0", "whole number"]),
        (lambda: LocalPolynomial(("a",), dt=0.0), ["dt is 0", "above 0"]),
        (lambda: LocalPolynomial(("a",), 2, state_units=("m", "s")), ["state_units has 2", "3"]),
        (lambda: LocalPolynomial(("a",), angles=(2,)), ["angles contains 2", "0 to 1"]),
        (lambda: LocalPolynomial().process_noise(-1.0), ["density contains -1", "at least 0"]),
        (lambda: LocalPolynomial().process_noise([1.0, 2.0]), ["density has shape (2,)", "1 qu"]),
        (lambda: LocalPolynomial().process_noise(1.0, [0.1, 0.0]), ["dt contains 0", "above 0"]),
        (lambda: by_name("random-walk", order="two"), ["order is 'two'"]),
        (lambda: by_name("random-walk", state=("a",)), ["did you mean 'states'"]),
    ],
)
def test_wrong_declarations_are_refused_in_one_line(make, words):
    with pytest.raises(InputError) as refusal:
        make()
    assert "\n" not in str(refusal.value)
    for word in words:
        assert word in str(refusal.value)
