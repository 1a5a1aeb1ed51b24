"""How the runs on the measured double pendulum are shown: table, figure and CSV."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedkoopman.paper.arms import Measured
from fedkoopman.paper.double_pendulum_arms import (
    CONSECUTIVE,
    FREE,
    FREE_MATCHED,
    LINEAR,
    LINEAR_CONSECUTIVE,
    PERFECT,
    RANDOM,
)
from fedkoopman.paper.double_pendulum_parts import HELD, MOVING
from fedkoopman.paper.items import Cell, Numbers, Panel, Series, Table
from fedkoopman.paper.judging import curves, mean_and_spread
from fedkoopman.paper.verdicts import number, ratio

COLUMNS = ("loss", "l2", "l3", "E", "E1")
TOLD_APART = (RANDOM, CONSECUTIVE, LINEAR, LINEAR_CONSECUTIVE)
"""Settings whose scores are given for both parts of the test samples."""


def table(found: Mapping[str, Measured]) -> Table:
    """All settings, then the two parts of the test samples, then what nobody trained."""
    first = found[RANDOM]
    rows = [
        (
            arm.label,
            *(mean_and_spread(arm.tail(metric)) for metric in COLUMNS),
            ratio(arm.tail("l3"), arm.persistence("l3")).words,
            f"{arm.table['renewals']:.0f}",
        )
        for arm in found.values()
    ]
    rows += [_part_row(found[label], part) for part in (HELD, MOVING) for label in TOLD_APART]
    untrained = tuple(mean_and_spread(first.untrained(metric)) for metric in COLUMNS)
    rows.append(("paper's network, untrained", *untrained, "–", "–"))

    def held(where: str, l3: float, e: float) -> tuple[str, ...]:
        name = f"persistence{where}"
        return name, "–", "0", number(l3), number(e), number(e), "–", "–"

    rows.append(held("", first.persistence("l3")[0], first.persistence("E")[0]))
    for part in (HELD, MOVING):
        scores = first.table["parts"][part]["persistence"]
        rows.append(held(f", {part}", scores["l3"], scores["E1"]))
    for label in (FREE, FREE_MATCHED):
        arm = found[label]
        rows.append(held(f", {label}", arm.persistence("l3")[0], arm.persistence("E")[0]))
    names = ("test loss", "test ℓ₂", "test ℓ₃", "E", "E₁")
    return Table(("setting", *names, "ℓ₃ to persistence", "slots with training"), tuple(rows))


def _part_row(arm: Measured, part: str) -> tuple[str, ...]:
    scores = arm.table["parts"][part]
    values = {metric: np.array(scores["models"][metric], float) for metric in COLUMNS}
    held = np.full_like(values["l3"], scores["persistence"]["l3"])
    return (
        f"{arm.label}, {part} (final model)",
        *(mean_and_spread(values[metric]) for metric in COLUMNS),
        ratio(values["l3"], held).words,
        "–",
    )


def panels(found: Mapping[str, Measured]) -> tuple[Panel, ...]:
    """Scores over slots; below them what the samples are, and scores on both parts of them."""
    first = found[RANDOM]
    drawn = [found[label] for label in (RANDOM, CONSECUTIVE, PERFECT, LINEAR)]

    def level(label: str, value: float) -> Series:
        return Series(label, [1, first.slots], [value] * 2, muted=True)

    def panel(title: str, metric: str, held: str | None) -> Panel:
        lines = [level("untrained", float(first.untrained(metric).mean()))]
        if held is not None:
            lines.append(level("persistence", float(first.persistence(held).mean())))
        return curves(title, drawn, metric, lines)

    return (
        panel("test loss", "loss", None),
        panel("one-step prediction", "l3", "l3"),
        panel("prediction error", "E", "E"),
        *_motion_panels(first.table["motion"]),
        _parts_panel(found),
    )


def _motion_panels(trials: Iterable[Mapping[str, Any]]) -> tuple[Panel, Panel]:
    traces = [trial["trace"] for trial in trials]

    def panel(title: str, y: str, x_key: str, y_key: str, low: float, log_y: bool) -> Panel:
        lines = [
            Series(f"trial {i}", trace[x_key], trace[y_key])
            for i, trace in enumerate(traces, start=1)
        ]
        high = max(v for trace in traces for v in trace[y_key] if v is not None)
        mark = Series("release", [0, 0], [low, high], muted=True)
        return Panel(title, "seconds from the release", y, (*lines, mark), log_y=log_y)

    lowest = min(v for trace in traces for v in trace["share"] if v is not None and v > 0)
    return (
        panel("energy: lifted, held, then free", "energy, J", "seconds", "energy", 0.0, False),
        panel(
            "what the equation leaves",
            "residual to acceleration",
            "block_seconds",
            "share",
            lowest,
            True,
        ),
    )


def _parts_panel(found: Mapping[str, Measured]) -> Panel:
    places = [0.0, 1.0]

    def line(arm: Measured) -> Series:
        values = [
            np.array(arm.table["parts"][part]["models"]["l3"], float) for part in (HELD, MOVING)
        ]
        spread = [float(v.std(ddof=1)) if len(v) > 1 else 0.0 for v in values]
        return Series(arm.label, places, [float(v.mean()) for v in values], spread, style="points")

    parts = found[RANDOM].table["parts"]
    held = [parts[part]["persistence"]["l3"] for part in (HELD, MOVING)]
    lines = [line(found[label]) for label in (RANDOM, CONSECUTIVE, LINEAR)]
    return Panel(
        "test samples told apart",
        "",
        "test ℓ₃ of the final model",
        (*lines, Series("persistence", places, held, style="points", muted=True)),
        log_y=True,
        names=("held", "free"),
    )


def numbers(found: Mapping[str, Measured]) -> tuple[Numbers, ...]:
    """CSV: limits, both parts of the test, the trials' motion, and the lines of the figure."""
    return (
        _limits(found),
        _parts(found),
        _motion(found[RANDOM].table["motion"]),
        _traces(found[RANDOM].table["motion"]),
    )


