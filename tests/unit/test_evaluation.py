"""Scores against the NumPy twin, closed forms, and rollouts that leave the numbers."""

from functools import partial

import jax
import numpy as np
import pytest
from reference import koopman as twin
from reference.federations import ARCHITECTURE, STEPS, params_of, weights_of

import fedkoopman as fk
from fedkoopman.evaluation import (
    Metrics,
    TestSet,
    errors_over_holding,
    evaluate,
    persistence,
)
from fedkoopman.koopman import DeepKoopman
from fedkoopman.koopman.kinds.paper import PaperNetwork

EXACT = {"rtol": 1e-10, "atol": 1e-10}
# What is lifted and decoded is the state itself (its window): only K is left to err.
PLAIN = PaperNetwork(2, 2, hidden_layers=0)


def plain(operator):
    """A network of two states without encoder and decoder."""
    identity = [(np.eye(2), np.zeros(2))]
    return weights_of({"encoder": identity, "operator": np.array(operator), "decoder": identity})


def rollout(architecture, weights, window, steps):
    """The public model's: lifts once and applies K."""
    model = DeepKoopman.from_weights(architecture, weights, dt=1.0)
    return model.simulate(window if architecture.window > 1 else window[0], steps)


def lorenz(runs=3, steps=STEPS):
    return fk.simulate(fk.systems.Lorenz63(), steps, seed=1, batch=runs)


def network(architecture, seed=2, dtype=np.float64):
    """Untrained, but with an operator near the identity, so that all powers matter."""
    weights = architecture.initialise(seed=seed, dtype=np.float64)
    weights = weights._replace(operator=np.eye(len(weights.operator)) + 10 * weights.operator)
    return jax.tree.map(lambda leaf: leaf.astype(dtype), weights)


def scores(found):
    return {
        "l1": found.l1,
        "l2": found.l2,
        "l3": found.l3,
        "E1": found.e1,
        "E2": found.e2,
        "E": found.e,
        "horizon": found.horizon,
    }


def assert_is_twin(architecture, weights, test):
    found = scores(evaluate(architecture, weights, test))
    expected = twin.evaluate(
        params_of(weights),
        test.trajectories,
        mu=architecture.window,
        tau=architecture.depth,
        horizon=test.horizon,
        valid_error=test.valid_error,
    )
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-10)
    return found


@pytest.mark.parametrize(
    ("mu", "tau", "horizon", "hidden_layers"),
    [(1, 1, 1, 1), (1, 1, 5, 1), (3, 1, 4, 0), (1, 2, 3, 2), (2, 3, 5, 1)],
)
def test_scores_are_the_twins(mu, tau, horizon, hidden_layers):
    architecture = PaperNetwork(3, 6, hidden_layers, 8, window=mu, depth=tau)
    # Generous, so that rollouts of an untrained network are valid for a while.
    test = TestSet(lorenz(), horizon, valid_error=2.0)
    found = assert_is_twin(architecture, network(architecture), test)
    assert all(np.isfinite(value) and value > 0 for value in found.values())


def test_the_longest_possible_horizon_is_the_twins():
    """E_{1,l} of the last l then has one window per trajectory."""
    architecture = PaperNetwork(3, 6, 1, 8, window=2, depth=3)
    short = lorenz(runs=2, steps=10)  # 11 states, 10 windows, of which 3 x 3 samples apart: 1
    assert_is_twin(architecture, network(architecture), TestSet(short, 3))


@pytest.mark.parametrize("tau", [1, 3])
def test_first_prediction_errors_are_the_losses(tau):
    """ℓ1 = E_{2,1} and ℓ3 = E_{1,1}."""
    architecture = PaperNetwork(3, 6, 1, 8, depth=tau)
    found = evaluate(architecture, network(architecture), TestSet(lorenz(), 1))
    assert (found.l1, found.l3) == (found.e2, found.e1)
    assert found.e == (found.e1 + found.e2) / 2


def test_losses_do_not_depend_on_the_horizon():
    one, many = (
        evaluate(ARCHITECTURE, network(ARCHITECTURE), TestSet(lorenz(), horizon))
        for horizon in (1, 5)
    )
    assert one[:3] == pytest.approx(many[:3], rel=1e-12)


def test_trajectories_may_come_in_any_order():
    weights, paths = network(ARCHITECTURE), lorenz()
    one = evaluate(ARCHITECTURE, weights, TestSet(paths))
    other = evaluate(ARCHITECTURE, weights, TestSet(paths[::-1].copy()))
    assert one == pytest.approx(other, rel=1e-12)


