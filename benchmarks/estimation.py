"""Filter + smoother: steps per second beside other libraries, growth with size, cold start, memory.

    make bench        (or: .venv-bench/bin/python benchmarks/estimation.py [--quick])

Every number is measured in a process of its own (best of several runs after a warm-up), pinned to
one core or two, and compared with the peers measured in the same call. Peers' results must agree
with ours, or the comparison fails. Writes benchmarks/results/estimation.{md,json}.
"""

import argparse
import importlib
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

STEPS = 300
BATCHES = (1, 5, 64, 1024)
RESULTS = Path(__file__).parent / "results"
SYSTEMS = {"lorenz63": 3, "yni": 7, "lorenz96": 20}


def problem(system: str, batch: int, steps: int):
    """The paper's problem (Lorenz63), or a larger one with every other component observed."""
    import numpy as np
    from peers import Problem

    import fedkoopman as fk

    noise = 1.0
    if system == "lorenz63":
        s = fk.systems.Lorenz63()
        sensor = fk.LinearSensor.random_frame(3, seed=0)
        start = np.zeros(3)
    elif system == "yni":
        s, sensor, noise = fk.systems.YNI(), fk.LinearSensor.identity(7), 0.0025
        start = np.array([-60.0, 0, 0, 0, 0, 0, 0])
    else:
        s = fk.systems.Lorenz96()
        sensor = fk.LinearSensor(np.eye(20)[::2])
        start = np.zeros(20)
    some = min(batch, 64)
    x = fk.simulate(s, steps=min(steps, STEPS), seed=0, batch=some)[:, 1:]
    z = fk.observe(sensor, x, noise=noise, seed=0)
    z = np.tile(z, (-(-batch // some), -(-steps // z.shape[1]), 1))[:batch, :steps]
    cov = noise * np.eye(len(start)) if system == "yni" else np.eye(len(start))
    return Problem(s, sensor, np.ascontiguousarray(z), noise, start, cov)


def measure(task: dict) -> dict:
    """Run one task in this process."""
    sys.path.insert(0, str(Path(__file__).parent))
    import jax
    import numpy as np
    import peers

    if task["library"] != "fedkoopman":
        jax.config.update("jax_enable_x64", True)
    given = problem(task["system"], task["batch"], task["steps"])
    if task["library"] == "fedkoopman":
        run = peers.fedkoopman(given, task["method"])
    else:
        run = getattr(peers, task["library"])(given)
    if task["plain"]:
        module = importlib.import_module("fedkoopman.estimation.gaussian_estimator")
        module._track.is_one_kernel = lambda *_, **__: False
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    mean, cov = run()
    cold = time.perf_counter() - start
    best, spent, runs = np.inf, 0.0, 0
    while runs < 3 or (spent < task["seconds"] and runs < 200):
        start = time.perf_counter()
        run()
        took = time.perf_counter() - start
        best, spent, runs = min(best, took), spent + took, runs + 1
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    mean = np.asarray(mean)
    return {
        **task,
        "cold": cold,
        "best": best,
        "steps_per_second": task["batch"] * task["steps"] / best,
        "bytes": 1024 * (after - before),
        "check": [float(np.mean(mean)), float(np.mean(np.asarray(cov)))],
        "probe": mean[0, -3:].tolist(),
    }


def spawn(cores: int, **task) -> dict:
    """Run a task in a fresh process on the first `cores` cores."""
    task = {
        "system": "lorenz63",
        "method": "",
        "steps": STEPS,
        "seconds": 1.0,
        "plain": False,
        **task,
    }
    command = [sys.executable, __file__, "--task", json.dumps(task)]
    available = sorted(os.sched_getaffinity(0))[:cores]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, available),
    )
    if done.returncode:
        sys.exit(f"{task} failed:\n{done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    result["cores"] = len(available)
    label = f"{task['library']} {task['method']}".strip()
    print(
        f"{task['system']:9} {label:26} batch {task['batch']:5} steps {task['steps']:8,} "
        f"cores {result['cores']}  {result['steps_per_second']:12,.0f} steps/s  "
        f"cold {result['cold']:.2f} s",
        flush=True,
    )
    return result


def agree(ours: dict, theirs: dict, tolerance: float) -> None:
    """Refuse to compare speeds of different results."""
    gap = max(
        abs(a - b)
        for p, q in zip(ours["probe"], theirs["probe"], strict=True)
        for a, b in zip(p, q, strict=True)
    )
    gap = max(gap, *(abs(a - b) for a, b in zip(ours["check"], theirs["check"], strict=True)))
    if not gap < tolerance:
        sys.exit(f"results differ by {gap}: {ours['library']} against {theirs['library']}")


def speed(quick: bool) -> tuple[list[dict], list[str]]:
    """The paper's Lorenz63 problem beside dynamax, cuthbert and filterpy."""
    records, lines = [], []
    filterpy = spawn(1, library="filterpy", batch=1)
    records.append(filterpy)
    for cores in (1, 2):
        lines += ["", f"### {cores} core{'s' if cores > 1 else ''}", ""]
        lines += [
            "| batch | `ukf-resampled` | dynamax | ratio | `ukf` | ratio to filterpy | `ekf` | "
            "cuthbert (extended) | ratio |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for batch in BATCHES[:3] if quick else BATCHES:
            ours = {
                method: spawn(cores, library="fedkoopman", method=method, batch=batch)
                for method in ("ukf-resampled", "ukf", "ekf")
            }
            dynamax = spawn(cores, library="dynamax", batch=batch)
            cuthbert = spawn(cores, library="cuthbert", batch=batch)
            agree(ours["ukf-resampled"], dynamax, 1e-8)
            agree(ours["ekf"], cuthbert, 1e-8)
            if batch == 1:
                agree(ours["ukf"], filterpy, 1e-8)
            records += [*ours.values(), dynamax, cuthbert]
            rate = {name: r["steps_per_second"] for name, r in ours.items()}
            peer, other = dynamax["steps_per_second"], cuthbert["steps_per_second"]
            lines.append(
                f"| {batch} | {_k(rate['ukf-resampled'])} | {_k(peer)} | "
                f"**{rate['ukf-resampled'] / peer:.1f}** | {_k(rate['ukf'])} | "
                f"**{rate['ukf'] / filterpy['steps_per_second']:,.0f}** | {_k(rate['ekf'])} | "
                f"{_k(other)} | {rate['ekf'] / other:.1f} |"
            )
    lines += [
        "",
        f"filterpy: {filterpy['steps_per_second']:,.0f} steps/s, one trajectory at a time.",
    ]
    return records, lines


def one_kernel(quick: bool) -> tuple[list[dict], list[str]]:
    """What compiling the scan as one kernel gains over XLA's ordinary path."""
    records = []
    lines = ["", "| batch | one kernel | ordinary path | ratio |", "|---|---|---|---|"]
    for batch in (1,) if quick else (1, 5, 128):
        given = {"library": "fedkoopman", "method": "ukf-resampled", "batch": batch}
        fused, plain = spawn(1, **given), spawn(1, plain=True, **given)
        agree(fused, plain, 1e-9)
        records += [fused, plain]
        gain = fused["steps_per_second"] / plain["steps_per_second"]
        lines.append(
            f"| {batch} | {_k(fused['steps_per_second'])} | {_k(plain['steps_per_second'])} | "
            f"**{gain:.1f}** |"
        )
    return records, lines


def growth(quick: bool) -> tuple[list[dict], list[str]]:
    """Time and memory against steps and batch."""
    records = []
    lines = [
        "",
        "| batch | steps | steps/s | seconds | bytes per trajectory-step |",
        "|---|---|---|---|---|",
    ]
    sizes = [(1, 10**4), (1, 10**5), (1, 10**6), (64, 3000), (512, 3000), (4096, 3000)]
    for batch, steps in sizes[:2] if quick else sizes:
        r = spawn(2, library="fedkoopman", method="ukf", batch=batch, steps=steps)
        records.append(r)
        lines.append(
            f"| {batch} | {steps:,} | {_k(r['steps_per_second'])} | {r['best']:.3f} | "
            f"{r['bytes'] / (batch * steps):,.0f} |"
        )
    return records, lines


def dimensions(quick: bool) -> tuple[list[dict], list[str]]:
    """Larger states beside dynamax: is there a cliff?"""
    records = []
    lines = [
        "",
        "| system | n | batch | `ukf-resampled` | dynamax | ratio | cold s |",
        "|---|---|---|---|---|---|---|",
    ]
    for system, n in SYSTEMS.items():
        for batch in (1, 64):
            if quick and batch > 1:
                continue
            given = {"system": system, "batch": batch, "seconds": 0.5}
            ours = spawn(1, library="fedkoopman", method="ukf-resampled", **given)
            peer = spawn(1, library="dynamax", **given)
            agree(ours, peer, 1e-5)
            records += [ours, peer]
            lines.append(
                f"| {system} | {n} | {batch} | {_k(ours['steps_per_second'])} | "
                f"{_k(peer['steps_per_second'])} | "
                f"**{ours['steps_per_second'] / peer['steps_per_second']:.1f}** | "
                f"{ours['cold']:.1f} |"
            )
    return records, lines


def _k(rate: float) -> str:
    return f"{rate / 1e3:,.0f}k"


def main() -> None:
    """Measure everything and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only, writes nothing")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        print(json.dumps(measure(json.loads(arguments.task))))
        return
    records, text = [], ["# Estimation: filter + smoother", ""]
    text += [
        "Made by `make bench`. Steps per second of wall time, float64, best of several runs; ours "
        "through the public `fk.estimate` (NumPy in and out, checks included), the JAX peers "
        "jitted, vmapped over the batch, inputs already on the device.",
        "",
        f"Machine: {platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}.",
    ]
    for title, part in (
        ("The paper's Lorenz63, 300 steps", speed),
        ("One kernel (`ukf-resampled`, one core)", one_kernel),
        ("Growth with steps and batch (`ukf`, two cores)", growth),
        ("Larger states (one core, 300 steps)", dimensions),
    ):
        found, lines = part(arguments.quick)
        records += found
        text += ["", f"## {title}", *lines]
    ours = [r for r in records if r["library"] == "fedkoopman"]
    text += [
        "",
        f"Slowest cold start of ours (trace, compile, run): {max(r['cold'] for r in ours):.1f} s.",
    ]
    print("\n".join(text))
    if not arguments.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "estimation.md").write_text("\n".join(text) + "\n", encoding="utf-8")
        (RESULTS / "estimation.json").write_text(json.dumps(records, indent=1) + "\n")
        print(f"\nreport: {RESULTS / 'estimation.md'}")


if __name__ == "__main__":
    main()
