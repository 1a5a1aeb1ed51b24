"""Whether sums agree, against least squares on the data themselves; and what sums cannot be."""

import numpy as np
import pytest

from fedkoopman.koopman.agreement import excess, is_moment
from fedkoopman.koopman.kinds.edmd import EDMD
from fedkoopman.koopman.kinds.spectral import Spectral

KINDS = {
    "edmd": EDMD.of(state_dim=2, degree=3),
    "delays": EDMD.of(state_dim=2, degree=2, window=2),
    "fourier": EDMD.of(state_dim=2, dictionary="fourier", features=5),
    "spectral": Spectral(2, 5, features=3, degree=2, horizon=3),
}


def sums_of(kind, segments, balance=False):
    """A site's sums with the scale as it is."""
    fixed = kind.fixed()
    features = kind.first_features(seed=1)
    found = kind.sums(fixed, features, segments)
    if balance:
        fixed = kind.looked(fixed, found)
        found = kind.sums(fixed, features, segments)
    return fixed, found, sum(map(len, segments))


def path(seed, length=50):
    random = np.random.default_rng(seed)
    rows = [random.normal(size=2)]
    turn = np.array([[0.9, -0.4], [0.4, 0.9]])
    for _ in range(length - 1):
        rows.append(turn @ rows[-1] + 0.2 * random.normal(size=2))
    return np.array(rows)


def products(psi, later):
    """Sums of data matrices, in the form of `gram_sums` without steps ahead."""
    return {
        "gram": psi.T @ psi,
        "shift": psi.T @ later,
        "ahead": np.zeros((0, psi.shape[1], 1)),
        "pairs": np.array([float(len(psi))]),
    }


def left_over(psi, later):
    """Squares that the best model leaves, per column."""
    model = np.linalg.lstsq(psi, later, rcond=None)[0]
    return ((later - psi @ model) ** 2).sum(axis=0)


def test_the_excess_is_what_one_model_leaves_more_than_two():
    random = np.random.default_rng(0)
    one, other = random.normal(size=(40, 4)), random.normal(size=(70, 4)) @ np.diag([1, 2, 3, 0.5])
    after = one @ random.normal(size=(4, 4)) + 0.1 * random.normal(size=(40, 4))
    behind = other @ random.normal(size=(4, 4)) + 0.1 * random.normal(size=(70, 4))
    found = excess(products(one, after), products(other, behind), 1e-12)["shift"]
    together = left_over(np.vstack([one, other]), np.vstack([after, behind]))
    np.testing.assert_allclose(
        found, together - left_over(one, after) - left_over(other, behind), rtol=1e-4
    )


def test_what_only_one_of_two_has_seen_counts_nothing():
    random = np.random.default_rng(1)
    one = np.hstack([random.normal(size=(40, 2)), np.zeros((40, 2))])
    other = np.hstack([np.zeros((40, 2)), random.normal(size=(40, 2))])
    first, second = random.normal(size=(4, 4)), random.normal(size=(4, 4))
    found = excess(products(one, one @ first), products(other, other @ second), 1e-12)["shift"]
    assert found.max() < 1e-12


@pytest.mark.parametrize("name", KINDS)
def test_sites_with_the_same_dynamics_agree_and_those_with_others_do_not(name):
    kind = KINDS[name]
    one, same = (sums_of(kind, [path(10 * s + i) for i in range(4)])[1] for s in (0, 1))
    other = sums_of(kind, [path(i)[::-1] for i in range(30, 34)])[1]
    near, far = (kind.misfit(one, others, one) for others in (same, other))
    assert near.keys() == far.keys() == {"functions", "states"}
    assert all(far[key] > 5 * near[key] for key in near)


@pytest.mark.parametrize("name, balance", [*((name, False) for name in KINDS), ("spectral", True)])
def test_sums_of_data_have_no_fault_and_changed_ones_have(name, balance):
    kind = KINDS[name]
    fixed, found, samples = sums_of(kind, [path(1), path(2, 7), path(3, 1)], balance)
    assert kind.sums_fault(fixed, found, samples) == ""
    empty = sums_of(kind, [])[1]
    assert kind.sums_fault(fixed, empty, 0) == ""
    for array in ("gram", "shift", "range", "pairs"):
        for times in (0.0, -1.0, 1.1):
            assert kind.sums_fault(fixed, {**found, array: found[array] * times}, samples)
    assert kind.sums_fault(fixed, found, samples + 1)
    skew = found["gram"].copy()
    skew[1, 2] += skew[1, 1]
    assert "symmetric" in kind.sums_fault(fixed, {**found, "gram": skew}, samples)
    if name in ("edmd", "delays"):
        wrong = found["gram"].copy()
        wrong[-1, -1] *= 1.5  # still positive definite, and no other entry is its like
        wrong[1, 1] *= 1.5  # but this is 1·u₁², too
        fault = kind.sums_fault(fixed, {**found, "gram": wrong}, samples)
        assert "contradict" in fault
    if name == "spectral":
        fault = kind.sums_fault(fixed, {**found, "ahead": 2 * found["ahead"]}, samples)
        assert "next state" in fault


@pytest.mark.parametrize("name", ["edmd", "spectral"])
def test_a_scale_of_data_has_no_fault_and_changed_ones_have(name):
    kind = KINDS[name]
    segments = [path(1), path(2, 7), np.zeros((0, 2)), np.ones((3, 2))]
    found = kind.scale_sums(segments)
    assert kind.scale_fault(found, 60) == "" == kind.scale_fault(kind.scale_sums([]), 0)
    assert kind.scale_fault(kind.scale_sums([np.full((5, 2), 7.0)]), 5) == ""
    assert kind.scale_fault(found, 61)
    assert kind.scale_fault({**found, "squares": found["total"] ** 2 / 61}, 60)
    assert kind.scale_fault({**kind.scale_sums([]), "total": np.ones(2)}, 0)
    if name == "spectral":
        assert kind.scale_fault({**found, "moves": -found["moves"]}, 60)
        assert kind.scale_fault({**found, "moves": 100 * found["moves"]}, 60)
        assert kind.scale_fault({**found, "moved": found["moved"] + 60}, 60)


def test_a_moment_is_symmetric_and_has_no_squares_below_zero():
    assert is_moment(np.zeros((2, 2))) and is_moment(np.diag([1e9, 1e-3]))
    assert not is_moment(np.diag([1.0, -1e-3])) and not is_moment(np.array([[1.0, 0.1], [0, 1]]))
