import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import fedkoopman as fk
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.systems import Lorenz63, Pendulum, VanDerPol, simulate
from fedkoopman.systems.integrate import _run


def test_shapes_and_types():
    x = simulate(Lorenz63(), 5)
    assert isinstance(x, np.ndarray) and x.dtype == np.float64
    assert x.shape == (6, 3)
    assert simulate(Lorenz63(), 5, batch=1).shape == (1, 6, 3)
    assert simulate(Lorenz63(), 5, initial=[1.0, 2, 3]).shape == (6, 3)
    assert simulate(Lorenz63(), 5, initial=[[1.0, 2, 3]]).shape == (1, 6, 3)
    assert simulate(Lorenz63(), 5, initial=[1.0, 2, 3], batch=4).shape == (4, 6, 3)
    np.testing.assert_array_equal(simulate(Lorenz63(), 5, initial=[1, 2, 3])[0], [1, 2, 3])


def test_a_trajectory_depends_on_neither_batch_size_nor_length_bit_for_bit():
    large = simulate(Lorenz63(), 40, batch=7, seed=5)
    np.testing.assert_array_equal(simulate(Lorenz63(), 40, batch=3, seed=5), large[:3])
    np.testing.assert_array_equal(simulate(Lorenz63(), 40, seed=5), large[0])
    np.testing.assert_array_equal(simulate(Lorenz63(), 40, initial=large[4, 0]), large[4])
    np.testing.assert_array_equal(simulate(Lorenz63(), 25, seed=5), large[0, :26])
    noisy = simulate(Lorenz63(), 40, batch=7, seed=5, process_noise=0.1)
    np.testing.assert_array_equal(simulate(Lorenz63(), 40, seed=5, process_noise=0.1), noisy[0])
    np.testing.assert_array_equal(
        simulate(Lorenz63(), 25, batch=2, seed=5, process_noise=0.1), noisy[:2, :26]
    )


def test_seeds_and_members_differ():
    starts = np.concatenate([simulate(Lorenz63(), 1, batch=5, seed=s)[:, 0] for s in range(4)])
    assert len(np.unique(starts[:, 0])) == 20
    np.testing.assert_array_equal(simulate(Lorenz63(), 3, seed=9), simulate(Lorenz63(), 3, seed=9))


@pytest.mark.parametrize("x64", [True, False])
def test_the_callers_settings_change_nothing_and_stay_as_they_were(x64):
    expected = simulate(Lorenz63(), 20, seed=1)
    with jax.enable_x64(x64), jax.default_prng_impl("rbg"):
        x = simulate(Lorenz63(), 20, seed=1)
        assert bool(jax.config.jax_enable_x64) is x64
        assert jnp.zeros(1).dtype == (jnp.float64 if x64 else jnp.float32)
    np.testing.assert_array_equal(x, expected)


def test_settings_are_restored_after_a_failure():
    blow_up = fk.System.from_function(lambda x: x**2, 1, 1.0, initial=[1.0])
    with jax.enable_x64(False):
        with pytest.raises(ComputationError):
            simulate(blow_up, 3)
        assert not jax.config.jax_enable_x64


def test_equal_intervals_given_one_by_one_equal_the_uniform_run():
    x = simulate(Lorenz63(), 20, seed=2)
    np.testing.assert_array_equal(simulate(Lorenz63(), 20, seed=2, dt=0.02), x)
    np.testing.assert_array_equal(simulate(Lorenz63(), 20, seed=2, dt=np.full(20, 0.02)), x)
    np.testing.assert_allclose(simulate(Lorenz63(dt=0.5), 20, seed=2, dt=0.02), x, rtol=1e-13)


def test_unequal_intervals_meet_the_uniform_run_where_times_agree():
    fine = simulate(Pendulum(), 12, seed=2)
    coarse = simulate(Pendulum(), 4, seed=2, dt=[0.02, 0.06, 0.12, 0.04])
    np.testing.assert_allclose(coarse, fine[[0, 1, 4, 10, 12]], atol=1e-7)


@pytest.mark.parametrize("stiff", [False, True])
def test_inputs_are_held_over_each_interval(stiff):
    a, b = np.array([[0.0, 1.0], [-4.0, -0.5]]), np.array([[0.0], [2.0]])
    system = fk.System.from_function(
        lambda x, u: a @ x + b @ u, 2, 0.3, input_dim=1, stiff=stiff, substeps=20
    )
    u = np.random.default_rng(0).normal(size=(12, 1))
    block = expm(0.3 * np.block([[a, b], [np.zeros((1, 3))]]))
    ad, bd = block[:2, :2], block[:2, 2:]
    exact = [np.array([1.0, -1.0])]
    for k in range(12):
        exact.append(ad @ exact[-1] + bd @ u[k])
    x = simulate(system, 12, initial=exact[0], inputs=u)
    np.testing.assert_allclose(x, exact, atol=1e-7)
    stepped = jax.jit(jax.vmap(system.step))(np.array(exact[:-1]), u)
    np.testing.assert_allclose(stepped, exact[1:], atol=1e-5 if stiff else 1e-6)
    each = simulate(system, 12, initial=[exact[0]] * 2, inputs=np.stack([u, -u]))
    np.testing.assert_array_equal(each[0], x)
    assert np.abs(each[1] - x).max() > 0.1


def test_process_noise_is_added_to_the_filters_own_step():
    q = np.array([[0.04, 0.01], [0.01, 0.09]])
    system = VanDerPol()
    x = simulate(system, 200, batch=20, seed=1, process_noise=q)
    w = (x[:, 1:] - jax.vmap(jax.vmap(system.step))(x[:, :-1])).reshape(-1, 2)
    np.testing.assert_allclose(np.cov(w.T), q, atol=0.006)
    np.testing.assert_allclose(w.mean(0), 0, atol=4 * 0.3 / np.sqrt(len(w)))
    lagged = np.corrcoef(w[:-1, 0], w[1:, 0])[0, 1]
    assert abs(lagged) < 4 / np.sqrt(len(w))


