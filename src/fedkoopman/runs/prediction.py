"""From a user's file or a site and a learned model to what comes next.

A forecast starts from states, or from observations, which a Koopman filter makes into states first.
Both end in a `Prediction`, ready to be written and drawn.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedkoopman.config.parts import input_places, noise_of, sensor_for
from fedkoopman.config.site_file import SiteFile
from fedkoopman.data.beliefs import initial_state, observation_noise
from fedkoopman.data.observations import Observations, SiteStates, filled
from fedkoopman.data.segments import segments
from fedkoopman.data.time_grid import grid_places, placed
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.estimation import DivergenceWarning, nis
from fedkoopman.estimation.initial import seen_spread
from fedkoopman.koopman.card import state_names
from fedkoopman.koopman.fitted import Fitted
from fedkoopman.koopman.forecast import Forecast, enough
from fedkoopman.koopman.kalman import KoopmanFilter, lift_noise
from fedkoopman.paths import naming, shown
from fedkoopman.runs.site_estimation import check_width, seen_alone


@dataclass(frozen=True)
class Prediction:
    """What a forecast starts from, and the forecast.

    Attributes:
        past: the states up to now; their covariances are 0 where they count as exact.
        future: the states to come, one row per application of K.
        basis: where the uncertainty comes from, in words.
    """

    past: SiteStates
    future: SiteStates
    basis: str


def predict_states(
    model: Fitted,
    states: Observations,
    steps: int,
    stds: list[np.ndarray] | None = None,
    relift: int | None = None,
    future: np.ndarray | None = None,
) -> Prediction:
    """Forecast from the last window of every trajectory.

    Arguments:
        states: whole trajectories, one sample per dt of the model, with the model's inputs.
        steps: how many applications of K.
        stds: standard deviations of the states; None takes them as exact.
        relift: after how many applications of K to lift anew; None: the model's own way.
        future: the inputs to come, (steps, m); None holds the last ones.
    """
    learned = model.learned_
    for i, rows in enumerate(states.trajectories):
        if len(rows) < learned.architecture.window:
            raise InputError(
                f"{states.where(i)} has {len(rows)} samples but the model starts from "
                f"{learned.architecture.window}: give more, or leave the segment out"
            )
    acts = states.acting(learned.dt)
    states = _on_grid(states, learned.dt)
    for i, rows in enumerate(states.trajectories):
        if np.isnan(rows).any():
            raise InputError(
                f"{states.where(i)} has a gap after sample {np.isnan(rows).any(axis=1).argmax()}, "
                f"the model's dt being {learned.dt:g}: give it as two segments, or raw "
                "observations with --sensor"
            )
    parts = list(states.trajectories)
    U = None if acts is None else [u[1:] for u in acts]  # from each sample on
    found = model.forecast(parts, steps, std=stds, relift=relift, U=U, future=future)
    covs = (
        [np.zeros((*rows.shape, rows.shape[1])) for rows in parts]
        if stds is None
        else [std[..., None] ** 2 * np.eye(std.shape[1]) for std in stds]
    )
    past = _states(model, states, parts, covs, [np.full_like(rows, np.nan) for rows in parts])
    exact = "" if stds is None else ", and the standard deviations given"
    if enough(learned, parts) or learned.noise is None:
        basis = f"the model's errors, measured on {states.source}{exact}"
    else:
        basis = f"the model's errors in its training{exact}"
    return Prediction(past, _future(past, found), basis + _held_words(model, future))


def predict_site(
    model: Fitted,
    site: SiteFile,
    steps: int,
    process_noise: Any = None,
    observations: Observations | None = None,
    relift: int | None = None,
    future: np.ndarray | None = None,
) -> Prediction:
    """Filter all segments of a site through the model, and forecast from the end of each.

    Observation noise that the site leaves open ("auto") is taken from second differences: the
    equations with which a run estimates it are not at hand here.

    Arguments:
        steps: how many applications of K.
        process_noise: variance of the model's error per step, in units of the states; None takes
            what was measured in training, or else the site's.
        observations: what the site recorded, if that is read already; None reads its segments.
        relift: after how many applications of K to lift anew; None: the model's own way.
        future: the inputs to come, (steps, m); None holds the last ones.
    """
    dim, where = model.architecture_.state_dim, shown(site.path)
    site.check_states(state_names(model))
    with naming(site.path):
        places = _places(model, site.data.inputs)
    if process_noise is None and model.noise_ is None:
        if site.noise.process == "auto":
            raise InputError(
                "the model does not say how far off it is, which a filter must know: give "
                "--process-noise, a variance per step in units of the states"
            )
        process_noise = noise_of(site.noise.process, dim, f"{where}: noise.process")
    sensor = sensor_for(site, dim)
    known: dict[str, Any] = initial_state(site, dim)
    read = observations is not None
    if observations is None:
        observations, acts = _segments_of(site, model.learned_.dt)
    else:
        acts = observations.acting(model.learned_.dt)
    if acts is not None:
        acts = [u[:, places] for u in acts]
    # A sensor file without initial_mean leaves it to the model.
    if read and site.initial.mean == 0.0:
        known["initial_mean"] = None
    check_width(observations, sensor)
    if known["initial_cov"] is None:  # about the model's own mean, unless the site gives one
        mean, spread, _ = seen_spread(sensor, observations.trajectories, np.ones(dim))
        own = np.reshape(model.reference_, (-1, dim))[-1]
        about = own if known["initial_mean"] is None else known["initial_mean"]
        known["initial_cov"] = np.diag(spread + (mean - about) ** 2)
    kalman = KoopmanFilter(
        model,
        sensor,
        observation_noise=observation_noise(site, sensor.dim, observations.trajectories),
        process_noise=None if process_noise is None else lift_noise(model, process_noise),
        **known,
    )
    learned = model.learned_
    seen = _thinned(_on_grid(observations, learned.dt), learned.architecture.depth, learned.dt)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)  # the caller is told below
        inputs = None if acts is None else filled([u[:-1] for u in acts])
        found = kalman.filter(list(seen.trajectories), inputs)
    ok = np.atleast_1d(found.ok)
    if not ok.all():
        raise ComputationError(
            f"the filter diverged on {seen.where(int(np.argmin(ok)))}, nothing is written: check "
            "units, the sensor and its noise, or whether the model knows such states"
        )
    observed = [seen_alone(sensor, z, dim) for z in seen.trajectories]
    past = replace(
        _states(model, seen, list(found.mean), list(found.cov), observed),
        log_likelihood=float(np.sum(found.log_likelihood)),
        consistency=str(nis(found)),
    )
    whose = "in its training" if process_noise is None else "as given"
    basis = f"the filter's covariance and the model's errors {whose}"
    coming = future
    if acts is not None and future is None:
        coming = np.stack([np.tile(u[-1:], (steps, 1)) for u in acts])
    ahead = kalman.forecast_from(found, steps, relift=relift, future=coming)
    return Prediction(past, _future(past, ahead), basis + _held_words(model, future))


def _input_words(model: Fitted) -> str:
    names = model.input_names_
    return ", ".join(names) if names else f"{model.n_inputs_} inputs"


def _held_words(model: Fitted, future: np.ndarray | None) -> str:
    """What is assumed of inputs to come that nobody gave."""
    held = model.n_inputs_ and future is None
    return f"; {_input_words(model)} held at the last value" if held else ""


def _places(model: Fitted, given: Sequence[str]) -> list[int]:
    """Where the model's inputs stand among the columns of inputs that are given."""
    if not model.n_inputs_ and given:
        raise InputError(
            f"data.inputs names {', '.join(given)} but this model takes no inputs: leave them out"
        )
    places = input_places(model.input_names_ or (), model.n_inputs_, given)
    if places is None:
        raise InputError(
            f"data.inputs names {len(given)} columns but the model is driven by "
            f"{_input_words(model)}: name the columns that hold them"
        )
    return places


