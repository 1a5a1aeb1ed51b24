"""Observations → states with covariances.

`estimate` is the checked, NumPy-friendly edge (also `fk.estimate`). Under it are pure functions
that take their dtype from their inputs and can be differentiated and transformed: `step` (predict,
then correct), `smooth_step`, and `track` (the scans), with `Unscented` or `Linearised` as the
transform and `model_of(system, sensor)` as the model. They carry the batch on the last axis.
"""

from fedkoopman.estimation.diagnostics import Diagnosis, nees, nis, whiteness
from fedkoopman.estimation.estimate import estimate
from fedkoopman.estimation.estimates import DivergenceWarning, Estimates
from fedkoopman.estimation.gaussian import (
    Info,
    Link,
    Model,
    Noise,
    State,
    Track,
    smooth_step,
    step,
    track,
)
from fedkoopman.estimation.models import Batched, Conditions, model_of
from fedkoopman.estimation.noise import estimate_noise
from fedkoopman.estimation.noise_estimates import NoiseEstimates
from fedkoopman.estimation.online import OnlineFilter, OnlineInfo, OnlineState
from fedkoopman.estimation.parameter_fusion import Belief, combine_parameters
from fedkoopman.estimation.parameters import ParameterEstimates, estimate_parameters
from fedkoopman.estimation.transforms import Linearised, Unscented

__all__ = [
    "Batched",
    "Belief",
    "Conditions",
    "Diagnosis",
    "DivergenceWarning",
    "Estimates",
    "Info",
    "Linearised",
    "Link",
    "Model",
    "Noise",
    "NoiseEstimates",
    "OnlineFilter",
    "OnlineInfo",
    "OnlineState",
    "ParameterEstimates",
    "State",
    "Track",
    "Unscented",
    "combine_parameters",
    "estimate",
    "estimate_noise",
    "estimate_parameters",
    "model_of",
    "nees",
    "nis",
    "smooth_step",
    "step",
    "track",
    "whiteness",
]
