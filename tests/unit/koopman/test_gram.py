"""Sums of products against loops over windows, and what is solved from them."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import dictionaries as twin

from fedkoopman.koopman import gram
from fedkoopman.koopman.dictionary import Dictionary
from fedkoopman.koopman.gram import (
    MOST_WEIGHT,
    balancing,
    contained,
    gram_shapes,
    gram_sums,
    least_squares,
    whitening,
)

SHAPES = [(1, 1, 0), (1, 1, 3), (3, 2, 0), (2, 3, 2)]
"""Window, depth, steps ahead."""


def segments_of(lengths, d=2, seed=0):
    random = np.random.default_rng(seed)
    return [random.normal(size=(length, d)) for length in lengths]


def sums(segments, window, depth, ahead, balance=None, degree=2):
    dictionary = Dictionary(2 * window, degree)
    shapes = gram_shapes(dictionary.size, 2, ahead)
    return gram_sums(dictionary, {}, segments, balance, shapes=shapes, window=window, depth=depth)


def by_loops(segments, window, depth, ahead, balance=None, degree=2):
    """The same, one window and one entry of the sum at a time."""
    now, later, states = twin.windows(segments, window, depth, max(ahead, 1))
    size = Dictionary(2 * window, degree).size
    total = {name: np.zeros(shape) for name, shape in gram_shapes(size, 2, ahead).items()}
    for x, after, future in zip(now, later, states, strict=True):
        (psi,), (following,) = twin.monomials(x[None], degree), twin.monomials(after[None], degree)
        weight = 1.0
        if balance is not None:
            weight = min(np.linalg.norm(balance @ psi[: len(balance)]), MOST_WEIGHT)
        for i in range(size):
            for j in range(size):
                total["gram"][i, j] += weight * psi[i] * psi[j]
                total["shift"][i, j] += weight * psi[i] * following[j]
            for step in range(ahead):
                total["ahead"][step, i] += weight * psi[i] * future[step]
        total["pairs"][0] += weight
    return total


def assert_close(one, other, tolerance=1e-11):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("window", "depth", "ahead"), SHAPES)
def test_sums_are_those_of_a_loop_and_no_window_crosses_a_segment(window, depth, ahead):
    # One is too short for anything, one for the future, one exactly long enough, one empty.
    exact = window + max(ahead, 1) * depth
    segments = segments_of([12, 1, exact - 1, exact, 0, 9])
    balance = np.random.default_rng(1).normal(size=(3, 3))
    for given_balance in (None, balance, 9 * balance):
        found = sums(segments, window, depth, ahead, given_balance)
        assert_close(found, by_loops(segments, window, depth, ahead, given_balance))
    assert sums(segments, window, depth, ahead)["pairs"][0] == (12 - exact + 1) + 1 + (
        9 - exact + 1
    )


@pytest.mark.parametrize(("window", "depth", "ahead"), SHAPES)
def test_blocks_join_without_a_gap(window, depth, ahead, monkeypatch):
    segments = segments_of([30, 3, 17, 40])
    whole = sums(segments, window, depth, ahead)
    for block in (7, 16, 90):  # compiled anew, as the states of a block have another width
        monkeypatch.setattr(gram, "BLOCK", block)
        assert_close(sums(segments, window, depth, ahead), whole)


def test_more_windows_than_a_block_holds():
    segments = segments_of([gram.BLOCK - 1, 2, gram.BLOCK + 5, 1, 700])
    now, later, _ = twin.windows(segments)
    psi, following = twin.monomials(now, 2), twin.monomials(later, 2)
    found = sums(segments, 1, 1, 0)
    np.testing.assert_allclose(found["gram"], psi.T @ psi, rtol=1e-11, atol=1e-9)
    np.testing.assert_allclose(found["shift"], psi.T @ following, rtol=1e-11, atol=1e-9)
    assert found["pairs"][0] == len(now) == sum(map(len, segments)) - 5


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=8),
    owners=st.lists(st.integers(0, 2), min_size=8, max_size=8),
    seed=st.integers(0, 99),
)
def test_sums_add_up_over_sites_in_any_order(lengths, owners, seed):
    segments = segments_of(lengths, seed=seed)
    together = sums(segments, 2, 1, 2)
    parts = [
        sums([one for one, who in zip(segments, owners, strict=False) if who == n], 2, 1, 2)
        for n in range(3)
    ]
    assert_close({name: sum(part[name] for part in parts) for name in together}, together)
    assert_close(sums(segments[::-1], 2, 1, 2), together)


def test_no_data_add_nothing():
    for segments in ([], segments_of([0]), segments_of([1, 1])):
        assert not any(part.any() for part in sums(segments, 1, 1, 2).values())


def test_the_same_data_give_the_same_bytes():
    segments = segments_of([50, 3, 1200])
    one, other = (sums(segments, 1, 1, 3) for _ in range(2))
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


# What is solved


def test_least_squares_is_that_of_lapack_also_of_functions_of_very_different_size():
    random = np.random.default_rng(0)
    psi = random.normal(size=(200, 6)) * 10.0 ** np.arange(-9, 9, 3)
    b = random.normal(size=(200, 3))
    found = least_squares(psi.T @ psi, psi.T @ b, 200, 1e-12)
    size = np.linalg.norm(psi, axis=0)
    expected = np.linalg.lstsq(psi / size, b, rcond=None)[0] / size[:, None]
    np.testing.assert_allclose(psi @ found, psi @ expected, atol=1e-10)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_least_squares_of_dependent_functions_fits_as_well_as_any():
    random = np.random.default_rng(0)
    psi = random.normal(size=(40, 5))
    psi = np.hstack([psi, psi[:, :2] @ random.normal(size=(2, 3)), np.zeros((40, 1))])
    b = random.normal(size=(40, 2))
    expected = np.linalg.lstsq(psi, b, rcond=None)[0]
    for ridge in (1e-12, 0.0):  # of 0, rounding is no direction either
        found = least_squares(psi.T @ psi, psi.T @ b, 40, ridge)
        np.testing.assert_allclose(psi @ found, psi @ expected, atol=1e-8)
        assert np.abs(found).max() < 10


@pytest.mark.parametrize("pairs", [1e-3, 0.5, 1.0, 60.0])
def test_whitening_leaves_uncorrelated_functions_whatever_weights_add_up_to(pairs):
    psi = np.random.default_rng(1).normal(size=(60, 4)) @ np.diag([1, 10, 0.1, 1e-4])
    gram_ = psi.T @ psi / 60 * pairs
    white = whitening(gram_, pairs, 1e-12)
    np.testing.assert_allclose(white.T @ gram_ @ white / pairs, np.eye(4), atol=1e-9)


def test_balance_is_the_root_of_the_leverage_and_one_in_the_mean_square():
    psi = twin.monomials(np.random.default_rng(2).normal(size=(300, 2)), 2)
    found = balancing(psi.T @ psi, 300, psi.shape[1])
    leverage = np.diag(psi @ np.linalg.inv(psi.T @ psi) @ psi.T)
    weight = np.linalg.norm(psi @ found.T, axis=1)
    np.testing.assert_allclose(weight, np.sqrt(leverage * 300 / psi.shape[1]), rtol=1e-9)
    assert np.mean(weight**2) == pytest.approx(1)


@settings(max_examples=100)
@given(size=st.integers(1, 8), seed=st.integers(0, 10_000), spread=st.floats(0.01, 3))
def test_no_eigenvalue_leaves_the_unit_circle(size, seed, spread):
    operator = spread * np.random.default_rng(seed).normal(size=(size, size))
    before, after = np.linalg.eigvals(operator), np.linalg.eigvals(contained(operator))
    assert np.abs(after).max() <= 1 + 1e-9
    if np.abs(before).max() <= 1:
        assert contained(operator) is operator
    else:  # those that grew turn as before, and others stay
        limited = before / np.maximum(1, np.abs(before))
        distance = np.abs(limited[:, None] - after)
        assert distance.min(axis=1).max() < 1e-6 and distance.min(axis=0).max() < 1e-6


@pytest.mark.parametrize("grows", [1.0, 1 + 1e-12, 1.2])
def test_operators_without_enough_eigenvectors_are_contained_too(grows):
    operator = grows * np.eye(4) + np.eye(4, k=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = contained(operator)
    assert np.isfinite(found).all() and np.abs(np.linalg.eigvals(found)).max() <= 1 + 1e-3
    assert np.abs(np.linalg.matrix_power(found, 1000)).max() < 1e12
