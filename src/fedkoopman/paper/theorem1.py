"""Theorem 1 on quadratic losses: the bound, the process that it is proved for, and FedAvg-M.

Expectations are exact; means over simulated draws stand beside them (`quadratics`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedkoopman.paper.items import Findings, Numbers, Options, Panel, Series, Table, Tell
from fedkoopman.paper.quadratics import Quadratics, draw_quadratics
from fedkoopman.paper.theorem1_claims import PROCESSES, Row, all_steps, claims_of, notes_of
from fedkoopman.paper.theorem1_comparison import compare, compare_draws, uneven_errors
from fedkoopman.paper.verdicts import number
from fedkoopman.version import NUMERICS

PROBLEM: dict[str, Any] = {
    "clients": 5, "dim": 2, "smoothness": 2.0, "convexity": 1.0, "heterogeneity": 1.0,
    "initial": 1.0, "gradient_noise": 0.5, "error": 1.0,
}  # fmt: skip

OTHERS: dict[str, dict[str, Any]] = {
    "no noise": {"gradient_noise": 0.0, "error": 0.0},
    "10 clients": {"clients": 10},
    "losses more alike (Γ = 0.01)": {"heterogeneity": 0.01},
    "losses less alike (Γ = 100)": {"heterogeneity": 100.0},
    "one curvature (L = μ)": {"smoothness": 1.0},
    "L = 10 μ": {"smoothness": 10.0},
    "start 10 times as far": {"initial": 100.0},
}
"""Other problems: what each of them changes in the default one."""

NOISY = {"heterogeneity": 0.01, "initial": 0.01, "gradient_noise": 0.0, "error": 10.0}
"""A problem in which the error outweighs the gradients."""


@dataclass(frozen=True)
class Sizes:
    """How much is computed."""

    slots: int
    slots_of_others: int
    slots_simulated: int
    draws: int
    probabilities: list[float]
    simulated: list[float]


FULL = Sizes(
    slots=30_000,
    slots_of_others=10_000,
    slots_simulated=2_000,
    draws=1_000,
    probabilities=[
        1, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4, 0,
    ],
    simulated=[1, 0.5, 0.01, 0.001],
)  # fmt: skip
FAST = Sizes(400, 200, 200, 50, [1, 0.5, 0.1, 0.01, 0.001, 0], [1, 0.5, 0.01, 0.001])

STEPS, STEPS_SIMULATED = (1, 5, 10), (1, 5)
"""Values of E; other problems are computed with E = 1 only."""

SHOWN = (0.5, 0.001)
"""The p whose curves over slots are kept."""

UNEVEN = 0.5
"""The p at which average and worst error variance are compared."""


@dataclass(frozen=True)
class Theorem1:
    """The item."""

    def slots(self, options: Options) -> int:
        """It runs no studies."""
        return 0

    def settings(self, options: Options) -> dict[str, Any]:
        """Problems, sizes and the seed."""
        sizes = FAST if options.fast else FULL
        return {
            "version": NUMERICS,
            "form": 2,
            "seed": options.seed,
            "problem": PROBLEM,
            "other_problems": OTHERS,
            "noisy_problem": NOISY,
            "step_sizes": "2 / (mu (gamma + t)), gamma = max(8 L / mu, E)",
            "local_steps": list(STEPS),
            "local_steps_simulated": list(STEPS_SIMULATED),
            "uneven_errors_at": UNEVEN,
            **asdict(sizes),
        }

    def compute(self, options: Options, tell: Tell) -> dict[str, Any]:
        """Expectations over all p, other problems, simulated means, uneven errors."""
        sizes = FAST if options.fast else FULL
        problem = _problem(options.seed)
        grid, curves, regular = [], [], []
        for steps in STEPS:
            tell(f"expectations, E = {steps}")
            compared = compare(problem, steps, sizes.slots, sizes.probabilities)
            grid += compared.rows()
            curves += [compared.curves(p) for p in SHOWN]
            tell(f"expectations without empty rounds, E = {steps}")
            above = [p for p in sizes.probabilities if p > 0]
            regular += compare(problem, steps, sizes.slots, above, never_empty=True).rows()
        others = []
        for name, changes in OTHERS.items():
            tell(f"another problem: {name}")
            other = _problem(options.seed, changes)
            found = compare(other, 1, sizes.slots_of_others, sizes.probabilities)
            others += [{"problem": name, **row} for row in found.rows()]
        random = np.random.default_rng([options.seed, 1])
        simulated = []
        cases = [(p, False) for p in sizes.simulated] + [(min(sizes.simulated), True)]
        for steps in STEPS_SIMULATED:
            for p, never_empty in cases:
                tell(f"{sizes.draws:,} draws, E = {steps}, p = {p:g}")
                simulated += compare_draws(
                    problem, steps, sizes.slots_simulated, p, sizes.draws, random, never_empty
                )
        tell("uneven and large errors")
        noisy = _problem(options.seed, NOISY)
        return {
            "seed": options.seed,
            "fast": options.fast,
            "sizes": asdict(sizes),
            "problem": PROBLEM,
            "grid": grid,
            "never_empty": regular,
            "others": others,
            "curves": curves,
            "simulated": simulated,
            "uneven": uneven_errors(problem, sizes.slots_simulated, UNEVEN),
            "noisy": compare(noisy, 2, sizes.slots_simulated, [1.0]).rows(),
        }

    def findings(self, numbers: dict[str, Any]) -> Findings:
        """Claims, table, panels and CSV."""
        fast = " --fast" if numbers["fast"] else ""
        command = f"fedkoopman reproduce theorem1 --seed {numbers['seed']}{fast}"
        return Findings(
            claims=claims_of(numbers),
            table=table_of(numbers),
            numbers=csv_of(numbers),
            panels=panels_of(numbers),
            notes=notes_of(numbers),
            sources=(("all numbers", command),),
        )


def _problem(seed: int, changes: dict[str, Any] | None = None) -> Quadratics:
    return draw_quadratics(np.random.default_rng([seed, 0]), **{**PROBLEM, **(changes or {})})


def table_of(numbers: dict[str, Any]) -> Table:
    """A row per p: how likely empty rounds are, what they do to the drift, and the worst ratios."""
    columns = ["p", "empty rounds", "mean (rounds since alike)²", "drift / Lemma 1's, E = 1"]
    for steps in all_steps(numbers):
        columns += [f"E = {steps}: {name}" for name in PROCESSES.values()]
    rows = []
    for first in (row for row in numbers["grid"] if row["E"] == 1):
        since = first["rounds_square"]
        cells = [f"{first['p']:g}", f"{100 * first['empty']:.4g} %"]
        cells += ["–" if since is None else number(since), number(first["lemma1"])]
        for row in (row for row in numbers["grid"] if row["p"] == first["p"]):
            cells += [number(row[f"{process}_derived_worst"]) for process in PROCESSES]
        rows.append(tuple(cells))
    return Table(tuple(columns), tuple(rows))


def csv_of(numbers: dict[str, Any]) -> tuple[Numbers, ...]:
    """All comparisons, the curves over slots, and the draws."""
    base = [{"problem": "default", "empty_rounds": "kept", **row} for row in numbers["grid"]]
    base += [
        {"problem": "default", "empty_rounds": "drawn again", **row}
        for row in numbers["never_empty"]
    ]
    base += [{"empty_rounds": "kept", **row} for row in numbers["others"]]
    base += [{"problem": "large error", "empty_rounds": "kept", **row} for row in numbers["noisy"]]
    columns = tuple(base[0])
    lists = ("slots", "printed", "derived", *PROCESSES)
    curves = _flat(numbers["curves"], ("E", "p"), lists)
    drawn = ("slots", "mean", "uncertainty", "expected", "derived")
    draws = _flat(numbers["simulated"], ("E", "p", "process", "never_empty"), drawn)
    return (
        Numbers("", columns, tuple(tuple(row.get(name) for name in columns) for row in base)),
        Numbers("slots", ("E", "p", "slot", *lists[1:]), curves),
        Numbers("draws", ("E", "p", "process", "never_empty", "slot", *drawn[1:]), draws),
    )


def _flat(
    rows: Iterable[Row], single: Sequence[str], lists: Sequence[str]
) -> tuple[tuple[Any, ...], ...]:
    """Rows that hold lists, as one row per place in them."""
    return tuple(
        (*(row[name] for name in single), *values)
        for row in rows
        for values in zip(*(row[name] for name in lists), strict=True)
    )


def panels_of(numbers: dict[str, Any]) -> tuple[Panel, ...]:
    """Bounds and processes over slots at a large and a small p; worst ratios against p."""
    shown = [curve for curve in numbers["curves"] if curve["E"] == 1]
    return (*(_over_slots(curve, numbers) for curve in shown), _ratios(numbers))


def _over_slots(curve: Row, numbers: dict[str, Any]) -> Panel:
    def line(label: str, key: str, style: str = "line", muted: bool = False) -> Series:
        return Series(label, curve["slots"], curve[key], style=style, muted=muted)

    drawn = tuple(
        Series(
            f"mean over {numbers['sizes']['draws']:,} draws",
            row["slots"],
            row["mean"],
            style="points",
        )
        for row in numbers["simulated"]
        if (row["E"], row["p"], row["never_empty"]) == (1, curve["p"], False)
    )
    lines = (
        *(line(f"{name}, E = 1", process) for process, name in PROCESSES.items()),
        line("bound, derived", "derived", muted=True),
        line("bound, printed", "printed", style="dashed", muted=True),
    )
    title = f"p = {curve['p']:g}, E = 1"
    return Panel(title, "slot t", "E‖ω_t − ω*‖²", (*lines, *drawn), log_x=True, log_y=True)


def _ratios(numbers: dict[str, Any]) -> Panel:
    series = []
    for steps in all_steps(numbers)[:2]:
        rows = [row for row in numbers["grid"] if row["E"] == steps and row["p"] > 0]
        p = [row["p"] for row in rows]
        for process, name in PROCESSES.items():
            ratio = [row[f"{process}_derived_worst"] for row in rows]
            series.append(Series(f"{name}, E = {steps}", p, ratio))
    series.append(Series("bound, derived", [min(p), 1], [1, 1], muted=True))
    title = "worst slot, against p"
    return Panel(title, "p", "expected / bound", tuple(series), log_x=True, log_y=True)


ITEM = Theorem1()
