"""What a reader of the Theorem 1 item must know beside its claims."""

from collections.abc import Sequence
from typing import Any

from fedkoopman.paper.judging import number
from fedkoopman.paper.theorem1_rows import Row, first_violation, problems_of

__all__ = ["notes_of"]


def notes_of(numbers: dict[str, Any]) -> tuple[str, ...]:
    """The problem, how tight the bound is, other problems, and what else is amiss in the proof."""
    problem, sizes = numbers["problem"], numbers["sizes"]
    tight = "; ".join(
        f"E = {row['E']}: {number(1 / row['appendix_derived_worst'])} times the expected distance "
        f"at its tightest, {number(1 / row['appendix_derived_end'])} times after the last slot, "
        f"below the distance at the start {_useful(row, sizes['slots'])}"
        for row in numbers["grid"]
        if row["p"] == 0.5
    )
    off = max(row["off"] for row in numbers["simulated"] if row["off"] is not None)
    [noisy] = numbers["noisy"]
    thresholds = "; ".join(
        f"{name}: {_below(rows, 'appendix')} and {_below(rows, 'fedavg-m')}"
        for name, rows in problems_of(numbers).items()
    )
    return (
        "Quadratic losses in {dim} dimensions, N = {clients}, L = {smoothness:g}, μ = "
        "{convexity:g}, Γ = {heterogeneity:g}, ‖ω_0 − ω*‖² = {initial:g}, δ_n = "
        "{gradient_noise:g}, σ_n = {error:g}; η_t = 2/(μ(γ + t)), γ = max(8L/μ, E); ".format(
            **problem
        )
        + f"{sizes['slots']:,} slots. G² is the largest E‖∇L_n(ω_t^n; ξ)‖² along the run.",
        f"Lines are exact expectations; means over {sizes['draws']:,} draws differ from "
        f"them by at most {number(off)} standard errors after their last slot.",
        f"How tight the derived bound is at p = 0.5: {tight}.",
        f"Other problems, E = 1, {sizes['slots_of_others']:,} slots; the appendix's process and "
        f"FedAvg-M exceed the derived bound below p ≈: {thresholds}.",
        "Table: the largest ratio, over all slots, of the expected distance to the derived bound. "
        "Clients that keep their own results drift apart with the number of rounds since they "
        "were last alike. The mean square of that number is (1 + q)/(1 − q)², q = (1 − p)^N, in "
        "the long run (third column); the proof takes it to be 1.",
        *_longer(numbers),
        "Lemma 2 also leaves the error e out of the clients' drift: with E > 1 it needs G² + σ² "
        f"where it has G². At p = {noisy['p']:g}, E = {noisy['E']} and an error that outweighs the "
        f"gradients the drift is {number(noisy['lemma2'])} times what Lemma 2 uses for it; the "
        f"expected distance is {number(noisy['appendix_derived_worst'])} of the derived bound at "
        "worst. Lemma 1 prints e without the η that the definition of ν gives it; with η its "
        "result is right.",
    )


def _longer(numbers: dict[str, Any]) -> tuple[str, ...]:
    """At which p the largest ratio is the last."""
    slots = numbers["sizes"]["slots"]
    growing = [
        row["p"]
        for row in numbers["grid"]
        if row["E"] == 1 and row["appendix_derived_worst_slot"] == slots
    ]
    if not growing:
        return ()
    return (
        f"At p = {', '.join(f'{p:g}' for p in growing)} (E = 1) the ratio of the appendix's "
        f"process to the bound is largest in the last of {slots:,} slots: thresholds belong to "
        "runs of this length.",
    )


def _below(rows: Sequence[Row], process: str) -> str:
    first = first_violation(rows, f"{process}_derived_worst")
    return "none in the grid" if first is None else f"{first:.2g}"


def _useful(row: Row, slots: int) -> str:
    first = row["derived_useful_from"]
    return f"not within {slots:,} slots" if first is None else f"after slot {first:,}"
