"""Input that is broken beyond a slip: it ends in one line, in bounded time, whatever the verb."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.examples import write_example
from safetensors.numpy import load, save

import fedkoopman as fk
from fedkoopman.cli import main
from fedkoopman.koopman import files as model_files

ESTIMATE = ["z.csv", "--system", "lorenz63", "--sensor", "sensor.toml", "--out", "states.csv"]
LINEAR = 'kind = "linear"\nmatrix = [[1, 0, 0], [0, 1, 0]]\n'
DEEP, DIGITS, BITS = "[" * 5000 + "]" * 5000, "9" * 5000, "0x" + "f" * 5000
NUL, HALF, LONG = "a\0b", "\ud800", "x" * 10_000


def refused(outcome, *words: str, codes: tuple[int, ...] = (2,)) -> None:
    assert outcome.code in codes, outcome.err
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
    assert "bug of fedkoopman" not in outcome.err
    for word in words:
        assert word in outcome.err


SENSORS = {
    "kind is a list": ('kind = ["linear"]', "kind is ['linear']"),
    "kind is a table": ("kind = { a = 1 }", "kind is {'a': 1}"),
    "kind is a number": ("kind = 3", "kind is 3"),
    "kind is nested": (f"kind = {'[' * 40 + ']' * 40}", "kind is [[["),
    "noise is nested": (f"{LINEAR}noise = {DEEP}", "more than 50 deep"),
    "noise has digits": (f"{LINEAR}noise = {DIGITS}", "thousands of digits"),
    "noise has bits": (f"{LINEAR}noise = {BITS}", "20000 bits"),
    "nested key": (".".join("a" * 3000) + " = 1", "more than 50 deep"),
    "dim": ('kind = "function"\nfunction = "h.py:h"\ndim = 1000000000000', "from 1 to 4096"),
    "frame": ('kind = "random-frame"\nseed = 0\ndim = 1000000000', "from 1 to 4096"),
    "zero byte": ('kind = "function"\nfunction = "h\\u0000.py:h"\ndim = 2', "zero byte"),
    "zero byte in a name": ('kind = "function"\nfunction = "h.py:\\u0000"\ndim = 2', "give "),
    "zero byte in a column": (f'{LINEAR}columns = ["z\\u0000", "b"]', "give text on one line"),
    "angle": (f"{LINEAR}angles = [9000000000000000000]", "give a whole number from 0"),
}


@pytest.mark.parametrize(("text", "says"), SENSORS.values(), ids=SENSORS)
def test_a_sensor_file(site, text: str, says: str) -> None:
    Path("sensor.toml").write_text(text, encoding="utf-8")
    refused(site.run("estimate", *ESTIMATE), says)


VALUES = {
    "nested": DEEP,
    "digits": DIGITS,
    "bits": BITS,
    "zero byte": '"a\\u0000b.toml"',
    "zero byte in a file": '"a\\u0000b.py:f"',
    "kind is a list": '{ kind = ["linear"] }',
    "kinds are tables": "[{ kind = { a = 1 } }]",
    "dim": '{ kind = "function", function = "h.py:h", dim = 1000000000 }',
    "frame": '{ kind = "random-frame", observed = 1000000000 }',
    "infinite": "-1e400",
}
KEYS = ("slots", "clients.sensor", "recordings.train", "sites.files", "system.name", "policy.name",
        "network.components", "system.parameters", "estimation.initial_cov")  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_of_a_study(site, key: str, value: str) -> None:
    Path("h.py").write_text("def h(x):\n    return x\n")
    refused(site.run("config", "--set", f"{key}={value}"), key)
    section, _, name = key.rpartition(".")
    header = f"[{section}]\n" if section else ""
    Path("study.toml").write_text(f"{header}{name} = {value}\n")
    outcome = site.run("config", "study.toml")
    refused(outcome)
    assert key in outcome.err or "study.toml is not valid TOML" in outcome.err


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        (["system.name=lorenz96", "system.parameters.dim=1000000000"], "dim is 1000000000"),
        (["system.parameters.dt=1e300"], "check the unit of time"),
        (["network.width=2000000000"], "weights: give smaller numbers"),
        (["network.hidden_layers=2000000000"], "weights: give smaller numbers"),
        (["network.components=2000000000"], "weights: give smaller numbers"),
        (["network.window=2000000000"], "or a smaller window"),
        (["name=\udcff"], "text on one line"),
        ([f"{'x' * 100_000}=1"], "unknown key 'xxx"),
    ],
)
def test_sizes_beyond_all_measure(site, pairs: list[str], says: str) -> None:
    words = [word for pair in pairs for word in ("--set", pair)]
    refused(site.run("run", "--set", "slots=1", *words, "--no-progress", "--out", "out"), says)


SITES = {
    "nested": (f"name = {DEEP}", "more than 50 deep"),
    "digits": (f"name = {DIGITS}", "thousands of digits"),
    "nested files": (f"[data]\nfiles = {DEEP}", "more than 50 deep"),
    "kind": ('name = "a"\n[data]\nfiles = ["z.csv"]\n[sensor]\nkind = [1]', "kind is [1]"),
    "zero byte": (f'name = "a"\ndata.files = ["a\\u0000b"]\n[sensor]\n{LINEAR}', "data.files"),
}


@pytest.mark.parametrize(("text", "says"), SITES.values(), ids=SITES)
def test_a_site_file(site, text: str, says: str) -> None:
    Path("site.toml").write_text(text, encoding="utf-8")
    Path("study.toml").write_text('clients.count = 1\nsites.files = ["site.toml"]\n')
    refused(site.run("config", "study.toml"), "site.toml", says)


@pytest.mark.parametrize(
    "words",
    [
        ["run", NUL], ["run", "--out", NUL], ["check", NUL], ["inspect", NUL], ["init", NUL],
        ["tune", NUL],
        ["export", NUL, "--onnx", "o.onnx"], ["estimate", NUL, *ESTIMATE[1:]], ["status", NUL],
        ["estimate", *ESTIMATE[:-1], NUL], ["backup", NUL], ["ledger", NUL], ["sweep", NUL],
        ["predict", NUL, "z.csv", "--steps", "3"], ["provision", NUL], ["serve", NUL],
        ["join", NUL], ["restore", NUL], ["reproduce", "table-estimators", "--out", NUL],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_zero_byte_in_an_option(site, words: list[str]) -> None:
    refused(site.run(*words), r"'a\x00b'", "zero byte")


def test_a_zero_byte_in_a_path_of_python(tmp_path: Path) -> None:
    for call in (fk.load_model, fk.Study.load, lambda path: fk.run(out=path)):
        with pytest.raises(fk.InputError, match="zero byte"):
            call(NUL)


# Times


NANO = 1_700_000_000_000_000_000


@pytest.mark.parametrize(
    "times",
    [
        [k * 1e300 for k in range(1, 6)],
        [1e300 + k for k in range(5)],
        [NANO + k * 20_000_000 for k in range(5)],
        [float(NANO + k * 20_000_000) for k in range(5)],
        [k * 1e6 for k in range(5)],
        [-1e308, 1e308],
        [k * 1e307 for k in range(9)],
    ],
    ids=["1e300", "equal", "epoch in ns", "as floats", "1e6 apart", "ends", "1e307 apart"],
)
def test_times_in_a_wrong_unit(site, times: list[float]) -> None:
    rows = "".join(f"{time!r},{k},{2 * k}\n" for k, time in enumerate(times))
    Path("z.csv").write_text("time,z1,z2\n" + rows)
    refused(site.run("estimate", *ESTIMATE))


@pytest.mark.parametrize("dt", ["1e300", "1e9", "1.8e308"])
def test_an_interval_in_a_wrong_unit(site, dt: str) -> None:
    refused(site.run("estimate", *ESTIMATE, "--dt", dt))


def test_particles_beyond_memory(site) -> None:
    words = ["--method", "particle", "--particles", "99999999999"]
    refused(site.run("estimate", *ESTIMATE, *words), "particles is 99999999999", "1,000,000")


# Models


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    x = np.random.default_rng(0).normal(size=(4, 60, 2))
    fk.DeepKoopman(4, dt=0.1, epochs=1, precision="float64", kind="paper").fit(x).save(path)
    return path.read_bytes()


def remade(
    model: bytes,
    change: Callable[[dict[str, Any]], None] = lambda header: None,
    tensors: Callable[[str, np.ndarray], np.ndarray] = lambda name, tensor: tensor,
) -> None:
    """Write a model with another header or other weights, and the digest that fits."""
    size = int.from_bytes(model[:8], "little")
    header = json.loads(json.loads(model[8 : 8 + size])["__metadata__"][model_files.KEY])
    change(header)
    parts = {name: tensors(name, tensor) for name, tensor in load(model).items()}
    header["digest"] = model_files._digest(header, parts)
    Path("m.safetensors").write_bytes(save(parts, {model_files.KEY: json.dumps(header)}))


NESTED: list = []
for _ in range(500):
    NESTED = [NESTED]
HEADERS = {
    "half a character": {"names": [HALF, "b"]},
    "10 kB": {"names": [LONG, "b"]},
    "zero byte": {"names": [NUL, "b"]},
    "lines": {"names": ["a\nb", "b"]},
    "escapes": {"names": ["\x1b[31m", "b"]},
    "units": {"units": [HALF, "m"]},
    "10 kB of units": {"units": ["m", LONG]},
    "half a character of information": {"information": {"a": HALF}},
    "half a character as a key": {"information": {HALF: "a"}},
    "nested information": {"information": {"a": NESTED}},
    "names are no list": {"names": 5},
    "names are lists": {"names": [["a"], ["b"]]},
    "components": {"architecture": {"state_dim": 2, "components": 10**12}},
    "layers": {"architecture": {"state_dim": 2, "components": 4, "hidden_layers": 10**12}},
    "dt": {"dt": 10**400},
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_models_header(site, model: bytes, header: dict[str, Any]) -> None:
    remade(model, lambda found: found.update(header))
    for words in (["--json"], [], ["--plot", "p.png"]):
        refused(site.run("inspect", "m.safetensors", *words), "m.safetensors: ")
    assert not Path("p.png").exists()


def test_long_information_is_shown(site, model: bytes) -> None:
    remade(model, lambda found: found.update(information={LONG: LONG}))
    for words in (["--json"], []):
        assert site.run("inspect", "m.safetensors", *words).code == 0


@pytest.mark.parametrize("value", [1e308, -1e200, 5e-324])
@pytest.mark.parametrize("which", ["operator", "decoder.0.weight", "reference", "all"])
def test_weights_whose_spectrum_is_not_finite(site, model: bytes, which: str, value: float) -> None:
    """JSON knows no infinity: such a number is null."""
    change = lambda name, w: np.full_like(w, value) if which in (name, "all") else w  # noqa: E731
    remade(model, tensors=change)
    for words in (["--json"], []):
        outcome = site.run("inspect", "m.safetensors", *words)
        assert outcome.code in (0, 1, 2) and "bug of fedkoopman" not in outcome.err, outcome.err
        if words and outcome.code == 0:
            json.loads(outcome.out, parse_constant=pytest.fail)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite(site, model: bytes, value: float) -> None:
    remade(model, tensors=lambda name, w: np.full_like(w, value) if name == "operator" else w)
    refused(site.run("inspect", "m.safetensors", "--json"), "not finite")


# Tables


@pytest.mark.parametrize("columns", [3, 10_000, 100_000])
def test_many_columns(site, model: bytes, columns: int) -> None:
    Path("m.safetensors").write_bytes(model)
    names, row = ",".join(f"x{i}" for i in range(columns)), ",".join(["1"] * columns)
    Path("w.csv").write_text(f"{names}\n{row}\n{row}\n")
    outcome = site.run("predict", "m.safetensors", "w.csv", "--steps", "2")
    refused(outcome, f"w.csv has {columns}" if columns <= 10_000 else "at most 10,000")
    assert len(outcome.err) < 2100


def test_steps_beyond_memory(site, model: bytes) -> None:
    Path("m.safetensors").write_bytes(model)
    for words in (["predict", "m.safetensors", "z.csv"], ["export", "m.safetensors"]):
        refused(site.run(*words, "--steps", "1000000000000"), "'--steps'", "1000000")


# Standard output on a full disk


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not Path("/dev/full").is_char_device():
        pytest.skip("there is no /dev/full")
    with open("/dev/full", "w", encoding="utf-8") as output:
        monkeypatch.setattr("sys.stdout", output)
        yield
        monkeypatch.undo()


@pytest.mark.parametrize(
    "words",
    [
        [], ["--help"], ["--version"], ["config"], ["init", "new"], ["run", "--help"],
        ["inspect", "m.safetensors"], ["inspect", "m.safetensors", "--json"],
        ["export", "m.safetensors", "--onnx", "o.onnx"],
        ["predict", "m.safetensors", "x.csv", "--steps", "3"],
        ["predict", "m.safetensors", "x.csv", "--steps", "3", "--out", "p.csv"],
        ["estimate", *ESTIMATE], ["reproduce", "--help"],
        pytest.param(["check", "swings/study.toml"], marks=pytest.mark.slow),
        ["provision", "swings/study.toml", "--insecure"],
        ["run", "--set", "slots=1", "--set", "evaluation.trajectories=1", "--no-progress"],
    ],
    ids=lambda words: " ".join(words[:3]),
)  # fmt: skip
def test_standard_output_on_a_full_disk(
    site, model: bytes, words: list[str], request: pytest.FixtureRequest
) -> None:
    Path("m.safetensors").write_bytes(model)
    Path("x.csv").write_text("x1,x2\n1,2\n3,4\n")
    if "swings/study.toml" in words:
        write_example(Path("swings"))
    request.getfixturevalue("full")
    site.capture.readouterr()
    assert main(words) == 1
    said = site.capture.readouterr().err
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert errors == [
        "error: cannot write to standard output: No space left on device; make room there"
    ]
    assert "Traceback" not in said
