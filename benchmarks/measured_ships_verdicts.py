"""Rows of the ships' tables, who is best in them, and which goals are met."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from accuracy_page import short
from measured_ships_data import LABORATORIES
from measured_ships_federation import TESTS

SAME, OTHERS = 1.1, 0.5
"""Of a laboratory's error alone: on its own manoeuvres, and on the other's, at most."""


@dataclass(frozen=True)
class Row:
    """A model in a table."""

    name: str
    scores: Mapping[str, float | None]
    note: str = ""

    @property
    def cells(self) -> list[object]:
        known = [
            "not finite" if value is not None and not np.isfinite(value) else value
            for value in self.scores.values()
        ]
        return [self.name, self.note, *known]


def winners(rows: Sequence[Sequence[object]]) -> str:
    """Whose error is the least in each column of a table that begins with name and setting."""
    told = []
    for column, test in enumerate(TESTS, start=2):
        known = [row for row in rows if isinstance(row[column], float)]
        best = min(known, key=lambda row: row[column])
        told.append(f"{test}: {str(best[0]).strip('*')} ({short(best[column])})")
    return f"Least errors: {'; '.join(told)}."


def judged(rows: Mapping[str, Row], test: str, how: str) -> list[dict]:
    """The issue's two goals on one test: half of the other's error, 1.1 times one's own.

    A laboratory alone counts with the better of its two settings on this very test: the federation
    is not to win because somebody chose badly.
    """
    lab = TESTS[test][0]
    found = []
    for one in LABORATORIES:
        alone = min(rows[f"{one.name} {key}"].scores[test] for key in ("own", "same"))
        mine = rows["federated"].scores[test]
        most = SAME if one is lab else OTHERS
        found.append(
            {
                "goal": f"{test}, {how}: federated at most {most:g} × {one.name.upper()} alone",
                "result": f"{short(mine)} and {short(alone)}: {mine / alone:.2f} ×",
                "met": bool(mine <= most * alone),
            }
        )
    return found
