"""Facts about a model as plain data, for its card, `fedkoopman inspect` and its --json.

Counts, names, settings and the spectrum of K; nothing of the data but the counts.
"""

import math
from dataclasses import asdict
from typing import Any

import jax
import numpy as np

from fedkoopman.koopman.fitted import Fitted

__all__ = ["facts", "pace", "spectrum_rows", "state_names"]


def facts(model: Fitted) -> dict[str, Any]:
    """All of it, as JSON knows it; a number that is not finite is None."""
    learned = model.learned_
    architecture = {
        name: "a function" if callable(value) else value
        for name, value in asdict(learned.architecture).items()
    }
    units = learned.units or ("",) * learned.architecture.state_dim
    names = state_names(model)
    return {
        "states": [{"name": n, "unit": u} for n, u in zip(names, units, strict=True)],
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


def pace(row: dict[str, Any]) -> str:
    """How a mode fades or grows, in words."""
    if row["decay_rate"] is None:
        return "vanishes at once"
    if row["half_life"] is None:
        return "stays"
    verb = "halves" if row["half_life"] >= 0 else "doubles"
    return f"{verb} in {abs(row['half_life']):.4g}"


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
