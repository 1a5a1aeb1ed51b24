"""`fedkoopman predict`, `inspect` and `export` as a user runs them on a learned model."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest

import fedkoopman as fk
from fedkoopman.koopman import DeepKoopman
from fedkoopman.koopman.kalman import KoopmanFilter

SENSOR = 'kind = "linear"\nmatrix = [[1, 0]]\nnoise = 0.01\ninitial_cov = 4.0\n'
NOTE = (
    "note: in {} the column 'segment' tells segments apart and the column 'time' gives the "
    "sampling instants: give --segment-column '' or --time-column '' to do without\n"
)
COLUMNS = ["segment", "step", "time", "theta", "omega", "theta_std", "omega_std"]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A pendulum's model with names, its file, and swings it has not seen."""
    system, rng = fk.systems.Pendulum(), np.random.default_rng(0)
    start = np.column_stack([rng.uniform(-2, 2, 16), rng.uniform(-1, 1, 16)])
    x = fk.simulate(system, steps=150, initial=start)
    fitted = DeepKoopman(
        8, dt=system.dt, epochs=100, activation="tanh", learning_rate=3e-3, decay=0.98, kind="paper"
    ).fit(x[:12])
    model = DeepKoopman.from_weights(
        fitted.architecture_,
        fitted.weights_,
        dt=system.dt,
        reference=fitted.reference_,
        names=system.names,
        units=system.units,
        noise=fitted.noise_,
        information={"study": "three labs", "clients": 3},
    )
    return model, x[12:]


@pytest.fixture
def lab(site, learned):
    """A directory with a model, states, observations and a sensor."""
    model, x = learned
    for name in ("z.csv", "sensor.toml"):
        (site.folder / name).unlink()
    model.save("model.safetensors")
    z = fk.observe(fk.LinearSensor([[1.0, 0.0]]), x, noise=0.01, seed=1)
    write("x.csv", ["theta", "omega"], x[:2])
    write("z.csv", ["angle"], z[:2])
    np.save("x.npy", x)
    Path("sensor.toml").write_text(SENSOR, encoding="utf-8")
    return site


def write(path, names, batch, **more):
    """A table of segments a, b, …, sampled every 0.02 from time 0."""
    lines = [",".join(["segment", "time", *names, *more])]
    for label, rows in zip("abcdefgh", batch, strict=False):
        for k, row in enumerate(rows):
            cells = [label, f"{0.02 * k:.2f}", *map(repr, map(float, row)), *more.values()]
            lines.append(",".join(cells))
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(path):
    table = (pa_csv.read_csv if path.endswith(".csv") else pa_parquet.read_table)(path)
    return {name: table.column(name).to_numpy() for name in table.column_names}


# predict


@pytest.mark.parametrize("out", ["f.csv", "f.parquet"])
def test_a_forecast_from_states_is_the_librarys(lab, learned, out) -> None:
    model, x = learned
    outcome = lab.run(
        "predict", "model.safetensors", "x.csv", "--steps", "20", "--out", out, "--plot", "f.png"
    )
    assert (outcome.code, outcome.err) == (0, NOTE.format("x.csv"))
    assert outcome.out == (
        f"wrote {out} and f.png: 20 steps ahead of 2 segments; uncertainty from the model's "
        "errors, measured on x.csv\n"
    )
    table = read(out)
    assert list(table) == COLUMNS
    assert table["segment"].tolist() == ["a"] * 20 + ["b"] * 20
    np.testing.assert_array_equal(table["step"], [*range(1, 21)] * 2)
    np.testing.assert_allclose(table["time"][:20], 3.0 + 0.02 * np.arange(1, 21))
    found = model.forecast(x[:2], 20)
    both = np.column_stack([table["theta"], table["omega"]])
    np.testing.assert_allclose(both, found.mean.reshape(-1, 2), rtol=1e-9)
    both = np.column_stack([table["theta_std"], table["omega_std"]])
    np.testing.assert_allclose(both, found.std.reshape(-1, 2), rtol=1e-9)
    assert Path("f.png").read_bytes().startswith(b"\x89PNG")


