"""What the comparison of Theorem 1's bound with both processes says: claims and notes."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedkoopman.paper.items import FAILS, HOLDS, Claim
from fedkoopman.paper.verdicts import number

Row = dict[str, Any]

PROCESSES = {"appendix": "appendix's process", "fedavg-m": "FedAvg-M"}


def all_steps(numbers: dict[str, Any]) -> list[int]:
    """The values of E in the grid."""
    return sorted({row["E"] for row in numbers["grid"]})


def first_violation(rows: Iterable[Row], key: str) -> float | None:
    """The largest p below which a ratio to the bound exceeds 1; None if it never does.

    It is interpolated between neighbours of the grid, both on logarithmic scales.
    """
    falling = sorted((row for row in rows if row["p"] > 0), key=lambda row: -float(row["p"]))
    for place, row in enumerate(falling):
        if row[key] <= 1:
            continue
        if place == 0:
            return float(row["p"])
        before = falling[place - 1]
        share = np.log(before[key]) / (np.log(before[key]) - np.log(row[key]))
        return float(before["p"] * (row["p"] / before["p"]) ** share)
    return None


def problems_of(numbers: dict[str, Any]) -> dict[str, list[Row]]:
    """The rows of each problem other than the default one."""
    rows = numbers["others"]
    names = dict.fromkeys(row["problem"] for row in rows)
    return {name: [row for row in rows if row["problem"] == name] for name in names}


NEGLIGIBLE = 0.01
"""A smaller relative change is negligible."""


def claims_of(numbers: dict[str, Any]) -> tuple[Claim, ...]:
    """The paper's statements about the bound, and ours."""
    return (
        _where_proved(numbers),
        _for_every_p(numbers),
        _for_fedavg_m(numbers),
        _forms(numbers),
        _errors_in_bound(numbers["uneven"], "printed"),
        _errors_in_bound(numbers["uneven"], "derived"),
        _errors_in_process(numbers["uneven"]),
    )


def _where_proved(numbers: dict[str, Any]) -> Claim:
    worst = max(row["appendix_derived_worst"] for row in numbers["never_empty"])
    proved = [
        row
        for row in numbers["simulated"]
        if row["process"] == "appendix" and (row["never_empty"] or row["p"] == 1)
    ]
    most = max(row["most"] for row in proved)
    count = len({row["p"] for row in numbers["never_empty"]})
    steps = ", ".join(map(str, all_steps(numbers)))
    return Claim(
        "Theorem 1 bounds the appendix's process where every round selects somebody, as its proof "
        "needs (p = 1; or any p, if empty rounds are drawn again)",
        HOLDS if max(worst, most) <= 1 else FAILS,
        f"expected ‖ω_t − ω*‖² at most {number(worst)} of the derived bound ({count} values of p, "
        f"E = {steps}); means over draws plus 4 standard errors at most {number(most)} of it",
        ours=True,
    )


def _for_every_p(numbers: dict[str, Any]) -> Claim:
    silent = "".join(
        f"; at p = 0, where clients never exchange anything, "
        f"{number(row['appendix_derived_worst'])} times (E = 1)"
        for row in numbers["grid"]
        if row["p"] == 0 and row["E"] == 1
    )
    return _bounded(
        "Theorem 1 bounds the appendix's process for every p",
        numbers,
        "appendix",
        f"expected ‖ω_t − ω*‖² above the derived bound: {_by_steps(numbers, 'appendix')}{silent}",
        "after a round without a selected client, clients hold different models: Lemma 1 takes "
        "them all to start from ω_{t_0}, Lemma 2 to have drifted for E − 1 steps at most (for "
        f"none at E = 1); {_drift(numbers)}",
    )


def _for_fedavg_m(numbers: dict[str, Any]) -> Claim:
    return _bounded(
        "the bounded sequence is the server's model of FedAvg-M after every round",
        numbers,
        "fedavg-m",
        f"FedAvg-M above the derived bound: {_by_steps(numbers, 'fedavg-m')}",
        "FedAvg-M's server gains nothing in a round without data, while the recursion contracts "
        "in every slot; both processes are one where no round is empty",
    )


def _bounded(text: str, numbers: dict[str, Any], process: str, derived: str, why: str) -> Claim:
    """Whether a process stays below both forms of the bound."""
    printed = _exceeded(numbers, process, "printed")
    rows = numbers["grid"] + numbers["others"]
    broken = bool(printed) or any(row[f"{process}_derived_worst"] > 1 for row in rows)
    return Claim(
        text,
        FAILS if broken else HOLDS,
        f"{derived}; {_drawn(numbers, process)}; above the printed one: "
        f"{printed or 'in no problem'}",
        why if broken else "",
    )


def _forms(numbers: dict[str, Any]) -> Claim:
    rows = numbers["grid"] + numbers["others"]
    last = [row for row in numbers["grid"] if row["p"] == 1]
    useful = [row for row in numbers["grid"] if row["printed_useful_from"] is not None]
    ratio = ", ".join(
        f"{number(row['printed_end'] / row['derived_end'])} times (E = {row['E']})" for row in last
    )
    initial = numbers["problem"]["initial"]
    ends = number(max(row["printed_end"] for row in last) / initial)
    verdict = all(row["printed_over_derived_least"] >= 1 for row in rows)
    return Claim(
        "the variance term without η_t², as printed, gives the looser bound for η_t ≤ 1",
        HOLDS if verdict else FAILS,
        f"at p = 1 after {numbers['sizes']['slots']:,} slots: {ratio} the derived bound; it is "
        + ("at times below" if useful else "never below")
        + " the distance at the start",
        "without η_t² the term does not shrink with the steps, while μη_t, by which the "
        f"distance contracts, does: at p = 1 the printed bound ends at up to {ends} times the "
        "distance at the start",
        ours=True,
    )


