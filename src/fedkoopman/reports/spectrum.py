"""The spectrum of K: how fast each mode turns and fades, and what moves with it."""

import cmath
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedkoopman.koopman.pace import growth_warning, pace
from fedkoopman.reports.blocks import Block, Section, chart, line, panel, section, table, text
from fedkoopman.reports.run_files import RunFiles
from fedkoopman.reports.wording import counted, number

__all__ = ["inputs_section", "spectrum_section"]

LISTED_MODES, MOST_STATES = 200, 12


def spectrum_section(runs: Mapping[str, RunFiles]) -> Section:
    """The eigenvalues of the operator, drawn and listed."""
    run = next(iter(runs.values()))
    rollout = run.rollout
    if rollout is None:
        return section(
            "spectrum", "Spectrum and modes", text("Written when the run ends.", "caption")
        )
    rows = modes_of(run)
    depth = int(run.study.get("network", {}).get("depth", 1))
    count = sum(2 if row["pair"] else 1 for row in rows)
    steps = f"{depth} × {number(rollout.dt, 4)}" if depth > 1 else number(rollout.dt, 4)
    several = len(run.seeds) + len(run.waiting) > 1
    of = f" Model of seed {run.seeds[0].seed}, the first." if several else ""
    words = (
        f"The operator's {counted(count, 'eigenvalue')} λ; one application advances {steps} time "
        "units. Inside the unit circle a mode fades, outside it grows; its angle is its frequency. "
        f"Frequencies are turns per time unit, the other times in time units.{of}"
    )
    warning = growth_warning(rows)
    return section(
        "spectrum",
        "Spectrum and modes",
        text(words, "caption"),
        text(warning, "warning") if warning else None,
        _plane(runs),
        _table(rows),
    )


def modes_of(run: RunFiles) -> list[dict[str, Any]]:
    """Rows as of `koopman.card.spectrum_rows`; from the eigenvalues where a run has no more."""
    rollout = run.rollout
    assert rollout is not None
    told = run.evidence.get("spectrum")
    if isinstance(told, list) and told:
        return [dict(row) for row in told]
    step = rollout.dt * int(run.study.get("network", {}).get("depth", 1))
    finite = [complex(v) for v in rollout.eigenvalues if cmath.isfinite(complex(v))]
    finite.sort(key=lambda v: (-abs(v), abs(v.imag), v.imag))
    return [_row(v, step) for v in finite if v.imag >= 0]


def _row(value: complex, step: float) -> dict[str, Any]:
    rate = cmath.log(value) / step if value else None
    return {
        "eigenvalue": [value.real, value.imag],
        "pair": value.imag > 0,
        "modulus": abs(value),
        "frequency": abs(rate.imag) / (2 * math.pi) if rate is not None else None,
        "decay_rate": -rate.real if rate is not None else None,
        "half_life": -math.log(2) / rate.real if rate is not None and rate.real else None,
        "mode": {},
    }


def _name(row: Mapping[str, Any], sign: str = "±") -> str:
    real, imag = row["eigenvalue"]
    return f"{number(real, 4)} {sign} {number(abs(imag), 4)} i" if row["pair"] else number(real, 4)


def _period(row: Mapping[str, Any]) -> str:
    return number(1 / row["frequency"], 4) if row["frequency"] else "–"


def _plane(runs: Mapping[str, RunFiles]) -> Block:
    lines: list[Block] = []
    for place, (name, run) in enumerate(runs.items()):
        if run.rollout is None:
            continue
        rows = modes_of(run)
        fade, grow = (
            [row for row in rows if (row["modulus"] > 1) == grows] for grows in (False, True)
        )
        if len(runs) > 1:
            kinds = [(name, "abcdef"[place % 6], rows)]
        else:
            kinds = [("fades", "a", fade), ("grows", "b", grow)]
        for words, colour, members in kinds:
            if members:
                lines += [_points(words, colour, members), _pace_points(words, colour, members)]
    return chart(
        "spectrum-plane", "Eigenvalues in the complex plane",
        "Eigenvalues of K with the unit circle, and the modes by frequency and by the time in "
        "which they halve or double; hovering tells frequency, period and pace.",
        [panel("real part", "imaginary part", equal=True, circle=True, xrange=_reach(runs),
               yrange=_reach(runs)),
         panel("frequency, turns per time unit", "time to halve, or to double", log=True,
               nearest=True)],
        lines, columns=2, height=420,
    )  # fmt: skip


def _reach(runs: Mapping[str, RunFiles]) -> tuple[float, float]:
    most = max(
        (row["modulus"] for run in runs.values() if run.rollout is not None
         for row in modes_of(run)), default=1.0,
    )  # fmt: skip
    return -1.1 * max(1.0, most), 1.1 * max(1.0, most)


def _points(name: str, colour: str, rows: list[dict[str, Any]]) -> Block:
    x, y, words = list[float](), list[float](), list[str]()
    for row in rows:
        real, imag = row["eigenvalue"]
        told = (
            f"λ = {{}}\n|λ| = {number(row['modulus'], 4)}\n"
            f"frequency {number(row['frequency'] or 0.0, 4)}, period {_period(row)}\n{pace(row)}"
        )
        for part, sign in ((imag, "+"), (-imag, "−")) if row["pair"] else ((imag, ""),):
            x.append(real)
            y.append(part)
            words.append(told.format(_name(row, sign)))
    return line(name, np.array(x), np.array(y), colour, style="dots", words=words)


def _pace_points(name: str, colour: str, rows: list[dict[str, Any]]) -> Block:
    known = [row for row in rows if row["half_life"] and row["frequency"] is not None]
    words = [f"λ = {_name(row)}\nfrequency {number(row['frequency'], 4)}, period {_period(row)}\n"
             f"{pace(row)}" for row in known]  # fmt: skip
    return line(
        name, np.array([row["frequency"] for row in known]),
        np.array([abs(row["half_life"]) for row in known]), colour, panel=1, style="dots",
        words=words,
    )  # fmt: skip


def _table(rows: list[dict[str, Any]]) -> Block:
    states = list(rows[0]["mode"])[:MOST_STATES] if rows else []
    head = ["eigenvalue λ", "|λ|", "frequency", "period", "pace"]
    head += [f"moves {name}" for name in states]
    cells = [
        [
            _name(row),
            (number(row["modulus"], 4), "number"),
            (number(row["frequency"] or 0.0, 4), "number"),
            (_period(row), "number"),
            (pace(row), "number worse" if (row["half_life"] or 0) < 0 else "number"),
            *((number(row["mode"].get(name, 0.0), 2), "number") for name in states),
        ]
        for row in rows[:LISTED_MODES]
    ]
    return table("modes", head, cells)


def inputs_section(run: RunFiles) -> Section | None:
    """What drives the model, and what one unit of each input does in one step."""
    rollout = run.rollout
    if rollout is None or not rollout.driven_by:
        return None
    names = list(rollout.driven_by[0]["moves"])[:MOST_STATES]
    rows = [
        [row["name"], *((f"{row['moves'][n]:+.3g}", "number") for n in names)]
        for row in rollout.driven_by
    ]
    return section(
        "driven", "What the inputs do",
        text(
            "By how much one unit of an input, held from one sample to the next, moves each state "
            "in that step, at the mean of the training states.",
            "caption",
        ),
        table("inputs", ["input", *names], rows),
    )  # fmt: skip