def test_process_noise_may_be_zero_singular_or_per_step():
    system = VanDerPol()
    x = simulate(system, 10, process_noise=0.0)
    np.testing.assert_allclose(x[1:], jax.vmap(system.step)(x[:-1]), rtol=1e-12)
    x = simulate(system, 10, process_noise=np.diag([0.0, 1.0]))
    np.testing.assert_allclose(x[1:, 0], jax.vmap(system.step)(x[:-1])[:, 0], atol=1e-13)
    late = np.zeros((10, 2, 2))
    late[5:] = np.eye(2)
    y = simulate(system, 10, process_noise=late)
    np.testing.assert_allclose(y[:6], simulate(system, 10, process_noise=0.0)[:6], rtol=1e-13)
    assert np.abs(y[6:] - simulate(system, 10, process_noise=0.0)[6:]).max() > 0.1


def test_other_parameters_seeds_and_batch_sizes_compile_nothing_anew():
    simulate(Lorenz63(), 17)
    before = _run._cache_size()
    simulate(Lorenz63(a=9.0, dt=0.01), 17, seed=4, batch=3)
    simulate(Lorenz63(b=20.0), 17, initial=[1.0, 2.0, 3.0])
    assert _run._cache_size() == before


def test_a_thousand_trajectories_take_seconds():
    simulate(Lorenz63(), 300)
    start = time.process_time()
    simulate(Lorenz63(), 300, batch=1000)
    assert time.process_time() - start < 10


def test_what_cannot_be_solved_is_reported_with_its_place():
    blow_up = fk.System.from_function(lambda x: x**2, 1, 0.25)
    with pytest.raises(ComputationError) as failure:
        simulate(blow_up, 8, initial=[[-1.0], [1.0], [0.1]])  # 1/(1 − t): gone at t = 1
    message = str(failure.value)
    assert "1 of 3 trajectories" in message
    assert "trajectory 1 failed at step 4" in message
    assert "\n" not in message
    infinite = fk.System.from_function(lambda x: -x, 1, 0.1, initial=lambda k: jnp.full(1, jnp.inf))
    with pytest.raises(ComputationError, match="initial state drawn for trajectory 0"):
        simulate(infinite, 2)


def with_input():
    return fk.System.from_function(lambda x, u: u - x, 1, 0.1, input_dim=1)


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (Lorenz63, {"steps": 0}, ["steps is 0", "at least 1"]),
        (Lorenz63, {"steps": -5}, ["steps is -5"]),
        (Lorenz63, {"steps": 2.5}, ["steps is 2.5"]),
        (Lorenz63, {"steps": True}, ["steps is True"]),
        (Lorenz63, {"batch": 0}, ["batch is 0"]),
        (Lorenz63, {"batch": -1}, ["batch is -1"]),
        (Lorenz63, {"seed": -1}, ["seed is -1"]),
        (Lorenz63, {"seed": 0.5}, ["seed is 0.5"]),
        (Lorenz63, {"seed": 2**63}, ["seed is 9223372036854775808"]),
        (Lorenz63, {"initial": [1.0, 2.0]}, ["initial has shape (2,)", "(B, 3)"]),
        (Lorenz63, {"initial": np.zeros((2, 2, 3))}, ["initial has shape (2, 2, 3)"]),
        (Lorenz63, {"initial": np.zeros((0, 3))}, ["initial has shape (0, 3)"]),
        (Lorenz63, {"initial": np.zeros((2, 3)), "batch": 3}, ["2 states", "batch is 3"]),
        (Lorenz63, {"initial": [1.0, np.nan, 0.0]}, ["initial contains nan"]),
        (Lorenz63, {"initial": [1.0, np.inf, 0.0]}, ["initial contains inf"]),
        (Lorenz63, {"initial": "here"}, ["initial", "numbers"]),
        (Lorenz63, {"inputs": np.zeros((5, 1))}, ["inputs", "takes none"]),
        (Lorenz63, {"dt": 0.0}, ["dt contains 0"]),
        (Lorenz63, {"dt": [0.1, 0.1, -0.1, 0.1, 0.1]}, ["dt contains -0.1"]),
        (Lorenz63, {"dt": np.nan}, ["dt contains nan"]),
        (Lorenz63, {"dt": [0.1, 0.1]}, ["dt has shape (2,)", "5 steps"]),
        (Lorenz63, {"process_noise": -1.0}, ["process_noise", "semi-definite"]),
        (Lorenz63, {"process_noise": np.eye(2)}, ["process_noise has shape (2, 2)"]),
        (Lorenz63, {"process_noise": np.tile(np.eye(3), (4, 1, 1))}, ["4 steps", "5"]),
        (with_input, {}, ["inputs is missing", "(5, 1)"]),
        (with_input, {"inputs": np.zeros((4, 1))}, ["inputs has shape (4, 1)", "(5, 1)"]),
        (with_input, {"inputs": np.full((5, 1), np.nan)}, ["inputs contains nan"]),
        (lambda: fk.System.from_map(lambda x: x, 1), {"dt": 0.1}, ["fixed steps"]),
        (lambda: "lorenz63", {}, ["system is a str"]),
    ],
)
def test_wrong_input_is_refused_in_one_line(make, options, words):
    with pytest.raises(InputError) as refusal:
        simulate(make(), **{"steps": 5, **options})
    assert "\n" not in str(refusal.value)
    for word in words:
        assert word in str(refusal.value)
