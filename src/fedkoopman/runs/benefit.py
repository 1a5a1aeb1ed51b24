"""Does federating help? A run's forecasts beside what they should beat, in a table and in words.

The numbers come from `comparison`. Here they become what stands in the summary: errors by site and
forecast, their means over sites, at which horizons the shared model loses to what, and sentences.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEVEL", "benefit"]

LEVEL = 1.02
"""Errors that differ by less than this factor count as equal."""
USUAL = 20
"""The horizon that the first sentence is about, where held-out segments are long enough."""
ADVICE = {
    "spectral": "more slots, a larger network.components or network.features, or states that are "
    "better estimated (fedkoopman check)",
    "edmd": 'network.kind = "spectral", or another network.degree or network.dictionary',
}
OTHERS = 'network.kind = "spectral", more slots, or a larger network.components'
"""What to try with a model that is not worth its name, by its kind; and for other kinds."""

Errors = Mapping[str, Mapping[str, NDArray[np.float64]]]
"""By site and forecast, one error per horizon: NaN where nothing was compared, infinite where the
forecast is not finite."""


def benefit(
    errors: Errors, horizons: Sequence[int], *, kind: str, degree: int, clients: int
) -> dict[str, Any] | None:
    """The summary's entry; None if no site could compare anything.

    Arguments:
        horizons: steps ahead.
        kind: of the shared model.
        degree: of EDMD.
        clients: how many sites the federation has.
    """
    told = {site: own for site, own in errors.items() if not np.isnan(own["holding"]).all()}
    if not told:
        return None
    reached = [
        i
        for i in range(len(horizons))
        if not all(np.isnan(own["holding"][i]) for own in told.values())
    ]
    steps = [horizons[i] for i in reached]
    told = {
        site: {name: found[reached] for name, found in own.items()} for site, own in told.items()
    }
    names = list(next(iter(told.values())))
    rivals = [name for name in names if name != "federated"]
    worse = {name: [h for i, h in enumerate(steps) if _loses(told, name, i)] for name in rivals}
    silent = [site for site in errors if site not in told]
    return {
        "horizons": steps,
        "degree": degree,
        "sites": {
            site: {name: [_plain(v) for v in found] for name, found in own.items()}
            for site, own in told.items()
        },
        "mean": {
            name: [
                _plain(_mean([own[name][i] for own in told.values()])) for i in range(len(steps))
            ]
            for name in names
        },
        "worse_than": worse,
        "sentence": _sentences(told, steps, worse, silent, kind, degree, clients),
    }


def _sentences(
    told: Errors,
    steps: Sequence[int],
    worse: Mapping[str, Sequence[int]],
    silent: Sequence[str],
    kind: str,
    degree: int,
    clients: int,
) -> str:
    words = {
        "holding": "holding the last value",
        "alone": "a site alone",
        "dmd": "linear DMD",
        "edmd": f"EDMD of degree {degree}",
    }
    place = steps.index(USUAL) if USUAL in steps else len(steps) - 1
    found = [_headline(told, steps[place], place, words)]
    if clients < 2:
        found.append("With one site there is nothing to federate: alone it is the same.")
    lost = [
        f"than {words[name]} at {_listed(worse[name])} {_steps(worse[name])}"
        for name in ("holding", "dmd")
        if worse[name]
    ]
    if lost:
        found.append(f"It is worse {_and(lost)}: try {ADVICE.get(kind, OTHERS)}.")
    if worse["edmd"] and not worse["dmd"] and kind != "edmd":
        found.append(
            f"{words['edmd']} is better at {_listed(worse['edmd'])} {_steps(worse['edmd'])}: "
            'network.kind = "edmd" learns it in one round.'
        )
    better = [
        site for site in told if (_ratio({site: told[site]}, "alone", place) or 1) < 1 / LEVEL
    ]
    if better and len(better) == len(told):
        found.append("Federating does not help here: every site alone forecasts better.")
    elif better:
        found.append(f"Better off alone: {_and(better)}.")
    if silent:
        found.append(f"Not compared, as nothing long enough is held out: {_and(silent)}.")
    return " ".join(found)


def _headline(told: Errors, horizon: int, place: int, words: Mapping[str, str]) -> str:
    """How the shared model does at one horizon."""
    begin = f"At {horizon} {_steps([horizon])} the shared model"
    own = _mean([one["federated"][place] for one in told.values()])
    if math.isinf(own):
        return f"{begin}'s forecast diverges."
    better, worse = list[str](), list[str]()
    for name, text in words.items():
        ratio = _ratio(told, name, place)
        if ratio is None:
            continue
        if math.isinf(ratio):
            better.append(f"has a forecast where {text} diverges")
        elif ratio >= LEVEL:
            better.append(f"is {_times(ratio)} better than {text}")
        elif ratio > 1 / LEVEL:
            better.append(f"is as good as {text}")
        else:
            worse.append(f"is {_times(1 / ratio)} worse than {text}")
    said = ", but ".join(_and(_without_is(part)) for part in (better, worse) if part)
    over = f" (means over {len(told)} sites)" if len(told) > 1 else ""
    return f"{begin} {said}{over}."


def _loses(told: Errors, name: str, place: int) -> bool:
    ratio = _ratio(told, name, place)
    return ratio is not None and ratio < 1 / LEVEL


def _ratio(told: Errors, name: str, place: int) -> float | None:
    """The error of a forecast, divided by the shared model's, over sites that have both."""
    pairs = [(own[name][place], own["federated"][place]) for own in told.values()]
    pairs = [pair for pair in pairs if not np.isnan(pair).any()]
    if not pairs:
        return None
    other, shared = (_mean(list(column)) for column in zip(*pairs, strict=True))
    if math.isinf(shared):
        return None if math.isinf(other) else 0.0
    if shared == 0:
        return 1.0 if other == 0 else math.inf
    return other / shared


def _mean(values: Sequence[float]) -> float:
    """Over the sites that have one; infinite if any is."""
    known = [float(v) for v in values if not math.isnan(v)]
    return sum(known) / len(known) if known else math.nan


def _plain(value: float) -> float | str | None:
    """As JSON has it: None where there is nothing."""
    if math.isnan(value):
        return None
    return "diverges" if math.isinf(value) else float(value)


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times" if ratio < 1000 else "over 1000 times"


def _without_is(parts: Sequence[str]) -> list[str]:
    """The verb only where it changes."""
    return [
        part.removeprefix("is ") if i and parts[i - 1].startswith("is ") else part
        for i, part in enumerate(parts)
    ]


def _steps(horizons: Sequence[int]) -> str:
    return "step" if list(horizons) == [1] else "steps"


def _listed(horizons: Sequence[int]) -> str:
    return _and([str(h) for h in horizons])


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
