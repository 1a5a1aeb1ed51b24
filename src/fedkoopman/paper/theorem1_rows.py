"""The rows of the comparison of Theorem 1's bound with both processes, and how they are read."""

from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["PROCESSES", "Row", "all_steps", "first_violation", "problems_of"]

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