def _segments_of(site: SiteFile, dt: float) -> tuple[Observations, list[np.ndarray] | None]:
    """A site's segments on the model's grid, those without any observation left out, and their
    inputs as of `Observations.acting`."""
    parts = [s for s in segments(site, dt) if not np.isnan(s.observations).all()]
    seen = Observations(
        site.name,
        tuple(part.observations for part in parts),
        tuple(part.name for part in parts),
        tuple(part.start_time + dt * np.arange(len(part.observations)) for part in parts),
    )
    acts = [
        np.vstack([part.inputs, part.coming])
        for part in parts
        if part.inputs is not None and part.coming is not None
    ]
    return seen, acts or None


def _on_grid(found: Observations, dt: float) -> Observations:
    """The samples dt apart, NaN where there is none; refuses instants that do not fit."""
    if found.times is None:
        return found
    parts, times = [], []
    for i, (t, rows) in enumerate(zip(found.times, found.trajectories, strict=True)):
        index, fits = grid_places(t, dt)
        if not fits.all():
            k = int(np.argmin(fits))
            raise InputError(
                f"{found.where(i)} has time {t[k]:.12g} in sample {k + 1}, {t[k] - t[k - 1]:.6g} "
                f"after the one before, but the model's dt is {dt:g}: give samples that far apart"
            )
        parts.append(placed(rows, index))
        times.append(t[0] + dt * np.arange(len(parts[-1])))
    return replace(found, trajectories=tuple(parts), times=tuple(times))


def _thinned(found: Observations, depth: int, dt: float) -> Observations:
    """Every depth-th sample, the last among them: one per application of K."""
    if depth == 1:
        return found
    times = found.times or tuple(dt * np.arange(1, len(z) + 1) for z in found.trajectories)
    return replace(
        found,
        trajectories=tuple(z[(len(z) - 1) % depth :: depth] for z in found.trajectories),
        times=tuple(t[(len(t) - 1) % depth :: depth] for t in times),
    )


def _states(
    model: Fitted,
    found: Observations,
    means: list[np.ndarray],
    covs: list[np.ndarray],
    observed: list[np.ndarray],
) -> SiteStates:
    dt, dim = model.learned_.dt, model.learned_.architecture.state_dim
    return SiteStates(
        names=state_names(model),
        units=model.learned_.units or ("",) * dim,
        labels=found.labels or tuple(str(i + 1) for i in range(len(means))),
        times=list(found.times or [dt * np.arange(1, len(rows) + 1) for rows in means]),
        means=means,
        covs=covs,
        observed=observed,
        ok=np.ones(len(means), bool),
        log_likelihood=0.0,
    )


def _future(past: SiteStates, found: Forecast) -> SiteStates:
    return replace(
        past,
        times=[
            np.array([float(f"{t[-1] + ahead:.12g}") for ahead in found.time]) for t in past.times
        ],
        means=list(found.mean),
        covs=list(found.cov),
        observed=[np.full_like(rows, np.nan) for rows in found.mean],
    )
