"""`fedkoopman estimate` and `predict` with known inputs, from a user's tables."""

from pathlib import Path

import numpy as np
import pyarrow.csv as pa_csv
import pytest
from reference import driven

import fedkoopman as fk

SENSOR = 'kind = "linear"\nmatrix = [[1, 0]]\nnoise = 0.0004\ninitial_cov = 1.0\n'
SITE = """name = "lab"
[data]
files = ["x.csv"]
columns = ["x"]
inputs = ["u"]
hold = "{hold}"
[sensor]
kind = "identity"
[noise]
observation = 1e-10
"""
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


@pytest.mark.parametrize("hold", ["until", "from"])
def test_the_last_row_tells_what_acts_next(hold, site):
    """x' = x / 2 + u: a row's input acts until the row, or from it on."""
    x, u = [np.array([1.0])], np.array([0.0, 3, 1, 0, 2, 5])
    for one in u[:-1]:
        x.append(x[-1] / 2 + one)
    random = np.random.default_rng(0)
    U = [random.normal(size=(20, 1)) for _ in range(3)]
    X = []
    for inputs in U:
        states = [np.zeros(1)]
        for one in inputs[:-1]:
            states.append(states[-1] / 2 + one)
        X.append(np.array(states))
    fk.DMD().fit(X, U=U).save("m.safetensors")
    rows = u if hold == "from" else [0.0, *u[:-1]]
    lines = [f"{k},{a[0]},{b}" for k, (a, b) in enumerate(zip(x, rows, strict=True))]
    Path("x.csv").write_text("time,x,u\n" + "\n".join(lines) + "\n")
    last = 5.0 if hold == "from" else 2.0
    one = x[-1][0] / 2 + last
    Path("site.toml").write_text(SITE.format(hold=hold))
    for more in (
        ["x.csv", "--columns", "x", "--inputs", "u", "--hold", hold],
        ["--site", "site.toml"],
    ):
        done = site.run("predict", "m.safetensors", *more, "--steps", "2", "--out", "f.csv",
                        *(["--process-noise", "1e-9"] if "--site" in more else []))  # fmt: skip
        assert done.code == 0, done.err
        found = pa_csv.read_csv("f.csv").column("x1").to_numpy()
        np.testing.assert_allclose(found, [one, one / 2 + last], atol=1e-4)


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
