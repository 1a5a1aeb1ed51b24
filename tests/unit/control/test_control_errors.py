"""Mistakes of users of `fk.control` are told in one line."""

import numpy as np
import pytest
from reference import driven

import fedkoopman as fk

C = fk.control


@pytest.fixture(scope="module")
def model():
    X, U = driven.trajectories(driven.linear)
    return fk.DMD().fit(X, U=U)


CASES = {
    "a lower bound of inf": (lambda m: C.lqr(m, [0, 0], u_min=np.inf), "u_min leaves nothing"),
    "an upper bound of -inf": (lambda m: C.MPC(m, [0, 0], x_max=-np.inf), "x_max leaves nothing"),
    "a text": (lambda m: C.lqr(m, [0, 0], u_min="a"), "u_min is 'a'"),
    "a bound of NaN": (lambda m: C.lqr(m, [0, 0], u_max=np.nan), "u_max has NaN"),
    "changes below 0": (lambda m: C.MPC(m, [0, 0], du_max=-1), "du_max is -1"),
    "a huge horizon": (lambda m: C.MPC(m, [0, 0], horizon=10**9), "give at most 2500"),
    "a word for relift": (lambda m: C.MPC(m, [0, 0], relift="yes"), "relift is 'yes'"),
    "no filter": (lambda m: C.LQG(C.lqr(m, [0, 0]), None), "NoneType"),
    "no controller": (
        lambda m: C.closed_loop(
            fk.System.from_function(lambda x, u: u, 2, 0.1, input_dim=2), 5, [0, 0], 3
        ),
        "controller is a int",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_told_in_one_line(case, model):
    act, words = CASES[case]
    with pytest.raises(fk.InputError, match=words) as told:
        act(model)
    assert "\n" not in str(told.value)


def test_before_the_first_observation_an_input_is_within_its_bounds(model):
    """LQG's filter predicts with what was put in, not with what would hold the target."""
    linear = C.lqr(model, [3.0, -1.0], u_min=-0.1, u_max=0.1)
    kalman = fk.KoopmanFilter(
        model, fk.LinearSensor(np.eye(2)), observation_noise=1.0, process_noise=1e-6
    )
    assert np.abs(linear.system.target.input).max() > 0.1
    assert np.abs(C.LQG(linear, kalman).begin().input).max() <= 0.1


def test_a_decoder_that_bends_is_planned_by_linearising():
    """The paper's decoder is not linear: what a plan says is what the model simulates."""
    X, U = driven.trajectories(driven.linear)
    model = fk.DeepKoopman(3, kind="paper", epochs=2, width=6).fit(X, U=U)
    plan = C.MPC(model, [0, 0], horizon=5, u_min=-1, u_max=1, relift=False).plan(X[0][0])
    ahead = model.simulate(X[0][0], U=plan.inputs, relift=0)
    np.testing.assert_allclose(plan.states, ahead, atol=1e-9)
