"""A site's CSV of ten million rows: read, surveyed and estimated; rows per second and peak memory.

    make bench        (or: .venv-bench/bin/python benchmarks/own_data.py [--rows N])

The file (segments of 10,000 rows, a time column, one noisy angle of a pendulum, two cells in a
hundred blank) is made in a temporary directory. Every number is measured in a process of its own,
at a tenth of the rows and at all: memory that is bounded does not grow. The peer, pandas, reads the
same file as a whole in the same call. Writes benchmarks/results/own_data.{md,json}.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SEGMENT, DT, NOISE, BLANK = 10_000, 0.02, 0.05, 0.02
RESULTS = Path(__file__).parent / "results"
TASKS = {
    "nothing": "the imports, and one segment estimated, so that all is compiled",
    "survey": "`survey`: read, check, count; what `fedkoopman check` does first",
    "estimated": "`segments` and `estimated`: read, filter, smooth; states are not kept",
    "prepared": "`prepared_sites`: all that a run does before training, states on disk",
    "pandas": "pandas.read_csv: the whole file, nothing checked",
    "pandas chunks": "pandas.read_csv, a hundred thousand rows at a time",
}

STUDY = f"""
name = "own-data"
[system]
name = "pendulum"
parameters = {{ dt = {DT} }}
[sites]
files = ["site.toml"]
[clients]
count = 1
[estimation]
method = "ukf-resampled"
"""
SITE = f"""
name = "site"
[data]
files = "rows.csv"
columns = ["angle"]
segment = "swing"
time = "time"
[sensor]
kind = "linear"
matrix = [[1.0, 0.0]]
[noise]
observation = {NOISE**2}
process = {{ diagonal = [1e-8, 1e-6] }}
[initial]
cov = 2.0
"""


def write(folder: Path, rows: int) -> None:
    """The study, its site and the site's file."""
    import numpy as np

    import fedkoopman as fk

    folder.mkdir(exist_ok=True)
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    (folder / "site.toml").write_text(SITE, encoding="utf-8")
    rng = np.random.default_rng(0)
    starts = rng.uniform((-2.0, -1.0), (2.0, 1.0), (8, 2))
    system = fk.systems.Pendulum(dt=DT)
    angles = [fk.simulate(system, steps=SEGMENT, initial=x0)[1:, 0] for x0 in starts]
    times = [f"{(k + 1) * DT:.2f}" for k in range(SEGMENT)]
    with (folder / "rows.csv").open("w", encoding="utf-8") as file:
        file.write("swing,time,angle\n")
        for i in range(rows // SEGMENT):
            z = angles[i % len(angles)] + rng.normal(0, NOISE, SEGMENT)
            cells = np.char.mod("%.4f", z)
            cells[rng.random(SEGMENT) < BLANK] = ""
            file.writelines(f"{i},{t},{c}\n" for t, c in zip(times, cells, strict=True))


def measure(task: str, folder: Path) -> dict:
    """Run one task in this process: seconds, peak memory, and what was seen."""
    calls: list[tuple] = []
    began = time.perf_counter()
    rows, check = RUN[task](folder, lambda *told: calls.append(told))
    seconds = time.perf_counter() - began
    if calls and calls[-1][-2] != calls[-1][-1]:
        sys.exit(f"{task} told no end of its progress: {calls[-1]}")
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "peak": peak, "seen": rows, "check": check, "told": len(calls)}


def _nothing(folder: Path, tell) -> tuple[int, float]:
    from itertools import islice

    return _estimated(folder, tell, lambda stream: islice(stream, 1))


def _survey(folder: Path, tell) -> tuple[int, float]:
    from fedkoopman.config.site_file import SiteFile
    from fedkoopman.survey.survey import survey

    found = survey(SiteFile.load(folder / "site.toml"), DT, tell)
    return found.samples, found.channels[0].mean


def _estimated(folder: Path, tell, some=iter) -> tuple[int, float]:
    from fedkoopman.config.site_file import SiteFile
    from fedkoopman.data.estimator import estimated
    from fedkoopman.data.segments import segments
    from fedkoopman.sensors import LinearSensor
    from fedkoopman.systems import Pendulum

    site = SiteFile.load(folder / "site.toml")
    options = {
        "observation_noise": site.noise.observation,
        "process_noise": list(site.noise.process["diagonal"]),
        "initial_cov": site.initial.cov,
        "method": "ukf-resampled",
    }
    stream = some(segments(site, DT, progress=tell if some is iter else None))
    rows, total = 0, 0.0
    for _, states in estimated(Pendulum(dt=DT), LinearSensor([[1.0, 0.0]]), stream, options):
        assert states.ok
        rows, total = rows + len(states.mean), total + float(states.mean[:, 0].sum())
    return rows, total / rows


