"""Predictive control, against a textbook's program in which no state is eliminated."""

import jax.numpy as jnp
import numpy as np
import pytest
from reference import driven, predictive

import fedkoopman as fk

Q, R = np.diag([1.0, 2.0]), np.diag([0.5, 1.0])


@pytest.fixture(scope="module")
def model():
    X, U = driven.trajectories(driven.linear)
    return fk.DMD().fit(X, U=U)


def mpc(model, **options):
    values = {"horizon": 12, "Q": Q, "R": R, "relift": False, "input": [0, 0]} | options
    return fk.control.MPC(model, values.pop("reference", [0, 0]), **values)


CASES = {
    "free": {},
    "inputs": {"u_min": [-0.3, -0.5], "u_max": [0.2, 0.4]},
    "states": {"u_min": -1, "u_max": 1, "x_min": [-0.2, -np.inf], "x_max": [np.inf, 0.4]},
    "out of reach": {"u_min": -0.05, "u_max": 0.05, "x_max": [0.1, 0.1]},
}


@pytest.mark.parametrize("relift", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_plans_are_those_of_the_textbook(case, relift, model):
    options = CASES[case]
    controller = mpc(model, softening=50.0, **options, relift=relift, iterations=3)
    edges = {n: getattr(controller, n) for n in ("u_min", "u_max", "x_min", "x_max")}
    for x in ([1.0, -0.5], [-0.4, 1.2]):
        goal = np.zeros((12, 2))
        inputs, states = predictive.plan(
            driven.A, driven.B, np.array(x), goal, Q, R, **edges, softening=50.0
        )
        found = controller.plan(x)
        np.testing.assert_allclose(found.inputs, inputs, atol=1e-6)
        np.testing.assert_allclose(found.states, states, atol=1e-6)


def test_without_bounds_a_long_plan_is_the_linear_controller(model):
    controller = mpc(model, horizon=80)
    exact = fk.control.lqr(model, [0, 0], Q, R)
    for x in ([1.0, 0.3], [-2.0, 0.1]):
        np.testing.assert_allclose(controller.plan(x).inputs[0], exact(x), atol=1e-6)


def bounds_hold(count, seed, sizes, horizons):
    """Random systems, weights, bounds and starts: no plan leaves the bounds of inputs, no change is
    faster than allowed, and no state leaves its bounds where any plan at all could keep them."""
    random, kept = np.random.default_rng(seed), 0
    for _ in range(count):
        d, m = random.choice(sizes, 2)
        A = random.normal(size=(d, d))
        A *= random.uniform(0.3, 1.05) / np.abs(np.linalg.eigvals(A)).max()
        B, horizon = random.normal(size=(d, m)), int(random.choice(horizons))
        U = [random.normal(size=(40, m)) for _ in range(3)]
        X = []
        for u in U:
            x = [random.normal(size=d)]
            for one in u[:-1]:
                x.append(A @ x[-1] + B @ one)
            X.append(np.array(x))
        model = fk.DMD().fit(X, U=U)
        edge, most = random.uniform(0.05, 1.0, m), random.uniform(0.1, 2, d)
        controller = fk.control.MPC(
            model, random.normal(size=d), horizon=horizon, Q=random.uniform(0.1, 3, d),
            R=random.uniform(0.01, 1, m), u_min=-edge, u_max=2 * edge, du_max=edge,
            x_min=-2 * most, x_max=most, relift=False,
        )  # fmt: skip
        x = random.choice([0.5, 3]) * random.normal(size=d)
        found, used = controller.plan(x), controller.begin().used
        assert (found.inputs >= -edge).all() and (found.inputs <= 2 * edge).all()
        changes = np.diff(np.vstack([used, found.inputs]), axis=0)
        assert (np.abs(changes) <= edge * (1 + 1e-12)).all()
        if predictive.can_be_kept(A, B, x, horizon, used, -edge, 2 * edge, edge, -2 * most, most):
            assert found.excess < 1e-6
            kept += 1
    assert kept > count / 5  # so that the last law was tried


def test_bounds_hold_in_random_problems():
    bounds_hold(25, seed=0, sizes=[1, 2], horizons=[1, 6])


@pytest.mark.slow
def test_bounds_hold_in_a_thousand_random_problems():
    bounds_hold(1000, seed=1, sizes=[1, 2, 3], horizons=[1, 3, 8, 14])


@pytest.mark.parametrize("explore", [0, 1])
def test_changes_are_bounded_of_models_that_are_not_linear(explore):
    """Whatever beginnings are tried: the bounds of inputs alone would allow any jump."""
    X, U = driven.trajectories(driven.bilinear)
    model = fk.DMD(bilinear=True).fit(X, U=U)
    controller = mpc(model, horizon=8, u_min=-1, u_max=1, du_max=[0.05, 0.2], explore=explore)
    x, memory, used = np.array([1.5, -1.0]), controller.begin(), controller.begin().used
    for _ in range(12):
        u, memory = controller.act(memory, x)
        assert (np.abs(u - used) <= np.array([0.05, 0.2]) * (1 + 1e-12)).all()
        x, used = driven.bilinear(x, u), u


def test_bounds_of_states_hold_where_they_can(model):
    controller = mpc(model, u_min=-1, u_max=1, x_min=[-np.inf, -0.05], softening=1e4)
    x, memory = np.array([1.5, 1.0]), controller.begin()
    for _ in range(30):
        u, memory = controller.act(memory, x)
        x = driven.linear(x, u)
        assert x[1] > -0.05 - 1e-6


def test_a_reference_may_move(model):
    """The states follow a sine that is announced, a sample apart."""
    goal = np.stack([0.3 * np.sin(np.arange(1, 61) / 6), np.zeros(60)], axis=1)
    controller = mpc(model, reference=goal, R=1e-4, Q=np.diag([10.0, 0.0]))
    x, memory, errors = np.zeros(2), controller.begin(), []
    for k in range(40):
        u, memory = controller.act(memory, x)
        x = driven.linear(x, u)
        errors.append(x[0] - goal[k, 0])
    assert np.abs(errors[5:]).max() < 0.01


def test_a_bilinear_model_is_planned_by_linearising_again():
    """Another beginning leads to the same plan, and no nearby plan is better."""
    X, U = driven.trajectories(driven.bilinear)
    model = fk.DMD(bilinear=True).fit(X, U=U)
    controller = mpc(model, iterations=20, u_min=-1, u_max=1, horizon=8)
    found = controller.plan([1.0, -0.5])
    random = np.random.default_rng(0)

    def cost(inputs):
        x, total = np.array([1.0, -0.5]), 0.0
        for u in inputs:
            x = driven.bilinear(x, u)
            total += x @ Q @ x + u @ R @ u
        return total

    assert found.cost == pytest.approx(cost(found.inputs), rel=1e-8)
    for _ in range(200):
        tried = np.clip(found.inputs + 1e-3 * random.normal(size=(8, 2)), -1, 1)
        assert cost(tried) > found.cost - 1e-9


def test_a_window_is_planned_from_outputs_and_past_inputs():
    """One output of a linear system of two states, by delays: as from the states themselves."""
    X, U = driven.trajectories(driven.linear)
    seen = [x[:, :1] for x in X]
    model = fk.DMD(n_delays=2).fit(seen, U=U)
    controller = fk.control.MPC(
        model, [0.0], horizon=10, Q=1.0, R=R, input=[0, 0], u_min=-1, u_max=1, relift=False
    )
    found = controller.plan(seen[0][:3], past=U[0][:2])
    inputs, _ = predictive.plan(
        driven.A, driven.B, X[0][2], np.zeros((10, 2)), np.diag([1.0, 0.0]), R,
        np.array([-1.0, -1.0]), np.array([1.0, 1.0]), np.full(2, -np.inf), np.full(2, np.inf), 1.0,
    )  # fmt: skip
    np.testing.assert_allclose(found.inputs, inputs, atol=1e-6)


def test_a_controller_remembers_the_window_of_a_model_with_delays():
    """In a closed loop that shows one output of two states, as from the states themselves."""
    X, U = driven.trajectories(driven.linear)
    system = fk.System.from_map(
        lambda x, u: jnp.asarray(driven.A) @ x + jnp.asarray(driven.B) @ u, 2, dt=1.0, input_dim=2
    )
    options = {"horizon": 10, "R": R, "input": [0, 0], "u_min": -1, "u_max": 1, "relift": False}
    delays = fk.DMD(n_delays=2).fit([x[:, :1] for x in X], U=U)
    found = fk.control.closed_loop(
        system,
        fk.control.MPC(delays, [0.0], Q=1.0, **options),
        [1.0, 1.0],
        15,
        seen=lambda x: x[:1],
    )
    states = fk.control.MPC(fk.DMD().fit(X, U=U), [0.0, 0.0], Q=[1.0, 0.0], **options)
    # What the window knows of the unseen state is right once it holds nothing from before the loop.
    for k in range(2, 15):
        exact = states.plan(found.states[k]).inputs[0]
        np.testing.assert_allclose(found.inputs[k], exact, atol=1e-6)
    np.testing.assert_array_equal(found.seen, found.states[:, :1])


MISTAKES = {
    "reference": ({"reference": [0, 0, 0]}, "reference has shape"),
    "horizon": ({"horizon": 0}, "horizon"),
    "weights": ({"Q": [-1, 1]}, "Q"),
    "bounds": ({"x_min": 1, "x_max": 0}, "x_min is above x_max"),
    "softening": ({"softening": 0}, "softening"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told_in_one_line(case, model):
    options, words = MISTAKES[case]
    with pytest.raises(fk.InputError, match=words) as told:
        mpc(model, **options)
    assert "\n" not in str(told.value)
