"""From files of several sites to a forecast plot, by the program alone."""

import base64
import io
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest
from scipy.io import savemat

from fedkoopman.cli import main
from fedkoopman.config.study import Study
from fedkoopman.runs.site_preparation import PreparedSite, prepared_sites

FEW = ("--set", "slots=8", "--set", "training.epochs=2", "--no-progress")
MODEL = "runs/pendulum/model.safetensors"
LABS = {"lab-a": (1.0, np.pi / 180), "lab-b": (1.0,), "lab-c": (1.0, 0.01)}
"""Factors with which recorded values could appear: as they are, and in the sensor's units."""


class Told(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


class Journey:
    """A directory in which the program runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, line: str) -> Told:
        """In this process: `test_run_cli` and others start the program as users do."""
        program, *words = shlex.split(line)
        assert program == "fedkoopman"
        out, err = io.StringIO(), io.StringIO()
        with chdir(self.folder), redirect_stdout(out), redirect_stderr(err):
            code = main(words)
        return Told(code, out.getvalue(), err.getvalue())


def next_command(told: Told) -> str:
    """The command that a verb says is next, which is the last that it says."""
    last = told.out.splitlines()[-1]
    assert last.startswith("next: ")
    return last.removeprefix("next: ")


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Journey:
    return Journey(tmp_path_factory.mktemp("journey"))


@pytest.fixture(scope="module")
def steps(journey: Journey) -> list[Told]:
    """What five commands said, each as the one before told."""
    told = [journey.command("fedkoopman init swings --example pendulum")]
    for more in ((), FEW, ()):
        told.append(journey.command(" ".join([next_command(told[-1]), *more])))
    forecast = "--site swings/lab-a/site.toml --steps 100 --plot forecast.png"
    told.append(journey.command(f"fedkoopman predict {MODEL} {forecast}"))
    return told


def test_five_commands_lead_to_a_forecast_plot(journey: Journey, steps: list[Told]) -> None:
    assert [told.code for told in steps] == [0] * 5
    assert [next_command(told).split()[1] for told in steps[:-1]] == [
        "check", "run", "inspect", "predict",
    ]  # fmt: skip
    assert "verdict: consistent" in steps[1].out
    assert "theta" in steps[3].out and "frequency" in steps[3].out
    assert "next:" not in steps[4].out
    picture = (journey.folder / "forecast.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000


def test_check_shows_declared_and_estimated_noise(steps: list[Told]) -> None:
    """The example's noise is drawn with 2°, 0.1 rad/s and 2 cm."""
    rows = [line.split() for line in steps[1].out.splitlines()]
    assert sum(row[-4:] == ["declared", "σ", "estimated", "σ"] for row in rows) == 3
    shown = {row[0]: row[-2:] for row in rows if row}
    for channel, sigma in (("angle_deg", np.radians(2.0)), ("across_cm", 0.02), ("up_cm", 0.02)):
        declared, estimated = map(float, shown[channel])
        assert declared == pytest.approx(sigma, rel=0.01)
        assert estimated == pytest.approx(sigma, rel=0.1)
    declared, estimated = shown["rate"]
    assert declared == "auto" and float(estimated) == pytest.approx(0.1, rel=0.1)


def test_no_step_leaves_anything_beside_the_users_files(
    journey: Journey, steps: list[Told]
) -> None:
    names = {path.name for path in journey.folder.rglob("*") if "runs" not in path.parts}
    assert not {name for name in names if name.startswith("__") or name.endswith((".pyc", ".tmp"))}
    top = {path.name for path in journey.folder.iterdir()}
    assert top == {"swings", "runs", "forecast.png"}


@pytest.mark.slow  # as for a made-up run in `test_run_survives`
def test_a_killed_run_goes_on_to_the_same_model(journey: Journey, steps: list[Told]) -> None:
    del steps
    slots = 20
    program = (
        "import fedkoopman as fk; "
        f"study = fk.Study.load('swings/study.toml', {{'slots': {slots}}}); "
        "fk.run(study, out='runs/killed', checkpoint_seconds=0.0)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=journey.folder)
    records = journey.folder / "runs/killed/records.jsonl"
    while process.poll() is None and not (
        records.exists() and records.read_bytes().count(b"\n") >= 15
    ):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (journey.folder / "runs/killed/model.safetensors").exists()

    study = f"swings/study.toml --set slots={slots}"
    for words in ("--resume --out runs/killed", f"{study} --out runs/whole"):
        assert journey.command(f"fedkoopman run {words}").code == 0
    whole, resumed = (
        (journey.folder / "runs" / run / "model.safetensors").read_bytes()
        for run in ("whole", "killed")
    )
    assert resumed == whole


@pytest.fixture(scope="module")
def finished(journey: Journey, steps: list[Told], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scaffold of the journey, and its short run within."""
    del steps
    folder = tmp_path_factory.mktemp("own") / "swings"
    shutil.copytree(journey.folder / "swings", folder)
    shutil.copytree(journey.folder / "runs/pendulum", folder / "run")
    return folder


def test_the_same_seed_gives_the_same_model_wherever_the_files_are_and_another_another(
    finished: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(finished, moved, ignore=shutil.ignore_patterns("run"))
    words = (str(moved / "study.toml"), *FEW, "--seeds", "2", "--out", str(moved / "run"))
    assert main(("run", *words)) == 0
    here, same, other = (
        (folder / "model.safetensors").read_bytes()
        for folder in (finished / "run", moved / "run/seed-0", moved / "run/seed-1")
    )
    assert here == same != other


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("lab-a/data/swing-02.csv", "0.0400,", "0.0400,1"),
        ("lab-b/site.toml", 'segment = "swing"', 'segment = "swing"\nlongest = 200'),
        ("lab-c/sensor.py", "1 - jnp.cos", "1.1 - jnp.cos"),
        ("dynamics.py", "gravity=9.8", "gravity=9.9"),
    ],
)
@pytest.mark.parametrize("named", [True, False], ids=["study-named", "study-of-the-run"])
def test_a_run_does_not_go_on_with_other_data(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    file: str,
    old: str,
    new: str,
    named: bool,
) -> None:
    shutil.copytree(finished, tmp_path / "swings")
    monkeypatch.chdir(tmp_path / "swings")
    about = json.loads(Path("run/run.json").read_text())
    Path("run/run.json").write_text(json.dumps(about | {"folder": str(Path.cwd())}))
    changed = Path(file).read_text()
    assert changed.count(old) == 1
    Path(file).write_text(changed.replace(old, new))
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    capsys.readouterr()

    words = ["study.toml", *FEW] if named else ["--no-progress"]
    code = main(["run", *words, "--resume", "--out", "run"])

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1
    assert file in err
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


def test_a_directory_that_is_taken_is_told_before_any_work(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(*arguments: object) -> None:
        raise AssertionError("sites are at work")

    monkeypatch.setattr("fedkoopman.runs.site_preparation.prepared_sites", work)
    study, run = str(finished / "study.toml"), str(finished / "run")
    for more, says in (((), "holds a run"), (("--set", "seed=3", "--resume"), "seeds [0]")):
        capsys.readouterr()
        assert main(["run", study, *FEW, *more, "--out", run]) == 2
        assert says in capsys.readouterr().err


# No raw data leaves a site.


def recorded(folder: Path) -> Iterator[list[float]]:
    """Every recorded column, as it is and in the sensor's units."""
    for lab, factors in LABS.items():
        for file in sorted((folder / lab / "data").glob("*.csv")):
            table = pa_csv.read_csv(file)
            for name in set(table.column_names) - {"time", "swing"}:
                values = [v for v in table.column(name).to_pylist() if v is not None]
                yield from ([factor * v for v in values] for factor in factors)


def neighbours(values: Iterable[float]) -> set[tuple[str, str]]:
    """Consecutive numbers to six digits, of which two in a row are met by no chance."""
    return set(pairwise(f"{v:.6g}" for v in values))


def numbers_in(content: bytes) -> Iterator[list[float]]:
    """What a file may hold of numbers: as text, as plotly's base64, and as floats of any kind."""
    text = content.decode("latin-1")
    yield [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text) if len(n) < 30]
    arrays = [base64.b64decode(found) for found in re.findall(r'"bdata":"([^"]*)"', text)]
    try:
        content.decode()
    except UnicodeDecodeError:
        arrays.append(content)
    for raw in arrays:
        for kind in ("<f4", "<f8"):
            for start in range(np.dtype(kind).itemsize):
                whole = (len(raw) - start) // np.dtype(kind).itemsize
                if whole > 0:
                    with np.errstate(invalid="ignore"):  # chance makes odd NaNs
                        yield np.frombuffer(raw, kind, whole, start).astype(float).tolist()


def leaked(folder: Path, secret: set[tuple[str, str]]) -> list[str]:
    """Files in which two recorded values stand one after the other."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        path.name
        for path in files
        if any(neighbours(found) & secret for found in numbers_in(path.read_bytes()))
    ]


def test_no_raw_data_is_in_the_run_directory(finished: Path, tmp_path: Path) -> None:
    columns = list(recorded(finished))
    secret = set().union(*map(neighbours, columns))
    assert len(secret) > 10_000
    run = finished / "run"
    assert leaked(run, secret) == []
    assert not {path.suffix for path in run.rglob("*")} & {".csv", ".npy", ".parquet", ".mat"}
    assert b"site.toml" not in (run / "model.safetensors").read_bytes()

    # the search does find them, in whatever form
    (tmp_path / "rows.txt").write_text("\n".join(map(str, columns[0][5:9])))
    (tmp_path / "f4.bin").write_bytes(b"xyz" + np.array(columns[1][5:9], "<f4").tobytes())
    bdata = base64.b64encode(np.array(columns[2][5:9]).tobytes()).decode()
    (tmp_path / "page.html").write_text(f'{{"bdata":"{bdata}"}}')
    assert sorted(leaked(tmp_path, secret)) == ["f4.bin", "page.html", "rows.txt"]


# Formats.


def stored_as(folder: Path, lab: str, suffix: str) -> Study:
    """The study of one laboratory alone, with its files in another format."""
    new = folder / f"{lab}-{suffix}"
    shutil.copytree(folder / lab, new, ignore=shutil.ignore_patterns("*.csv"))
    for file in sorted((folder / lab / "data").glob("*.csv")):
        table, target = pa_csv.read_csv(file), new / "data" / f"{file.stem}.{suffix}"
        columns = {name: table.column(name) for name in table.column_names}
        if suffix == "csv":
            shutil.copy(file, target)
        elif suffix == "parquet":
            pa_parquet.write_table(table, target)
        elif suffix == "npy":
            kept = [columns[n].to_numpy() for n in columns if n not in ("time", "swing")]
            array = np.column_stack(kept)
            np.save(target, array.reshape(10, 300, 1) if "swing" in columns else array)
        else:
            arrays = {
                name: column.to_numpy().astype(object if name == "swing" else float)
                for name, column in columns.items()
            }
            if suffix == "npz":
                np.savez(
                    target,
                    **{n: a.astype(str if n == "swing" else float) for n, a in arrays.items()},
                )
            else:
                savemat(target, arrays)
    site = (new / "site.toml").read_text(encoding="utf-8").replace(".csv", f".{suffix}")
    if suffix == "npy":
        site = re.sub(r"(?m)^(columns|time|segment) = .*\n", "", site)
    (new / "site.toml").write_text(site, encoding="utf-8")
    study = (folder / "study.toml").read_text(encoding="utf-8")
    study = re.sub(r"(?m)^files = .*$", f'files = ["{new.name}/site.toml"]', study)
    path = folder / f"{new.name}.toml"
    path.write_text(study.replace("count = 3", "count = 1"), encoding="utf-8")
    return Study.load(path)


def states(site: PreparedSite) -> list[np.ndarray]:
    return [*map(np.asarray, site.train), *(one.states for one in site.held_out)]


@pytest.mark.parametrize(
    ("lab", "suffixes"),
    [
        pytest.param("lab-a", ("npy", "parquet"), id="whole"),
        pytest.param("lab-b", ("mat", "npz"), id="segments-and-blanks"),
        pytest.param("lab-c", ("parquet", "mat"), id="gaps-in-time"),
        pytest.param("lab-a", ("mat", "npz"), id="whole-too", marks=pytest.mark.slow),
        pytest.param("lab-b", ("npy", "parquet"), id="segments-too", marks=pytest.mark.slow),
    ],
)
def test_every_format_gives_the_states_that_csv_gives(
    finished: Path, lab: str, suffixes: tuple[str, ...]
) -> None:
    [expected] = prepared_sites(stored_as(finished, lab, "csv")).sites
    assert len(states(expected)) == 10
    for suffix in suffixes:
        [found] = prepared_sites(stored_as(finished, lab, suffix)).sites
        assert found.dropped == ()
        np.testing.assert_allclose(
            found.observation_noise, expected.observation_noise, rtol=1e-12, err_msg=suffix
        )
        for mine, its in zip(states(found), states(expected), strict=True):
            np.testing.assert_allclose(mine, its, rtol=0, atol=1e-12, err_msg=suffix)


@pytest.mark.parametrize("method", ["ekf", "ukf-resampled", "particle"])
def test_every_filter_takes_a_sites_segments(finished: Path, method: str) -> None:
    # the likeliest process noise, next to none, would leave a particle filter a single particle
    text = (finished / "lab-a/site.toml").read_text(encoding="utf-8")
    declared = text.replace('process = "auto"', "process = { diagonal = [1e-6, 1e-4] }")
    assert declared != text
    (finished / "lab-a/declared.toml").write_text(declared, encoding="utf-8")
    study = Study.load(
        finished / "study.toml",
        {
            "estimation.method": method,
            "estimation.particles": 200,
            "estimation.smooth": False,
            "sites.files": ["lab-a/declared.toml"],
            "clients.count": 1,
        },
    )
    [site] = prepared_sites(study).sites
    assert len(site.train) == 8 and site.dropped == ()
    for one in site.held_out:
        spread = np.nanstd(one.states[:, 0] - one.observations[:, 0])
        assert spread < 2 * np.radians(2.0)


# A study of one's own.


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("swings", "wide ö space")),
        'quo"ted $name',
        "back\\slash",
    ],
)
def test_a_scaffold_to_fill_in_lacks_nothing_but_data(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", name, "--sites", "north,south"]) == 0
    told = capsys.readouterr().out.splitlines()[-1].removeprefix("next: ")
    check = shlex.split(told)[1:]
    assert check == ["check", f"{name}/study.toml"]
    assert main(check) == 2
    assert "north/site.toml: data.files names 'data/*.csv'" in capsys.readouterr().err

    time = np.arange(1, 201) * 0.02
    rng = np.random.default_rng(0)
    for site in ("north", "south"):
        for i in range(3):
            wave = np.cos(time + i) + rng.normal(0, 0.1, 200)
            rows = [f"{t:.2f},{v:.4f}" for t, v in zip(time, wave, strict=True)]
            path = Path(name) / site / "data" / f"{i}.csv"
            path.write_text("\n".join(["time,position", *rows]) + "\n")
    assert main([*check, "--no-progress"]) == 0
    out = capsys.readouterr().out
    assert out.count("3 segments (1 held out)") == 2
    assert shlex.split(out.splitlines()[-1])[:4] == [
        "next:", "fedkoopman", "run", f"{name}/study.toml",
    ]  # fmt: skip
