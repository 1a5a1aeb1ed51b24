"""`fedkoopman estimate` gives what `fk.estimate` gives, from every format into every format."""

import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest
from reference.recordings import write_hdf5

import fedkoopman as fk
from fedkoopman.cli import estimate as verb
from fedkoopman.data.beliefs import guessed_noise
from fedkoopman.estimation.methods import ESTIMATORS
from fedkoopman.estimation.noise import estimate_noise

OPTIONS = ["--system", "lorenz63", "--sensor", "sensor.toml"]
COLUMNS = ["step", "time", "x1", "x2", "x3", "x1_std", "x2_std", "x3_std"]


def read(path: Path) -> dict[str, np.ndarray]:
    if path.suffix == ".npz":
        return dict(np.load(path))
    load = pa_csv.read_csv if path.suffix == ".csv" else pa_parquet.read_table
    table = load(path)
    return {name: table.column(name).to_numpy() for name in table.column_names}


def states(table: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    names = ["x1", "x2", "x3"]
    return (
        np.column_stack([table[name] for name in names]),
        np.column_stack([table[f"{name}_std"] for name in names]),
    )


def expected(z: np.ndarray, **options: object) -> fk.Estimates:
    sensor = fk.LinearSensor(np.eye(3)[:2])
    options.setdefault("system", fk.systems.Lorenz63())
    system = options.pop("system")
    return fk.estimate(system, sensor, z, observation_noise=0.5, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npy", "npz", "h5"])
def test_every_input_format(site, z: np.ndarray, suffix: str) -> None:
    if suffix == "parquet":
        pa_parquet.write_table(pa.table({"z1": z[:, 0], "z2": z[:, 1]}), "z.parquet")
    elif suffix == "npy":
        np.save("z.npy", z)
    elif suffix == "npz":
        np.savez("z.npz", z)
    elif suffix == "h5":
        write_hdf5(Path("z.h5"), {"run/z": z, "rate": np.array(50.0)})
    outcome = site.run("estimate", f"z.{suffix}", *OPTIONS, "--out", "states.csv")
    assert (outcome.code, outcome.err) == (0, "")
    table = read(Path("states.csv"))
    assert list(table) == COLUMNS
    np.testing.assert_array_equal(table["step"], np.arange(1, 21))
    np.testing.assert_allclose(table["time"], np.arange(1, 21) * 0.02)
    mean, std = states(table)
    e = expected(z)
    np.testing.assert_allclose(mean, e.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(std, e.std, rtol=1e-9)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_every_output_format(site, z: np.ndarray, suffix: str) -> None:
    out = Path(f"states.{suffix}")
    outcome = site.run("estimate", "z.csv", *OPTIONS, "--out", str(out))
    assert outcome.code == 0
    assert outcome.out.startswith(f"wrote states.{suffix}: 20 rows in ")
    assert outcome.out.count("\n") == 1
    assert "log-likelihood" in outcome.out
    table = read(out)
    e = expected(z)
    np.testing.assert_allclose(states(table)[0], e.mean, rtol=1e-9, atol=1e-9)
    if suffix == "npz":
        np.testing.assert_allclose(table["cov"], e.cov, rtol=1e-9, atol=1e-12)
    assert site.files() == {"z.csv", "sensor.toml", out.name}


@pytest.mark.parametrize("method", ["ukf", "ukf-resampled", "ekf", "particle"])
def test_every_method_without_smoothing(site, z: np.ndarray, method: str) -> None:
    more = ["--method", method, "--no-smooth", "--particles", "50", "--seed", "3"]
    outcome = site.run("estimate", "z.csv", *OPTIONS, *more, "--out", "states.npz")
    assert outcome.code == 0
    e = expected(z, method=method, smooth=False, particles=50, seed=3)
    np.testing.assert_allclose(states(read(Path("states.npz")))[0], e.mean, rtol=1e-9)


def test_options_reach_the_estimator(site, z: np.ndarray) -> None:
    more = (
        "--process-noise 0.1,0.2,0.3 --alpha 0.5 --beta 1 --kappa 0 --dt 0.01 --set-parameter b=25"
    )
    outcome = site.run("estimate", "z.csv", *OPTIONS, *more.split(), "--out", "states.npz")
    assert outcome.code == 0
    e = expected(
        z,
        system=fk.systems.Lorenz63(b=25.0, dt=0.01),
        process_noise=[0.1, 0.2, 0.3],
        alpha=0.5,
        beta=1.0,
        kappa=0.0,
    )
    table = read(Path("states.npz"))
    np.testing.assert_allclose(states(table)[0], e.mean, rtol=1e-9)
    np.testing.assert_allclose(table["time"], np.arange(1, 21) * 0.01)


def test_the_sensor_files_initial_state_is_used(site, z: np.ndarray) -> None:
    with Path("sensor.toml").open("a", encoding="utf-8") as file:
        file.write("initial_mean = [1, 2, 0]\ninitial_cov = 0.25\n")
    assert site.run("estimate", "z.csv", *OPTIONS, "--out", "states.npz").code == 0
    e = expected(z, initial_mean=[1.0, 2.0, 0.0], initial_cov=0.25)
    np.testing.assert_allclose(states(read(Path("states.npz")))[0], e.mean, rtol=1e-9)


def test_noise_that_is_not_known_is_estimated(site, z: np.ndarray) -> None:
    z += np.random.default_rng(0).normal(0, 0.1, z.shape)
    np.save("z.npy", z)
    text = Path("sensor.toml").read_text(encoding="utf-8").replace("noise = 0.5", 'noise = "auto"')
    Path("sensor.toml").write_text(text, encoding="utf-8")
    more = ["--process-noise", "0.001", "--out", "states.npz"]
    assert site.run("estimate", "z.npy", *OPTIONS, *more).code == 0
    system, sensor = fk.systems.Lorenz63(), fk.LinearSensor(np.eye(3)[:2])
    found = estimate_noise(
        system, sensor, [z], process_noise=0.001, process_structure="fixed",
        observation_noise=guessed_noise([z], ""),
    )  # fmt: skip
    noise = found.observation_noise
    assert not np.allclose(np.diag(noise), 1.0, atol=0.02)  # which counts where nothing is said
    e = fk.estimate(system, sensor, z, observation_noise=noise, process_noise=0.001)
    np.testing.assert_allclose(states(read(Path("states.npz")))[0], e.mean, rtol=1e-6)


def test_blank_cells_are_missing_observations(site, z: np.ndarray) -> None:
    lines = Path("z.csv").read_text(encoding="utf-8").splitlines()
    lines[6], lines[9] = ",", lines[9].split(",")[0] + ","
    Path("z.csv").write_text("\n".join(lines), encoding="utf-8")
    z[5], z[8, 1] = np.nan, np.nan
    assert site.run("estimate", "z.csv", *OPTIONS, "--out", "states.csv").code == 0
    np.testing.assert_allclose(
        states(read(Path("states.csv")))[0], expected(z).mean, rtol=1e-9, atol=1e-9
    )


def test_segments_are_estimated_apart(site, z: np.ndarray) -> None:
    owner = ["b"] * 12 + ["a"] * 8
    rows = "".join(f"{s},{z1},{z2}\n" for s, (z1, z2) in zip(owner, z, strict=True))
    Path("runs.csv").write_text("segment,z1,z2\n" + rows, encoding="utf-8")
    assert site.run("estimate", "runs.csv", *OPTIONS, "--out", "states.csv").code == 0
    table = read(Path("states.csv"))
    assert list(table) == ["segment", *COLUMNS]
    assert table["segment"].tolist() == owner
    np.testing.assert_array_equal(table["step"], [*range(1, 13), *range(1, 9)])
    mean = states(table)[0]
    np.testing.assert_allclose(mean[:12], expected(z[:12]).mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mean[12:], expected(z[12:]).mean, rtol=1e-9, atol=1e-9)


def test_a_time_column_sets_irregular_intervals(site, z: np.ndarray) -> None:
    intervals = np.where(np.arange(20) % 3 == 2, 0.03, 0.01)
    intervals[0] = 0.01  # what the reader takes for the first: the median
    times = np.cumsum(intervals)
    rows = "".join(f"{t!r},{a},{b}\n" for t, (a, b) in zip(times.tolist(), z, strict=True))
    Path("timed.csv").write_text("time,z1,z2\n" + rows, encoding="utf-8")
    assert site.run("estimate", "timed.csv", *OPTIONS, "--out", "states.csv").code == 0
    table = read(Path("states.csv"))
    np.testing.assert_allclose(table["time"], times)
    e = expected(z, system=fk.systems.Lorenz63(dt=0.03), dt=intervals)
    np.testing.assert_allclose(states(table)[0], e.mean, rtol=1e-7)


def test_a_system_of_the_users_own(site, z: np.ndarray) -> None:
    Path("model.py").write_text(
        "import jax.numpy as jnp\nimport fedkoopman as fk\n"
        "system = fk.System.from_function(lambda x: -x, dim=3, dt=0.1, names=('p', 'q', 'r'))\n",
        encoding="utf-8",
    )
    arguments = ["--system", "model.py:system", "--sensor", "sensor.toml", "--out", "states.csv"]
    outcome = site.run("estimate", "z.csv", *arguments)
    assert (outcome.code, outcome.err) == (0, "")
    assert list(read(Path("states.csv")))[:4] == ["step", "time", "p", "q"]


def test_the_plot_is_a_picture(site) -> None:
    outcome = site.run("estimate", "z.csv", *OPTIONS, "--out", "s.csv", "--plot", "s.png")
    assert outcome.code == 0
    assert "wrote s.csv and s.png" in outcome.out
    assert Path("s.png").read_bytes().startswith(b"\x89PNG")


def test_a_filter_that_diverges_is_a_failed_computation(site) -> None:
    outcome = site.run("estimate", "z.csv", *OPTIONS, "--set-parameter", "b=1e9", "--out", "s.csv")
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith("error: the ukf filter diverged") and outcome.err.count("\n") == 1
    assert site.files() == {"z.csv", "sensor.toml"}


def test_a_partial_divergence_is_told_and_left_blank(site, z: np.ndarray) -> None:
    np.savez("runs.npz", good=z, wild=1e99 * z)
    outcome = site.run("estimate", "runs.npz", *OPTIONS, "--out", "s.csv")
    assert outcome.code == 0
    assert outcome.err.startswith("warning: ") and "segment wild" in outcome.err
    table = read(Path("s.csv"))
    wild = table["segment"] == "wild"
    mean = states(table)[0]
    assert np.isnan(mean[wild]).all() and np.isfinite(mean[~wild]).all()


def test_a_progress_bar_when_asked_for(site) -> None:
    outcome = site.run("estimate", "z.csv", *OPTIONS, "--out", "s.csv", "--progress")
    assert outcome.code == 0
    assert "estimating" in outcome.err


def test_an_interruption_leaves_nothing_behind(site, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedkoopman.reports.plots.plot_states", interrupted)
    outcome = site.run("estimate", "z.csv", *OPTIONS, "--out", "s.csv", "--plot", "s.png")
    assert (outcome.code, outcome.err) == (130, "interrupted\n")
    assert site.files() == {"z.csv", "sensor.toml"}


@pytest.mark.slow  # as that of `fedkoopman control`, which the gate runs
def test_the_example_of_the_help_text_runs_as_it_stands(site) -> None:
    python = f'"{sys.executable}"'
    shell = f'python() {{ {python} "$@"; }}\nfedkoopman() {{ {python} -m fedkoopman.cli "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-e", "-c", shell + verb.EXAMPLE], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("wrote states.csv and states.png: 300 rows")
    assert done.stderr == ""


def test_the_help_text_names_all_systems_and_methods() -> None:
    about = get_type_hints(verb.estimate, include_extras=True)
    for option, names in (("system", fk.systems.SYSTEMS), ("method", ESTIMATORS)):
        assert ", ".join(names) in about[option].__metadata__[0].help
