"""Time per sample of predictive control: ours, and other solvers on the same quadratic programs.

    make bench        (or: .venv-bench/bin/python benchmarks/control.py [--samples N] [--passes N])

Two coupled, driven pendulums (four states, two inputs) are learned with 24 lifted functions, in
three ways: linear in the inputs, bilinear, and lifted anew at every step. A controller with a
horizon of 20 samples and bounds on all inputs and states steers the true system from several
starts. Its programs are kept and given to each solver in the same order, so that a solver which can
begin with the last solution, or keep its factors, may do so. All on one core. Writes
benchmarks/results/control.{md,json}.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RESULTS = Path(__file__).parent / "results"
ONE_CORE = {
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}  # fmt: skip
LIFTED, HORIZON, DT, STRONGEST = 24, 20, 0.05, 4.0
WAYS = {
    "linear": {"bilinear": False, "relift": False},
    "bilinear": {"bilinear": True, "relift": False},
    "lifted anew": {"bilinear": False, "relift": True},
}
STARTS = ((1.0, 0.0, -1.0, 0.0), (-0.5, 2.0, 0.8, -1.5), (0.2, -2.0, 1.2, 1.0))
GOAL, HOLDS = (0.6, 0.0, -0.3, 0.0), ((-1.3, -2.5, -1.3, -2.5), (1.3, 2.5, 1.3, 2.5))


class Problem(NamedTuple):
    """min ½ vᵀ P v + cᵀ v with low ≤ v ≤ high and g_low ≤ G v ≤ g_high."""

    P: Any
    c: Any
    low: Any
    high: Any
    G: Any
    g_low: Any
    g_high: Any


class Timed(NamedTuple):
    """Milliseconds of one pass over all problems, and what was found."""

    median: float
    late: float
    """The 99th percentile."""
    cpu: float
    """Median of the process's own time, which other processes do not lengthen."""
    found: Any = None


# Models and programs


def field(x, u):
    """Two pendulums and a spring between them."""
    import jax.numpy as jnp

    pull = 2.0 * (x[2] - x[0])
    return jnp.array([
        x[1], -9.8 * jnp.sin(x[0]) - 0.3 * x[1] + pull + u[0],
        x[3], -9.8 * jnp.sin(x[2]) - 0.3 * x[3] - pull + u[1],
    ])  # fmt: skip


def learned(bilinear: bool) -> tuple[Any, Any]:
    """The true system, and a model of it."""
    import fedkoopman as fk

    system = fk.System.from_function(field, dim=4, dt=DT, input_dim=2)
    random = np.random.default_rng(0)
    U = [np.repeat(random.uniform(-STRONGEST, STRONGEST, (20, 2)), 3, axis=0) for _ in range(40)]
    X = [
        fk.simulate(system, 60, initial=random.uniform(-1, 1, 4) * (1.2, 2, 1.2, 2), inputs=u)
        for u in U
    ]
    model = fk.DeepKoopman(
        LIFTED, kind="spectral", dt=DT, learned=False, features=60, horizon=5, bilinear=bilinear,
        random_state=0,
    )  # fmt: skip
    return system, model.fit(X, U=U)


def controller(model: Any, relift: bool) -> Any:
    """With bounds on everything."""
    import fedkoopman as fk

    return fk.control.MPC(
        model, GOAL, horizon=HORIZON, Q=[10, 0.1, 10, 0.1], R=0.01, u_min=-STRONGEST,
        u_max=STRONGEST, x_min=HOLDS[0], x_max=HOLDS[1], relift=relift, softening=1e3,
    )  # fmt: skip