def test_a_perfect_linear_model_has_no_error_and_never_gets_invalid():
    """A rotation: the truth is the model. Valid for every sample after the first."""
    angle = 0.3
    operator = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    paths = rollout(PLAIN, plain(operator), np.array([[1.0, 0.0]]), 20)
    paths = np.concatenate([[[1.0, 0.0]], paths])[None]
    np.testing.assert_allclose(np.linalg.norm(paths[0], axis=1), 1, rtol=1e-12)
    found = assert_is_twin(PLAIN, plain(operator), TestSet(paths, 5))
    assert found["horizon"] == 20
    assert max(found[name] for name in ("l1", "l2", "l3", "E1", "E2", "E")) < 1e-28


@pytest.mark.parametrize(("tau", "expected"), [(1, 19), (2, 18), (3, 18)])
def test_a_rollout_that_never_errs_is_valid_as_far_as_k_reaches(tau, expected):
    """20 samples from x_0: 19, 9 or 6 applications of K, which advance τ samples each."""
    architecture = PaperNetwork(2, 2, hidden_layers=0, depth=tau)
    random = np.random.default_rng(0)
    test = TestSet(random.normal(size=(2, 20, 2)), 1, valid_error=1e9)
    assert assert_is_twin(architecture, plain(np.eye(2)), test)["horizon"] == expected


def test_validity_ends_with_the_first_excess():
    """Standing still, the model errs at samples 3 and 4 and is right again at 5: valid for 2."""
    path = np.array([[0, 0], [0, 0], [0, 0], [9, 0], [9, 0], [0, 0], [0, 0], [0, 0]], float)
    still = np.zeros_like(path)
    found = assert_is_twin(PLAIN, plain(np.eye(2)), TestSet(np.stack([path, still]), 2))
    assert found["horizon"] == (2 + 7) / 2


def test_the_bound_is_a_share_of_the_spread():
    """States ±1 have spread 1: an error of 0.4 is still valid, a little more is not."""
    states = np.array([[1.0, 0.0], [-1.0, 0.0]] * 6)
    assert TestSet(states[None]).spread == 1
    # One step flips the sign; K stretches by a tenth each time.
    found = evaluate(PLAIN, plain(-1.1 * np.eye(2)), TestSet(states[None]))
    assert found.horizon == 3  # 1.1³ − 1 = 0.331 and 1.1⁴ − 1 = 0.464
    assert evaluate(PLAIN, plain(-1.1 * np.eye(2)), TestSet(states[None], 5, 0.5)).horizon == 4
    assert evaluate(PLAIN, plain(-1.1 * np.eye(2)), TestSet(states[None], 5, 0.05)).horizon == 0


def test_a_model_that_overflows_is_invalid_from_there_on():
    """K raises to infinity and then to NaN; neither counts as valid, earlier samples do."""
    test = TestSet(np.full((1, 12, 2), 1e-3) + np.eye(12, 2) * 1e-3, 5, valid_error=1e300)
    weights = plain([[1e100, -1e100], [1e100, -1e100]])
    with np.errstate(over="ignore", invalid="ignore"):
        expected = twin.valid_horizon(params_of(weights), test.trajectories, 1e300)
    found = evaluate(PLAIN, weights, test)
    assert not np.isfinite(found.e1)
    assert found.horizon == expected
    assert 1 <= found.horizon < 11


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_that_is_not_finite_is_valid_for_nothing(value):
    found = evaluate(PLAIN, plain([[value, 0], [0, 1]]), TestSet(np.ones((2, 9, 2)) * 2))
    assert found.horizon == 0
    assert not np.isfinite(found.l1)
    assert found.l2 == 0


def test_float32_weights_are_scored_in_float32_whatever_the_callers_precision():
    weights = network(ARCHITECTURE, dtype=np.float32)
    found = []
    for setting in (True, False):
        with jax.enable_x64(setting):
            found.append(evaluate(ARCHITECTURE, weights, TestSet(lorenz())))
            assert jax.config.jax_enable_x64 is setting
    assert found[0] == found[1]
    double = evaluate(ARCHITECTURE, network(ARCHITECTURE), TestSet(lorenz()))
    assert found[0] != double
    assert found[0] == pytest.approx(double, rel=1e-4)
    assert all(isinstance(value, float) for value in Metrics(*found[0]))


