"""Facts about a model: as plain data, and as a Markdown card beside the model's file.

They are counts, names, settings and the spectrum of K, for `fedkoopman inspect` and for a reader
who did not train the model. Of the data they tell only the counts.
"""

import json
import math
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedkoopman.durable import write_whole
from fedkoopman.koopman.fitted import Fitted
from fedkoopman.koopman.pace import pace
from fedkoopman.version import __version__

MOST_MOVED = 4
"""States that are told of an input."""


def facts(model: Fitted) -> dict[str, Any]:
    """What a card tells, as JSON; a number that is not finite is None."""
    learned = model.learned_
    architecture = {
        name: "a function" if callable(value) else value
        for name, value in asdict(learned.architecture).items()
    }
    units = learned.units or ("",) * learned.architecture.state_dim
    names = state_names(model)
    return {
        "states": [{"name": n, "unit": u} for n, u in zip(names, units, strict=True)],
        **({"inputs": input_rows(model)} if model.n_inputs_ else {}),
        "range": None if learned.bounds is None else learned.bounds.tolist(),
        "relift": learned.relift,
        "dt": learned.dt,
        "step": learned.architecture.depth * learned.dt,
        "kind": learned.architecture.name,
        "description": learned.architecture.description,
        "architecture": architecture,
        "weights": sum(int(np.size(leaf)) for leaf in jax.tree.leaves(learned.weights)),
        "training": asdict(learned.training),
        "updates": learned.updates,
        "windows": learned.windows,
        "information": learned.information,
        "error_known": learned.noise is not None,
        "spectrum": spectrum_rows(model),
    }


def state_names(model: Fitted) -> tuple[str, ...]:
    """Of the state's components; x1, x2, … where the model has none."""
    dim = model.learned_.architecture.state_dim
    return model.learned_.names or tuple(f"x{i + 1}" for i in range(dim))


def input_names(model: Fitted) -> tuple[str, ...]:
    """Of the inputs; u1, u2, … where the model has none."""
    return model.input_names_ or tuple(f"u{i + 1}" for i in range(model.n_inputs_))


def input_rows(model: Fitted) -> list[dict[str, Any]]:
    """One row per input: its name, and by how much one unit of it moves each state in one step.

    At the mean of the training states; elsewhere the same where the model is linear in states and
    inputs.
    """
    learned = model.learned_
    y = learned.lift(learned.reference_window)[0]
    moves = learned.lower_slope(y[None])[0] @ learned.drive(y)
    return [
        {"name": name, "moves": dict(zip(state_names(model), map(float, moves[:, i]), strict=True))}
        for i, name in enumerate(input_names(model))
    ]


def moves_words(row: Mapping[str, Any], shown: Callable[[str], str] = str) -> str:
    """What an input moves, the states that it moves most first."""
    moves = sorted(row["moves"].items(), key=lambda item: -abs(item[1]))
    return ", ".join(f"{shown(name)} {value:+.3g}" for name, value in moves[:MOST_MOVED])


def spectrum_rows(model: Fitted) -> list[dict[str, Any]]:
    """One row per eigenvalue of K, slowest to fade first; of a conjugate pair, the upper one.

    `mode` says how far each state moves with the mode, the one that moves most being 1.
    """
    values, modes = model.eigenvalues_, np.abs(model.modes_)
    rows = []
    for j, value in enumerate(values):
        if value.imag < 0:
            continue
        largest = modes[:, j].max()
        share = modes[:, j] / largest if largest > 0 else modes[:, j]
        rows.append(
            {
                "eigenvalue": [float(value.real), float(value.imag)],
                "pair": bool(value.imag > 0),
                "modulus": float(abs(value)),
                "frequency": _finite(model.frequencies_[j]),
                "decay_rate": _finite(model.decay_rates_[j]),
                "half_life": _finite(model.half_lives_[j]),
                "mode": dict(zip(state_names(model), map(float, share), strict=True)),
            }
        )
    return rows


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