def test_arrays_and_standard_output(lab, learned) -> None:
    model, x = learned
    outcome = lab.run("predict", "model.safetensors", "x.npy", "--steps", "2")
    assert (outcome.code, outcome.err) == (0, "")
    lines = [line.split(",") for line in outcome.out.splitlines()]
    assert lines[0] == COLUMNS and len(lines) == 1 + 4 * 2
    numbers = np.array([line[3:5] for line in lines[1:]], float)
    np.testing.assert_allclose(numbers, model.simulate(x[:, -1], 2).reshape(-1, 2), rtol=1e-9)
    assert lab.files() == {"model.safetensors", "x.csv", "z.csv", "x.npy", "sensor.toml"}


def test_deviations_of_the_states_widen_the_bands(lab) -> None:
    outcome = lab.run("predict", "model.safetensors", "x.csv", "--steps", "5", "--out", "f.csv")
    assert outcome.code == 0
    with Path("x.csv").open(encoding="utf-8") as file:
        header, *rows = file.read().splitlines()
    rows = [f"{row},0.1,0.2" for row in rows]
    Path("s.csv").write_text("\n".join([header + ",theta_std,omega_std", *rows]), encoding="utf-8")
    outcome = lab.run("predict", "model.safetensors", "s.csv", "--steps", "5", "--out", "g.csv")
    assert "and the standard deviations given" in outcome.out
    plain, wide = read("f.csv"), read("g.csv")
    np.testing.assert_allclose(wide["theta"], plain["theta"])
    assert (wide["theta_std"] > plain["theta_std"]).all()
    np.testing.assert_allclose(wide["theta_std"][wide["step"] == 1], 0.1, rtol=0.2)


