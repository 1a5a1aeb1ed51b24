"""Dictionaries against scikit-learn's monomials and formulas in NumPy."""

import numpy as np
import pytest
from reference import dictionaries as twin
from sklearn.preprocessing import PolynomialFeatures

from fedkoopman.errors import InputError
from fedkoopman.koopman.dictionary import MOST, Dictionary, steps_of

RNG = np.random.default_rng(0)


def values(dictionary, weights, u):
    """ψ of the rows of u, one row each."""
    return np.asarray(dictionary(weights, u.T)).T


@pytest.mark.parametrize("inputs", [1, 2, 3, 5])
@pytest.mark.parametrize("degree", [1, 2, 3, 4, 7, 12])
def test_monomials_are_those_of_scikit_learn_in_its_order(inputs, degree):
    dictionary = Dictionary(inputs, degree) if (inputs, degree) != (5, 12) else None
    if dictionary is None:
        with pytest.raises(InputError, match="has 6188 functions"):
            Dictionary(inputs, degree)
        return
    u = RNG.uniform(-1.5, 1.5, size=(6, inputs))
    expected = PolynomialFeatures(degree).fit(u)
    assert dictionary.size == expected.n_output_features_
    np.testing.assert_allclose(
        values(dictionary, {}, u), expected.transform(u), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize(("inputs", "degree"), [(1, 6), (2, 5), (4, 4), (6, 3)])
def test_each_monomial_is_there_once(inputs, degree):
    powers = [tuple(np.eye(inputs, dtype=int)[i]) for i in range(inputs)]
    found, level = [(0,) * inputs, *powers], np.eye(inputs, dtype=int)
    for before, factor in steps_of(inputs, degree):
        level = level[before] + np.eye(inputs, dtype=int)[factor]
        found += [tuple(row) for row in level]
    every = {tuple(row) for row in PolynomialFeatures(degree).fit(np.zeros((1, inputs))).powers_}
    assert len(found) == len(set(found)) and set(found) == every


@pytest.mark.parametrize("inputs", [1, 4])
def test_features_follow_their_formulas(inputs):
    u = RNG.normal(size=(9, inputs))
    for name, formula in (("fourier", twin.fourier), ("rbf", twin.gaussians)):
        dictionary = Dictionary(inputs, 2, name, 7)
        weights = dictionary.draw(np.random.default_rng(1))
        expected = np.hstack([twin.monomials(u, 2), formula(u, next(iter(weights.values())))])
        np.testing.assert_allclose(values(dictionary, weights, u), expected, rtol=1e-11)
        assert dictionary.size == expected.shape[1]
    dictionary = Dictionary(inputs, 1, "network", 5, layers=3)
    weights = dictionary.draw(np.random.default_rng(1))
    network = twin.layers(u, [weights[f"features.{i}"] for i in range(3)])
    expected = np.hstack([np.ones((9, 1)), u, network])
    np.testing.assert_allclose(values(dictionary, weights, u), expected, rtol=1e-11, atol=1e-14)
    assert dictionary.feature_count == 15 and not dictionary.linear


def test_draws_have_the_laws_that_are_written():
    def draw(name):
        dictionary = Dictionary(4, 1, name, 1500 if name != "network" else 700, layers=2)
        return dictionary.draw(np.random.default_rng(2))

    omega = draw("fourier")["frequencies"]
    assert abs(omega[:, :-1].std() - 1) < 0.03 and abs(omega[:, :-1].mean()) < 0.05
    assert 0 <= omega[:, -1].min() < 0.1 and 6.2 < omega[:, -1].max() < 2 * np.pi
    centres = draw("rbf")["centres"]
    assert abs(centres[:, :-1].std() - 1) < 0.03
    np.testing.assert_array_equal(centres[:, -1], 2.0)
    network = draw("network")
    for matrix, fan_in in ((network["features.0"], 4), (network["features.1"], 700)):
        assert matrix.shape == (700, fan_in + 1)
        assert matrix[:, :-1].std() * np.sqrt(fan_in) == pytest.approx(1, abs=0.05)
        assert -1 <= matrix[:, -1].min() < -0.95 and 0.95 < matrix[:, -1].max() <= 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"inputs": 9, "degree": 12}, "has 293930 functions: give a lower degree"),
        ({"inputs": 2, "degree": 1, "features": "rbf", "count": MOST}, "has 2003 functions"),
        ({"inputs": 2, "features": "splines"}, "unknown dictionary 'splines'"),
        ({"inputs": 2, "features": "network", "activation": "rely"}, "unknown activation 'rely'"),
    ],
)
def test_limits_are_told_in_one_line(given, message):
    with pytest.raises(InputError, match=message) as caught:
        Dictionary(**given)
    assert "\n" not in str(caught.value)


def test_the_largest_dictionary_is_allowed():
    assert Dictionary(2, 1, "rbf", MOST - 3).size == MOST