def _prepared(folder: Path, tell) -> tuple[int, float]:
    from fedkoopman.config.study import Study
    from fedkoopman.runs.site_preparation import prepared_sites

    [site] = prepared_sites(Study.load(folder / "study.toml"), tell).sites
    # Looked at, states would be in memory: only their number is, and the first segment.
    rows = sum(map(len, site.train)) + sum(len(one.states) for one in site.held_out)
    return rows, float(site.train[0][:, 0].mean())


def _pandas(folder: Path, tell) -> tuple[int, float]:
    import pandas as pd

    table = pd.read_csv(folder / "rows.csv")
    return len(table), float(table["angle"].mean())


def _pandas_chunks(folder: Path, tell) -> tuple[int, float]:
    import pandas as pd

    rows, total, there = 0, 0.0, 0
    for chunk in pd.read_csv(folder / "rows.csv", chunksize=100_000):
        rows += len(chunk)
        total, there = total + float(chunk["angle"].sum()), there + int(chunk["angle"].count())
    return rows, total / there


RUN = {
    "nothing": _nothing,
    "survey": _survey,
    "estimated": _estimated,
    "prepared": _prepared,
    "pandas": _pandas,
    "pandas chunks": _pandas_chunks,
}


def spawn(*words: str) -> str:
    """This program again, in a process of its own: its memory starts from nothing."""
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stderr}")
    return done.stdout


def measured(folder: Path, rows: int) -> list[dict]:
    """All tasks on one file, one after the other."""
    began = time.perf_counter()
    spawn("--write", str(folder), "--rows", str(rows))
    size = (folder / "rows.csv").stat().st_size
    print(f"{rows:,} rows, {size / 1e6:,.0f} MB, made in {time.perf_counter() - began:.0f} s")
    found = []
    for task in TASKS:
        result = json.loads(spawn("--task", task, "--folder", str(folder)).splitlines()[-1])
        result |= {"task": task, "rows": rows, "bytes": size}
        result["rows_per_second"] = result["seen"] / result["seconds"]
        if task != "nothing" and result["seen"] != rows:
            sys.exit(f"{task} saw {result['seen']} rows of {rows}")
        print(
            f"{task:14} {result['seconds']:8.2f} s  {result['rows_per_second']:12,.0f} rows/s  "
            f"peak {result['peak'] / 1e6:6,.0f} MB  told {result['told']} times",
            flush=True,
        )
        found.append(result)
    ours, theirs = (next(r["check"] for r in found if r["task"] == t) for t in ("survey", "pandas"))
    if abs(ours - theirs) > 1e-9:
        sys.exit(f"the mean angle is {ours} to us and {theirs} to pandas")
    return found


def report(few: list[dict], many: list[dict], load: float) -> str:
    """The results as Markdown."""
    rows = many[0]["rows"]
    lines = [
        "# A site's own data: ten million rows"
        if rows == 10_000_000
        else f"# A site's own data: {rows:,} rows",
        "",
        "Made by `python benchmarks/own_data.py"
        + ("" if rows == 10_000_000 else f" --rows {rows}")
        + f"`: a CSV file of {many[0]['bytes'] / 1e6:,.0f} MB, {rows // SEGMENT:,} segments of "
        f"{SEGMENT:,} rows. Seconds and peak memory are those of a process for each line, imports "
        "and compilation included.",
        "",
        f"Machine: {platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}; load {load:.1f} when it began.",
        "",
        f"| | seconds | rows per second | peak MB | peak MB at {few[0]['rows']:,} rows |",
        "|---|---|---|---|---|",
    ]
    for a, b in zip(few, many, strict=True):
        rate = "" if b["task"] == "nothing" else f"{b['rows_per_second']:,.0f}"
        lines.append(
            f"| {TASKS[b['task']]} | {b['seconds']:.1f} | {rate} | {b['peak'] / 1e6:,.0f} | "
            f"{a['peak'] / 1e6:,.0f} |"
        )
    told = {r["task"]: r["told"] for r in many}
    lines += [
        "",
        f"Progress was told {told['survey']:,} times by the survey and {told['prepared']:,} times "
        "by the preparation. The mean of the angle is the same to pandas and to us.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure everything and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000, help="a multiple of 100,000")
    parser.add_argument("--dry", action="store_true", help="write no results")
    for hidden in ("--write", "--task", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write(Path(given.write), given.rows)
        return
    if given.task:
        print(json.dumps(measure(given.task, Path(given.folder))))
        return
    if given.rows < 10 * SEGMENT or given.rows % (10 * SEGMENT):
        parser.error(f"--rows is {given.rows}: give a multiple of {10 * SEGMENT:,}")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        few = measured(Path(folder) / "few", given.rows // 10)
        many = measured(Path(folder) / "many", given.rows)
    text = report(few, many, load)
    print(f"\n{text}")
    if not given.dry:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "own_data.md").write_text(text + "\n", encoding="utf-8")
        (RESULTS / "own_data.json").write_text(json.dumps([*few, *many], indent=1) + "\n")
        print(f"\nreport: {RESULTS / 'own_data.md'}")


if __name__ == "__main__":
    main()