def test_a_forecast_from_observations_is_the_filters(lab, learned) -> None:
    model, x = learned
    sensor = fk.LinearSensor([[1.0, 0.0]])
    z = fk.observe(sensor, x, noise=0.01, seed=1)
    write("z.csv", ["angle"], z[:, :100])
    outcome = lab.run(
        "predict", "model.safetensors", "z.csv", "--sensor", "sensor.toml", "--steps", "50",
        "--out", "f.csv", "--plot", "f.svg",
    )  # fmt: skip
    assert (outcome.code, outcome.err) == (0, NOTE.format("z.csv"))
    assert "uncertainty from the filter's covariance and the model's errors" in outcome.out
    assert "filter: log-likelihood per sample" in outcome.out and "NIS" in outcome.out
    table = read("f.csv")
    kalman = KoopmanFilter(model, sensor, observation_noise=0.01, initial_cov=4.0)
    found = kalman.forecast(z[:, :100], 50)
    for i, name in enumerate(("theta", "omega")):
        np.testing.assert_allclose(table[name], found.mean[..., i].ravel(), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(table[f"{name}_std"], found.std[..., i].ravel(), rtol=1e-7)
    assert "<svg" in Path("f.svg").read_text(encoding="utf-8")


def test_gaps_in_time_are_missing_observations(lab) -> None:
    options = ["--sensor", "sensor.toml", "--steps", "3"]
    header, *rows = Path("z.csv").read_text(encoding="utf-8").splitlines()
    blank = [f"{r.rsplit(',', 1)[0]}," if 20 <= i < 30 else r for i, r in enumerate(rows)]
    Path("b.csv").write_text("\n".join([header, *blank]) + "\n", encoding="utf-8")
    Path("g.csv").write_text("\n".join([header, *rows[:20], *rows[30:]]) + "\n", encoding="utf-8")
    blanks = lab.run("predict", "model.safetensors", "b.csv", *options)
    gap = lab.run("predict", "model.safetensors", "g.csv", *options)
    assert blanks.code == 0 and blanks.out == gap.out


def test_models_with_depth_and_delays(lab, learned) -> None:
    _, x = learned
    model = DeepKoopman(
        5, n_delays=2, depth=3, dt=0.02, epochs=1, activation="tanh", kind="paper"
    ).fit(x)
    model.save("deep.safetensors")
    outcome = lab.run("predict", "deep.safetensors", "x.csv", "--steps", "4", "--out", "f.csv")
    assert outcome.code == 0
    table = read("f.csv")
    np.testing.assert_allclose(table["time"][:4], 3.0 + 0.06 * np.arange(1, 5))
    expected = model.simulate(x[:2, -3:], 4).reshape(-1, 2)
    np.testing.assert_allclose(np.column_stack([table["x1"], table["x2"]]), expected, rtol=1e-9)
    # every third observation is used, the last among them
    options = ["--sensor", "sensor.toml", "--steps", "2"]
    assert lab.run("predict", "deep.safetensors", "z.csv", *options, "--out", "g.csv").code == 0
    np.testing.assert_allclose(read("g.csv")["time"][:2], [3.06, 3.12])


def test_a_process_noise_for_a_model_that_knows_none(lab, learned) -> None:
    model, _ = learned
    bare = DeepKoopman.from_weights(model.architecture_, model.weights_, dt=0.02)
    bare.save("bare.safetensors")
    call = ["predict", "bare.safetensors", "z.csv", "--sensor", "sensor.toml", "--steps", "3"]
    outcome = lab.run(*call)
    assert outcome.code == 2 and "give --process-noise" in outcome.err
    outcome = lab.run(*call, "--process-noise", "0.0001,0.001")
    assert outcome.code == 0 and outcome.out.startswith("segment,step,time,x1,x2")


# inspect


def test_inspect_shows_the_model(lab, learned) -> None:
    model, _ = learned
    outcome = lab.run("inspect", "model.safetensors", "--plot", "s.pdf")
    assert (outcome.code, outcome.err) == (0, "")
    for words in ("theta [rad], omega [rad/s]", "0.02", "three labs", "halves in", "measured"):
        assert words in outcome.out
    rows = [line for line in outcome.out.splitlines() if "theta 1," in line or "omega 1," in line]
    assert len(rows) == np.sum(model.eigenvalues_.imag >= 0)
    assert "\nwrote s.pdf\nnext: fedkoopman predict " in outcome.out
    assert Path("s.pdf").read_bytes().startswith(b"%PDF")


def test_inspect_for_programs(lab, learned) -> None:
    model, _ = learned
    outcome = lab.run("inspect", "model.safetensors", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    about = json.loads(outcome.out)
    values = [complex(*row["eigenvalue"]) for row in about["spectrum"]]
    np.testing.assert_allclose(values, model.eigenvalues_[model.eigenvalues_.imag >= 0])
    assert about["dt"] == 0.02 and about["information"] == {"study": "three labs", "clients": 3}


# export


def test_export_runs_elsewhere_with_the_same_numbers(lab, learned) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    model, x = learned
    outcome = lab.run("export", "model.safetensors", "--onnx", "m.onnx", "--steps", "30")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == (
        "wrote m.onnx: x (batch, 2) → lifted (batch, 8), next (batch, 2), ahead (batch, 30, 2), "
        "in float32\n"
    )
    session = onnxruntime.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
    [ahead] = session.run(["ahead"], {"x": x[:, -1].astype(np.float32)})
    start = x[:, -1].astype(np.float32).astype(float)
    np.testing.assert_allclose(ahead, model.simulate(start, 30), rtol=1e-4, atol=1e-5)


# mistakes


class Case(NamedTuple):
    arguments: str
    says: tuple[str, ...]
    files: dict[str, str] = {}  # noqa: RUF012 - a constant


PREDICT = "predict model.safetensors x.csv --steps 5 --out f.csv"
FILTER = "predict model.safetensors z.csv --sensor sensor.toml --steps 5 --out f.csv"

CASES = {
    "no model": Case(PREDICT.replace("model.s", "no.s"), ("no model file no.safetensors",)),
    "data as model": Case(PREDICT.replace("model.safetensors", "x.npy"), ("not a safetensors",)),
    "no data": Case(PREDICT.replace("x.csv", "no.csv"), ("there is no file no.csv",)),
    "format": Case(PREDICT.replace("x.csv", "sensor.toml"), ("sensor.toml", "no format we read")),
    "nothing to go on from": Case("predict model.safetensors --steps 5", ("there is no DATA",)),
    "no steps": Case("predict model.safetensors x.csv", ("--steps",)),
    "zero steps": Case(PREDICT.replace("5", "0"), ("0 is below 1",)),
    "text steps": Case(PREDICT.replace("5", "many"), ("'many' is not a whole number",)),
    "observations as states": Case(
        PREDICT.replace("x.csv", "z.csv"), ("no column 'theta'", "angle", "--sensor")
    ),
    "another number of states": Case(
        f"{PREDICT} --columns theta", ("1 components", "2 states", "--sensor")
    ),
    "unknown column": Case(f"{PREDICT} --columns theta,omeg", ("'omeg'", "did you mean 'omega'")),
    "blank state": Case(
        PREDICT, ("x.csv has no state in sample 2", "--sensor"), {"x.csv": "theta,omega\n1,2\n1,\n"}
    ),
    "another interval": Case(
        PREDICT,
        ("time 0.05 in sample 2", "dt is 0.02"),
        {"x.csv": "time,theta,omega\n0,1,2\n0.05,1,2\n0.1,1,2\n"},
    ),
    "gap in states": Case(
        PREDICT,
        ("gap after sample 2", "dt being 0.02"),
        {"x.csv": "time,theta,omega\n0,1,2\n0.02,1,2\n0.08,1,2\n"},
    ),
    "huge state": Case(
        PREDICT,
        ("row 2 of x.csv", "1e+300 in column 'theta'"),
        {"x.csv": "theta,omega\n1,2\n1e300,2\n"},
    ),
    "huge observation": Case(
        FILTER, ("row 1 of z.csv", "-1e+200 in column 'z'"), {"z.csv": "z\n-1e200\n1\n"}
    ),
    "back in time": Case(
        PREDICT,
        ("x.csv", "time 0, which goes back"),
        {"x.csv": "time,theta,omega\n0.02,1,2\n0.0,1,2\n"},
    ),
    "out format": Case(PREDICT.replace("f.csv", "f.txt"), ("'.txt'", ".csv")),
    "out is data": Case(PREDICT.replace("f.csv", "x.csv"), ("x.csv is given twice",)),
    "plot format": Case(f"{PREDICT} --plot f.bmp", ("'.bmp'", ".png")),
    "no sensor file": Case(FILTER.replace("sensor.", "no."), ("no sensor file no.toml",)),
    "sensor of another state": Case(
        FILTER,
        ("matrix has rows of 3 numbers", "2 states"),
        {"sensor.toml": 'kind = "linear"\nmatrix = [[1, 0, 0]]\n'},
    ),
    "sensor of more": Case(
        FILTER, ("1 observed components", "observes 2"), {"sensor.toml": 'kind = "identity"\n'}
    ),
    "noise without sensor": Case(f"{PREDICT} --process-noise 1", ("give --sensor too",)),
    "noise of another shape": Case(f"{FILTER} --process-noise 1,2,3", ("process_noise", "(3,)")),
    "negative noise": Case(f"{FILTER} --process-noise=-1", ("process_noise", "positive")),
    "text noise": Case(f"{FILTER} --process-noise much", ("'much'",)),
    "initial mean": Case(
        FILTER,
        ("initial_mean", "3 numbers"),
        {"sensor.toml": SENSOR + "initial_mean = [1, 2, 3]\n"},
    ),
    "truncated model": Case("inspect cut.safetensors", ("cut.safetensors", "cut short")),
    "tampered model": Case("inspect bad.safetensors", ("bad.safetensors", "changed since")),
    "newer model": Case("inspect new.safetensors", ("version 9", "update fedkoopman")),
    "text as model": Case("inspect sensor.toml", ("sensor.toml", "not a safetensors file")),
    "directory as model": Case("inspect .", ("cannot read .",)),
    "inspect plot": Case("inspect model.safetensors --plot s.txt", ("'.txt'", ".png")),
    "export format": Case("export model.safetensors --onnx m.txt", ("'.txt'", ".onnx")),
    "export nowhere": Case("export model.safetensors --onnx no/m.onnx", ("no directory no",)),
    "export nothing": Case("export model.safetensors", ("--onnx",)),
    "export zero steps": Case("export model.safetensors --onnx m.onnx --steps 0", ("below 1",)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_mistake_is_one_line_and_leaves_nothing(lab, case: Case) -> None:
    good = Path("model.safetensors").read_bytes()
    Path("cut.safetensors").write_bytes(good[:-100])
    Path("bad.safetensors").write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    newer = good.replace(b'\\"version\\": 2', b'\\"version\\": 9')
    assert newer != good
    Path("new.safetensors").write_bytes(newer)
    for name, text in case.files.items():
        Path(name).write_text(text, encoding="utf-8")
    before = {name: (lab.folder / name).read_bytes() for name in lab.files()}

    outcome = lab.run(*case.arguments.split())

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
    for words in case.says:
        assert words in outcome.err
    assert {name: (lab.folder / name).read_bytes() for name in lab.files()} == before
