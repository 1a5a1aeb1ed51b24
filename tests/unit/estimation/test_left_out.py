"""Samples that are left out, judged one by one, and no pair of samples that were not neighbours."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedkoopman as fk
from fedkoopman.estimation.left_out import (
    kept_samples,
    longest_stretch,
    outside,
    stretches,
    uncertain,
    without,
)
from fedkoopman.koopman.gram import gram_shapes, gram_sums
from fedkoopman.koopman.training import window_starts

MASKS = st.lists(st.booleans(), min_size=1, max_size=40).map(lambda bits: np.array(bits, bool))


def numbered(count):
    """States that tell which sample they are."""
    return np.column_stack([np.arange(count, dtype=float), -np.arange(count, dtype=float)])


def pairs_of_all(left_out, window, depth):
    """Every window and its target, by going through all samples: none of them, nor any between the
    first of the window and the last of the target, is left out."""
    found, n = [], len(left_out)
    for first in range(n):
        last = first + window - 1 + depth
        if last < n and not any(left_out[i] for i in range(first, last + 1)):
            found.append((first, tuple(range(first + depth, first + depth + window))))
    return found


@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("depth", [1, 2])
@given(left_out=MASKS)
def test_pairs_are_those_of_a_search_through_all(window, depth, left_out):
    kept = without(numbered(len(left_out)), left_out, window + depth)
    expected = pairs_of_all(left_out, window, depth)
    parts = stretches(kept)
    joined = np.concatenate(parts)[:, 0]
    found = []
    if any(len(part) >= window + depth for part in parts):
        for start in window_starts([len(part) for part in parts], window, depth):
            target = joined[start + depth : start + depth + window]
            found.append((joined[start], tuple(target)))
    assert found == expected


@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("depth", [1, 2])
def test_one_sample_in_the_middle_takes_the_pairs_that_touch_it(window, depth):
    left_out = np.arange(20) == 9
    whole = pairs_of_all(np.zeros(20, bool), window, depth)
    gone = [one for one in whole if one[0] <= 9 <= one[0] + window - 1 + depth]
    assert len(gone) == window + depth  # or the search tests nothing
    expected = [one for one in whole if one not in gone]
    assert pairs_of_all(left_out, window, depth) == expected
    kept = without(numbered(20), left_out, window + depth)
    parts = stretches(kept)
    assert [part[:, 0].tolist() for part in parts] == [[*range(9)], [*range(10, 20)]]
    assert kept_samples(kept) == 19

    def ones(weights, u):
        return u[-2:]

    sums = gram_sums(ones, {}, parts, shapes=gram_shapes(2, 2, 0), window=window, depth=depth)
    assert sums["pairs"][0] == len(expected)
    # Σ ψ_k ψ_{k+τ}ᵀ over the pairs of the search, ψ being the newest state of a window
    shift = sum(
        np.outer(numbered(20)[first + window - 1], numbered(20)[target[-1]])
        for first, target in expected
    )
    np.testing.assert_allclose(sums["shift"], shift, rtol=1e-13)


@given(MASKS, st.integers(1, 6))
def test_what_is_too_short_goes_and_nothing_else(left_out, least):
    kept = without(numbered(len(left_out)), left_out, least)
    expected, stretch = [], []
    for i, gone in enumerate([*left_out, True]):
        if not gone:
            stretch.append(i)
        else:
            # states from which nothing is left out stay as they are, however few
            expected += (
                [stretch] if stretch and (len(stretch) >= least or not any(left_out)) else []
            )
            stretch = []
    assert [part[:, 0].tolist() for part in stretches(kept) if len(part)] == expected
    assert kept_samples(kept) == sum(map(len, expected))


@given(MASKS)
def test_the_longest_stretch_is_the_first_of_the_longest(left_out):
    place, n = longest_stretch(left_out), len(left_out)
    good = [(i, j) for i in range(n) for j in range(i + 1, n + 1) if not left_out[i:j].any()]
    assert (place.start, place.stop) == max(good, key=lambda ij: ij[1] - ij[0], default=(0, 0))


def test_states_of_which_nothing_is_left_out_are_the_same_object():
    states = numbered(7)
    assert without(states, np.zeros(7, bool), 3) is states
    assert stretches(states)[0] is states


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=25).map(np.array),
    st.floats(1.01, 5),
)
def test_the_gate_is_that_of_a_loop(std, gate):
    usual = [sorted(column)[(len(column) - 1) // 2 :][: 2 - len(column) % 2] for column in std.T]
    usual = [sum(middle) / len(middle) for middle in usual]
    expected = [any(s > gate * u for s, u in zip(row, usual, strict=True)) for row in std]
    assert uncertain(std, gate).tolist() == expected
    assert sum(expected) <= len(std)
    assert not uncertain(std, 0.0).any()


def test_a_state_that_is_usually_exact_counts_where_it_is_not():
    std = np.array([[0.0, 1.0], [0.0, 1.0], [0.1, 1.0]])
    assert uncertain(std, 3.0).tolist() == [False, False, True]


def test_bounds_are_those_of_a_loop():
    states = np.random.default_rng(0).normal(size=(50, 3))
    bounds = [(0, -1.0, 0.5), (2, -np.inf, 1.0)]
    expected = [not (-1 <= x <= 0.5) or not z <= 1 for x, _, z in states]
    assert 0 < sum(expected) < 50
    assert outside(states, bounds).tolist() == expected


def test_the_smoother_is_unsure_where_nothing_was_observed():
    """A gap in the observations is what the gate finds, and the samples beside it are kept."""
    system = fk.System.from_function(lambda x: x[::-1] * np.array([1.0, -1.0]), dim=2, dt=0.1)
    sensor = fk.LinearSensor(np.array([[1.0, 0.0]]))
    z = fk.observe(sensor, fk.simulate(system, steps=120, seed=0)[1:], noise=0.01, seed=0)
    z[60:80] = np.nan
    options = {"process_noise": 1e-3, "observation_noise": 0.01, "method": "ukf-resampled"}
    found = fk.estimate(system, sensor, z, initial_mean=np.zeros(2), **options)
    gone = np.flatnonzero(uncertain(found.std, 1.5))
    assert set(range(65, 75)) <= set(gone) <= {0, 1, 118, 119, *range(60, 80)}