LEADING = 8
"""Modes shown; `fedkoopman inspect` shows all."""

WORDS = {
    "study": "study",
    "digest": "digest of the study",
    "scheme": "how it was trained",
    "clients": "sites",
    "slots": "time slots",
    "rounds": "local trainings",
    "samples": "samples trained on",
    "seed": "seed",
    "privacy": "differential privacy",
    "predicts": "what it predicts",
}


def write_card(
    model_file: str | os.PathLike[str], model: Fitted, scores: Mapping[str, Any] | None = None
) -> Path:
    """Write the card beside a model's file, with its name and the ending .md; returns its path."""
    file = Path(model_file)
    path = file.with_suffix(".md")
    write_whole(path, card(model, scores=scores, file=file.name).encode())
    return path


def card(
    model: Fitted, *, scores: Mapping[str, Any] | None = None, file: str = "model.safetensors"
) -> str:
    """The card as Markdown.

    Arguments:
        scores: what was reached, by name: a number, or its mean and standard deviation as
            {"mean": …, "std": …}.
        file: what the model's file is called, for the examples.
    """
    about = facts(model)
    parts = [
        _opening(about),
        _states(about),
        _makers(about),
        _scores(scores or {}),
        _spectrum(about),
        _use(about, file),
        _limits(about),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _opening(about: dict[str, Any]) -> str:
    shape = about["architecture"]
    name = about["information"].get("study")
    step = "K y" + " + B u" * bool(shape["inputs"]) + " + Σ u_i N_i y" * shape["bilinear"]
    return (
        f"# A Koopman model{f' of {_cell(name)}' if name else ''}\n\n"
        f"A linear model in learned coordinates: y = φ(x), y' = {step}, x' = φ⁻¹(y'). "
        f"{about['description']}, K is {shape['components']} × {shape['components']}; "
        f"{about['weights']:,} weights in {about['training']['precision']}. "
        f"Card written by fedkoopman {__version__}."
    )


def _states(about: dict[str, Any]) -> str:
    shape = about["architecture"]
    known = about["range"] is not None
    rows = []
    for i, state in enumerate(about["states"]):
        cells = [_cell(state["name"]), _cell("" if state["unit"] == "1" else state["unit"])]
        cells += [f"{edge[i]:.4g}" for edge in about["range"]] if known else []
        rows.append(f"| {' | '.join(cells)} |")
    more = " from | to |" if known else ""
    lines = [
        "## States",
        "",
        f"| state | unit |{more}",
        f"|---|---|{'---|---|' * known}",
        *rows,
        "",
    ]
    if "inputs" in about:
        names = ", ".join(_cell(row["name"]) for row in about["inputs"])
        moved = "; ".join(
            f"{_cell(row['name'])} {moves_words(row, _cell)}" for row in about["inputs"]
        )
        lines.append(
            f"It is driven by {names}: each input is held from one sample to the next. One unit "
            f"moves in one step, at the mean state: {moved}."
        )
    if known:
        lines.append(
            "It was trained on states in this range, which is a little widened, and treats others "
            "as if they were at its edge."
        )
    if about["relift"]:
        every = "every step" if about["relift"] == 1 else f"every {about['relift']} steps"
        lines.append(f"Its forecasts are lifted anew {every}, the better way on held-out data.")
    lines.append(f"Sampled every {about['dt']:g}; one application of K advances {about['step']:g}.")
    if shape["window"] > 1:
        lines.append(f"It sees {shape['window']} samples in a row at a time, oldest first.")
    return "\n".join(lines)


def _makers(about: dict[str, Any]) -> str:
    rows = {WORDS.get(name, name): value for name, value in about["information"].items()}
    if about["updates"]:
        rows |= {"trainings here": about["updates"], "windows": about["windows"]}
    if not rows:
        return ""
    lines = [f"| {_cell(name)} | {_cell(_shown(value))} |" for name, value in rows.items()]
    return "\n".join(["## Who trained it", "", "| | |", "|---|---|", *lines])


def _scores(scores: Mapping[str, Any]) -> str:
    if not scores:
        return ""
    lines = [f"| {_cell(name)} | {_cell(_score(value))} |" for name, value in scores.items()]
    return "\n".join(["## Scores", "", "| score | value |", "|---|---|", *lines])


def _spectrum(about: dict[str, Any]) -> str:
    rows, names = about["spectrum"], [state["name"] for state in about["states"]]
    lines = [
        "## Slowest modes",
        "",
        "| eigenvalue | frequency | pace | moves most |",
        "|---|---|---|---|",
    ]
    for row in rows[:LEADING]:
        real, imaginary = row["eigenvalue"]
        value = f"{real:.4g}" + (f" ± {imaginary:.4g} i" if row["pair"] else "")
        most = max(names, key=row["mode"].__getitem__)
        frequency = "" if row["frequency"] is None else f"{row['frequency']:.4g}"
        lines.append(f"| {value} | {frequency} | {pace(row)} | {_cell(most)} |")
    if len(rows) > LEADING:
        lines += ["", f"{len(rows) - LEADING} more fade faster."]
    return "\n".join(lines)


def _use(about: dict[str, Any], file: str) -> str:
    shape = about["architecture"]
    quoted, graph = shlex.quote(file), shlex.quote(f"{Path(file).stem}.onnx")
    start = "x[-1]" if shape["window"] == 1 else f"x[-{shape['window']}:]"
    return (
        "## Use\n\n"
        "```sh\n"
        f"fedkoopman inspect {quoted}\n"
        f"fedkoopman predict {quoted} states.csv --steps 50 --plot forecast.png\n"
        f"fedkoopman predict {quoted} z.csv --sensor sensor.toml --steps 50 --plot forecast.png\n"
        f"fedkoopman export {quoted} --onnx {graph}\n"
        "```\n\n"
        "```python\n"
        "import fedkoopman as fk\n\n"
        f"model = fk.load_model({json.dumps(file, ensure_ascii=False)})\n"
        f"model.simulate({start}, n_steps=50)  # states to come\n"
        "model.forecast(x, n_steps=50)  # with their uncertainty\n"
        "fk.KoopmanFilter(model, sensor, observation_noise=0.01).smooth(z)  # from observations\n"
        "```"
    )


def _limits(about: dict[str, Any]) -> str:
    growing = sum(row["modulus"] > 1 for row in about["spectrum"])
    lines = [
        "## Limits",
        "",
        "- It holds where it was trained. States beyond those of the training are extrapolated, "
        "which says nothing of the system.",
        "- It is linear in its coordinates: forecasts follow the eigenvalues of K and, far enough "
        "ahead, fade or grow whatever the system does. A chaotic system has no such model.",
        "- Uncertainties come from errors measured on given trajectories, not from a proof.",
        "- The file holds weights, settings, counts, the mean of the training windows and, where "
        "measured, the covariance of the model's own errors; no observation and no trajectory.",
    ]
    if growing:
        lines.insert(
            4,
            f"- {growing} mode{'' if growing == 1 else 's'} of K grow{'s' if growing == 1 else ''}:"
            " long forecasts run away.",
        )
    if not about["error_known"]:
        lines.insert(
            -1,
            "- Nobody measured how far off it is: `fk.KoopmanFilter` needs `process_noise` or "
            "`fit_noise`.",
        )
    return "\n".join(lines)


def _score(value: Any) -> str:
    if isinstance(value, Mapping):
        mean, std = value.get("mean"), value.get("std")
        return _number(mean) + (f" ± {_number(std)}" if std else "")
    return _number(value)


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "not finite"


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None or isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _cell(text: Any) -> str:
    """A text as it may stand in a table."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")
