"""Linear controllers, against SciPy's Riccati equation on the true system."""

import numpy as np
import pytest
from reference import driven, gaussian_control

import fedkoopman as fk
from fedkoopman.koopman.kalman import lift_noise

Q, R = np.diag([1.0, 2.0]), np.diag([0.5, 1.0])


@pytest.fixture(scope="module")
def model():
    X, U = driven.trajectories(driven.linear)
    return fk.DMD().fit(X, U=U)


def true_gain(A, B):
    return gaussian_control.gain(A, B, Q, R)


def apart(poles, B, seed=0):
    """A model of separate states x_i' = poles_i x_i + B_i u."""
    random, A = np.random.default_rng(seed), np.diag(poles)
    X, U = [], []
    for _ in range(4):
        u, x = random.normal(size=(30, 1)), [random.normal(size=len(poles))]
        for one in u[:-1]:
            x.append(A @ x[-1] + np.ravel(B) * one)
        X.append(np.array(x))
        U.append(u)
    return fk.DMD(dt=0.1).fit(X, U=U)


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


def test_the_input_that_holds_a_target_is_the_true_one(model):
    """Also with delays, where the input stands in the window too."""
    goal = np.array([0.5, 0.2])
    exact = np.linalg.solve(driven.B, (np.eye(2) - driven.A) @ goal)
    np.testing.assert_allclose(fk.control.target(model, goal).input, exact, atol=1e-8)
    X, U = scalar_trajectories()
    delays = fk.DMD(n_delays=1).fit(X, U=U)
    at = fk.control.target(delays, [0.8])
    # x'' = 1.2 x' − 0.35 x + 0.5 u' + 0.25 u stands still at x = 0.75 u / 0.15.
    np.testing.assert_allclose(at.input, [0.8 * 0.15 / 0.75], atol=1e-8)
    np.testing.assert_allclose(at.drift, [0.0], atol=1e-10)
    np.testing.assert_allclose(at.window, [at.input[0], 0.8, 0.8])


def scalar_trajectories(count=6, length=60, seed=0):
    """x_{k+1} = 1.2 x_k − 0.35 x_{k−1} + 0.5 u_k + 0.25 u_{k−1}."""
    random = np.random.default_rng(seed)
    X, U = [], []
    for _ in range(count):
        u, x = random.normal(size=length), list(random.normal(size=2))
        for k in range(1, length - 1):
            x.append(1.2 * x[k] - 0.35 * x[k - 1] + 0.5 * u[k] + 0.25 * u[k - 1])
        X.append(np.array(x)[:, None])
        U.append(u[:, None])
    return X, U


def test_a_controller_remembers_the_window_of_a_model_with_delays():
    """Newest outputs one by one give what whole windows with their inputs give."""
    X, U = scalar_trajectories()
    found = fk.control.lqr(fk.DMD(n_delays=1).fit(X, U=U), [0.4], R=0.2)
    memory, x, u = found.begin(), [0.4, 0.9], float(found.system.target.input[0])
    for k in range(30):
        one, memory = found.act(memory, x[-1:])
        whole = found(np.array(x[-2:])[:, None] if k else [0.9], past=[[u]] if k else None)
        np.testing.assert_allclose(one, whole, atol=1e-12)
        before, u = u, float(one[0])
        x.append(1.2 * x[-1] - 0.35 * (x[-2] if k else 0.9) + 0.5 * u + 0.25 * before)
    assert abs(x[-1] - 0.4) < 1e-4


def test_what_is_fine_is_told(model):
    controller = fk.control.lqr(model, [0, 0], Q, R)
    stays, moves, settles = fk.control.facts(model, [0, 0], controller).sentences
    assert stays == "By itself the model stays near the target: no mode grows."
    assert moves == "Inputs move 2 of 2 directions of the lifted space, and every state."
    slowest = np.abs(np.linalg.eigvals(driven.A - driven.B @ true_gain(driven.A, driven.B))).max()
    assert settles.endswith(f"within {np.log(0.05) / np.log(slowest):.3g} "
                            f"({np.log(0.05) / np.log(slowest):.3g} samples).")  # fmt: skip


def test_a_target_that_cannot_be_held_is_told():
    X, U = driven.trajectories(driven.linear)
    model = fk.DMD().fit(X, U=[u[:, :1] for u in U])
    words = " ".join(fk.control.facts(model, [1.0, 1.0]).sentences)
    assert "The target cannot be held exactly: " in words


def test_a_target_that_takes_more_than_the_bounds_is_told(model):
    exact = np.linalg.solve(driven.B, (np.eye(2) - driven.A) @ [0.5, 0.2])
    controller = fk.control.lqr(model, [0.5, 0.2], u_max=exact.max() - 0.05)
    name = ("u1", "u2")[int(exact.argmax())]
    told = fk.control.facts(model, [0.5, 0.2], controller).sentences
    assert any(f"takes {name} = {exact.max():.4g}, which is outside" in one for one in told)


def test_a_mode_that_grows_is_told():
    model = apart([1.25, 0.5], [1.0, 1.0])
    leaves, moves, settles = fk.control.facts(
        model, [0.0, 0.0], fk.control.lqr(model, [0.0, 0.0])
    ).sentences
    samples = np.log(2) / np.log(1.25)
    assert f"1 mode grows and doubles in {0.1 * samples:.3g} ({samples:.3g} samples)" in leaves
    assert moves.endswith("and every state.") and "closed loop is stable" in settles


def test_what_no_input_moves_is_told():
    """A state that fades by itself, and one that grows: only the second is a danger."""
    fades = fk.control.facts(apart([0.9, 0.5], [1.0, 0.0]), [0.0, 0.0]).sentences
    assert fades == [
        "By itself the model stays near the target: no mode grows.",
        "Inputs move 1 of 2 directions of the lifted space; they do not move x2.",
    ]
    model = apart([0.9, 1.05], [1.0, 0.0])
    leaves, stuck, lost = fk.control.facts(model, [0.0, 0.0]).sentences
    assert leaves.startswith("By itself the model leaves the target: 1 mode grows")
    assert stuck.endswith("they do not move x2.")
    assert lost == (
        "No controller can hold this target for long: a mode grows that no input moves."
    )
    # The growing part is not in the subspace: it stays 0 only where it begins as 0.
    controller = fk.control.lqr(model, [0.0, 0.0])
    assert np.abs(controller.system.left_out - 1.05).min() < 1e-6


def test_a_filter_and_a_gain_are_those_of_the_textbook(model):
    """LQG against a Kalman filter and a Riccati equation of the true system, for any record."""
    random = np.random.default_rng(1)
    sensor, noise = fk.LinearSensor([[1.0, 0.5]]), np.diag([0.02, 0.01])
    kalman = fk.KoopmanFilter(
        model, sensor, observation_noise=0.04, process_noise=lift_noise(model, noise),
        initial_mean=[0.3, -0.2], initial_cov=0.5, relift=False,
    )  # fmt: skip
    lqg = fk.control.LQG(fk.control.lqr(model, [0, 0], Q, R, input=[0, 0]), kalman)
    zs, memory, found = random.normal(size=(25, 1)), lqg.begin(), []
    for z in zs:
        u, memory = lqg.act(memory, z)
        found.append(u)
    exact = gaussian_control.inputs(
        driven.A, driven.B, np.array([[1.0, 0.5]]), Q, R, noise, np.array([[0.04]]),
        np.array([0.3, -0.2]), 0.5 * np.eye(2), zs,
    )  # fmt: skip
    np.testing.assert_allclose(found, exact, atol=1e-7)


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
