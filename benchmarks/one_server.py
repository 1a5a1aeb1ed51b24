"""What a slot costs the server itself, without a network: processor time per site, and memory.

    python benchmarks/one_server.py [--sites 100,1000,10000] [--slots 6] [--guard off]

needs `pip install 'fedkoopman[deploy]'`. The server loop is the real one, with the pendulum
example's study: polls, requests, replies that are decoded and checked, the mean, scores, the
checkpoint, `status.json`. The sites are one object that answers at once in the real encoding, with
updates that are a thousandth of the model away from it; its own time is counted apart. The first
two slots are left out. Writes benchmarks/results/one_server.{md,json}.
"""

import argparse
import itertools
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).parent.parent / "tests"
RESULTS = Path(__file__).parent / "results"
WARM = 2


class Lightweight:
    """All sites: agents without data or training, which speak the real protocol."""

    def __init__(self, study: Any, count: int) -> None:
        from fedkoopman.deploy.provisioning.roster import Enrolled, Roster
        from fedkoopman.deploy.wire import Envelope

        self._envelope = Envelope(study.seeded_digest())
        self._random = np.random.default_rng(0)
        names = [f"site-{n:05d}" for n in range(count)]
        self._nodes = {name: n for n, name in enumerate(names)}
        sites = tuple(Enrolled(name, n, "", "") for n, name in enumerate(names))
        self._roster = Roster(study.digest(), False, sites)
        self.seconds = 0.0
        """Processor time of the sites."""
        self.bytes = 0

    def roster(self) -> Any:
        return self._roster

    def online(self) -> dict[str, int]:
        return self._nodes

    def exchange(self, bodies: Mapping[str, bytes], deadline: float) -> Iterator[tuple[str, bytes]]:
        from fedkoopman.deploy.wire import decode_requests, encode_replies

        for site, body in bodies.items():
            began = time.thread_time()
            replies = [self._reply(site, one) for one in decode_requests(body)[1]]
            answer = encode_replies(self._envelope, replies)
            self.bytes += len(body) + len(answer)
            self.seconds += time.thread_time() - began
            yield site, answer

    def _reply(self, site: str, request: Any) -> Any:
        from fedkoopman.deploy import wire
        from fedkoopman.evaluation import Metrics
        from fedkoopman.federation.messages import Message

        match request:
            case wire.Acknowledge():
                return wire.Acknowledged(site, request.slot)
            case wire.Poll():
                return wire.Polled(site, request.slot, 300, 1)
            case wire.Evaluate():
                base = wire.digest_of(request.model)
                return wire.Evaluated(
                    site, request.slot, base, 2, dict.fromkeys(Metrics._fields, 1.0)
                )
        base = wire.message_digest(request.message)
        change = 1 + 1e-3 * self._random.standard_normal()
        arrays = {n: (x * change).astype(x.dtype) for n, x in request.message.arrays.items()}
        return wire.Answered(site, request.slot, base, 300, Message("update", arrays))


def measured(count: int, slots: int, guard: str) -> dict[str, Any]:
    """Medians per slot, of a server with so many sites."""
    sys.path.insert(0, str(TESTS))
    from unit.deploy.in_memory import small_study

    from fedkoopman.deploy.server.loop import federate

    with tempfile.TemporaryDirectory() as folder:
        values = {"slots": 1000, "clients.probability": 1.0, "aggregation.guard": guard}
        study = small_study(Path(folder) / "study", values)
        sites, stop, marks = Lightweight(study, count), threading.Event(), list[tuple]()

        def tell(event: Any) -> None:
            marks.append((time.process_time(), sites.seconds, time.perf_counter(), sites.bytes))
            if len(marks) == slots + WARM + 1:
                stop.set()

        out = Path(folder) / "out"
        federate(study, sites, sites.roster, out, tell=tell, stop=stop, say=lambda _: None)
        for thread in threading.enumerate():
            if thread.name == "exchange":  # of the round in which it was stopped
                thread.join()
        kept = {
            name: (out / name).stat().st_size
            for name in ("checkpoint/state.safetensors", "status.json")
        }
    rows = [[b - a for a, b in zip(*two, strict=True)] for two in itertools.pairwise(marks[WARM:])]
    return {
        "sites": count,
        "slots": len(rows),
        "guard": guard,
        "server_processor": statistics.median(row[0] - row[1] for row in rows),
        "sites_processor": statistics.median(row[1] for row in rows),
        "seconds": statistics.median(row[2] for row in rows),
        "bytes": statistics.median(row[3] for row in rows),
        "gibibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "checkpoint": kept["checkpoint/state.safetensors"],
        "status": kept["status.json"],
    }  # fmt: skip


def told(rows: list[dict[str, Any]]) -> str:
    """The results as a page."""
    lines = [
        "# What a slot costs the server itself, without any network",
        "",
        "`python benchmarks/one_server.py`: the real server loop in one process, sites that answer "
        "at once; two cores that others used too. Every site trains and is evaluated in each slot.",
        "",
        "| sites | server's processor, ms per site and slot | slot, s | memory, GiB | "
        "checkpoint, kB | status.json, kB |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row['sites']:,} | {1e3 * row['server_processor'] / row['sites']:.2f} | "
        f"{row['seconds']:.2f} | {row['gibibytes']:.2f} | {row['checkpoint'] / 1e3:,.0f} | "
        f"{row['status'] / 1e3:,.0f} |"
        for row in rows
    ]
    least = min(row["bytes"] / row["sites"] for row in rows)
    lines += [
        "",
        f"The slot's seconds hold the sites' own work. A site and the server exchange {least:,.0f} "
        f"bytes per slot, in two exchanges; aggregation.guard is {rows[0]['guard']}.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Every size in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", default="100,1000,10000")
    parser.add_argument("--slots", type=int, default=6)
    parser.add_argument("--guard", default="off", choices=("on", "off"))
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.one, given.slots, given.guard)))
        return
    rows = []
    for count in given.sites.split(","):
        command = [sys.executable, __file__, "--one", count, "--slots", str(given.slots)]
        done = subprocess.run(
            [*command, "--guard", given.guard], stdout=subprocess.PIPE, check=True, text=True
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    print(told(rows))
    RESULTS.mkdir(exist_ok=True)
    about = {"python": platform.python_version(), "rows": rows}
    (RESULTS / "one_server.json").write_text(json.dumps(about, indent=1) + "\n")
    (RESULTS / "one_server.md").write_text(told(rows))


if __name__ == "__main__":
    main()
