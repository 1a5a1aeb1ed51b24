"""What secure aggregation costs: processor time and bytes per slot, with it and without.

    python benchmarks/secure.py [--sites 3,10] [--slots 12] [--json FILE]

needs `pip install 'fedkoopman[deploy]'`. Real agents and a real coordinator run in one process,
without a network: the pendulum example's laboratories, copied where more are asked for, each of
which trains and is evaluated in every slot. Processor time is that of the whole process, all sites
and the server together; bytes are those of all requests and replies. The first slots, in which
functions are compiled, are left out, and so is the end of a run.

A second table is the protocol alone, on vectors of two sizes: what a site and what the server
computes in a slot, and what the server computes where a third of the sites drop out before they
have sent their vectors. Writes benchmarks/results/secure.{md,json}.
"""

import argparse
import itertools
import json
import platform
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).parent.parent / "tests"
RESULTS = Path(__file__).parent / "results"
WARM = 3
"""Slots that are left out."""
LABS = ("lab-a", "lab-b", "lab-c")
SIZES = (10_000, 1_000_000)


def laboratories(folder: Path, count: int) -> tuple[str, ...]:
    """Folders of so many sites; those beyond the third have the data of the first three."""
    names = [*LABS, *(f"lab-{n}" for n in range(len(LABS), count))][:count]
    for place, name in enumerate(names[len(LABS) :]):
        like = LABS[place % len(LABS)]
        shutil.copytree(folder / like, folder / name)
        file = folder / name / "site.toml"
        file.write_text(file.read_text().replace(f'"{like}"', f'"{name}"'))
    return tuple(names)


def served(folder: Path, count: int, slots: int, secure: bool) -> dict[str, float]:
    """Medians per slot of a served run."""
    sys.path.insert(0, str(TESTS))
    from unit.deploy.in_memory import Sites, small_study

    study = small_study(folder / "study")
    names = laboratories(folder / "study", count)
    values = {
        "slots": slots,
        "clients.probability": 1.0,
        "clients.count": count,
        "sites.files": [f"{name}/site.toml" for name in names],
        "aggregation.secure": secure,
        "network.components": 12,
        "network.width": 50,
        "training.epochs": 5,
    }
    study = small_study(folder / "study", values)
    carried, marks = [0], list[tuple[float, int]]()

    class Counting(Sites):
        """Counts what is carried."""

        def _answer(self, site: str, body: bytes) -> Any:
            found = super()._answer(site, body)
            carried[0] += len(body) + (len(found) if isinstance(found, bytes) else 0)
            return found

    sites = Counting(study, folder / "sites", names)
    sites.serve(folder / "out", tell=lambda _: marks.append((time.process_time(), carried[0])))
    sites.close()
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(marks)][WARM:]
    return {
        "processor_seconds": statistics.median(step[0] for step in steps),
        "bytes": statistics.median(step[1] for step in steps),
    }


def protocol(count: int, size: int) -> dict[str, float]:
    """Processor seconds of one site, of the server, and of the server where a third drop out."""
    from fedkoopman.deploy.secure import server_session, site_session

    random = np.random.default_rng(0)
    vector = random.integers(0, 2**64, size, np.uint64)
    found = {}
    for name, lost in (("server", 0), ("server_dropouts", count // 3)):
        server = server_session.begin([str(n) for n in range(count)])
        began = time.process_time()
        sites = {p: site_session.begin(server.name, p) for p in server.asked}
        server, _ = server.with_keys({p: one.public for p, one in sites.items()})
        given = {}
        for p in sites:
            sites[p], given[p] = sites[p].share(server.keys, server.threshold)
        server, _ = server.with_shares(given)
        left = list(sites)[lost:]
        vectors = {}
        for p in left:
            sites[p], vectors[p] = sites[p].mask(server.shares_for(p), "base", vector)
        server, _ = server.with_vectors(vectors, size)
        shares = {p: sites[p].unmask(left)[1:] for p in left}
        middle = time.process_time()
        total, faults = server.opened(shares)
        found[name] = time.process_time() - middle
        if not lost:
            found["site"] = (middle - began) / count
        assert not faults and (total == vector * np.uint64(len(left))).all()
    return found


def page(results: dict[str, Any]) -> str:
    """The results in words."""
    lines = [
        "# What secure aggregation costs",
        "",
        f"`python benchmarks/secure.py`, {results['machine']}. Per slot, all sites and the server "
        "together, in one process without a network; medians over "
        f"{results['slots'] - WARM - 1} slots in which every site trains. "
        f"{results['numbers']:,} weights.",
        "",
        "| sites | | processor s | kB |",
        "|---|---|---|---|",
    ]
    for row in results["served"]:
        for kind in ("plain", "secure"):
            one = row[kind]
            lines.append(
                f"| {row['sites']} | {kind} | {one['processor_seconds']:.3f} | "
                f"{one['bytes'] / 1000:,.0f} |"
            )
    lines += [
        "",
        "The protocol alone, processor seconds per slot; a weight takes two words:",
        "",
        "| sites | words | a site | the server | the server, a third of the sites lost |",
        "|---|---|---|---|---|",
    ]
    for row in results["protocol"]:
        lines.append(
            f"| {row['sites']} | {row['words']:,} | {row['site']:.4f} | {row['server']:.4f} | "
            f"{row['server_dropouts']:.4f} |"
        )
    lines += [
        "",
        "Besides, a slot takes four exchanges with the sites in place of one. A site that does "
        "not answer costs one deadline, as without.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", default="3,10")
    parser.add_argument("--slots", type=int, default=12)
    parser.add_argument("--json", type=Path, default=RESULTS / "secure.json")
    given = parser.parse_args()
    results: dict[str, Any] = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "slots": given.slots,
        "served": [],
        "protocol": [],
    }
    counts = [int(text) for text in given.sites.split(",")]
    for count in counts:
        row: dict[str, Any] = {"sites": count}
        for kind in ("plain", "secure"):
            with tempfile.TemporaryDirectory() as folder:
                row[kind] = served(Path(folder), count, given.slots, kind == "secure")
                if kind == "secure":
                    from safetensors.numpy import load_file

                    model = load_file(Path(folder) / "out" / "model.safetensors")
                    results["numbers"] = sum(leaf.size for leaf in model.values())
            print(count, kind, row[kind], flush=True)
        results["served"].append(row)
    for count in counts:
        for size in SIZES:
            one = {"sites": count, "words": size, **protocol(count, size)}
            print(one, flush=True)
            results["protocol"].append(one)
    given.json.write_text(json.dumps(results, indent=1) + "\n")
    given.json.with_suffix(".md").write_text(page(results))


if __name__ == "__main__":
    main()
