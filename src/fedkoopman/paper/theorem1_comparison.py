"""Theorem 1's bound beside both processes, on one quadratic problem."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.paper.quadratics import Expected, Process, Quadratics, expect, simulate
from fedkoopman.theory import Constants, bound, decreasing_steps, selected

Array = NDArray[np.float64]

PROCESSES: tuple[Process, ...] = ("appendix", "fedavg-m")


@dataclass(frozen=True, eq=False)
class Compared:
    """Both processes in expectation and the bound in both forms, by p.

    G² is the largest E‖∇L_n(ω_t^n; ξ)‖² along the run, the larger of both processes'.
    """

    problem: Quadratics
    steps: int
    step_sizes: Array
    probabilities: Sequence[float]
    never_empty: bool
    expected: dict[Process, Expected]

    def bounds(self, place: int) -> dict[str, Array]:
        """Both forms of the bound at one p, for t = 0 … T."""
        constants = self.problem.constants(
            self.gradient_square(place), self.probabilities[place], self.steps, self.never_empty
        )
        return {
            "printed": bound(constants, self.step_sizes, self.problem.initial, "printed"),
            "derived": bound(constants, self.step_sizes, self.problem.initial, "derived"),
        }

    def gradient_square(self, place: int) -> float:
        """G²."""
        return max(float(one.gradient_square[place]) for one in self.expected.values())

    def rows(self) -> list[dict[str, Any]]:
        """One row per p: the bounds, and how the processes compare with them."""
        return [self._row(place) for place in range(len(self.probabilities))]

    def _row(self, place: int) -> dict[str, Any]:
        p, initial = float(self.probabilities[place]), self.problem.initial
        empty = float(selected(self.problem.clients, p, self.never_empty)[0])
        row: dict[str, Any] = {
            "E": self.steps,
            "p": p,
            "empty": empty,
            "rounds_square": (1 + empty) / (1 - empty) ** 2 if empty < 1 else None,
            "gradient_square": self.gradient_square(place),
            "lemma1": self._lemma1(place),
            "lemma2": self._lemma2(place),
        }
        bounds = self.bounds(place)
        row["printed_over_derived_least"] = float((bounds["printed"] / bounds["derived"]).min())
        for form, values in bounds.items():
            below = np.flatnonzero(values < initial)
            row[f"{form}_end"] = float(values[-1])
            row[f"{form}_useful_from"] = int(below[0]) if below.size else None
            for process, one in self.expected.items():
                ratio = one.distance[place, 1:] / values[1:]
                row[f"{process}_{form}_worst"] = float(np.nanmax(ratio))
                row[f"{process}_{form}_worst_slot"] = int(np.nanargmax(ratio)) + 1
                row[f"{process}_{form}_end"] = float(ratio[-1])
                row[f"{process}_end"] = float(one.distance[place, -1])
        return row

    def _lemma1(self, place: int) -> float:
        """(1/N) Σ E‖ν_n − ν‖² at the end of rounds against Lemma 1's 4E²η_t²(G² + σ²), at worst."""
        ends = slice(self.steps - 1, None, self.steps)
        most = self.gradient_square(place) + float(self.problem.error.max()) ** 2
        proved = 4 * self.steps**2 * self.step_sizes[ends] ** 2 * most
        return float((self.expected["appendix"].spread[place, ends] / proved).max())

    def _lemma2(self, place: int) -> float | None:
        """(1/N) Σ E‖ω_t^n − ω_t‖² inside rounds against Lemma 2's 4(E−1)²η_t²G², at worst."""
        t = np.arange(1, len(self.step_sizes))
        t = t[t % self.steps > 0]
        if not t.size:
            return None
        proved = 4 * (self.steps - 1) ** 2 * self.step_sizes[t] ** 2 * self.gradient_square(place)
        return float((self.expected["appendix"].spread[place, t - 1] / proved).max())

    def curves(self, probability: float) -> dict[str, Any]:
        """Bounds and processes over slots at one p."""
        place = list(self.probabilities).index(probability)
        last = len(self.step_sizes) // self.steps
        rounds = np.unique(np.geomspace(1, last, 60).round().astype(int))
        t = np.concatenate([[0], rounds * self.steps])
        lines: dict[str, Array] = {**self.bounds(place)}
        for process, one in self.expected.items():
            lines[process] = one.distance[place]
        kept = {name: values[t].tolist() for name, values in lines.items()}
        return {"E": self.steps, "p": probability, "slots": t.tolist(), **kept}


