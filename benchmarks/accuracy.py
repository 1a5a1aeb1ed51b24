"""How accurate our models are, beside the libraries, baselines and figures of others.

    make bench        (or: .venv-bench/bin/python benchmarks/accuracy.py [--only duffing,dysts])

Every part is a protocol with data, models and scores of its own; everything in it runs on the same
data in the same call, except for rows that say *quoted*. Parts that are not run keep their results
in benchmarks/results/accuracy.json, from which the page accuracy.md is written.

Settings are not tuned on these data: `--validation` runs the same protocols on other draws (for
the double pendulum, trial 1 for learning and 2 for scoring), prints, and writes nothing.
"""

import argparse
import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from accuracy_page import Options

RESULTS = Path(__file__).parent / "results"
PARTS = {
    "peers": ("Noise-free Lorenz63, dim 12, beside other libraries", "clean.protocol"),
    "fit-time": ("kooplearn's own benchmark, `fit_time`", "clean.fit_time"),
    "dysts": ("dysts' Lorenz: valid time from 512 samples", "noisy.dysts"),
    "duffing": ("Noisy damped Duffing oscillator, default settings", "noisy.duffing"),
    "pendulum": ("Noisy pendulum, default settings", "noisy.pendulum"),
    "smoothing": ("EDMD on smoothed and on raw noisy states", "noisy.smoothing"),
    "federation": ("The default federation, Lorenz63", "federation.lorenz"),
    "cost": ("What the recommended mode costs", "federation.cost"),
    "dim-8": ("The default federation, Van der Pol and pendulum, dim 8", "federation.dim_8"),
    "double-pendulum": (
        "The measured double pendulum after its release",
        "measured.double_pendulum",
    ),
}
"""Title, and the function in the module accuracy_<…> that makes it."""
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
DATA = "FEDKOOPMAN_DOUBLE_PENDULUM"
PEERS = ("kooplearn", "pykoop", "PyDMD", "jax", "numpy", "scipy")


def machine(peers: Sequence[str] = PEERS) -> str:
    """Where and with what this ran."""
    import fedkoopman

    found = [f"fedkoopman {fedkoopman.__version__}"]
    for name in peers:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} not installed")
    return (
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}; {', '.join(found)}"
    )


def part_of(place: str):
    """The function behind a part; modules are loaded when they are needed."""
    module, name = place.split(".")
    return getattr(importlib.import_module(f"accuracy_{module}"), name)


def page(kept: dict[str, dict]) -> str:
    """All parts that were ever run, in their order."""
    lines = [
        "# Accuracy",
        "",
        "Made by `benchmarks/accuracy.py` (`make bench`); each part says which command ran it. "
        "Rows in bold are ours. Everything in a table ran in the same call on the same data, "
        "except for rows that say *quoted*.",
        "",
        "Settings of ours and of the peers were chosen on other draws (`--validation`: other "
        "seeds; for the double pendulum trial 1 for learning and 2 for choosing), never on the "
        "data of these tables.",
    ]
    for name, (title, _) in PARTS.items():
        if name in kept:
            part = kept[name]
            lines += ["", f"## {title}", "", f"`{part['command']}`, {part['seconds']:.0f} s."]
            lines += [*part["lines"], "", f"Machine: {part['machine']}."]
    missing = [name for name in PARTS if name not in kept]
    if missing:
        lines += ["", f"Not run yet: {', '.join(missing)}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the parts that are asked for and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help=f"parts to run, separated by commas: {', '.join(PARTS)}")
    parser.add_argument("--validation", action="store_true", help="other draws; writes nothing")
    parser.add_argument(
        "--quick", action="store_true", help="without the slowest rows; writes nothing"
    )
    parser.add_argument("--data", type=Path, help="folder of the measured double pendulum")
    given = parser.parse_args()
    chosen = given.only.split(",") if given.only else list(PARTS)
    for name in chosen:
        if name not in PARTS:
            parser.error(f"--only has {name!r}: give some of {', '.join(PARTS)}")
    if not given.only and given.data is None and DATA not in os.environ:
        print("without --data the double pendulum is left out", file=sys.stderr)
        chosen.remove("double-pendulum")
    data = given.data or (Path(os.environ[DATA]) if DATA in os.environ else None)
    options = Options(validation=given.validation, data=data, quick=given.quick)
    for variable in THREADS:  # before NumPy is loaded: CPU seconds are those of one core's work
        os.environ.setdefault(variable, "1")
    file = RESULTS / "accuracy.json"
    for name in chosen:
        title, place = PARTS[name]
        print(f"{title}{', validation draw' if given.validation else ''}", flush=True)
        began = time.perf_counter()
        section = asdict(part_of(place)(options))
        section["seconds"] = time.perf_counter() - began
        section["command"] = f"python benchmarks/accuracy.py --only {name}"
        section["machine"] = machine()
        print("\n".join(section["lines"]), flush=True)
        if not (given.validation or given.quick):
            # After every part, beside what other calls left meanwhile: a failure loses nothing.
            kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
            kept[name] = section
            RESULTS.mkdir(exist_ok=True)
            file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            (RESULTS / "accuracy.md").write_text(page(kept), encoding="utf-8")
            print(f"\nreport: {RESULTS / 'accuracy.md'}", flush=True)


if __name__ == "__main__":
    main()
