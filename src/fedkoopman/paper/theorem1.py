"""Theorem 1 on quadratic losses: the bound, the process that it is proved for, and FedAvg-M.

Expectations are exact (`quadratic_moments`); simulated means over draws stand beside them.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedkoopman.paper.quadratics import Quadratics, draw_quadratics
from fedkoopman.paper.result import Findings, Options, Tell
from fedkoopman.paper.theorem1_comparison import compare, compare_draws, uneven_errors
from fedkoopman.paper.theorem1_findings import findings_of
from fedkoopman.version import __version__

__all__ = ["ITEM"]

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
"""Other problems, by what is different in them."""

NOISY = {"heterogeneity": 0.01, "initial": 0.01, "gradient_noise": 0.0, "error": 10.0}
"""A problem in which the error outweighs the gradients."""


@dataclass(frozen=True)
class Sizes:
    """How much is computed."""

    slots: int
    slots_of_others: int
    slots_simulated: int
    draws: int
    probabilities: tuple[float, ...]
    simulated: tuple[float, ...]


FULL = Sizes(
    slots=30_000,
    slots_of_others=10_000,
    slots_simulated=2_000,
    draws=1_000,
    probabilities=(
        1, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4, 0,
    ),
    simulated=(1, 0.5, 0.01, 0.001),
)  # fmt: skip
FAST = Sizes(400, 200, 200, 50, (1, 0.5, 0.1, 0.01, 0.001, 0), (1, 0.5, 0.01, 0.001))

STEPS, STEPS_SIMULATED = (1, 5, 10), (1, 5)
"""E; of other problems 1."""

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
        sizes = _sizes(options)
        return {
            "version": __version__,
            "seed": options.seed,
            "problem": PROBLEM,
            "other_problems": OTHERS,
            "noisy_problem": NOISY,
            "step_sizes": "2 / (mu (gamma + t)), gamma = max(8 L / mu, E)",
            "local_steps": list(STEPS),
            "local_steps_simulated": list(STEPS_SIMULATED),
            "uneven_errors_at": UNEVEN,
            **_listed(sizes),
        }

    def compute(self, options: Options, tell: Tell) -> dict[str, Any]:
        """Expectations over all p, other problems, simulated means, uneven errors."""
        sizes = _sizes(options)
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
            "sizes": _listed(sizes),
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
        """Claims, table and panels."""
        return findings_of(numbers)


def _sizes(options: Options) -> Sizes:
    return FAST if options.fast else FULL


def _listed(sizes: Sizes) -> dict[str, Any]:
    values = asdict(sizes)
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def _problem(seed: int, changes: dict[str, Any] | None = None) -> Quadratics:
    return draw_quadratics(np.random.default_rng([seed, 0]), **{**PROBLEM, **(changes or {})})


ITEM = Theorem1()
