"""How our models do on data that others measured, beside the libraries of others.

    .venv-bench/bin/python benchmarks/measured.py --data DIR [--only ships,silverbox]

DIR holds kvlcc2/, silverbox/ and double_pendulum/ (or FEDKOOPMAN_MEASURED names it); the repository
carries none of the data. Every part is a protocol with data, models and scores of its own. Parts
that are not run keep their results in benchmarks/results/measured.json, from which the page
measured.md is written.
"""

import argparse
import importlib
import json
import os
import time
from pathlib import Path

from accuracy import THREADS, machine
from accuracy_page import Options
from measured_page import check, page, section

RESULTS = Path(__file__).parent / "results"
PARTS = {
    "ships": ("KVLCC2: one ship model, two laboratories", "ships.part"),
    "silverbox": ("Silverbox: an electronic oscillator with a cubic spring", "silverbox.part"),
    "double-pendulum": ("The measured double pendulum in free motion", "pendulum.part"),
}
"""Title, and the function in the module measured_<…> that makes it: `part(options) -> dict` with
`intro`, `tables` and `verdicts` (see measured_page.py)."""
DATA = "FEDKOOPMAN_MEASURED"
PEERS = ("PyDMD", "pykoop", "jax-sysid", "sysidentpy", "jax", "numpy", "scipy")


def part_of(place: str):
    """The function behind a part; modules are loaded when they are needed."""
    module, name = place.split(".")
    return getattr(importlib.import_module(f"measured_{module}"), name)


def main() -> None:
    """Run the parts that are asked for and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help=f"parts to run, separated by commas: {', '.join(PARTS)}")
    parser.add_argument("--data", type=Path, help=f"folder of the data; else {DATA} names it")
    parser.add_argument(
        "--quick", action="store_true", help="without the slowest rows; writes nothing"
    )
    given = parser.parse_args()
    chosen = given.only.split(",") if given.only else list(PARTS)
    for name in chosen:
        if name not in PARTS:
            parser.error(f"--only has {name!r}: give some of {', '.join(PARTS)}")
    data = given.data or (Path(os.environ[DATA]) if os.environ.get(DATA) else None)
    if data is None or not data.is_dir():
        parser.error(f"the data are needed, and {data} is no folder: give --data, or set {DATA}")
    for variable in THREADS:  # before NumPy is loaded: seconds are those of one core's work
        os.environ.setdefault(variable, "1")
    file = RESULTS / "measured.json"
    for name in chosen:
        title, place = PARTS[name]
        print(title, flush=True)
        began = time.perf_counter()
        part = check(name, part_of(place)(Options(data=data, quick=given.quick)))
        part["seconds"] = time.perf_counter() - began
        part["command"] = f"python benchmarks/measured.py --data DIR --only {name}"
        part["machine"] = machine(PEERS)
        print("\n".join(section(title, part)), flush=True)
        if not given.quick:
            # After every part, beside what other calls left meanwhile: a failure loses nothing.
            kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
            kept[name] = part
            RESULTS.mkdir(exist_ok=True)
            file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            titles = {each: title for each, (title, _) in PARTS.items()}
            (RESULTS / "measured.md").write_text(page(titles, kept), encoding="utf-8")
            print(f"\nreport: {RESULTS / 'measured.md'}", flush=True)


if __name__ == "__main__":
    main()