MATTER = "both the average and the worst-case error variance matter:"


def _errors_in_bound(uneven: dict[str, Any], form: str) -> Claim:
    """In one form of the bound: the sentence speaks of the printed one."""
    average, worst = _changes(uneven[form])
    verdict = _both(average, worst)
    reasons = {
        "printed": "the average stands in the term that lacks η_t², which does not shrink as the "
        f"steps do (η_t² = {number(uneven['last_step_size'] ** 2)} in the last slot) and "
        "outgrows all others; the worst case stands in one that has it",
        "derived": "both stand in terms with η_t², but the average is divided by N² there, where "
        "the worst case has the weight Σ_k C_k E², beside G²",
    }
    return Claim(
        f"{MATTER} in the bound as {form}",
        verdict,
        f"p = {uneven['p']:g}, E = 1, bound after the last slot: {_percent(worst)} if the same "
        f"average lies on one client, {_percent(average)} if all but one client have no error "
        "(same worst case)",
        f"{_without_part(average, worst)}: {reasons[form]}" if verdict == FAILS else "",
    )


def _errors_in_process(uneven: dict[str, Any]) -> Claim:
    average, worst = _changes(uneven["process"])
    verdict, part = _both(average, worst), _without_part(average, worst)
    return Claim(
        f"{MATTER} in the process that is bounded",
        verdict,
        f"expected ‖ω_t − ω*‖² after the last slot, the same changes: {_percent(worst)}, "
        f"whichever client it is, and {_percent(average)}",
        f"{part}; with quadratic losses the expected distance is linear in the σ_n², so that only "
        "a weighted average of them enters; the maximum comes from bounding every client's drift "
        "by the worst one's"
        if verdict == FAILS
        else "",
    )


def _both(average: float, worst: float) -> str:
    """Whether both changes are more than negligible: of bound and process alike."""
    return HOLDS if min(abs(average), abs(worst)) > NEGLIGIBLE else FAILS


def _without_part(average: float, worst: float) -> str:
    names = {"average": average, "worst case": worst}
    small = [name for name, change in names.items() if abs(change) <= NEGLIGIBLE]
    if not small:
        return ""
    return f"the {' and the '.join(small)} changes it by no more than {100 * NEGLIGIBLE:g} %"


def _changes(ends: dict[str, Any]) -> tuple[float, float]:
    """Relative changes: of a lower average at the same worst case, and the other way round."""
    lone = np.array(ends["same_worst"]) / ends["even"] - 1
    gathered = np.array(ends["same_average"]) / ends["even"] - 1
    return float(lone.mean()), float(gathered[np.argmax(np.abs(gathered))])


def _percent(change: float) -> str:
    if abs(change) < 5e-4:
        return "under ±0.05 %"
    return f"{100 * change:+.2g} %".replace("-", "−")


def _by_steps(numbers: dict[str, Any], process: str) -> str:
    key = f"{process}_derived_worst"
    parts = []
    for steps in all_steps(numbers):
        rows = [row for row in numbers["grid"] if row["E"] == steps and row["p"] > 0]
        first, worst = first_violation(rows, key), max(rows, key=lambda row: float(row[key]))
        parts.append(
            f"E = {steps} not within the grid (at most {number(worst[key])} of it)"
            if first is None
            else f"E = {steps} below p ≈ {first:.2g} (at most {number(worst[key])} times, at "
            f"p = {worst['p']:g})"
        )
    return "; ".join(parts)


def _drawn(numbers: dict[str, Any], process: str) -> str:
    """The largest mean over draws, less 4 standard errors, against the bound from measured G²."""
    rows = [row for row in numbers["simulated"] if row["process"] == process]
    row = max(rows, key=lambda row: float(row["least"]))
    return (
        f"mean over draws less 4 standard errors {number(row['least'])} times the bound at "
        f"p = {row['p']:g}, E = {row['E']}"
    )


def _exceeded(numbers: dict[str, Any], process: str, form: str) -> str:
    """Problems in which the bound is exceeded at E = 1, and from which p on."""
    key, parts = f"{process}_{form}_worst", []
    default = [row for row in numbers["grid"] if row["E"] == 1]
    for name, rows in {"default problem": default, **problems_of(numbers)}.items():
        first = first_violation(rows, key)
        if first is not None:
            most = max(row[key] for row in rows)
            parts.append(f"“{name}” below p ≈ {first:.2g} (at most {number(most)} times)")
    return ", ".join(parts)


def _drift(numbers: dict[str, Any]) -> str:
    rows = [row for row in numbers["grid"] if row["E"] == 1]
    first = first_violation(rows, "lemma1")
    if first is None:
        return "Lemma 1's bound on the drift is kept within the grid"
    return f"their drift exceeds Lemma 1's bound on it below p ≈ {first:.2g} (E = 1)"


def notes_of(numbers: dict[str, Any]) -> tuple[str, ...]:
    """The problem, how tight the bound is, other problems, and other gaps in the proof."""
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
    """A note on every p at which the ratio is largest in the last slot."""
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
