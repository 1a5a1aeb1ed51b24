"""The measured double pendulum after its release: trials 1 and 2 for learning, 3 for testing."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from accuracy_baselines import Array, Edmd, Forecast, holding, root_mean_square
from accuracy_cases import angles_of, measured_states, measured_trials, with_delays, wrapped
from accuracy_ours import fitted, forecast_of, way_of
from accuracy_page import Options, Section, short

HORIZONS = (5, 20, 50, 100)
EVERY = 5
"""Forecasts start at every fifth sample."""
SEGMENTS = 30
DT = 0.002
OURS = {
    "kind": "spectral",
    "n_components": 60,
    "features": 128,
    "horizon": 100,
    "discount": 1.0,
    "ridge": 1e-6,
}
RELIFT = 20


def split(folder: Path, validation: bool) -> tuple[list[Array], list[Array]]:
    """States without delays: for learning, and held out.

    For choosing, trial 3 is not touched: trial 1 is for learning then, and trial 2 held out. (The
    last third of each trial would not do: the pendulum hardly moves any more.)
    """
    trials = [measured_states(angles) for angles in measured_trials(folder)]
    return (trials[:1], trials[1:2]) if validation else (trials[:2], trials[2:])


def angle_errors(
    forecast: Forecast,
    held_out: list[Array],
    delays: int,
    horizons: Sequence[int] = HORIZONS,
    every: int = EVERY,
) -> dict[int, Array]:
    """Errors of both angles at every horizon, (starts, 2), segment after segment in time."""
    found: dict[int, list[Array]] = {h: [] for h in horizons}
    for states in held_out:
        # Starts have room for the oldest of two delays, whatever the model needs.
        rows = with_delays(states, delays)[(2 - delays) * 5 :]
        starts = rows[: len(rows) - max(horizons) : every]
        truth = angles_of(rows)
        ahead = np.concatenate(
            [forecast(part, max(horizons)) for part in np.array_split(starts, 10)]
        )
        for h in horizons:
            at = angles_of(ahead[:, h - 1])
            found[h].append(wrapped(at - truth[h:][: len(rows) - max(horizons) : every]))
    return {h: np.concatenate(errors) for h, errors in found.items()}


def spreads(held_out: list[Array]) -> list[float]:
    """Of the angles about their circular mean, in each of as many segments as are judged."""
    angles = np.concatenate([angles_of(x)[10 : len(x) - max(HORIZONS) : EVERY] for x in held_out])
    found = []
    for part in np.array_split(angles, SEGMENTS):
        mean = np.angle(np.exp(1j * part).mean(axis=0))
        found.append(root_mean_square(wrapped(part - mean)))
    return found


def never_explodes(errors: Array, held: Array, spread: list[float]) -> tuple[int, float]:
    """In how many segments the error at 100 samples is too large, and the largest share of what
    is allowed: 1.5 times the larger of holding's error and the segment's spread."""
    parts = (np.array_split(e, SEGMENTS) for e in (errors, held))
    shares = [
        root_mean_square(mine) / (1.5 * max(root_mean_square(theirs), s))
        for mine, theirs, s in zip(*parts, spread, strict=True)
    ]
    return sum(not share <= 1 for share in shares), max(shares)


def double_pendulum(options: Options) -> Section:
    """Holding, linear DMD, EDMD with a delay, and ours with the same delay."""
    if options.data is None:
        sys.exit("the data are needed: give --data, or set FEDKOOPMAN_DOUBLE_PENDULUM")
    train, held_out = split(options.data, options.validation)
    delayed = [with_delays(x, 1) for x in train]
    model, seconds = fitted(delayed, DT, **OURS)
    cubic = Edmd(delayed, 3, ridge=1e-10)
    damped = Edmd(delayed, 3, ridge=1e-6)  # re-lifting needs more of it
    entries: list[tuple[str, int, Forecast]] = [
        ("holding", 0, holding),
        ("linear DMD", 0, Edmd(train, 1).once),
        ("linear DMD, two delays", 2, Edmd([with_delays(x, 2) for x in train], 1).once),
        ("EDMD, degree 3, a delay", 1, some(cubic)),
        (f"EDMD, degree 3, a delay, re-lifted every {RELIFT}", 1, again(damped)),
        ("**ours, its own choice of re-lifting**", 1, forecast_of(model)),
        ("ours, lifted once", 1, forecast_of(model, 0)),
        (f"ours, re-lifted every {RELIFT}", 1, forecast_of(model, RELIFT)),
    ]
    section, spread, held = Section(), spreads(held_out), None
    for name, delays, forecast in entries:
        errors = angle_errors(forecast, held_out, delays)
        held = errors[100] if held is None else held
        too_large, share = never_explodes(errors[100], held, spread)
        row = {"model": name, "errors": {str(h): root_mean_square(e) for h, e in errors.items()}}
        section.rows.append(row | {"too_large": too_large, "share": share})
        print(f"  {section.rows[-1]}", flush=True)
    section.table(
        ["model", *(f"{h} samples" for h in HORIZONS), "segments too large", "worst share"],
        [
            [r["model"], *map(short, r["errors"].values()), r["too_large"], f"{r['share']:.2f}"]
            for r in section.rows
        ],
    )
    mine = section.rows[5]["errors"]
    for row in section.rows[:5]:
        ahead = [h for h in mine if mine[h] < row["errors"][h]]
        behind = [h for h in mine if h not in ahead]
        section.say(
            f"Against {row['model']}: "
            + (f"ahead at {', '.join(ahead)} samples" if ahead else "ahead nowhere")
            + (f", **behind at {', '.join(behind)}**." if behind else ".")
        )
    section.say(
        "Root mean square error of both angles in rad, all starts (every fifth sample). State: cos "
        "θ, sin θ and ω of both links, ω from the past alone (slope at the end of a parabola "
        "through 16 samples); a delay is the state 5 samples ago. Samples 2600 to 38000 of each "
        f"trial, every 2 ms. *Segments too large*: of {SEGMENTS} consecutive ones, in how many the "
        "error at 100 samples exceeds 1.5 times the larger of holding's error and the spread of "
        "the angles there (none may); *worst share*: of that limit. CPU seconds of our fit: "
        f"{seconds:.0f}; {way_of(model)}; "
        f"`fk.DeepKoopman({', '.join(f'{k}={v!r}' for k, v in OURS.items())})`.",
        "Data: A. Myers, J. Tempelman, D. Petrushenko, F. Khasawneh, HardwareX 8 (2020) e00138.",
    )
    return section


def again(model: Edmd) -> Forecast:
    """Re-lifted every few steps."""
    return lambda states, steps: model.relifted(states, steps, RELIFT)


def some(model: Edmd, horizons: Sequence[int] = HORIZONS) -> Forecast:
    """A lift-once forecast that fills in the first coordinates at the asked horizons only: 455
    functions for all states and steps would take minutes."""

    def forecast(states: Array, steps: int) -> Array:
        found = np.full((len(states), steps, 4), np.nan)
        for h, at in zip(horizons, model.at(states, horizons, slice(0, 4)), strict=True):
            found[:, h - 1] = at
        return found

    return forecast
