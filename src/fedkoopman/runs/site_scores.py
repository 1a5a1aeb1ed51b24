"""How well a model does on what sites held out, where nobody knows the truth.

On states: predictions beside the smoothed states. On observations: predicted states are seen
through the site's sensor and compared with what it recorded; that includes the sensor's noise.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedkoopman.koopman.model import DeepKoopman
from fedkoopman.runs.site_preparation import PreparedSite, Sites

__all__ = ["scores_of", "site_scores"]


def site_scores(sites: Sites, model: DeepKoopman, horizon: int) -> dict[str, Any]:
    """By site: counts, noise, and root mean square errors for 1 … horizon applications of K."""
    return {site.name: _about(site) | scores_of(site, model, horizon) for site in sites.sites}


def scores_of(site: PreparedSite, model: DeepKoopman, horizon: int) -> dict[str, Any]:
    """Root mean square errors of a site's held-out segments, by steps ahead.

    `state_error` by state, `observation_error` by channel; None where nothing can be compared.
    `held_error` is the observation error of holding the last state.
    """
    depth, window = model.architecture_.depth, model.architecture_.window
    keys = ("state_error", "observation_error", "held_error")
    found: dict[str, list[Any]] = {key: [] for key in keys}
    for steps in range(1, horizon + 1):
        parts: dict[str, list[NDArray[np.float64]]] = {key: [] for key in keys}
        for one in site.held_out:
            ahead, first = steps * depth, window - 1
            count = len(one.states) - first - ahead
            if count < 1:
                continue
            predicted = np.asarray(model.predict(one.states, n_steps=steps))[:count]
            truth, z = one.states[first + ahead :], one.observations[first + ahead :]
            parts["state_error"].append(predicted - truth)
            parts["observation_error"].append(_seen(site, predicted) - z)
            parts["held_error"].append(_seen(site, one.states[first : first + count]) - z)
        for key, differences in parts.items():
            found[key].append(_root_mean_square(differences))
    return found


def _about(site: PreparedSite) -> dict[str, Any]:
    return {
        "train_segments": len(site.train),
        "train_samples": sum(len(states) for states in site.train),
        "held_out_segments": len(site.held_out),
        "dropped": list(site.dropped),
        "observation_noise": np.diag(site.observation_noise).tolist(),
        "process_noise": np.diag(site.process_noise).tolist(),
    }


def _seen(site: PreparedSite, states: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the site's sensor shows of states, without noise."""
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(site.sensor)(jnp.asarray(states)))


def _root_mean_square(differences: list[NDArray[np.float64]]) -> list[float | None] | None:
    if not differences:
        return None
    joined = np.concatenate(differences)
    counts = (~np.isnan(joined)).sum(axis=0)
    with np.errstate(invalid="ignore", over="ignore"):
        means = np.nansum(joined**2, axis=0) / np.maximum(counts, 1)
    return [
        float(np.sqrt(v)) if n and np.isfinite(v) else None
        for v, n in zip(means, counts, strict=True)
    ]
