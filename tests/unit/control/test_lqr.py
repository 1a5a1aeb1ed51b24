"""Linear controllers, against SciPy's Riccati equation on the true system."""

import numpy as np
import pytest
import scipy.linalg
from reference import driven

import fedkoopman as fk

Q, R = np.diag([1.0, 2.0]), np.diag([0.5, 1.0])


@pytest.fixture(scope="module")
def model():
    X, U = driven.trajectories(driven.linear)
    return fk.DMD().fit(X, U=U)


def true_gain(A, B):
    P = scipy.linalg.solve_discrete_are(A, B, Q, R)
    return np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)


def test_the_gain_is_that_of_the_true_system(model):
    found = fk.control.lqr(model, [0, 0], Q, R)
    np.testing.assert_allclose(found.state_gain, true_gain(driven.A, driven.B), atol=1e-8)
    x = np.array([0.7, -1.2])
    np.testing.assert_allclose(found(x), -true_gain(driven.A, driven.B) @ x, atol=1e-8)
    # The constant among the functions is left out; it neither moves nor fades.
    np.testing.assert_allclose(found.system.left_out, [1.0], atol=1e-8)


@pytest.mark.parametrize("kind", ["spectral", "edmd"])
def test_lifted_controllers_are_nearly_as_good(kind):
    """With functions beyond the state, the closed loop on the true system costs hardly more."""
    X, U = driven.trajectories(driven.linear)
    options = {"spectral": {"learned": False, "horizon": 5, "features": 8}, "edmd": {"degree": 2}}
    model = fk.DeepKoopman(kind=kind, **options[kind]).fit(X, U=U)
    found = fk.control.lqr(model, [0, 0], Q, R)

    def cost(act):
        x, total = np.array([1.0, 1.0]), 0.0
        for _ in range(80):
            u = act(x)
            total += x @ Q @ x + u @ R @ u
            x = driven.linear(x, u)
        return total

    gain = true_gain(driven.A, driven.B)
    assert cost(found) < 1.05 * cost(lambda x: -gain @ x)


def test_a_bilinear_model_is_linear_about_its_target():
    X, U = driven.trajectories(driven.bilinear)
    model = fk.DMD(bilinear=True).fit(X, U=U)
    goal = np.array([0.5, 0.2])
    at = fk.control.target(model, goal)
    # The true system has two inputs for two states: every state can be held.
    np.testing.assert_allclose(driven.bilinear(goal, at.input), goal, atol=1e-8)
    A = driven.A + at.input[0] * driven.N[0] + at.input[1] * driven.N[1]
    B = driven.B + np.stack([n @ goal for n in driven.N], axis=1)
    found = fk.control.lqr(model, goal, Q, R)
    np.testing.assert_allclose(found.state_gain, true_gain(A, B), atol=1e-7)


def test_a_target_that_cannot_be_held_is_told():
    X, U = driven.trajectories(driven.linear)
    model = fk.DMD().fit(X, U=[u[:, :1] for u in U])
    words = " ".join(fk.control.facts(model, [1.0, 1.0]).sentences)
    assert "cannot be held exactly" in words


def test_what_no_input_moves_is_told():
    """Two separate systems, of which one has an input and the other grows."""
    random = np.random.default_rng(0)
    A, B = np.diag([0.9, 1.05]), np.array([[1.0], [0.0]])
    X, U = [], []
    for _ in range(4):
        u, x = random.normal(size=(30, 1)), [random.normal(size=2)]
        for one in u[:-1]:
            x.append(A @ x[-1] + B @ one)
        X.append(np.array(x))
        U.append(u)
    model = fk.DMD().fit(X, U=U)
    sentences = fk.control.facts(model, [0.0, 0.0]).sentences
    assert "1 mode" not in sentences[0] or "grow" in sentences[0]
    controller = fk.control.lqr(model, [0.0, 0.0])
    # The growing part is not in the subspace: it stays 0 only where it begins as 0.
    assert np.abs(controller.system.left_out - 1.05).min() < 1e-6


def test_observations_are_enough_with_a_filter(model):
    """LQG: one of two states is seen, with noise; the loop ends near the target."""
    random = np.random.default_rng(0)
    sensor = fk.LinearSensor([[1.0, 0.0]])
    kalman = fk.KoopmanFilter(
        model, sensor, observation_noise=1e-4, process_noise=1e-8, initial_mean=[0, 0]
    )
    lqg = fk.control.LQG(fk.control.lqr(model, [0, 0], Q, R), kalman)
    x, memory, sizes = np.array([1.0, -1.0]), lqg.begin(), []
    for _ in range(60):
        u, memory = lqg.act(memory, x[:1] + 0.01 * random.normal(size=1))
        x = driven.linear(x, u)
        sizes.append(np.abs(x).max())
    assert max(sizes[40:]) < 0.05


MISTAKES = {
    "no inputs": (lambda m: fk.control.lqr(fk.DMD().fit(np.eye(9)[:, :2]), [0, 0]), "no inputs"),
    "another reference": (lambda m: fk.control.lqr(m, [0, 0, 0]), "reference has shape"),
    "no weight": (lambda m: fk.control.lqr(m, [0, 0], R=0.0), "R"),
    "bounds": (lambda m: fk.control.lqr(m, [0, 0], u_min=1, u_max=0), "u_min is above u_max"),
    "no model": (lambda m: fk.control.lqr(3, [0, 0]), "give a fitted model"),
    "a state": (lambda m: fk.control.lqr(m, [0, 0])([1.0]), "x has shape"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told_in_one_line(case, model):
    act, words = MISTAKES[case]
    with pytest.raises(fk.InputError, match=words) as told:
        act(model)
    assert "\n" not in str(told.value)