def compare(
    problem: Quadratics,
    steps: int,
    slots: int,
    probabilities: Sequence[float],
    never_empty: bool = False,
) -> Compared:
    """Both processes and the bound, for several p.

    Without empty rounds both processes are one, and only the appendix's is computed.
    """
    which = PROCESSES[:1] if never_empty else PROCESSES
    sizes = decreasing_steps(problem.smoothness, problem.convexity, steps, slots)
    expected = {
        process: expect(
            problem, sizes, process, probabilities=probabilities, steps=steps,
            never_empty=never_empty,
        )
        for process in which
    }  # fmt: skip
    return Compared(problem, steps, sizes, probabilities, never_empty, expected)


def compare_draws(
    problem: Quadratics,
    steps: int,
    slots: int,
    probability: float,
    draws: int,
    random: np.random.Generator,
    never_empty: bool = False,
) -> list[dict[str, Any]]:
    """Means over draws of both processes, what is expected, and the bound from measured G²."""
    compared = compare(problem, steps, slots, [probability], never_empty)
    sizes = compared.step_sizes
    means = {
        process: simulate(
            problem, sizes, process, probability=probability, steps=steps, draws=draws,
            random=random, never_empty=never_empty,
        )
        for process in compared.expected
    }  # fmt: skip
    square = max(one.gradient_square for one in means.values())
    constants = problem.constants(square, probability, steps, never_empty)
    derived = bound(constants, sizes, problem.initial, "derived")
    ends = np.arange(steps, slots + 1, steps)
    shown = ends[np.unique(np.geomspace(1, len(ends), 7).round().astype(int)) - 1]
    rows = []
    for process, one in means.items():
        mean, error = one.distance, one.uncertainty
        expected = compared.expected[process].distance[0]
        rows.append(
            {
                "E": steps,
                "p": probability,
                "process": process,
                "never_empty": never_empty,
                "worst": float((mean[ends] / derived[ends]).max()),
                "least": float(((mean - 4 * error)[ends] / derived[ends]).max()),
                "most": float(((mean + 4 * error)[ends] / derived[ends]).max()),
                "off": float(abs(mean[-1] - expected[-1]) / error[-1]) if error[-1] else None,
                "slots": shown.tolist(),
                "mean": mean[shown].tolist(),
                "uncertainty": error[shown].tolist(),
                "expected": expected[shown].tolist(),
                "derived": derived[shown].tolist(),
            }
        )
    return rows


def uneven_errors(problem: Quadratics, slots: int, probability: float) -> dict[str, Any]:
    """What uneven errors do to the bound and to the expected distance after the last slot, E = 1.

    G is that of the given problem in all cases.

    Returns:
        by `printed` and `derived`, which are forms of the bound, and `process`, the expected
        distance: `even` of the problem as it is; `same_average` with all error variance on one
        client, for each client; `same_worst` with that client's own error alone.
    """
    sizes = decreasing_steps(problem.smoothness, problem.convexity, 1, slots)
    first = expect(problem, sizes, "appendix", probabilities=[probability], steps=1)
    constants = problem.constants(float(first.gradient_square[0]), probability, 1)

    def printed(error: Array) -> float:
        return float(bound(changed(error), sizes, problem.initial, "printed")[-1])

    def derived(error: Array) -> float:
        return float(bound(changed(error), sizes, problem.initial, "derived")[-1])

    def process(error: Array) -> float:
        other = replace(problem, error=error)
        found = expect(other, sizes, "appendix", probabilities=[probability], steps=1)
        return float(found.distance[0, -1])

    def changed(error: Array) -> Constants:
        return replace(constants, error=tuple(error.tolist()))

    total = np.sqrt(np.sum(problem.error**2))
    alone = np.eye(problem.clients)
    ends = {"printed": printed, "derived": derived, "process": process}
    return {
        "p": probability,
        "last_step_size": float(sizes[-1]),
        **{
            name: {
                "even": end(problem.error),
                "same_average": [end(total * one) for one in alone],
                "same_worst": [end(problem.error * one) for one in alone],
            }
            for name, end in ends.items()
        },
    }
