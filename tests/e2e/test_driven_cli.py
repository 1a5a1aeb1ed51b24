"""`fedkoopman estimate` and `predict` with known inputs, from a user's tables."""

from pathlib import Path

import numpy as np
import pyarrow.csv as pa_csv
import pytest
from reference import driven

import fedkoopman as fk

SENSOR = 'kind = "linear"\nmatrix = [[1, 0]]\nnoise = 0.0004\ninitial_cov = 1.0\n'
OWN = (
    driven.DYNAMICS
    + "import fedkoopman as fk\n"
    + "rig = fk.System.from_function(pendulum, 2, 0.05, ['theta', 'omega'], input_dim=1)\n"
)


@pytest.fixture(scope="module")
def recorded():
    """Two swings of a pendulum under a motor: states after each interval, and the torques of the
    intervals; and a model of it."""
    random, X, U = np.random.default_rng(1), [], []
    for _ in range(8):
        x, u = random.uniform(-0.5, 0.5, 2), np.repeat(random.uniform(-3, 3, 16), 5)
        states = []
        for one in u:
            x = driven.pendulum(x, one, 0.05)
            states.append(x)
        X.append(np.array(states))
        U.append(u[:, None])
    model = fk.EDMD(3, dt=0.05).fit(X[2:], U=[u[1:] for u in U[2:]])
    return X[:2], U[:2], model


@pytest.fixture
def rig(site, recorded):
    """A directory with the model, tables of the swings, a sensor and the equations."""
    X, U, model = recorded
    random = np.random.default_rng(2)
    model.save("model.safetensors")
    Path("rig.py").write_text(OWN)
    Path("sensor.toml").write_text(SENSOR)
    tables = {"x.csv": "x1,x2", "z.csv": "angle"}
    for name, head in tables.items():
        lines = [f"segment,{head},torque"]
        for label, x, u in zip("ab", X, U, strict=True):
            seen = x if name == "x.csv" else x[:, :1] + 0.02 * random.normal(size=(len(x), 1))
            lines += [
                ",".join([label, *(f"{v:.12g}" for v in (*row, *one))])
                for row, one in zip(seen[:60], u, strict=False)
            ]
        Path(name).write_text("\n".join(lines) + "\n")
    Path("ahead.csv").write_text("u1\n" + "".join(f"{v}\n" for v in U[0][60:, 0]))
    return site


def states_of(path, names, label):
    table = pa_csv.read_csv(path)
    chosen = np.array(table.column("segment").to_pylist()) == label
    return np.column_stack([table.column(n).to_numpy()[chosen] for n in names])


def test_a_forecast_follows_the_inputs_to_come(rig, recorded):
    X, U, model = recorded
    arguments = ["predict", "model.safetensors", "x.csv", "--inputs", "torque", "--out", "f.csv"]
    done = rig.run(*arguments, "--future", "ahead.csv")
    assert done.code == 0, done.err
    found = states_of("f.csv", ["x1", "x2"], "a")
    expected = model.simulate(X[0][59], U=U[0][60:], relift=model.relift_)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert np.abs(found - X[0][60:]).max() < 0.05, "the forecast is not of the truth"
    held = rig.run(*arguments, "--steps", "20")
    assert "u1 held" in held.out or "1 inputs held" in held.out
    assert np.abs(states_of("f.csv", ["x1", "x2"], "a") - found).max() > 0.1


def test_observations_are_filtered_with_their_inputs(rig, recorded):
    X, *_ = recorded
    done = rig.run(
        "predict", "model.safetensors", "z.csv", "--sensor", "sensor.toml", "--columns", "angle",
        "--inputs", "torque", "--future", "ahead.csv", "--process-noise", "1e-6", "--out", "f.csv",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert np.abs(states_of("f.csv", ["x1", "x2"], "a") - X[0][60:]).max() < 0.3


def test_an_estimate_knows_the_inputs(rig, recorded):
    """With inputs that act one row later than they do, the states are farther off."""
    X, *_ = recorded
    errors = {}
    for hold in ("until", "from"):
        done = rig.run(
            "estimate", "z.csv", "--system", "rig.py:rig", "--sensor", "sensor.toml", "--columns",
            "angle", "--inputs", "torque", "--hold", hold, "--process-noise", "1e-6", "--out",
            "e.csv",
        )  # fmt: skip
        assert done.code == 0, done.err
        found = states_of("e.csv", ["theta", "omega"], "b")
        errors[hold] = np.sqrt(np.mean((found - X[1][:60]) ** 2))
    assert errors["until"] < 0.03 and errors["from"] > 2 * errors["until"]


ESTIMATE = ["estimate", "z.csv", "--system", "rig.py:rig", "--sensor", "sensor.toml", "--columns",
            "angle", "--out", "e.csv"]  # fmt: skip
PREDICT = ["predict", "model.safetensors", "x.csv", "--out", "f.csv"]
MISTAKES = {
    "no inputs": (ESTIMATE, "--inputs names 0 columns"),
    "unknown column": ([*ESTIMATE, "--inputs", "motor"], "motor"),
    "unknown hold": ([*ESTIMATE, "--inputs", "torque", "--hold", "before"], "hold"),
    "none to predict": ([*PREDICT, "--steps", "5"], "name them by --inputs"),
    "no steps": ([*PREDICT, "--inputs", "torque"], "give --steps, or --future"),
    "too few to come": (
        [*PREDICT, "--inputs", "torque", "--steps", "30", "--future", "ahead.csv"],
        "20 rows, but --steps is 30",
    ),
    "two columns to come": (
        [*PREDICT, "--inputs", "torque", "--future", "x.csv"],
        "one row of 1 numbers",
    ),
    "an array": (
        ["predict", "model.safetensors", "x.npy", "--steps", "5", "--out", "f.csv"],
        "in a table with named columns",
    ),
    "observations without": (
        [*PREDICT, "--sensor", "sensor.toml", "--columns", "x1", "--steps", "5"],
        "--inputs names 0 columns",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told_in_one_line(case, rig):
    np.save("x.npy", np.zeros((5, 2)))
    arguments, words = MISTAKES[case]
    done = rig.run(*arguments)
    assert done.code == 2 and words in done.err and done.err.count("\n") == 1, done.err
    assert not {"e.csv", "f.csv"} & rig.files()