def loops(system: Any, mpc: Any, samples: int) -> Iterator[tuple[Any, Any]]:
    """What the controller remembers and sees, over closed loops from all starts."""
    import jax

    step = jax.jit(system.step)
    for start in STARTS:
        memory, x = mpc.begin(), np.array(start)
        for _ in range(samples // len(STARTS)):
            yield memory, x
            u, memory = mpc.act(memory, x)
            with jax.enable_x64(True):
                x = np.asarray(step(x, u))


def recorded(mpc: Any, visited: list[tuple[Any, Any]]) -> list[Problem]:
    """The programs that are solved on the way."""
    program, found = mpc._program, []
    inner = program.step

    def keep(matrices: Any, *given: Any) -> Any:
        c, low, high, g_low, g_high = program.vectors(matrices, *given)
        found.append(Problem(matrices.hessian, c, low, high, matrices.rows, g_low, g_high))
        return inner(matrices, *given)

    object.__setattr__(program, "step", keep)
    for memory, x in visited:
        mpc.act(memory, x)
    object.__setattr__(program, "step", inner)
    return found


# Solvers: a function that takes a problem after the other, in order


def ours() -> Callable[[Problem], Any]:
    """PIQP on the whole program, as `fk.control` sets it up."""
    from fedkoopman.control.qp import Quadratic

    kept = Quadratic()
    return lambda one: kept.solve(*one).v


def osqp_solver(accuracy: float) -> Callable[[Problem], Any]:
    """OSQP: kept, and begun at the last solution."""
    import osqp
    import scipy.sparse as sp

    kept: list[Any] = [None, None]

    def solve(one: Problem) -> Any:
        low, high = np.concatenate([one.low, one.g_low]), np.concatenate([one.high, one.g_high])
        if kept[1] is not one.P:
            solver = osqp.OSQP()
            rows = sp.vstack([sp.eye(len(one.c)), sp.csc_matrix(one.G)], format="csc")
            solver.setup(
                sp.csc_matrix(np.triu(one.P)), one.c, rows, low, high, verbose=False,
                eps_abs=accuracy, eps_rel=accuracy, max_iter=20_000,
            )  # fmt: skip
            if kept[0] is not None:
                solver.warm_start(x=kept[0][1])
            kept[:] = [(solver, None), one.P]
        else:
            kept[0][0].update(q=one.c, l=low, u=high)
        found = kept[0][0].solve(raise_error=False).x
        kept[0] = (kept[0][0], found)
        return found

    return solve


def clarabel_solver(accuracy: float) -> Callable[[Problem], Any]:
    """Clarabel: kept where the matrices stay."""
    import clarabel
    import scipy.sparse as sp

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.presolve_enable = False  # which is what updates need
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = accuracy
    kept: list[Any] = [None, None, None]

    def solve(one: Problem) -> Any:
        limits = np.concatenate([one.high, -one.low, one.g_high, -one.g_low])
        if kept[1] is not one.P:
            kept[2] = np.isfinite(limits)
            eye = np.eye(len(one.c))
            rows = sp.csc_matrix(np.vstack([eye, -eye, one.G, -one.G])[kept[2]])
            cones = [clarabel.NonnegativeConeT(int(kept[2].sum()))]
            kept[0] = clarabel.DefaultSolver(
                sp.csc_matrix(np.triu(one.P)), one.c, rows, limits[kept[2]], cones, settings
            )
            kept[1] = one.P
        else:
            kept[0].update(q=one.c, b=limits[kept[2]])
        return np.array(kept[0].solve().x)

    return solve


def qpax_solver(accuracy: float) -> Callable[[Problem], Any]:
    """qpax: compiled once for the shape; it keeps nothing between problems."""
    import jax
    import qpax

    kept: list[Any] = [None, None, None]
    compiled = jax.jit(partial(qpax.solve_qp_primal, solver_tol=accuracy))

    def solve(one: Problem) -> Any:
        limits = np.concatenate([one.high, -one.low, one.g_high, -one.g_low])
        with jax.enable_x64(True):
            if kept[1] is not one.P:
                kept[2] = np.isfinite(limits)
                eye = np.eye(len(one.c))
                rows = np.vstack([eye, -eye, one.G, -one.G])[kept[2]]
                none = np.zeros((0, len(one.c))), np.zeros(0)
                kept[0] = [jax.device_put(v) for v in (one.P, *none, rows)]
                kept[1] = one.P
            P, A, b, rows = kept[0]
            found = compiled(P, one.c, A, b, rows, limits[kept[2]])
            return np.asarray(found)

    return solve


def exact(one: Problem) -> Any:
    """The solution to rounding: Clarabel's at 1e-12 tells which bounds are active, and with these
    as equations what is left is a linear system. None if some bounds cannot be told."""
    import clarabel
    import scipy.sparse as sp

    limits = np.concatenate([one.high, -one.low, one.g_high, -one.g_low])
    kept, eye = np.isfinite(limits), np.eye(len(one.c))
    rows, limits = np.vstack([eye, -eye, one.G, -one.G])[kept], limits[kept]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    found = clarabel.DefaultSolver(
        sp.csc_matrix(np.triu(one.P)), one.c, sp.csc_matrix(rows), limits,
        [clarabel.NonnegativeConeT(len(limits))], settings,
    ).solve()  # fmt: skip
    active = np.array(found.z) > np.array(found.s)
    for _ in range(30):
        C, none = rows[active], np.zeros((active.sum(), active.sum()))
        system = np.block([[one.P, C.T], [C, none]])
        right = np.concatenate([-one.c, limits[active]])
        v, pressed = np.split(np.linalg.lstsq(system, right, rcond=1e-14)[0], [len(one.c)])
        broken = rows @ v > limits + 1e-9 * (1 + np.abs(v).max())
        idle = np.zeros_like(active)
        idle[active] = pressed < -1e-9 * np.abs(one.c).max()
        if not (broken | idle).any():
            return v
        active = (active | broken) & ~idle
    return None


SOLVERS: dict[str, Callable[[], Callable[[Problem], Any]]] = {
    "PIQP (1e-11), the whole program": ours,
    "OSQP (1e-6)": lambda: osqp_solver(1e-6),
    "OSQP (1e-3, its default)": lambda: osqp_solver(1e-3),
    "Clarabel (1e-8, its default)": lambda: clarabel_solver(1e-8),
    "qpax (1e-6)": lambda: qpax_solver(1e-6),
}


# Measuring


def timed(calls: list[Callable[[], Any]], warm: int = 3) -> Timed:
    """One pass over calls that were made once before, if only a few of them."""
    for call in calls[:warm]:
        call()
    wall, cpu, found = [], [], []
    for call in calls:
        begun, worked = time.perf_counter(), time.process_time()
        found.append(call())
        cpu.append(time.process_time() - worked)
        wall.append(time.perf_counter() - begun)
    late = float(np.percentile(wall, 99))
    return Timed(1e3 * float(np.median(wall)), 1e3 * late, 1e3 * float(np.median(cpu)), found)


def best(passes: list[Timed]) -> Timed:
    """The pass that was disturbed least."""
    return min(passes, key=lambda one: one.median)


def rows_of(way: str, samples: int, passes: int) -> list[dict[str, Any]]:
    """All measurements of one kind of model."""
    settings = WAYS[way]
    system, model = learned(settings["bilinear"])
    mpc = controller(model, settings["relift"])
    assert model.operator_.shape == (LIFTED, LIFTED)
    visited = list(loops(system, mpc, samples))
    problems = recorded(mpc, visited)
    size = len(problems[0].c), len(problems[0].G)
    right = [exact(one) for one in problems]
    calls = [partial(mpc.act, *one) for one in visited]
    whole = best([timed(calls) for _ in range(passes)])
    off = []
    if way == "linear":  # one program per sample
        plans = [mpc.plan(x, memory).inputs.ravel() for memory, x in visited]
        off = apart(plans, right)
    found = [row(way, "`MPC.act`, the whole sample", whole, len(visited), size, off)]
    for name, make in SOLVERS.items():
        solve = make()
        calls = [partial(solve, one) for one in problems]
        one = best([timed(calls) for _ in range(passes)])
        found.append(row(way, name, one, len(problems), size, apart(one.found, right)))
        print(json.dumps(found[-1]), flush=True)
    return found


def apart(found: list[Any], right: list[Any]) -> list[float]:
    """How far the inputs of each plan are from the exact ones, where these are known."""
    size = 2 * HORIZON
    return [
        float(np.abs(a[:size] - b[:size]).max())
        for a, b in zip(found, right, strict=True)
        if b is not None
    ]


def row(way: str, name: str, one: Timed, count: int, size: Any, off: list[float]) -> dict:
    """One line of the table."""
    return {
        "model": way, "what": name, "count": count, "variables": size[0], "rows": size[1],
        "median": one.median, "p99": one.late, "cpu": one.cpu,
        "known": len(off),
        "error": float(np.median(off)) if off else None, "worst": max(off, default=None),
    }  # fmt: skip


def page(rows: list[dict[str, Any]], passes: int) -> str:
    """As Markdown."""
    names = ("piqp", "osqp", "clarabel", "qpax", "jax", "numpy")
    text = [
        "# Predictive control: time per sample",
        "",
        "Made by `make bench` (`benchmarks/control.py`). Two coupled, driven pendulums, learned "
        f"with {LIFTED} lifted functions; a horizon of {HORIZON} samples, two inputs and four "
        "states, all with bounds, those of states softened. One core, warm, milliseconds. Every "
        f"solver gets the same programs in the same order, {passes} times; the pass with the "
        "lowest median is shown, as other programs ran on the machine. `CPU` is the median of the "
        "process's own time. `error`: the greatest difference of an input of a plan from the exact "
        "solution, in which the active bounds are equations, where these could be told; the "
        f"inputs' bounds are ±{STRONGEST:g}.",
        "",
        f"Machine: {platform.machine()}, Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in names)
        + ".",
    ]  # fmt: skip
    for way in WAYS:
        ours = [one for one in rows if one["model"] == way]
        if not ours:
            continue
        text += [
            "",
            f"## {way.capitalize()}",
            "",
            f"{ours[0]['count']} samples, programs of {ours[0]['variables']} variables and "
            f"{ours[0]['rows']} rows.",
            "",
            "| | median | 99th percentile | CPU | error: median | worst |",
            "|---|---|---|---|---|---|",
        ]
        for one in ours:
            off = (
                ("", "") if one["error"] is None else (f"{one[n]:.1g}" for n in ("error", "worst"))
            )
            text.append(
                f"| {one['what']} | {one['median']:.2f} | {one['p99']:.2f} | {one['cpu']:.2f} | "
                f"{' | '.join(off)} |"
            )
    return "\n".join(text) + "\n"


def main() -> None:
    """Measure, and write the page."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--samples", type=int, default=300)
    arguments.add_argument("--passes", type=int, default=7)
    chosen = arguments.parse_args()
    if any(os.environ.get(name) != value for name, value in ONE_CORE.items()):
        # Libraries read these when they are loaded, so the program begins again with them.
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_CORE)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rows: list[dict[str, Any]] = []
    RESULTS.mkdir(exist_ok=True)
    for way in WAYS:  # what was measured is there, should the rest take too long
        rows += rows_of(way, chosen.samples, chosen.passes)
        (RESULTS / "control.json").write_text(json.dumps(rows, indent=1) + "\n")
        (RESULTS / "control.md").write_text(page(rows, chosen.passes))


if __name__ == "__main__":
    main()
