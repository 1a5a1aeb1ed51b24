import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.compiling import quick

import fedkoopman as fk
from fedkoopman.errors import InputError
from fedkoopman.sensors import FunctionSensor, LinearSensor, observe

MATRIX = np.array([[1.0, 2.0, 0.0], [0.0, -1.0, 3.0]])
OFFSET = np.array([0.5, -0.5, 1.0])


@pytest.mark.parametrize(("m", "d"), [(1, 1), (2, 3), (4, 4), (3, 8), (5, 9), (6, 20)])
def test_a_linear_sensor_is_the_affine_map(m, d):
    rng = np.random.default_rng(m)
    b, o, x = rng.normal(size=(m, d)), rng.normal(size=d), rng.normal(size=(7, d))
    sensor = LinearSensor(b, o)
    assert (sensor.dim, sensor.state_dim, sensor.angles) == (m, d, ())
    rows, columns = quick(jax.vmap(sensor))(x), quick(jax.vmap(sensor, -1, -1))(x.T)
    np.testing.assert_allclose(rows, (x - o) @ b.T, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(columns, b @ (x - o).T, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(quick(jax.jacfwd(sensor))(x[0]), b, rtol=1e-14)


def test_a_sensor_is_a_pytree_and_keeps_the_states_precision():
    sensor = LinearSensor(MATRIX, OFFSET)
    assert [np.shape(leaf) for leaf in jax.tree.leaves(sensor)] == [(2, 3), (3,)]
    assert jax.jit(lambda s, x: s(x))(sensor, jnp.ones(3, jnp.float32)).dtype == jnp.float32
    np.testing.assert_allclose(sensor(jnp.array([1, 2, 3])), MATRIX @ ([1, 2, 3] - OFFSET))

    def loss(b):
        return jnp.sum(LinearSensor(b, OFFSET)(jnp.array([1.0, 2.0, 3.0])))

    np.testing.assert_allclose(jax.grad(loss)(jnp.asarray(MATRIX)), [[0.5, 2.5, 2.0]] * 2)


def test_no_dot_product_is_left_for_the_compiler():
    for d in (3, 20):
        sensor = LinearSensor(np.ones((2, d)))
        assert "dot_general" not in str(jax.make_jaxpr(sensor)(jnp.ones(d)))


def test_the_identity_observes_the_state():
    x = np.random.default_rng(0).normal(size=(5, 4))
    np.testing.assert_array_equal(observe(LinearSensor.identity(4), x), x)


observed = quick(lambda sensor, x: sensor(x))


@settings(max_examples=30)  # each dimension compiles
@given(st.integers(2, 8), st.integers(0, 1000), st.data())
def test_a_random_frame_is_orthonormal(d, seed, data):
    m = data.draw(st.integers(1, d - 1))
    sensor = LinearSensor.random_frame(d, m, seed=seed)
    frame = np.vstack([sensor.matrix, sensor.offset])
    assert frame.shape == (m + 1, d)
    np.testing.assert_allclose(frame @ frame.T, np.eye(m + 1), atol=1e-12)
    # the offset is orthogonal to every row, so it moves nothing
    x = np.arange(1.0, d + 1)
    np.testing.assert_allclose(observed(sensor, x), sensor.matrix @ x, atol=1e-12)


def test_random_frames_are_the_papers_by_default_and_uniform():
    assert LinearSensor.random_frame(seed=0).matrix.shape == (2, 3)
    np.testing.assert_array_equal(
        LinearSensor.random_frame(seed=3).matrix, LinearSensor.random_frame(seed=3).matrix
    )
    frames = np.array([LinearSensor.random_frame(3, seed=s).matrix for s in range(2000)])
    np.testing.assert_allclose(frames.mean(0), 0, atol=4 * np.sqrt(1 / 3 / 2000))
    np.testing.assert_allclose((frames**2).mean(0), 1 / 3, atol=0.03)


def test_the_perturbed_identity_is_the_papers():
    xi = np.array([LinearSensor.perturbed_identity(seed=s).matrix - np.eye(4) for s in range(500)])
    assert xi.shape == (500, 4, 4)
    assert (xi >= -1e-15).all() and (xi <= 0.5 + 1e-15).all()
    np.testing.assert_allclose(xi.mean(0), 0.25, atol=0.03)
    assert LinearSensor.perturbed_identity(2, 0.0, seed=1).matrix.tolist() == [[1, 0], [0, 1]]


def test_a_function_sensor_applies_its_function():
    sensor = FunctionSensor(
        lambda x: jnp.stack([jnp.hypot(x[0], x[1]), x[0] * x[1]]), 2, angles=[1]
    )
    x = np.random.default_rng(0).normal(size=(3, 5, 2))
    z = observe(sensor, x)
    np.testing.assert_allclose(z[..., 0], np.hypot(x[..., 0], x[..., 1]), rtol=1e-14)
    np.testing.assert_allclose(z[..., 1], x.prod(-1), rtol=1e-14)
    assert sensor.angles == (1,)
    assert jax.tree.leaves(sensor) == []


def test_noise_has_the_given_covariance_and_no_memory():
    r = np.array([[2.0, 0.6], [0.6, 0.5]])
    v = observe(LinearSensor.identity(2), np.zeros((20, 500, 2)), r, seed=1).reshape(-1, 2)
    np.testing.assert_allclose(np.cov(v.T), r, atol=0.07)
    np.testing.assert_allclose(v.mean(0), 0, atol=4 * np.sqrt(2 / len(v)))
    assert abs(np.corrcoef(v[:-1, 0], v[1:, 0])[0, 1]) < 4 / np.sqrt(len(v))
    one = observe(LinearSensor.identity(2), np.zeros((5000, 2)), [4.0, 0.0])
    np.testing.assert_allclose(one.std(0), [2, 0], atol=0.1)


def test_noise_may_change_from_step_to_step_and_between_trajectories():
    r = np.zeros((3, 6, 1, 1))
    r[1, 4] = 1.0
    z = observe(LinearSensor.identity(1), np.zeros((3, 6, 1)), r)
    assert z[1, 4, 0] != 0
    z[1, 4] = 0
    np.testing.assert_array_equal(z, 0)
    steps = observe(LinearSensor.identity(1), np.zeros((6, 1)), r[1])
    assert np.flatnonzero(steps).tolist() == [4]


def test_a_trajectorys_noise_depends_on_neither_batch_size_nor_length_bit_for_bit():
    x = fk.simulate(fk.systems.Lorenz63(), 30, batch=5)
    sensor = LinearSensor(MATRIX, OFFSET)
    z = observe(sensor, x, 1.0, seed=3)
    np.testing.assert_array_equal(observe(sensor, x[:2], 1.0, seed=3), z[:2])
    np.testing.assert_array_equal(observe(sensor, x[0], 1.0, seed=3), z[0])
    np.testing.assert_allclose(observe(sensor, x[0, :9], 1.0, seed=3), z[0, :9], rtol=1e-13)
    assert (observe(sensor, x[0], 1.0, seed=4) != z[0]).all()


def test_observation_noise_is_independent_of_what_simulate_drew_from_the_same_seed():
    walk = fk.System.from_map(lambda x: x, 1, initial=[0.0])
    w = np.diff(fk.simulate(walk, 5000, seed=0, process_noise=1.0)[:, 0])
    v = observe(LinearSensor.identity(1), np.zeros((5000, 1)), 1.0, seed=0)[:, 0]
    assert abs(np.corrcoef(w, v)[0, 1]) < 4 / np.sqrt(5000)


def test_observing_leaves_the_callers_settings_and_missing_states_alone():
    x = np.ones((3, 3))
    x[1, 0] = np.nan
    with jax.enable_x64(False):
        z = observe(LinearSensor(MATRIX), x, 1.0)
        assert not jax.config.jax_enable_x64
    assert z.dtype == np.float64
    assert np.isnan(z).tolist() == [[False, False], [True, True], [False, False]]
    np.testing.assert_array_equal(z[[0, 2]], observe(LinearSensor(MATRIX), x, 1.0)[[0, 2]])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LinearSensor([1.0, 2.0]), ["matrix has shape (2,)", "(m, d)"]),
        (lambda: LinearSensor(np.zeros((0, 3))), ["matrix has shape (0, 3)"]),
        (lambda: LinearSensor(np.zeros((2, 2, 2))), ["matrix has shape (2, 2, 2)"]),
        (lambda: LinearSensor([[1.0, np.nan]]), ["matrix contains nan"]),
        (lambda: LinearSensor([[1.0, np.inf]]), ["matrix contains inf"]),
        (lambda: LinearSensor([["a"]]), ["matrix", "numbers"]),
        (lambda: LinearSensor([[1.0], [1.0, 2.0]]), ["matrix", "numbers"]),
        (lambda: LinearSensor(MATRIX, [1.0, 2.0]), ["offset has shape (2,)", "3 columns"]),
        (lambda: LinearSensor(MATRIX, [1.0, 2.0, np.nan]), ["offset contains nan"]),
        (lambda: LinearSensor(MATRIX, angles=(2,)), ["angles contains 2", "0 to 1"]),
        (lambda: LinearSensor(MATRIX, angles=(0, 0)), ["angles is (0, 0)"]),
        (lambda: LinearSensor.identity(0), ["dim is 0"]),
        (lambda: LinearSensor.random_frame(3, 3, seed=0), ["observed is 3", "at most 2"]),
        (lambda: LinearSensor.random_frame(1, seed=0), ["dim is 1"]),
        (lambda: LinearSensor.random_frame(seed=-1), ["seed is -1"]),
        (lambda: LinearSensor.perturbed_identity(spread=-1, seed=0), ["spread is -1"]),
        (lambda: FunctionSensor(lambda x: x, 0), ["dim is 0"]),
        (lambda: FunctionSensor("h", 1), ["h is a str ('h')", "function"]),
        (lambda: FunctionSensor(lambda x: x, 2, angles=(5,)), ["angles contains 5"]),
        (lambda: observe(MATRIX, np.zeros((3, 3))), ["sensor is a ndarray"]),
        (lambda: observe(LinearSensor(MATRIX), np.zeros((3, 2))), ["3 columns", "2 components"]),
        (lambda: observe(LinearSensor(MATRIX), np.zeros(3)), ["x has shape (3,)", "(T, d)"]),
        (lambda: observe(LinearSensor(MATRIX), np.zeros((0, 3))), ["x has shape (0, 3)"]),
        (lambda: observe(LinearSensor(MATRIX), "x"), ["x is not an array"]),
        (lambda: observe(LinearSensor(MATRIX), np.zeros((3, 3)), -1.0), ["noise", "semi-definite"]),
        (
            lambda: observe(LinearSensor(MATRIX), np.zeros((3, 3)), [1, 1, 1]),
            ["noise has shape (3,)"],
        ),
        (
            lambda: observe(LinearSensor(MATRIX), np.zeros((3, 3)), np.tile(np.eye(2), (4, 1, 1))),
            ["noise has matrices", "4 steps", "3"],
        ),
        (lambda: observe(LinearSensor(MATRIX), np.zeros((3, 3)), seed=-1), ["seed is -1"]),
        (
            lambda: observe(FunctionSensor(lambda x: x, 2), np.zeros((3, 3))),
            ["the sensor returned shape (3,)", "(2,)"],
        ),
        (
            lambda: observe(FunctionSensor(lambda x: np.sin(x), 3), np.zeros((3, 3))),
            ["the sensor failed", "jax.numpy"],
        ),
    ],
)
def test_wrong_input_is_refused_in_one_line(make, words):
    with pytest.raises(InputError) as refusal:
        make()
    assert "\n" not in str(refusal.value)
    for word in words:
        assert word in str(refusal.value)
