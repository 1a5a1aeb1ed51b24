"""A study's digest, which stays as it is when fedkoopman gets a new key.

Run directories, kits, consents and messages name a study by its digest. The digest covers the keys
of version 0.3.0 with every value, and of later keys those that differ from their default. A version
that knows a new key and a version that does not therefore agree on every study that leaves the key
alone. For that reason the default of a later key must never change.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["FIRST_KEYS", "digest_of", "lasting"]

FIRST_KEYS: Mapping[str, tuple[str, ...]] = {
    "": ("name", "seed", "slots", "scheme", "trajectories"),
    "system": ("name", "parameters", "states", "unknown"),
    "sites": ("files", "repeat", "arrivals"),
    "segments": ("steps", "restart"),
    "recordings": ("train", "test", "windows"),
    "clients": (
        "count", "probability", "observation_noise", "process_noise", "sensor", "dynamics",
    ),
    "estimation": (
        "method", "smooth", "alpha", "beta", "kappa", "initial_mean", "initial_cov", "particles",
    ),
    "network": ("components", "hidden_layers", "width", "activation", "window", "depth"),
    "training": (
        "epochs", "batch", "learning_rate", "weight_decay", "decay", "loss_weights", "precision",
    ),
    "policy": ("name", "segments"),
    "evaluation": ("trajectories", "horizon", "tail_slots", "valid_error"),
}  # fmt: skip
"""The keys of version 0.3.0 by section. Add no key here."""


def lasting(table: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A study's tables without later keys that have their default.

    Arguments:
        table: of the study, with every key.
        defaults: of the default study.
    """
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            first = FIRST_KEYS.get(name, ())
            kept = {k: v for k, v in value.items() if k in first or v != defaults[name][k]}
            if kept:
                found[name] = kept
        elif name in FIRST_KEYS[""] or value != defaults[name]:
            found[name] = value
    return found


def digest_of(table: Mapping[str, Any]) -> str:
    """A sha256 of all values but the seed.

    Arguments:
        table: from `lasting`.
    """
    rest = {name: value for name, value in table.items() if name != "seed"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
