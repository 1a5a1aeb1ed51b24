"""Central differential privacy: the server adds noise to the mean of clipped updates.

    ω' = ω + (Σ_n δ_n · min(1, C / ‖δ_n‖) + N(0, σ² C²)) / N,     δ_n = ω_n − ω

over the N sites that take part in the slot, all with the same weight: a claimed sample count could
buy more than its share of the bound. One record is one site's update. Who takes part is decided by
how much data wait, not by chance, so there is no amplification by sampling: every slot in which a
site takes part is one Gaussian release. The server sees the updates as they are; sites, and whoever
gets the model, do not.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.algorithm import Problem
from fedkoopman.federation.messages import Arrays
from fedkoopman.federation.privacy import secret_number

__all__ = ["noised_mean"]


def noised_mean(
    problem: Problem, current: Arrays, updates: Mapping[int, Arrays]
) -> dict[str, NDArray[Any]]:
    """The next arrays.

    Arguments:
        current: what the clients were given.
        updates: by client; at least one.
    """
    clip, noise = problem.privacy.clip, problem.privacy.noise
    before = _flat(current, current)
    total = np.zeros_like(before)
    for update in updates.values():
        change = _flat(update, current) - before
        total += change * min(1.0, clip / max(float(np.linalg.norm(change)), 1e-300))
    # Other updates or another model get other noise; the same slot, done again, gets the same.
    arrays = [array for one in (current, *updates.values()) for array in one.values()]
    content = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    secret = problem.secret or str(problem.seed).encode()
    random = np.random.Generator(np.random.Philox(key=secret_number(secret, "central", content)))
    after = before + (total + noise * clip * random.standard_normal(before.size)) / len(updates)
    parts = np.split(after, np.cumsum([array.size for array in current.values()])[:-1])
    return {
        name: part.reshape(array.shape).astype(array.dtype)
        for (name, array), part in zip(current.items(), parts, strict=True)
    }


def _flat(arrays: Arrays, order: Arrays) -> NDArray[np.float64]:
    return np.concatenate([np.ravel(arrays[name]).astype(np.float64) for name in order])
