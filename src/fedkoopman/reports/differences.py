"""Several runs beside each other: what differs in their studies, and in what came of them."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedkoopman.reports.blocks import Section, section, table, text
from fedkoopman.reports.quality import quality_words, scale_free, valid_median
from fedkoopman.reports.run_files import RunFiles, tail_spread
from fedkoopman.reports.wording import counted, number, spread_text

__all__ = ["difference_section", "labels"]

ROWS = {
    "l3": "ℓ3, mean square error of the next state",
    "E1": "E₁, the same, mean over several steps ahead",
    "horizon": "samples for which a forecast that is lifted once stays valid",
}
MOST_KEYS = 60


def labels(runs: list[RunFiles]) -> dict[str, RunFiles]:
    """Runs by name: the studies' names, or the directories' where those are the same."""
    names = [str(run.study.get("name", "unnamed study")) for run in runs]
    if len(set(names)) < len(names):
        names = [run.directory or name for run, name in zip(runs, names, strict=True)]
    found: dict[str, RunFiles] = {}
    for name, run in zip(names, runs, strict=True):
        free = name if name not in found else f"{name} ({len(found) + 1})"
        found[free] = run
    return found


def difference_section(runs: Mapping[str, RunFiles]) -> Section | None:
    """A table of scores and one of the studies' differing keys; nothing of a single run."""
    if len(runs) < 2:
        return None
    names, every = list(runs), list(runs.values())
    rows: list[list[Any]] = []
    for metric, words in ROWS.items():
        told = [spread_text(tail_spread(one, metric), len(one.seeds) > 1) for one in every]
        if any(told_one != "not finite" for told_one in told):
            rows.append([words, *((one, "number") for one in told)])
    alike = len({tuple(one.evidence.get("names", ())) for one in every}) == 1
    if all(one.evidence.get("errors") for one in every) and alike:
        leads = [h for h in (1, 5, 20, 100) if all(h in one.evidence["leads"] for one in every)]
        for lead in leads:
            rows.append([f"error {counted(lead, 'step')} ahead, in units of the states' spread",
                         *((_error(one, lead), "number strong") for one in every)])  # fmt: skip
        rows.append(["time units for which half of the forecasts stay valid",
                     *((_valid(one), "number strong") for one in every)])  # fmt: skip
    keys = _differences(every)
    return section(
        "beside",
        "Beside each other",
        text(_sentence(runs), "verdict") if _sentence(runs) else None,
        *(
            text(f"{name}: {block['text']}", block["style"].replace("verdict", ""))
            for name, one in list(runs.items())[1:]
            for block in quality_words(one)
        ),
        table("beside-scores", ["", *names], rows, stacked=True),
        text("Where their studies differ:", "caption") if keys else None,
        table("differences", ["key", *names], keys) if keys else None,
    )


def _error(run: RunFiles, lead: int) -> str:
    errors = np.array(run.evidence["errors"]["model"][run.evidence["leads"].index(lead)], float)
    return number(scale_free(run, errors)) if np.isfinite(errors).all() else "not finite"


def _valid(run: RunFiles) -> str:
    steps = valid_median(run, "model")
    return "–" if steps is None else number(steps * run.evidence["dt"])


def _sentence(runs: Mapping[str, RunFiles]) -> str:
    """How much closer the next steps are, in words."""
    (first, ours), (second, theirs) = list(runs.items())[:2]
    if ours.rollout is not None and theirs.rollout is not None:
        mine, its = (list(one.rollout.names) for one in (ours, theirs) if one.rollout is not None)
        if mine != its:
            return (
                f"{first} predicts {', '.join(mine[:6])} and {second} {', '.join(its[:6])}: errors "
                "of different quantities say nothing about which is better."
            )
    before, after = (tail_spread(one, "E1").get("mean") for one in (ours, theirs))
    if not before or not after or not np.isfinite([before, after]).all():
        return ""
    ratio = np.sqrt(max(before, after) / min(before, after))
    better, worse = (first, second) if before <= after else (second, first)
    return (
        f"Over the next steps the states that {better} predicts are {number(ratio)} times closer "
        f"to the truth than those of {worse}."
    )


def _differences(runs: list[RunFiles]) -> list[list[str]]:
    flat = [dict(_flat(run.study)) for run in runs]
    keys = [key for key in dict.fromkeys(key for one in flat for key in one)
            if key != "name" and len({repr(one.get(key)) for one in flat}) > 1]  # fmt: skip
    rows = [[key, *(_shown(one.get(key)) for one in flat)] for key in keys[:MOST_KEYS]]
    if len(keys) > MOST_KEYS:
        rows.append([f"and {len(keys) - MOST_KEYS} more", *[""] * len(runs)])
    return rows


def _flat(study: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in study.items():
        if isinstance(value, Mapping) and not above:
            yield from _flat(value, f"{name}.")
        else:
            yield above + name, value


def _shown(value: Any) -> str:
    words = "–" if value is None else str(value)
    return words if len(words) <= 80 else f"{words[:79]}…"
