"""Held to bad input: whatever is broken at a site is told in one line, before anything is written.

Every case begins with the scaffold of `init --example pendulum`, which works, and breaks one thing.
"""

import io
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from reference.recordings import write_hdf5
from safetensors.numpy import save as tensors
from scipy.io import savemat

import fedkoopman as fk
from fedkoopman.cli import main
from fedkoopman.koopman import DeepKoopman

Break = Callable[[], None]

A, B, C = "lab-a/site.toml", "lab-b/site.toml", "lab-c/site.toml"
MODEL = "model.safetensors"
SWING, SPIN = "lab-a/data/swing-03.csv", "lab-b/data/gyroscope.csv"
TIMES = [f"{k * 0.02:.4f}" for k in range(1, 61)]
SOUND = "time,angle_deg\n" + "".join(f"{t},{k}.5\n" for k, t in enumerate(TIMES))
SHORT = "time,angle_deg\n0.02,1\n"
BRIEF = "time,angle_deg\n" + "".join(f"{t},1\n" for t in TIMES[:5])
MILLISECONDS = "time,angle_deg\n" + "".join(f"{20 * k},{k}.5\n" for k in range(60))


class Case(NamedTuple):
    """What is broken, what the message says of it, and the command that meets it first."""

    says: tuple[str, ...]
    broken: Break
    command: str = "check study.toml --no-progress"
    code: int = 2


def swap(file: str, old: str, new: str) -> Break:
    """Replace what stands in a file once."""

    def broken() -> None:
        text = Path(file).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
        Path(file).write_text(text.replace(old, new), encoding="utf-8")

    return broken


def put(file: str, content: str | bytes) -> Break:
    """Write a file anew."""

    def broken() -> None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_bytes(content if isinstance(content, bytes) else content.encode())

    return broken


def line(file: str, number: int, text: str) -> Break:
    """Replace a line, counted from 1."""

    def broken() -> None:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
        lines[number - 1] = text
        Path(file).write_text("\n".join(lines) + "\n", encoding="utf-8")

    return broken


def gone(file: str) -> Break:
    return lambda: Path(file).unlink()


def all_of(*steps: Break) -> Break:
    def broken() -> None:
        for step in steps:
            step()

    return broken


def sound() -> None:
    """Break nothing: the command itself is the mistake."""


def alone() -> None:
    """Only the first laboratory takes part."""
    swap("study.toml", f', "{B}", "{C}"', "")()
    swap("study.toml", "count = 3", "count = 1")()


def flipped(change: Callable[[bytes], bytes]) -> Break:
    """Change the model's bytes."""

    def broken() -> None:
        before = Path(MODEL).read_bytes()
        assert change(before) != before
        Path(MODEL).write_bytes(change(before))

    return broken


def cut(end: int) -> Break:
    return flipped(lambda raw: raw[:end])


def other_times(file: str) -> None:
    """Samples that are 0.03 apart."""
    head, *rows = Path(file).read_text(encoding="utf-8").splitlines()
    rows = [f"{0.03 * k:.4f},{row.partition(',')[2]}" for k, row in enumerate(rows)]
    Path(file).write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")


def dynamics(body: str) -> Break:
    """An equation of motion with another body."""
    text = f"import jax.numpy as jnp\n\n\ndef pendulum(x, length=1.0):\n    {body}\n"
    return put("dynamics.py", text)


def sensor(body: str) -> Break:
    return put("lab-c/sensor.py", f"import jax.numpy as jnp\n\n\ndef bob(x):\n    {body}\n")


def stored(suffix: str, content: bytes, named: bool = True) -> Break:
    """Laboratory A keeps its data in one file of another format."""
    names = 'columns = ["angle_deg"]\ntime = "time"\n'
    return all_of(
        put(f"lab-a/data/all.{suffix}", content),
        swap(A, "data/*.csv", f"data/all.{suffix}"),
        lambda: None if named else swap(A, names, "")(),
    )


