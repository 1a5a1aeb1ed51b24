"""Silverbox's multisines at five sites that know no equations: files, a study, and its run."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from measured_circuit import DEGREE, DELAYS, DT, MARGIN, Circuit

MULTISINE, EVERY, LENGTH, COUNT = 40_587, 8_692, 8_592, 10
"""First row of the first realisation, rows from one to the next, its own rows, how many."""
SITES = 5
PIECES = 8
"""Segments into which a site cuts a realisation, so that some can be held out."""
STUDY = """name = "silverbox"
slots = {slots}
seed = 0
[system]
name = "random-walk"
parameters = {{ states = ["voltage"], order = {order}, dt = {dt!r} }}
[clients]
count = {sites}
probability = 1.0
[sites]
files = [{files}]
repeat = false
[estimation]
method = "ekf"
kappa = 0
[network]
kind = "{kind}"
window = {window}
degree = {degree}
ridge = 1e-9
margin = {margin}
inputs = ["drive"]
[policy]
segments = 1
"""
SITE = """name = "{name}"
[data]
files = ["data.csv"]
columns = ["voltage"]
inputs = ["drive"]
[sensor]
kind = "linear"
matrix = {matrix}
[noise]
observation = {observation}
process = {process}
"""
FREE = {"observation": "1e-8", "process": "1.0"}
"""Filter-free: the filter hands the observations on, whose noise is far below the signal."""


def realisations(circuit: Circuit) -> Iterator[tuple[int, range]]:
    """Those multisines, or parts of them, that are rows to learn from, by number."""
    low, high = circuit.train
    for k in range(COUNT):
        first = MULTISINE + k * EVERY
        rows = range(max(first, low), min(first + LENGTH, high))
        if len(rows):
            yield k, rows


def write_sites(
    folder: Path,
    circuit: Circuit,
    kind: str = "edmd",
    order: int = 0,
    noise: Mapping[str, str] = FREE,
) -> Path:
    """A study and five sites' files; the realisations are dealt in turn."""
    names = [f"lab-{letter}" for letter in "abcde"[:SITES]]
    rows: dict[str, list[str]] = {name: ["segment,voltage,drive"] for name in names}
    for k, every in realisations(circuit):
        for j, piece in enumerate(np.array_split(np.array(every), PIECES)):
            rows[names[k % SITES]] += [
                f"{k}-{j},{float(circuit.y[t])!r},{float(circuit.u[t])!r}" for t in piece
            ]
    matrix = [[1.0, *[0.0] * order]]
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "data.csv").write_text("\n".join(rows[name]) + "\n")
        site = SITE.format(name=name, matrix=matrix, **noise)
        (folder / name / "site.toml").write_text(site)
    study = STUDY.format(
        slots=2 * PIECES,
        order=order,
        dt=DT,
        sites=SITES,
        files=", ".join(f'"{name}/site.toml"' for name in names),
        kind=kind,
        window=DELAYS + 1,
        degree=DEGREE,
        margin=MARGIN,
    )
    (folder / "study.toml").write_text(study)
    return folder / "study.toml"


def federated(circuit: Circuit, **how) -> tuple[object, float]:
    """The model of a federation, and wall seconds of the run."""
    import fedkoopman as fk

    with TemporaryDirectory() as folder:
        study = fk.Study.load(write_sites(Path(folder) / "study", circuit, **how))
        began = time.perf_counter()
        return fk.run(study).model, time.perf_counter() - began
