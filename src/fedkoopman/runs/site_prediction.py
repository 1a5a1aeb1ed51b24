"""From a site's own observations to a forecast, with nothing but a learned model."""

from typing import Any

import numpy as np

from fedkoopman.config.parts import noise_of, sensor_of
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

__all__ = ["predict_site"]


def predict_site(
    model: Fitted, site: SiteFile, steps: int, process_noise: Any = None
) -> Prediction:
    """Filter all segments of a site through the model, and forecast from the end of each.

    Observation noise that the site leaves open ("auto") is taken from second differences: the
    equations with which a run estimates it are not at hand here.

    Arguments:
        steps: how many applications of K.
        process_noise: variance of the model's error per step, in units of the states; None takes
            what was measured in training, or else the site's.
    """
    dim, where = model.architecture_.state_dim, shown(site.path)
    site.check_states(state_names(model))
    if site.data.inputs:
        raise InputError(
            f"{where}: data.inputs names {', '.join(site.data.inputs)} but a learned model takes "
            "no inputs: leave them out"
        )
    dt = model.learned_.dt
    parts = [s for s in segments(site, dt) if not np.isnan(s.observations).all()]
    if process_noise is None and model.noise_ is None:
        if site.noise.process == "auto":
            raise InputError(
                "the model does not say how far off it is, which a filter must know: give "
                "--process-noise, a variance per step in units of the states"
            )
        process_noise = noise_of(site.noise.process, dim, f"{where}: noise.process")
    sensor = sensor_of(site.sensor, dim, seed=0, folder=site.folder, key=f"{where}: sensor")
    if site.noise.observation == "auto":
        observed = guessed_noise([part.observations for part in parts], where)
    else:
        observed = noise_of(site.noise.observation, sensor.dim, f"{where}: noise.observation")
    observations = Observations(
        site.name,
        tuple(part.observations for part in parts),
        tuple(part.name for part in parts),
        tuple(part.start_time + dt * np.arange(len(part.observations)) for part in parts),
    )
    mean = np.broadcast_to(np.asarray(site.initial.mean, float), (dim,))
    return predict_observations(
        model,
        sensor,
        observations,
        steps,
        observation_noise=observed,
        process_noise=None if process_noise is None else lift_noise(model, process_noise),
        initial_mean=np.array(mean),
        initial_cov=noise_of(site.initial.cov, dim, f"{where}: initial.cov"),
    )
