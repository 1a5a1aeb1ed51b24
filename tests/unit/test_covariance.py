import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkoopman.covariance import covariance, noise_roots
from fedkoopman.errors import InputError


def random_covariance(rng, n):
    a = rng.normal(size=(n, n))
    return a @ a.T


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2.0, 2 * np.eye(3)),
        (np.float32(2), 2 * np.eye(3)),
        (0, np.zeros((3, 3))),
        ([1, 2, 3], np.diag([1.0, 2, 3])),
        (np.diag([1.0, 0, 3]), np.diag([1.0, 0, 3])),
    ],
)
def test_every_form_of_one_covariance_becomes_its_matrix(value, expected):
    result = covariance(value, 3, "noise")
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, expected)


def test_one_per_step_and_one_per_trajectory_keep_their_axes():
    assert covariance(np.tile(np.eye(2), (5, 1, 1)), 2, "noise").shape == (5, 2, 2)
    assert covariance(np.tile(np.eye(2), (4, 5, 1, 1)), 2, "noise").shape == (4, 5, 2, 2)
    assert covariance(np.tile(np.eye(2), (4, 1, 1, 1)), 2, "noise").shape == (4, 1, 2, 2)


def test_one_dimension_takes_a_vector_as_diagonal_and_a_matrix():
    np.testing.assert_array_equal(covariance([4.0], 1, "noise"), [[4.0]])
    np.testing.assert_array_equal(covariance([[4.0]], 1, "noise"), [[4.0]])


@given(st.integers(1, 10), st.integers(0, 2**32 - 1), st.booleans())
def test_what_is_semi_definite_up_to_rounding_passes_and_comes_back_symmetric(n, seed, single):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, max(1, n - 2)))  # singular for n > 1
    p = (a @ a.T).astype(np.float32 if single else np.float64)
    result = covariance(p, n, "noise")
    np.testing.assert_array_equal(result, result.T)
    np.testing.assert_allclose(result, p, atol=1e-6 * np.abs(p).max())


@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_noise_roots_times_its_transpose_is_the_covariance(n, seed):
    rng = np.random.default_rng(seed)
    p = random_covariance(rng, n)
    p[0] = p[:, 0] = 0  # singular
    s = noise_roots(p, n, 1, 1, "noise")[0, 0]
    np.testing.assert_allclose(s @ s.T, p, atol=1e-12 * max(1, np.abs(p).max()))


def broken(entry, value):
    p = np.tile(np.eye(2), (3, 4, 1, 1))
    p[entry] = value
    return p


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-1.0, ["noise", "semi-definite", "-1"]),
        ([1.0, -2.0], ["semi-definite", "-2"]),
        ([[1.0, 2.0], [2.0, 1.0]], ["semi-definite", "-1"]),
        ([[1.0, 0.5], [0.0, 1.0]], ["symmetric", "(0, 1)", "0.5"]),
        ([[np.nan, 0], [0, 1]], ["nan", "finite"]),
        (np.inf, ["inf", "finite"]),
        (np.eye(3), ["(3, 3)", "(2, 2)"]),
        ([1.0, 2.0, 3.0], ["(3,)", "(2,)"]),
        (np.zeros((0, 2, 2)), ["(0, 2, 2)"]),
        (np.zeros((1, 1, 1, 2, 2)), ["(1, 1, 1, 2, 2)"]),
        ("one", ["real numbers", "'one'"]),
        ([[1.0], [1.0, 2.0]], ["real numbers"]),
        (1j, ["real numbers"]),
        (None, ["real numbers", "None"]),
        (broken((1, 2), -np.eye(2)), ["noise[1, 2]", "semi-definite"]),
        (broken((0, 3), np.nan), ["noise[0, 3]", "nan"]),
        (broken((2, 1), [[1, 1], [0, 1]]), ["noise[2, 1]", "symmetric"]),
        (broken((2, 1), -np.eye(2))[2], ["noise[1]", "semi-definite"]),
    ],
)
def test_what_is_no_covariance_is_refused_in_one_line_that_names_the_value(value, words):
    with pytest.raises(InputError) as refusal:
        covariance(value, 2, "noise")
    message = str(refusal.value)
    assert "\n" not in message
    for word in words:
        assert word in message
