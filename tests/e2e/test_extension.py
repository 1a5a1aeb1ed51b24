"""examples/extension is installed as a package, and all its members are used by the program.

It is installed without a network into a directory of its own, which only the processes here see.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.extension import EXTENSION, file_of
from reference.federations import segments as segments_of
from unit.deploy.in_memory import LABS, Sites, small_study

import fedkoopman as fk
from fedkoopman.cli import main
from fedkoopman.config.formats import FORMATS
from fedkoopman.config.site_file import SiteFile
from fedkoopman.data.segments import segments
from fedkoopman.errors import InputError
from fedkoopman.estimation import ESTIMATORS
from fedkoopman.federation.aggregators import AGGREGATORS
from fedkoopman.federation.algorithms import ALGORITHMS
from fedkoopman.federation.policies import POLICIES
from fedkoopman.federation.server_steps import SERVER_STEPS
from fedkoopman.koopman.kinds import KINDS
from fedkoopman.runs.experiment import experiment_of
from fedkoopman.sensors import SENSORS
from fedkoopman.systems import SYSTEMS

REGISTRIES = {
    "rossler": SYSTEMS,
    "range": SENSORS,
    "cubature": ESTIMATORS,
    "fuller-half": POLICIES,
    "equal-mean": AGGREGATORS,
    "nesterov": SERVER_STEPS,
    "affine-sums": ALGORITHMS,
    "linear": KINDS,
    "jsonl": FORMATS,
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the installed package."""
    folder = tmp_path_factory.mktemp("packages") / "site"
    words = "install --no-deps --no-build-isolation --no-index --disable-pip-version-check --target"
    command = [sys.executable, "-m", "pip", *words.split(), str(folder), str(EXTENSION)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def here(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package, seen by this process too."""
    monkeypatch.syspath_prepend(installed)
    before = [(registry, dict(vars(registry))) for registry in REGISTRIES.values()]
    for registry in REGISTRIES.values():
        vars(registry).pop("names", None)
        vars(registry).pop("_foreign", None)
        registry._found = {}
    yield
    for registry, known in before:
        vars(registry).clear()
        vars(registry).update(known)


def fedkoopman(installed: Path, *arguments: object) -> str:
    """What a process of the program prints."""
    paths = [str(installed), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "fedkoopman.cli", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def tensors(model: fk.DeepKoopman) -> dict[str, np.ndarray]:
    """All arrays of a model's file."""
    kind = model.architecture_
    return {**kind.to_file(model.weights_), "reference": model.learned_.reference}


def test_names_are_listed_without_jax(installed: Path) -> None:
    code = "import sys\nfrom fedkoopman.config import sections, tables\n"
    code += "from fedkoopman.rules import Registry\nimport gc\n"
    code += "print(*(n for r in gc.get_objects() if isinstance(r, Registry) for n in r.names))\n"
    code += "assert 'jax' not in sys.modules"
    paths = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert set(REGISTRIES) <= set(run.stdout.split())


# System, sensor, estimator, policy, aggregator and server step

BEACONS = "[[20.0, 0.0, 0.0], [0.0, 20.0, 0.0], [0.0, 0.0, 20.0]]"
STUDY = f"""
slots = 3
[system]
name = "rossler"
[segments]
steps = 40
[clients]
count = 5
probability = 1.0
observation_noise = 0.1
process_noise = 0.01
sensor = {{ kind = "range", beacons = {BEACONS} }}
[estimation]
method = "cubature"
[network]
components = 4
width = 6
[training]
epochs = 1
[policy]
name = "fuller-half"
[aggregation]
rule = "equal-mean"
[server]
step = "nesterov"
[evaluation]
trajectories = 2
horizon = 2
"""
BY_FILE = {
    "system.name": f"{file_of('rossler')}:SYSTEM",
    "estimation.method": f"{file_of('cubature')}:ESTIMATOR",
    "policy.name": f"{file_of('fuller_half')}:POLICY",
    "aggregation.rule": f"{file_of('equal_mean')}:AGGREGATOR",
    "server.step": f"{file_of('nesterov')}:SERVER_STEP",
    "clients.sensor.kind": f"{file_of('ranges')}:SENSOR",
}
INSTEAD = {
    "estimation.method": "ekf",
    "aggregation.rule": "mean",
    "server.step": "none",
    "clients.sensor": {"kind": "identity"},
}
GATE = ("clients.sensor", "server.step")
"""One that works at sites, and one at the server; the others are slow tests."""


@pytest.fixture(scope="module")
def six(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that names six members."""
    folder = tmp_path_factory.mktemp("six")
    (folder / "study.toml").write_text(STUDY)
    fedkoopman(installed, "run", folder / "study.toml", "--out", folder / "run", "--no-progress")
    return folder / "run"


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]


def test_installed_members_do_what_their_files_do(six: Path) -> None:
    model = fk.load_model(six / "model.safetensors")
    assert model.dt == 0.05  # the system's own
    by_file = fk.run(fk.Study.load(six / "study.toml", BY_FILE)).model
    for name, tensor in tensors(by_file).items():
        np.testing.assert_array_equal(tensors(model)[name], tensor)


@pytest.mark.parametrize(
    "key",  # of what works at sites, and of what works at the server
    [
        pytest.param(
            key, marks=() if key in ("clients.sensor", "server.step") else pytest.mark.slow
        )
        for key in INSTEAD
    ],
)
def test_another_member_would_give_another_model(six: Path, key: str) -> None:
    other = fk.run(fk.Study.load(six / "study.toml", BY_FILE | {key: INSTEAD[key]})).model
    ours = fk.load_model(six / "model.safetensors")
    assert not np.array_equal(ours.operator_, other.operator_)


def test_the_policy_chooses_who_trains(six: Path) -> None:
    found = [(record["buffered"], record["active"]) for record in records(six)]
    assert found == [
        ([40, 40, 40, 40, 40], [0, 1, 2]),
        ([40, 40, 40, 80, 80], [0, 3, 4]),
        ([40, 80, 80, 40, 40], [0, 1, 2]),
    ]


# The algorithm

SUMS: dict[str, Any] = {
    "algorithm.name": "affine-sums",
    "network.hidden_layers": 0,
    "training.precision": "float64",
}


def set_options(values: dict[str, Any]) -> list[str]:
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


@pytest.mark.usefixtures("here")
def test_the_algorithm_is_least_squares_on_the_pooled_data(tmp_path: Path) -> None:
    values = SUMS | {"network.components": 4, "slots": 4, "segments.steps": 50}
    words = ["run", "--out", str(tmp_path / "run"), "--no-progress"]
    assert main([*words, *set_options(values)]) == 0
    told = records(tmp_path / "run")
    e = experiment_of(fk.Study.paper_default().with_values(values), seed=0)
    came = [(record["slot"], n) for record in told for n in record["arrived"]]
    states = list(segments_of(e, came).values())
    assert sum(record.get("pairs", 0) for record in told) == 49 * len(states) > 400
    x = np.concatenate([np.column_stack([one[:-1], np.ones(49)]) for one in states])
    later = np.concatenate([one[1:] for one in states])
    pooled = np.linalg.lstsq(x, later, rcond=None)[0].T
    model = fk.load_model(tmp_path / "run" / "model.safetensors")
    np.testing.assert_allclose(model.operator_[:3], pooled, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(model.predict(states[0][:5]), x[:5] @ pooled.T, rtol=1e-8)


@pytest.mark.usefixtures("here")
def test_a_served_federation_learns_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedkoopman.reports.run.write_report", lambda folder, *more: folder)
    values = SUMS | {"network.components": 3, "slots": 3, "clients.probability": 1.0}
    study = small_study(tmp_path / "study", values)
    (tmp_path / "study" / "small.toml").write_text(study.to_toml())
    local, served = tmp_path / "local", tmp_path / "served"
    words = ["run", str(tmp_path / "study" / "small.toml"), "--out", str(local)]
    assert main([*words, "--no-progress"]) == 0
    sites = Sites(study, tmp_path / "sites")
    sites.serve(served)
    sites.close()
    name = "model.safetensors"
    assert (served / name).read_bytes() == (local / name).read_bytes()
    assert [record.get("pairs") for record in records(served)] == [
        record.get("pairs") for record in records(local)
    ]
    assert records(served)[-1]["active"] == list(range(len(LABS)))


@pytest.mark.usefixtures("here")
def test_the_algorithm_refuses_another_network_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = {"algorithm.name": "affine-sums", "slots": 1}
    assert main(["run", "--no-progress", *set_options(values)]) == 2
    told = capsys.readouterr().err
    assert "affine-sums needs a network without hidden layers" in told
    assert "components = 4 in [network]" in told and len(told.strip().splitlines()) == 1


# The model kind and the data format

SITES = """
name = "tiny"
slots = 2
[system]
name = "van-der-pol"
[sites]
files = ["site.toml"]
[clients]
count = 1
probability = 1.0
[network]
kind = "linear"
components = 3
[training]
epochs = 1
[policy]
segments = 1
[evaluation]
horizon = 2
"""
SITE = """
name = "lab"
[data]
files = "z.csv"
columns = ["x", "y"]
segment = "swing"
[sensor]
kind = "identity"
[noise]
observation = 0.01
process = 0.01
"""


def as_json_lines(path: Path) -> None:
    """Replace a CSV file by one of JSON lines with the same cells."""
    header, *rows = [line.split(",") for line in path.read_text().splitlines()]

    def value(name: str, cell: str) -> object:
        return cell if name in ("segment", "swing") else float(cell) if cell else None

    lines = [json.dumps({n: value(n, c) for n, c in zip(header, row, strict=True)}) for row in rows]
    path.with_suffix(".jsonl").write_text("\n".join(lines) + "\n")
    path.unlink()


def write_study(folder: Path) -> None:
    folder.mkdir()
    (folder / "study.toml").write_text(SITES)
    (folder / "site.toml").write_text(SITE)
    swings = fk.simulate(fk.systems.VanDerPol(), steps=40, batch=3)
    rows = [f"s{n},{x!r},{y!r}" for n, swing in enumerate(swings) for x, y in swing.tolist()]
    (folder / "z.csv").write_text("\n".join(["swing,x,y", *rows]) + "\n")


@pytest.mark.usefixtures("here")
def test_kind_and_format_are_used_by_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def told(*words: object) -> str:
        capsys.readouterr()
        assert main([*map(str, words)]) == 0
        return capsys.readouterr().out

    for folder in (Path("text"), Path("json")):
        write_study(folder)
    as_json_lines(Path("json/z.csv"))
    Path("json/site.toml").write_text(SITE.replace(".csv", ".jsonl"))
    said = told("check", "json/study.toml", "--no-progress")
    assert "lab: 1 file, 3 segments (1 held out)" in said
    told("run", "json/study.toml", "--no-progress", "--out", "json/run")
    told("run", "text/study.toml", "--no-progress", "--out", "text/run")
    models = [Path(f"{name}/run/model.safetensors") for name in ("text", "json")]
    assert models[0].read_bytes() == models[1].read_bytes()

    about = json.loads(told("inspect", models[1], "--json"))
    assert (about["kind"], about["architecture"]["scale"]) == ("linear", 1.0)
    words = ["predict", models[1], "--site", "json/site.toml", "--steps", "2"]
    assert len(told(*words).splitlines()) == 1 + 3 * 2

    Path("sensor.toml").write_text('kind = "identity"\n')
    Path("z.csv").write_text("segment,time,x,y\n" + "a,0.02,1,\na,0.04,1.1,2\nb,0.02,1,2\n")
    estimate = ["estimate", "z.csv", "--system", "van-der-pol", "--sensor", "sensor.toml"]
    told(*estimate, "--out", "text.csv")
    as_json_lines(Path("z.csv"))
    estimate[1] = "z.jsonl"
    told(*estimate, "--out", "json.csv")
    assert Path("text.csv").read_text() == Path("json.csv").read_text()


def test_a_kind_that_is_not_installed_is_named_by_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_study(Path("study"))
    reference = f"{file_of('linear')}:KIND"
    words = ["run", "study/study.toml", "--set", f"network.kind={reference}", "--no-progress"]
    assert main([*words, "--out", "run"]) == 0
    model = "run/model.safetensors"
    capsys.readouterr()
    assert main(["inspect", model]) == 2
    assert "or by --kind file.py:name" in capsys.readouterr().err
    assert main(["inspect", model, "--kind", reference, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "linear"
    words = ["predict", model, "--kind", reference, "--site", "study/site.toml", "--steps", "2"]
    assert main(words) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 3 * 2
    assert main(["export", model, "--kind", reference, "--onnx", "m.onnx"]) == 0


def site_of(folder: Path, rows: str) -> SiteFile:
    (folder / "z.jsonl").write_text(rows)
    table = {"name": "lab", "data": {"files": "z.jsonl"}, "sensor": {"kind": "identity"}}
    return SiteFile.from_dict(table, folder / "site.toml")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ('{"x": 1}\n{"x": 1e300}\n', r"row 2 of .*z\.jsonl \(line 2\) holds 1e\+300 in column"),
        ('{"x": 1}\n[2]\n', r"line 2 of .*z\.jsonl is no JSON object: give one per line"),
        ('{"x": 1}\n{"x": "a"}\n', r"lines 1 to 2 of .*z\.jsonl hold a cell that is no number"),
    ],
)
def test_messages_name_the_formats_rows_as_it_says(tmp_path: Path, rows: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        list(segments(site_of(tmp_path, rows), 1.0))


def test_without_the_package_the_suffix_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'\.jsonl', which names no format .* \.csv, .* \.mat, "):
        site_of(tmp_path, '{"x": 1}\n').files()


def test_our_own_formats_are_listed_without_loading_them() -> None:
    ours = {"bag", "bdf", "csv", "db3", "edf", "h5", "hdf5", "hea", "mat", "mcap", "npy", "npz"}
    assert FORMATS.names[:14] == (*sorted(ours), "parquet", "ulg")