def arrays(write: Callable[..., None], *content: object, **named: object) -> bytes:
    """What a writer puts into a file."""
    file = io.BytesIO()
    write(file, *content, **named)
    return file.getvalue()


ANGLES = np.linspace(-40, 40, 60)
NPY = arrays(np.save, ANGLES)
NPZ = arrays(np.savez, angle_deg=ANGLES, time=np.arange(60) * 0.02)
MAT = arrays(savemat, {"angle_deg": ANGLES, "time": np.arange(60) * 0.02})
COLUMNS = {"angle_deg": ANGLES, "time": np.arange(60) * 0.02}
PARQUET = arrays(lambda file, table: pa_parquet.write_table(table, file), pa.table(COLUMNS))
OBJECTS = arrays(np.save, np.array([{"code": "run"}], dtype=object))
WORDS = arrays(
    lambda file, table: pa_parquet.write_table(table, file),
    pa.table({"angle_deg": ["high"] * 60, "time": COLUMNS["time"]}),
)

RUN = "run study.toml --no-progress --out runs/x"
INSPECT = f"inspect {MODEL}"
PREDICT = f"predict {MODEL} --site {A} --steps 5 --out f.csv"
EXPORT = f"export {MODEL} --onnx m.onnx"

CASES = {
    # tables
    "semicolons": Case((SWING, "';'", "commas"), put(SWING, SOUND.replace(",", ";"))),
    "tabs": Case((SWING, "commas"), put(SWING, SOUND.replace(",", "\t"))),
    "spaces": Case((SWING, "'time angle_deg'", "commas"), put(SWING, SOUND.replace(",", " "))),
    "no-header": Case((SWING, "names the columns"), line(SWING, 1, "0.0,1.0")),
    "other-header": Case((SWING, "'angle_deg'"), line(SWING, 1, "time,angle")),
    "header-twice": Case((SWING, "'time'"), line(SWING, 1, "time,time")),
    "blank-header": Case((SWING, "first line"), line(SWING, 1, "")),
    "text-cell": Case((SWING, "line 5", "'high'", "angle_deg"), line(SWING, 5, "0.08,high")),
    "decimal-comma": Case((SWING, "line 2", "3 cells"), line(SWING, 2, "0.02,1,5")),
    "units-in-cell": Case((SWING, "'12 deg'"), line(SWING, 9, "0.16,12 deg")),
    "too-few-cells": Case((SWING, "line 7", "1 cells"), line(SWING, 7, "0.12")),
    "too-many-cells": Case((SWING, "line 7", "3 cells"), line(SWING, 7, "0.12,1,2")),
    "mixed-files": Case(("swing-03.csv",), put("lab-a/data/swing-03.csv", "time,up\n0.02,1\n")),
    "empty-file": Case((SWING, "empty"), put(SWING, "")),
    "zero-rows": Case((SWING, "no rows"), put(SWING, "time,angle_deg\n")),
    "nothing-observed": Case(
        (SWING, "missing"), put(SWING, "time,angle_deg\n" + "".join(f"{t},\n" for t in TIMES))
    ),
    "huge": Case((SWING, "1e+300", "angle_deg"), line(SWING, 5, "0.08,1e300")),
    "infinite": Case((SWING, "inf", "angle_deg"), line(SWING, 5, "0.08,inf")),
    "overflow": Case((SWING, "inf", "angle_deg"), line(SWING, 5, "0.08,1e999")),
    "not-utf-8": Case((SWING, "UTF-8"), put(SWING, "time,angle_°\n0.02,1\n".encode("latin-1"))),
    "binary": Case((SWING, "UTF-8"), put(SWING, bytes(range(256)) * 8)),
    "suffix": Case(
        ("'.xlsx'", ".parquet"),
        all_of(put("lab-a/data/x.xlsx", "x"), swap(A, "data/*.csv", "data/x.xlsx")),
    ),
    # segments and instants
    "segment-comes-back": Case(
        (SPIN, "'swing-01'", "comes back"), line(SPIN, 3001, "swing-01,6.02,1")
    ),
    "blank-segment": Case((SPIN, "blank", "'swing'"), line(SPIN, 20, ",0.38,1")),
    "same-instant": Case((SWING, "0.08", "row before"), line(SWING, 6, "0.08,1")),
    "back-in-time": Case((SWING, "0.02", "goes back"), line(SWING, 6, "0.02,1")),
    "off-grid": Case((SWING, "off the grid", "resample"), line(SWING, 6, "0.109,1")),
    "no-instant": Case((SWING, "nan", "instant"), line(SWING, 6, ",1")),
    "dates": Case((SWING, "'2024-01-01'"), line(SWING, 2, "2024-01-01,1")),
    "wrong-dt": Case(("0.02", "0.03", "parameters.dt"), swap("study.toml", "dt = 0.02", "dt=0.03")),
    "milliseconds": Case((SWING, "20 apart", "unit of the time"), put(SWING, MILLISECONDS)),
    # other formats
    "npy-objects": Case(("all.npy", "Python objects"), stored("npy", OBJECTS, named=False)),
    "npy-truncated": Case(("all.npy", "not whole"), stored("npy", NPY[:-8], named=False)),
    "npy-text": Case(
        ("all.npy", "not numbers"),
        stored("npy", arrays(np.save, np.array(["a", "b"])), named=False),
    ),
    "npy-axes": Case(
        ("all.npy", "(2, 2, 2, 2)"),
        stored("npy", arrays(np.save, np.zeros((2, 2, 2, 2))), named=False),
    ),
    "npy-complex": Case(
        ("all.npy", "complex"), stored("npy", arrays(np.save, np.ones(60) * 1j), named=False)
    ),
    "npy-columns": Case(("all.npy", "data.columns"), stored("npy", NPY)),
    "npz-truncated": Case(("all.npz", "not whole"), stored("npz", NPZ[: len(NPZ) // 2])),
    "npz-lengths": Case(
        ("all.npz", "60", "59"),
        stored("npz", arrays(np.savez, angle_deg=ANGLES, time=np.arange(59) * 0.02)),
    ),
    "mat-truncated": Case(("all.mat", "not whole"), stored("mat", MAT[:-200])),
    "mat-7.3": Case(
        ("all.mat", "7.3", "write it again"), stored("mat", b"MATLAB 7.3 MAT-file" + bytes(600))
    ),
    "mat-variable": Case(
        ("all.mat", "'angle_deg'"), stored("mat", arrays(savemat, {"angle": ANGLES}))
    ),
    "parquet-damaged": Case(
        ("all.parquet", "write the file again"), stored("parquet", PARQUET[:100] + PARQUET[200:])
    ),
    "parquet-truncated": Case(
        ("all.parquet", "write the file again"), stored("parquet", PARQUET[:-50])
    ),
    "parquet-text": Case(("all.parquet", "string", "not numbers"), stored("parquet", WORDS)),
    # where the data is
    "no-match": Case((A, "'dta/*.csv'", "matches no file"), swap(A, "data/*.csv", "dta/*.csv")),
    "directory": Case(("lab-a/data", "directory"), swap(A, "data/*.csv", "data")),
    "dangling-link": Case(
        ("no file", SWING), all_of(gone(SWING), lambda: Path(SWING).symlink_to("nowhere.csv"))
    ),
    "unreadable": Case((SWING, "Permission denied"), lambda: Path(SWING).chmod(0)),
    "unreadable-site-file": Case((A, "Permission denied"), lambda: Path(A).chmod(0)),
    "name-too-long": Case(("cannot read", "too long"), swap("study.toml", B, f"{'b' * 300}.toml")),
    "sensor-name-too-long": Case(
        (C, "cannot read", "too long"), swap(C, "sensor.py:", f"{'s' * 300}.py:")
    ),
    "no-site-file": Case((B, "does not exist"), gone(B)),
    "site-file-directory": Case((B, "directory"), all_of(gone(B), lambda: Path(B).mkdir())),
    "no-study": Case(("study.toml", "does not exist"), gone("study.toml")),
    "no-data-section": Case((A, "data.files"), swap(A, 'files = "data/*.csv"\n', "")),
    # site files
    "site-key": Case((A, "'data.colums'", "'data.columns'"), swap(A, "columns", "colums")),
    "site-section": Case((A, "'senser'", "'sensor'"), swap(A, "[sensor]", "[senser]")),
    "site-type": Case((A, "data.time", "5"), swap(A, 'time = "time"', "time = 5")),
    "site-toml": Case((A, "TOML", "line 2"), swap(A, 'name = "lab-a"', "name = lab-a")),
    "site-latin-1": Case((A, "UTF-8"), put(A, 'name = "lab-é"\n'.encode("latin-1"))),
    "site-no-name": Case((A, "name is missing"), swap(A, 'name = "lab-a"\n', "")),
    "site-name-slash": Case((A, "'lab/a'"), swap(A, '"lab-a"', '"lab/a"')),
    "site-name-twice": Case((A, B, "'lab-a'"), swap(B, '"lab-b"', '"lab-a"')),
    "unknown-time": Case((SWING[:10], "'clock'"), swap(A, 'time = "time"', 'time = "clock"')),
    "unknown-segment": Case(("'trial'", "swing"), swap(B, '"swing"', '"trial"')),
    "column-twice": Case((A, "'time'"), swap(A, '["angle_deg"]', '["time"]')),
    "scale-length": Case((A, "data.scale", "2"), swap(A, "[0.017453292519943295]", "[1, 1]")),
    "scale-zero": Case((A, "data.scale"), swap(A, "[0.017453292519943295]", "0.0")),
    "held-out-unknown": Case(
        (A, "'swing-11'", "swing-10"), swap(A, "held_out = 0.2", 'held_out = ["swing-11"]')
    ),
    "held-out-all": Case(
        (B, "all 10"),
        swap(B, "held_out = 0.2", f"held_out = {[f'swing-{i:02}' for i in range(1, 11)]}"),
    ),
    "held-out-share": Case(
        (A, "data.held_out", "1.5"), swap(A, "held_out = 0.2", "held_out = 1.5")
    ),
    "inputs-unknown": Case((A, "inputs", "0"), swap(A, "held_out = 0.2", 'inputs = ["push"]')),
    "longest": Case((A, "data.longest"), swap(A, "held_out = 0.2", "longest = 1")),
    # what is known of sensor and noise
    "sensor-rows": Case(
        (A, "matrix has 2 rows", "1 component"), swap(A, "[[1.0, 0.0]]", "[[1.0, 0.0], [0.0, 1.0]]")
    ),
    "sensor-columns": Case((A, "3", "2 states"), swap(A, "[[1.0, 0.0]]", "[[1.0, 0.0, 0.0]]")),
    "sensor-ragged": Case(
        (B, "sensor.matrix", "one length"), swap(B, "[[0.0, 1.0]]", "[[0.0, 1.0], [1.0]]")
    ),
    "sensor-kind": Case((A, "'liner'", "linear"), swap(A, '"linear"', '"liner"')),
    "sensor-angles": Case((A, "angles", "[1]"), swap(A, '"linear"', '"linear"\nangles = [1]')),
    "sensor-file-missing": Case(
        (C, "no file", "sensr.py"), swap(C, "sensor.py:bob", "sensr.py:bob")
    ),
    "sensor-function-missing": Case((C, "'bib'"), swap(C, "sensor.py:bob", "sensor.py:bib")),
    "sensor-raises": Case((C, "ZeroDivisionError"), sensor("return 1 / 0 * x")),
    "sensor-shape": Case((C, "(3,)", "2"), sensor("return jnp.ones(3) * x[0]")),
    "sensor-import": Case(
        (C, "ModuleNotFoundError"), put("lab-c/sensor.py", "import optics_xyz\n")
    ),
    "noise-negative": Case((A, "noise.observation"), swap(A, "= 0.0012", "= -0.0012")),
    "noise-asymmetric": Case(
        (C, "noise.observation", "symmetric"),
        swap(C, "= 0.0004", "= { matrix = [[1, 0], [0.5, 1]] }"),
    ),
    "noise-indefinite": Case(
        (C, "noise.observation", "eigenvalue"),
        swap(C, "= 0.0004", "= { matrix = [[1, 2], [2, 1]] }"),
    ),
    "noise-size": Case(
        (A, "noise.observation", "2"), swap(A, "= 0.0012", "= { diagonal = [1, 1] }")
    ),
    "process-size": Case(
        (A, "noise.process", "3"), swap(A, 'process = "auto"', "process = [1, 1, 1]")
    ),
    "noise-word": Case(
        (B, "noise.observation", "'automatic'"),
        swap(B, 'observation = "auto"', 'observation = "automatic"'),
    ),
    "initial-mean": Case((A, "initial.mean", "3"), swap(A, 'mean = "auto"', "mean = [1, 0, 0]")),
    "initial-cov": Case((A, "initial.cov"), swap(A, 'cov = "auto"', "cov = [0.4]")),
    "bounds-unknown": Case((A, "'thata'", "'theta'"), swap(A, "theta = [", "thata = [")),
    "bounds-order": Case((A, "bounds.theta"), swap(A, "[-7.0, 7.0]", "[7.0, -7.0]")),
    # the study
    "study-key": Case(("'sits'", "'sites'"), swap("study.toml", "[sites]", "[sits]")),
    "study-type": Case(("seed", "'many'"), swap("study.toml", "seed = 0", 'seed = "many"')),
    "study-toml": Case(("study.toml", "TOML"), swap("study.toml", "[sites]", "[sites")),
    "count": Case(("clients.count", "3"), swap("study.toml", "count = 3", "count = 2")),
    "sites-twice": Case(("sites.files",), swap("study.toml", B, A)),
    "perfect-data": Case(
        ("perfect-data",), swap("study.toml", "seed = 0", 'scheme="perfect-data"')
    ),
    "observations": Case(
        ("observations", "simulated"), swap("study.toml", "seed = 0", 'scheme="observations"')
    ),
    "recordings-too": Case(
        ("recordings",),
        swap("study.toml", "[clients]", '[recordings]\ntrain=["x.npy"]\ntest=["x.npy"]\n[clients]'),
    ),
    "no-states": Case(("system.states",), swap("study.toml", 'states = ["theta", "omega"]\n', "")),
    "no-dt": Case(
        ("system.parameters has no dt",), swap("study.toml", "dt = 0.02", "length = 1.0")
    ),
    "unknown-parameter": Case(
        ("system.parameters", "'mass'", "length"),
        swap("study.toml", "dt = 0.02", "dt = 0.02, mass = 1"),
    ),
    "unknown-unknown": Case(
        ("system.unknown", "'lenght'", "'length'"),
        swap("study.toml", "# unknown = { length", "unknown = { lenght"),
    ),
    "dynamics-missing": Case(("dynamics.py", "no file"), gone("dynamics.py")),
    "dynamics-function": Case(("'pendulm'",), swap("study.toml", "py:pendulum", "py:pendulm")),
    "dynamics-syntax": Case(("dynamics.py", "SyntaxError"), put("dynamics.py", "def f(x:\n")),
    "dynamics-import": Case(
        ("dynamics.py", "ValueError"), put("dynamics.py", "raise ValueError(1)")
    ),
    "dynamics-exits": Case(
        ("dynamics.py", "SystemExit"), put("dynamics.py", "raise SystemExit(0)")
    ),
    "dynamics-raises": Case(("dynamics.py", "KeyError"), dynamics("return {}['x']")),
    "dynamics-shape": Case(("dynamics.py", "(3,)", "2"), dynamics("return jnp.ones(3) * x[0]")),
    "dynamics-none": Case(("dynamics.py", "NoneType", "jnp.stack"), dynamics("pass")),
    "dynamics-numpy": Case(
        ("dynamics.py", "jax.numpy"), dynamics("import math; return x * math.sin(x[0])")
    ),
    "dynamics-nan": Case(
        ("lab-a", "diverged", "check the system"), dynamics("return x * jnp.nan"), code=1
    ),
    "dynamics-states": Case(
        ("dynamics.py", "(3,)"),
        swap("study.toml", '["theta", "omega"]', '["theta", "omega", "phi"]'),
    ),
    "inputs-missing": Case(
        ("dynamics.py", "data.inputs"), put("dynamics.py", "def pendulum(x, u):\n    return x\n")
    ),
    "inputs-differ": Case(
        ("[0, 1] inputs",),
        all_of(
            put("dynamics.py", "def pendulum(x, u):\n    return x\n"),
            swap(B, 'segment = "swing"', 'segment = "swing"\ninputs = ["push"]'),
        ),
    ),
    "dynamics-builtin": Case(("dynamics.py", "arguments"), put("dynamics.py", "pendulum = max\n")),
    "noise-in-the-study": Case(
        ("clients.observation_noise", "site files"),
        swap("study.toml", "count = 3", "count = 3\nobservation_noise = 0.5"),
    ),
    "initial-in-the-study": Case(
        ("estimation.initial_mean", "site files"),
        swap("study.toml", "[estimation]", "[estimation]\ninitial_mean = 1.0"),
    ),
    # found when all has been read, or by a run alone
    "one-segment": Case(
        ("no site holds out a segment",),
        all_of(alone, *(gone(f"lab-a/data/swing-{i:02}.csv") for i in range(2, 11))),
    ),
    "too-short": Case(
        (A, "10 segments", "2 samples"),
        all_of(alone, *(put(f"lab-a/data/swing-{i:02}.csv", SHORT) for i in range(1, 11))),
    ),
    "auto-too-short": Case(
        (A, "noise.observation", "three samples"),
        all_of(
            alone,
            swap(A, "observation = 0.0012", 'observation = "auto"'),
            *(
                put(f"lab-a/data/swing-{i:02}.csv", SHORT + "0.04,2\n")
                for i in (1, 2, 3, 4, 6, 7, 8, 9)
            ),
        ),
    ),
    "held-out-too-short": Case(
        ("no site holds out", "6 samples", "evaluation.horizon"),
        all_of(alone, *(put(f"lab-a/data/swing-{i:02}.csv", BRIEF) for i in (5, 10))),
    ),
    "bounds-drop-all": Case(
        ("lab-a", "theta is", "[100, 101]", "7 more", A),
        all_of(alone, swap(A, "[-7.0, 7.0]", "[100.0, 101.0]")),
        RUN,
        code=1,
    ),
    "run-text-cell": Case((SWING, "'high'"), line(SWING, 5, "0.08,high"), RUN),
    "run-dynamics": Case(("dynamics.py", "KeyError"), dynamics("return {}['x']"), RUN),
    "run-no-match": Case((A, "matches no file"), swap(A, "data/*.csv", "dta/*.csv"), RUN),
    "run-out-is-data": Case((SWING, "is a file"), sound, RUN.replace("runs/x", SWING)),
    "run-resume-nothing": Case(("runs/x", "no run"), sound, "run --resume --out runs/x"),
    # models
    "no-model": Case(("no model file", "model.safetensors"), gone(MODEL), INSPECT),
    "model-empty": Case((MODEL, "not a safetensors file"), put(MODEL, b""), INSPECT),
    "model-truncated": Case((MODEL, "cut short"), cut(-100), INSPECT),
    "model-no-header": Case((MODEL,), cut(5), INSPECT),
    "model-half-a-header": Case((MODEL,), cut(60), PREDICT),
    "model-longer": Case((MODEL,), flipped(lambda raw: raw + b"more"), EXPORT),
    "model-tampered": Case(
        (MODEL, "changed since"), flipped(lambda raw: raw[:-1] + b"\x77"), PREDICT
    ),
    "model-newer": Case(
        (MODEL, "version 9", "update fedkoopman"),
        flipped(lambda raw: raw.replace(rb"\"version\": 2", rb"\"version\": 9")),
        EXPORT,
    ),
    "model-is-a-table": Case((SWING, "not a safetensors file"), sound, f"inspect {SWING}"),
    "model-is-a-checkpoint": Case(
        (MODEL,), put(MODEL, arrays(lambda f: f.write(tensors({"K": np.eye(3)})))), INSPECT
    ),
    "model-is-a-directory": Case(
        (MODEL,), all_of(gone(MODEL), lambda: Path(MODEL).mkdir()), INSPECT
    ),
    "predict-columns": Case(
        ("swing-03.csv", "'theta'", "angle_deg"),
        sound,
        f"predict {MODEL} {SWING} --steps 5 --out f.csv",
    ),
    "predict-one-column": Case(
        ("z.csv", "omega"),
        put("z.csv", "theta\n1\n2\n"),
        f"predict {MODEL} z.csv --steps 5 --out f.csv",
    ),
    "predict-no-site": Case((B, "does not exist"), gone(B), PREDICT.replace("-a", "-b")),
    "predict-text-cell": Case((SWING, "'high'"), line(SWING, 5, "0.08,high"), PREDICT),
    "predict-no-match": Case((A, "matches no file"), swap(A, "data/*.csv", "x/*.csv"), PREDICT),
    "predict-sensor": Case(
        (A, "3", "2 states"), swap(A, "[[1.0, 0.0]]", "[[1.0, 0.0, 0.0]]"), PREDICT
    ),
    "predict-bounds": Case((A, "'thata'"), swap(A, "theta = [", "thata = ["), PREDICT),
    "predict-dt": Case(
        (SWING.replace("03", "01"), "0.02"),
        all_of(*(partial(other_times, f"lab-a/data/swing-{i:02}.csv") for i in range(1, 11))),
        PREDICT,
    ),
    "predict-both": Case(("DATA", "--site"), sound, PREDICT.replace(" --site", f" {SWING} --site")),
    "predict-plot": Case(("'.bmp'", ".png"), sound, f"{PREDICT} --plot f.bmp"),
    "export-suffix": Case(("'.txt'", ".onnx"), sound, EXPORT.replace("m.onnx", "m.txt")),
    "not-a-system": Case(("dict",), put("dynamics.py", "pendulum = {}\n")),
}


@pytest.fixture(scope="module")
def scaffold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scaffold") / "swings"
    assert main(("init", str(folder), "--example", "pendulum")) == 0
    system = fk.systems.Pendulum(dt=0.02)
    fitted = DeepKoopman(4, dt=system.dt, epochs=1, kind="paper").fit(
        fk.simulate(system, steps=30, batch=2)
    )
    DeepKoopman.from_weights(
        fitted.architecture_,
        fitted.weights_,
        dt=system.dt,
        reference=fitted.reference_,
        names=system.names,
        units=system.units,
        noise=fitted.noise_,
    ).save(folder / MODEL)
    return folder


@pytest.fixture
def swings(scaffold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The scaffold's own copy, which is the working directory."""
    folder = tmp_path / "swings"
    shutil.copytree(scaffold, folder)
    monkeypatch.chdir(folder)
    return folder


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        if path.is_file() and os.access(path, os.R_OK)
        else None
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_line_and_nothing_written(
    swings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)  # a user's own code may not leave any
    case.broken()
    if "Permission denied" in case.says and os.access(SWING, os.R_OK) and os.access(A, os.R_OK):
        pytest.skip("nothing is unreadable for this user")
    before = contents(swings)
    capsys.readouterr()

    code = main(case.command.split())

    out, err = capsys.readouterr()
    assert err.startswith("error: ") and err.count("\n") == 1 and err.endswith("\n")
    for words in case.says:
        assert words in err
    assert (code, out) == (case.code, "")
    assert contents(swings) == before


class Noticed(NamedTuple):
    """What is odd though it can be computed with, and what `check` says of it."""

    says: tuple[str, ...]
    odd: Break


def constant() -> None:
    for path in sorted(Path("lab-a/data").glob("*.csv")):
        head, *rows = path.read_text(encoding="utf-8").splitlines()
        rows = [f"{row.partition(',')[0]},5.0" for row in rows]
        path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")


def in_hdf5() -> None:
    """The same swings, each in a group of an HDF5 file, with its own instants."""
    for path in sorted(Path("lab-a/data").glob("*.csv")):
        time, angle = np.genfromtxt(path, delimiter=",", skip_header=1).T
        write_hdf5(path.with_suffix(".h5"), {"time": time, "swing/angle_deg": angle})
    swap(A, "data/*.csv", "data/*.h5")()
    swap(A, '["angle_deg"]', '["swing/angle_deg"]')()


NOTICED = {
    "sound": Noticed(("10 segments (2 held out)", "verdict: consistent"), sound),
    "hdf5": Noticed(("10 segments (2 held out)", "verdict: consistent"), in_hdf5),
    "constant": Noticed(("angle_deg is 0.0872665 throughout: check the sensor",), constant),
    "degrees": Noticed(
        ("the model does not explain the data", "units", "8 of 8 segments", "data.scale"),
        swap(A, "[0.017453292519943295]", "1.0"),
    ),
    "noise-too-small": Noticed(
        ("observation noise looks 4× too small: try 0.0012",), swap(A, "= 0.0012", "= 0.0003")
    ),
    "bounds": Noticed(
        ("theta is estimated outside of [100, 101] in 8 of 8 segments", "widen bounds.theta"),
        swap(A, "[-7.0, 7.0]", "[100.0, 101.0]"),
    ),
    "short-segment": Noticed(
        ("drops 1 of 10 segments, such as swing-03: 1 samples, fewer than the 2",),
        put(SWING, SHORT),
    ),
}
LONG = {"constant", "short-segment", "hdf5", "sound"}
"""Their filters are compiled for no other test, or another test has the same data or format."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=pytest.mark.slow if name in LONG else ())
        for name, case in NOTICED.items()
    ],
)
def test_check_says_what_is_odd(
    swings: Path, capsys: pytest.CaptureFixture[str], case: Noticed
) -> None:
    alone()
    case.odd()
    before = contents(swings)

    code = main(["check", "study.toml", "--no-progress"])

    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    for words in case.says:
        assert words in out
    assert out.splitlines()[-1] == "next: fedkoopman run study.toml --out runs/pendulum"
    assert contents(swings) == before


def test_no_bit_of_a_model_may_be_another(swings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, rng = Path(MODEL).read_bytes(), np.random.default_rng(0)
    for place in rng.integers(0, 8 * len(whole), 100):
        raw = bytearray(whole)
        raw[place // 8] ^= 1 << (place % 8)
        Path(MODEL).write_bytes(raw)
        capsys.readouterr()
        code = main(["inspect", MODEL])
        out, err = capsys.readouterr()
        assert (code, out) == (2, ""), f"bit {place}: {out}{err}"
        assert err.startswith("error: ") and err.count("\n") == 1 and MODEL in err
