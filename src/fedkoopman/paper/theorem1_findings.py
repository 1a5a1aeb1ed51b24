"""What the comparison of Theorem 1's bound with both processes says."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedkoopman.paper.judging import number
from fedkoopman.paper.result import FAILS, HOLDS, Claim, Findings
from fedkoopman.paper.theorem1_notes import notes_of
from fedkoopman.paper.theorem1_rows import all_steps, first_violation, problems_of
from fedkoopman.paper.theorem1_showing import csv_of, panels_of, table_of

__all__ = ["findings_of"]

NEGLIGIBLE = 0.01
"""Relative change below which something plays no role."""


def findings_of(numbers: dict[str, Any]) -> Findings:
    """Claims, table, panels and CSV."""
    return Findings(
        claims=(
            _where_proved(numbers),
            _for_every_p(numbers),
            _for_fedavg_m(numbers),
            _forms(numbers),
            _errors_in_bound(numbers["uneven"]),
            _errors_in_process(numbers["uneven"]),
        ),
        table=table_of(numbers),
        numbers=csv_of(numbers),
        panels=panels_of(numbers),
        notes=notes_of(numbers),
        sources=(("all numbers", _command(numbers)),),
    )


def _command(numbers: dict[str, Any]) -> str:
    fast = " --fast" if numbers["fast"] else ""
    return f"fedkoopman reproduce theorem1 --seed {numbers['seed']}{fast}"


def _where_proved(numbers: dict[str, Any]) -> Claim:
    worst = max(row["appendix_derived_worst"] for row in numbers["never_empty"])
    proved = [
        row
        for row in numbers["simulated"]
        if row["process"] == "appendix" and (row["never_empty"] or row["p"] == 1)
    ]
    most = max(row["most"] for row in proved)
    count = len({row["p"] for row in numbers["never_empty"]})
    return Claim(
        "Theorem 1 bounds the appendix's process where every round selects somebody, as its proof "
        "needs (p = 1; or any p, if empty rounds are drawn again)",
        HOLDS if max(worst, most) <= 1 else FAILS,
        f"expected ‖ω_t − ω*‖² at most {number(worst)} of the derived bound ({count} values of p, "
        f"E = {_listed(all_steps(numbers))}); means over draws plus 4 standard errors at most "
        f"{number(most)} of it",
        ours=True,
    )


def _for_every_p(numbers: dict[str, Any]) -> Claim:
    printed = _exceeded(numbers, "appendix", "printed")
    at_zero = [row for row in numbers["grid"] if row["p"] == 0 and row["E"] == 1]
    silent = "".join(
        f"; at p = 0, where clients never exchange anything, "
        f"{number(row['appendix_derived_worst'])} times (E = 1)"
        for row in at_zero
    )
    broken = bool(printed) or _violated(numbers, "appendix")
    return Claim(
        "Theorem 1 bounds the appendix's process for every p",
        FAILS if broken else HOLDS,
        f"expected ‖ω_t − ω*‖² above the derived bound: {_by_steps(numbers, 'appendix')}{silent}; "
        f"{_drawn(numbers, 'appendix')}; above the printed one: {printed or 'in no problem'}",
        "after a round without a selected client, clients hold different models: Lemma 1 takes "
        "them all to start from ω_{t_0}, Lemma 2 to have drifted for E − 1 steps at most (for "
        f"none at E = 1); {_drift(numbers)}"
        if broken
        else "",
    )


def _for_fedavg_m(numbers: dict[str, Any]) -> Claim:
    printed = _exceeded(numbers, "fedavg-m", "printed")
    broken = bool(printed) or _violated(numbers, "fedavg-m")
    return Claim(
        "the bounded sequence is the server's model of FedAvg-M after every round",
        FAILS if broken else HOLDS,
        f"FedAvg-M above the derived bound: {_by_steps(numbers, 'fedavg-m')}; "
        f"{_drawn(numbers, 'fedavg-m')}; above the printed one: {printed or 'in no problem'}",
        "FedAvg-M's server gains nothing in a round without data, while the recursion contracts "
        "in every slot; both processes are one where no round is empty"
        if broken
        else "",
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


def _errors_in_bound(uneven: dict[str, Any]) -> Claim:
    average, worst = _changes(uneven, 0)
    return Claim(
        "both the average and the worst-case error variance matter: in the bound",
        _both(average, worst),
        f"p = {uneven['p']:g}, E = 1, bound after the last slot: {_percent(worst)} if the same "
        f"average lies on one client, {_percent(average)} if all but one client have no error "
        "(same worst case)",
        _without_part(average, worst),
    )


def _errors_in_process(uneven: dict[str, Any]) -> Claim:
    average, worst = _changes(uneven, 1)
    verdict, part = _both(average, worst), _without_part(average, worst)
    return Claim(
        "both the average and the worst-case error variance matter: in the process that is bounded",
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


def _changes(uneven: dict[str, Any], which: int) -> tuple[float, float]:
    """Relative changes: less average at the same worst, and more worst at the same average."""
    even = uneven["even"][which]
    lone = np.array([pair[which] for pair in uneven["same_worst"]]) / even - 1
    gathered = np.array([pair[which] for pair in uneven["same_average"]]) / even - 1
    return float(lone.mean()), float(gathered[np.argmax(np.abs(gathered))])


def _percent(change: float) -> str:
    if abs(change) < 5e-4:
        return "under ±0.05 %"
    return f"{100 * change:+.2g} %".replace("-", "−")


def _listed(values: Sequence[object]) -> str:
    return ", ".join(str(value) for value in values)


def _violated(numbers: dict[str, Any], process: str) -> bool:
    rows = numbers["grid"] + numbers["others"]
    return any(row[f"{process}_derived_worst"] > 1 for row in rows)


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
