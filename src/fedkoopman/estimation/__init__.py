"""Observations → states with covariances.

`estimate` is the checked, NumPy-friendly edge (also `fk.estimate`). Under it are pure functions
that take their dtype from their inputs and can be differentiated and transformed: `step` (predict,
then correct), `smooth_step`, and `track` (the scans), with `Unscented` or `Linearised` as the
transform and `model_of(system, sensor)` as the model. They carry the batch on the last axis.

`ESTIMATORS` holds the methods by name; each is an `Estimator` in a file of `methods`.
"""

from typing import TYPE_CHECKING

from fedkoopman.lazy import lazy_names

if TYPE_CHECKING:
    from fedkoopman.estimation.diagnostics import Diagnosis, nees, nis, whiteness
    from fedkoopman.estimation.estimates import DivergenceWarning, Estimates, estimate
    from fedkoopman.estimation.estimator import Estimator, Options, SequenceEstimator, Trajectory
    from fedkoopman.estimation.gaussian import (
        Batched,
        Conditions,
        Info,
        Link,
        Model,
        Noise,
        State,
        Track,
        Transform,
        model_of,
        smooth_step,
        step,
        track,
    )
    from fedkoopman.estimation.gaussian_estimator import (
        GaussianEstimator,
        OnlineFilter,
        OnlineInfo,
        OnlineState,
    )
    from fedkoopman.estimation.methods import ESTIMATORS
    from fedkoopman.estimation.methods.ekf import Linearised
    from fedkoopman.estimation.methods.ukf import Unscented
    from fedkoopman.estimation.noise import estimate_noise
    from fedkoopman.estimation.noise_structure import NoiseEstimates
    from fedkoopman.estimation.parameters import (
        Belief,
        ParameterEstimates,
        combine_parameters,
        estimate_parameters,
    )
    from fedkoopman.estimation.track_loss import lost_track

__all__ = [
    "ESTIMATORS",
    "Batched",
    "Belief",
    "Conditions",
    "Diagnosis",
    "DivergenceWarning",
    "Estimates",
    "Estimator",
    "GaussianEstimator",
    "Info",
    "Linearised",
    "Link",
    "Model",
    "Noise",
    "NoiseEstimates",
    "OnlineFilter",
    "OnlineInfo",
    "OnlineState",
    "Options",
    "ParameterEstimates",
    "SequenceEstimator",
    "State",
    "Track",
    "Trajectory",
    "Transform",
    "Unscented",
    "combine_parameters",
    "estimate",
    "estimate_noise",
    "estimate_parameters",
    "lost_track",
    "model_of",
    "nees",
    "nis",
    "smooth_step",
    "step",
    "track",
    "whiteness",
]

__getattr__ = lazy_names(__name__)
