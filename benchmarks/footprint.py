"""The memory of a site: its processes at rest and at work, and what a cold worker costs in time.

    python benchmarks/footprint.py [--idle 5] [--requests 0] [--json FILE]

One site of `fedkoopman init --example pendulum` joins a server that is not there; this program asks
its agent what the server would ask. Told is, in MB, what a process holds alone and as its share of
what it has in common with others (PSS), and all that is resident (RSS). Flower's processes at the
site are not counted. Linux only; needs `pip install 'fedkoopman[deploy]'`.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from fedkoopman.config.study import Study
from fedkoopman.deploy.site.site_socket import ask, socket_path
from fedkoopman.deploy.wire import (
    Acknowledge,
    Answered,
    Ask,
    Envelope,
    Evaluate,
    Evaluated,
    Poll,
    Reply,
    Request,
    decode_replies,
    encode_requests,
)
from fedkoopman.federation.messages import Message
from fedkoopman.runs.experiment import problem_of

PROGRAM = [sys.executable, "-m", "fedkoopman.cli"]
LAB, LABS = "lab-a", "lab-a,lab-b,lab-c"


class Site:
    """A site that was joined, and its processes."""

    def __init__(self, folder: Path, idle: float) -> None:
        study = folder / "study.toml"
        subprocess.run([*PROGRAM, "init", str(folder), "--example", "pendulum"], check=True)
        site = folder / LAB / "site.toml"
        site.write_text(site.read_text() + f"\n[worker]\nidle = {idle}\n")
        provision = ["provision", str(study), "--sites", LABS, "--insecure"]
        subprocess.run([*PROGRAM, *provision], check=True, stdout=subprocess.DEVNULL)
        kit = folder / "fleet" / "kits" / f"{LAB}.kit"
        command = ["join", str(site), "--server", "127.0.0.1:9", "--yes", "--insecure"]
        self.log = (folder / "join.log").open("wb")
        self.join = subprocess.Popen(
            [*PROGRAM, *command, "--kit", str(kit)], stdout=self.log, stderr=self.log
        )
        self.state = folder / LAB / ".fedkoopman" / LAB
        self.study = Study.load(study)
        self.envelope = Envelope(self.study.seeded_digest())

    def ask(self, *requests: Request, seconds: float = 600.0) -> tuple[Reply, ...]:
        """What the agent says; it is asked again until it is there."""
        body, end = encode_requests(self.envelope, requests), time.monotonic() + seconds
        while True:
            try:
                return decode_replies(ask(socket_path(self.state), body))[1]
            except OSError:
                if time.monotonic() > end:
                    sys.exit(f"the agent does not answer: see {self.state / 'logs'}")
                time.sleep(0.1)

    def processes(self) -> dict[str, int]:
        """The numbers of ours, by what they do."""
        found = {"join": self.join.pid}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            for name, module in (("agent", "agent_process"), ("worker", "worker_process")):
                ours = any(word.endswith(f"site.{module}") for word in words)
                if ours and parent in (self.join.pid, found.get("agent")):
                    found[name] = int(pid)
        return found

    def memory(self) -> dict[str, tuple[int, int]]:
        """PSS and RSS of each process, in MB."""
        found = {}
        for name, pid in self.processes().items():
            try:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            except OSError:
                continue
            sizes = {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
            found[name] = sizes["Pss:"] // 1024, sizes["Rss:"] // 1024
        return found

    def worker(self) -> tuple[float, int]:
        """Processor seconds of the worker so far, and the most that was resident of it in MB."""
        pid = self.processes()["worker"]
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        (peak,) = (
            line.split()[1]
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )
        return sum(map(int, times)) / os.sysconf("SC_CLK_TCK"), int(peak) // 1024

    def until_rest(self) -> float:
        """Wait until the worker has ended; seconds that it took."""
        began = time.monotonic()
        while "worker" in self.processes():
            time.sleep(0.1)
        return time.monotonic() - began

    def end(self) -> None:
        """Ask all of it to end."""
        self.join.send_signal(signal.SIGTERM)
        self.join.wait(60)
        self.log.close()


def timed(site: Site, request: Request, kind: type) -> dict:
    """Seconds of a request, and the memory after it."""
    before = site.worker()[0] if "worker" in site.processes() else 0.0
    began = time.monotonic()
    reply = site.ask(request)[-1]
    seconds = time.monotonic() - began
    if not isinstance(reply, kind):
        sys.exit(f"{type(request).__name__} is refused: {reply}")
    spent, peak = site.worker()
    return {"s": seconds, "processor_s": spent - before, "peak": peak, "memory": site.memory()}


def measure(folder: Path, idle: float, requests: int) -> dict:
    """All figures."""
    site = Site(folder, idle)
    try:
        problem = problem_of(site.study, site.study.seed, 3)
        algorithm = problem.algorithm
        first = algorithm.model(problem, algorithm.begin(problem))
        slot = models = 0

        def model() -> dict[str, np.ndarray]:
            """Another one each time, so that nothing is answered from memory."""
            nonlocal models
            models += 1
            scale = 1 + 1e-3 * models
            return {name: (leaf * scale).astype(leaf.dtype) for name, leaf in first.items()}

        def next_slot(included: int) -> None:
            nonlocal slot
            while True:
                slot += 1
                polled = site.ask(Acknowledge(slot - 1, included), Poll(slot))[-1]
                if polled.buffered:
                    return

        began = time.monotonic()
        next_slot(0)
        found: dict = {"ready_s": time.monotonic() - began}

        def request(kind: type) -> dict:
            if kind is Evaluate:
                return timed(site, Evaluate(slot - 1, model()), Evaluated)
            next_slot(slot)
            return timed(site, Ask(slot, Message("train", model())), Answered)

        request(Ask)
        found["compiling"] = request(Evaluate)  # once, as a site does when it joins
        site.until_rest()
        found["at rest"] = site.memory()
        for name, kind in (("cold Ask", Ask), ("cold Evaluate", Evaluate)):
            found[name] = request(kind)
            site.until_rest()
        request(Evaluate)
        request(Ask)
        found["warm Ask"], found["warm Evaluate"] = request(Ask), request(Evaluate)
        site.until_rest()
        found["at rest again"] = site.memory()
        for _ in range(requests):
            site.ask(Poll(slot))
            time.sleep(0.06)  # the agent takes 20 a second
        if requests:
            found[f"after {requests} polls"] = site.memory()
        return found
    finally:
        site.end()


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--idle", type=float, default=5.0, help="worker.idle of the site")
    parser.add_argument("--requests", type=int, default=0, help="polls at rest, before the end")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="footprint-") as folder:
        found = measure(Path(folder) / "field", given.idle, given.requests)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"ready for slot 1 after {found['ready_s']:.1f} s; load {os.getloadavg()[0]:.1f}")
    for name, value in found.items():
        if name == "ready_s":
            continue
        memory = value.get("memory", value)
        parts = ", ".join(f"{who} {pss} / {rss}" for who, (pss, rss) in memory.items())
        total = [sum(column) for column in zip(*memory.values(), strict=True)]
        print(f"{name:14} PSS / RSS in MB: {parts}; together {total[0]} / {total[1]}")
        if "s" in value:
            print(
                f"{'':14} {value['s']:.2f} s, of the worker's processor "
                f"{value['processor_s']:.2f} s; most resident of it: {value['peak']} MB"
            )
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
