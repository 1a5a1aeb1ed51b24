"""The spectrum against closed forms and against what it must do to a lifted state."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkoopman.koopman import learned as spectrum


def rotation(angle, scale=1.0):
    c, s = np.cos(angle), np.sin(angle)
    return scale * np.array([[c, -s], [s, c]])


def block(*parts):
    size = sum(len(part) for part in parts)
    result, at = np.zeros((size, size)), 0
    for part in parts:
        result[at : at + len(part), at : at + len(part)] = part
        at += len(part)
    return result


@given(seed=st.integers(0, 2**32), size=st.integers(1, 8))
def test_left_and_right_vectors_belong_to_their_eigenvalues(seed, size):
    operator = np.random.default_rng(seed).normal(size=(size, size))
    values, right, left = spectrum.decompose(operator)
    scale = np.abs(left).max() * np.linalg.norm(operator)
    np.testing.assert_allclose(operator @ right, right * values, atol=1e-12 * scale)
    np.testing.assert_allclose(left @ operator, values[:, None] * left, atol=1e-12 * scale)
    np.testing.assert_allclose(left @ right, np.eye(size), atol=1e-12 * scale)
    np.testing.assert_allclose(np.linalg.norm(right, axis=0), 1)
    assert values.dtype == right.dtype == left.dtype == np.complex128


@given(seed=st.integers(0, 2**32), size=st.integers(1, 9))
def test_eigenvalues_fall_in_modulus_and_conjugates_are_neighbours(seed, size):
    values = spectrum.decompose(np.random.default_rng(seed).normal(size=(size, size))).eigenvalues
    assert np.all(np.diff(np.abs(values)) <= 0)
    for i in np.flatnonzero(values.imag > 0):
        assert values[i + 1] == values[i].conj()
    for i in np.flatnonzero(values.imag < 0):
        assert values[i - 1] == values[i].conj()


def test_equal_moduli_are_ordered_by_angle():
    operator = block([[-1.0]], [[0.0, -1.0], [1.0, 0.0]], [[1.0]], [[0.5]])
    np.testing.assert_allclose(spectrum.decompose(operator).eigenvalues, [1, 1j, -1j, -1, 0.5])


def test_a_double_pair_keeps_its_conjugates_together():
    turn = np.array([[0.5, -0.25], [0.25, 0.5]])
    values = spectrum.decompose(block(turn, turn)).eigenvalues
    np.testing.assert_array_equal(values, [0.5 + 0.25j, 0.5 - 0.25j] * 2)


def test_the_phase_of_the_vectors_is_fixed():
    right = spectrum.decompose(np.random.default_rng(3).normal(size=(6, 6))).right
    largest = right[np.abs(right).argmax(axis=0), range(6)]
    np.testing.assert_allclose(largest.imag, 0, atol=1e-15)
    assert np.all(largest.real > 0)


def test_an_operator_with_too_few_eigenvectors_still_has_its_left_ones():
    jordan = np.array([[0.9, 1.0, 0.0], [0.0, 0.9, 1.0], [0.0, 0.0, 0.9]])
    values, right, left = spectrum.decompose(jordan)
    np.testing.assert_allclose(left @ jordan, values[:, None] * left, atol=1e-9)
    np.testing.assert_allclose(jordan @ right, right * values, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(left, axis=1), 1)


def test_the_zero_operator_forgets_at_once():
    values = spectrum.decompose(np.zeros((2, 2))).eigenvalues
    continuous = spectrum.continuous_eigenvalues(values, 0.1)
    np.testing.assert_array_equal(continuous.real, [-np.inf, -np.inf])
    np.testing.assert_array_equal(spectrum.frequencies(continuous), [0, 0])
    rates = spectrum.decay_rates(continuous)
    np.testing.assert_array_equal(rates, [np.inf, np.inf])
    np.testing.assert_array_equal(spectrum.half_lives(rates), [0, 0])


def test_frequency_and_decay_of_a_damped_rotation():
    # e^{(−0.3 ± 2π·1.5 i) t} sampled every 0.02 and every third sample predicted.
    dt, depth = 0.02, 3
    operator = rotation(2 * np.pi * 1.5 * depth * dt, np.exp(-0.3 * depth * dt))
    continuous = spectrum.continuous_eigenvalues(
        spectrum.decompose(operator).eigenvalues, depth * dt
    )
    expected = np.array([-0.3 + 3j * np.pi, -0.3 - 3j * np.pi])
    np.testing.assert_allclose(continuous, expected, rtol=1e-12)
    np.testing.assert_allclose(spectrum.frequencies(continuous), [1.5, 1.5], rtol=1e-12)
    np.testing.assert_allclose(spectrum.decay_rates(continuous), [0.3, 0.3], rtol=1e-12)
    rates = spectrum.decay_rates(continuous)
    np.testing.assert_allclose(spectrum.half_lives(rates), np.log(2) / 0.3, rtol=1e-12)


def test_growth_is_a_negative_half_life_and_what_stays_has_none():
    continuous = spectrum.continuous_eigenvalues(np.array([2.0, 1.0, -1.0], complex), 1.0)
    np.testing.assert_allclose(
        spectrum.half_lives(spectrum.decay_rates(continuous)), [-1, np.inf, np.inf]
    )
    # A sign that flips with every application turns at half the sampling rate.
    np.testing.assert_allclose(spectrum.frequencies(continuous), [0, 0, 0.5])


@pytest.mark.parametrize("part", ["eigenvalues", "right", "left"])
def test_the_spectrum_cannot_be_changed_by_mistake(part):
    found = spectrum.decompose(np.eye(2))
    with pytest.raises(ValueError, match="read-only"):
        getattr(found, part)[...] = 0