@pytest.mark.parametrize(("mu", "tau"), [(1, 1), (3, 2)])
def test_rollout_lifts_once_and_applies_the_operator(mu, tau):
    architecture = PaperNetwork(3, 6, 1, 8, window=mu, depth=tau)
    weights, window = network(architecture), lorenz(1)[0, :mu]
    found = rollout(architecture, weights, window, 7)
    params = params_of(weights)
    y = twin.encode(params, window.ravel())
    for state in found:
        y = params["operator"] @ y
        np.testing.assert_allclose(state, twin.decode(params, y)[-3:], **EXACT)
    assert found.shape == (7, 3)
    assert found.dtype == np.float64


def test_rollout_is_what_the_horizon_judges():
    weights, paths = network(ARCHITECTURE), lorenz()
    test = TestSet(paths, valid_error=1.0)
    valid = []
    for path in paths:
        error = np.linalg.norm(rollout(ARCHITECTURE, weights, path[:1], STEPS) - path[1:], axis=1)
        valid.append(np.argmax(np.append(error > test.spread, True)))
    assert evaluate(ARCHITECTURE, weights, test).horizon == pytest.approx(np.mean(valid))
    assert len(set(valid)) > 1


def test_the_lifted_dimension_divides_the_lifted_error():
    """With K = 0, ℓ1 is the mean square of the lifted targets, divided by O."""
    architecture = PaperNetwork(3, 6, 1, 8)
    weights = network(architecture)
    weights = weights._replace(operator=np.zeros((6, 6)))
    paths = lorenz()
    y = np.asarray(architecture.lift(weights, paths[:, 1:].reshape(-1, 3).T))
    found = evaluate(architecture, weights, TestSet(paths, 1))
    assert found.l1 == pytest.approx(np.mean(np.sum(y**2, axis=0)) / 6, rel=1e-12)


def test_persistence_scores_as_the_identity_lift_with_operator_one() -> None:
    test = TestSet(lorenz()[..., :2], horizon=4, valid_error=0.3)
    found, expected = persistence(test), evaluate(PLAIN, plain(np.eye(2)), test)
    np.testing.assert_allclose(found[:5], expected[:5], **EXACT)
    assert found.horizon == pytest.approx(expected.horizon)


@pytest.fixture
def walks() -> np.ndarray:
    """Two random walks of three states."""
    return np.random.default_rng(0).normal(size=(2, 40, 3)).cumsum(axis=1)


def held(x: np.ndarray, lead: int, window: int = 1) -> np.ndarray:
    """The newest state of every window, whatever the lead."""
    return x[:, window - 1 :]


def test_holding_over_holding_is_one(walks: np.ndarray) -> None:
    found = errors_over_holding(held, [walks], (1, 3, 7), first=3, depth=2)
    np.testing.assert_allclose(found, 1.0)
    windows = errors_over_holding(partial(held, window=4), [walks], (1, 3, 7), first=3, depth=2)
    np.testing.assert_array_equal(windows, found)


def test_errors_over_holding_by_hand(walks: np.ndarray) -> None:
    """A constant guess, in sites' sums; the unit of a state changes nothing."""
    parts = [walks[:1], walks[1:, :15]]

    def nothing(x: np.ndarray, lead: int) -> np.ndarray:
        return np.zeros_like(x)

    model, held = np.zeros((2, 3))
    for x in parts:
        for k in range(2, x.shape[1] - 4):
            model += (x[:, k + 4] ** 2).sum(axis=0)
            held += ((x[:, k + 4] - x[:, k]) ** 2).sum(axis=0)
    expected = np.sqrt(np.mean(model / held))
    [found] = errors_over_holding(nothing, parts, (2,), first=2, depth=2)
    assert found == pytest.approx(expected)
    scaled = [x * np.array([1.0, 1e3, 1e-3]) for x in parts]
    assert errors_over_holding(nothing, scaled, (2,), first=2, depth=2)[0] == pytest.approx(found)


def test_a_right_guess_has_no_error_and_a_diverged_one_no_bound(walks: np.ndarray) -> None:
    def right(x: np.ndarray, lead: int) -> np.ndarray:
        return np.roll(x, -lead, axis=1)

    def wild(x: np.ndarray, lead: int) -> np.ndarray:
        return x + (np.nan if lead == 1 else 1e200)

    def ratios(predict):
        return errors_over_holding(predict, [walks], (1, 5, 60), first=0, depth=1).tolist()

    assert ratios(right)[:2] == [0, 0] and np.isnan(ratios(right)[2])  # none is that long
    assert ratios(wild)[:2] == [np.inf, np.inf] and np.isnan(ratios(wild)[2])
