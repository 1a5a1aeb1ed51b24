"""From a site's own observations to a forecast, with nothing but a learned model."""

from typing import Any

import numpy as np

from fedkoopman.config.parts import noise_of, sensor_for
from fedkoopman.config.site_file import SiteFile
from fedkoopman.data.observations import Observations
from fedkoopman.data.segments import segments
from fedkoopman.data.site_knowledge import guessed_noise
from fedkoopman.errors import InputError
from fedkoopman.koopman.facts import state_names
from fedkoopman.koopman.fitted import Fitted
from fedkoopman.koopman.kalman import lift_noise
from fedkoopman.paths import shown
from fedkoopman.runs.prediction import Prediction, predict_observations
from fedkoopman.runs.site_estimation import check_width, initial_mean

__all__ = ["predict_site"]


def predict_site(
    model: Fitted,
    site: SiteFile,
    steps: int,
    process_noise: Any = None,
    observations: Observations | None = None,
) -> Prediction:
    """Filter all segments of a site through the model, and forecast from the end of each.

    Observation noise that the site leaves open ("auto") is taken from second differences: the
    equations with which a run estimates it are not at hand here.

    Arguments:
        steps: how many applications of K.
        process_noise: variance of the model's error per step, in units of the states; None takes
            what was measured in training, or else the site's.
        observations: what the site recorded, if that is read already; None reads its segments.
    """
    dim, where = model.architecture_.state_dim, shown(site.path)
    site.check_states(state_names(model))
    if site.data.inputs:
        raise InputError(
            f"{where}: data.inputs names {', '.join(site.data.inputs)} but a learned model takes "
            "no inputs: leave them out"
        )
    if process_noise is None and model.noise_ is None:
        if site.noise.process == "auto":
            raise InputError(
                "the model does not say how far off it is, which a filter must know: give "
                "--process-noise, a variance per step in units of the states"
            )
        process_noise = noise_of(site.noise.process, dim, f"{where}: noise.process")
    sensor = sensor_for(site, dim)
    observations = observations or _on_grid(site, model.learned_.dt)
    check_width(observations, sensor)
    if site.noise.observation == "auto":
        observed = guessed_noise(list(observations.trajectories), where)
    else:
        observed = noise_of(site.noise.observation, sensor.dim, f"{where}: noise.observation")
    return predict_observations(
        model,
        sensor,
        observations,
        steps,
        observation_noise=observed,
        process_noise=None if process_noise is None else lift_noise(model, process_noise),
        initial_mean=initial_mean(site, dim),
        initial_cov=noise_of(site.initial.cov, dim, f"{where}: initial.cov"),
    )


def _on_grid(site: SiteFile, dt: float) -> Observations:
    """A site's segments on the model's grid, those without any observation left out."""
    parts = [s for s in segments(site, dt) if not np.isnan(s.observations).all()]
    return Observations(
        site.name,
        tuple(part.observations for part in parts),
        tuple(part.name for part in parts),
        tuple(part.start_time + dt * np.arange(len(part.observations)) for part in parts),
    )