def _limits(found: Mapping[str, Measured]) -> Numbers:
    given = {label: arm.table["limits"] for label, arm in found.items() if "limits" in arm.table}
    rows = [
        (label, way, *map(float, values), float(np.mean(values)))
        for label, limits in given.items()
        for way, values in limits["errors"].items()
    ]
    names = given[RANDOM]["names"]
    return Numbers("limits", ("setting", "prediction", *names, "mean"), tuple(rows))


def _parts(found: Mapping[str, Measured]) -> Numbers:
    rows: list[tuple[Cell, ...]] = []
    for arm in found.values():
        for part, scores in arm.table.get("parts", {}).items():
            held = (scores["persistence"]["l3"], scores["persistence"]["E1"])
            for place, seed in enumerate(arm.table["seeds"]):
                mine = (scores["models"][metric][place] for metric in COLUMNS)
                rows.append((arm.label, part, scores["windows"], seed, *mine, *held))
    columns = ("setting", "part", "windows", "seed", *COLUMNS, "persistence_l3", "persistence_E1")
    return Numbers("parts", columns, tuple(rows))


def _motion(trials: Iterable[Mapping[str, Any]]) -> Numbers:
    rows = [
        (trial, one["begins"], one["release"], part, *s["links"], s["both"], s["measured"],
         s["left"])
        for trial, one in enumerate(trials, start=1)
        for part, s in ((HELD, one["before"]), (MOVING, one["free"]))
    ]  # fmt: skip
    columns = (
        "trial", "begins", "release", "samples", "R2_upper", "R2_lower", "R2_both",
        "rms_acceleration", "rms_residual",
    )  # fmt: skip
    return Numbers("motion", columns, tuple(rows))


def _traces(trials: Iterable[Mapping[str, Any]]) -> Numbers:
    rows = [
        (trial, name, second, value)
        for trial, one in enumerate(trials, start=1)
        for name, seconds, values in (
            ("energy", one["trace"]["seconds"], one["trace"]["energy"]),
            ("residual to acceleration", one["trace"]["block_seconds"], one["trace"]["share"]),
        )
        for second, value in zip(seconds, values, strict=True)
    ]
    return Numbers("traces", ("trial", "quantity", "seconds", "value"), tuple(rows))
