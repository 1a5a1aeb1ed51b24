"""What a report shows of a finished run beside its scores, computed once at the run's end.

Of the first seed, in `evidence.json`: errors of forecasts by steps ahead in the states' units,
beside those of holding the last state and of EDMD; how wide bands must be, and how often the truth
is within them; forecasts of one held-out trajectory from each of its samples; how long forecasts
stay valid; and a segment of every site, as the site sees it.

A served run has no such file: its server never holds what this is made of. That of a local run on
sites' files holds estimated states of one held-out segment per site, and nothing observed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.data.estimator import HeldOut
from fedkoopman.estimation.estimates import cores
from fedkoopman.estimation.left_out import stretches
from fedkoopman.federation.experiment import SCHEMES, Experiment, scheme_of
from fedkoopman.federation.sites import Address, View, arrived, held_out
from fedkoopman.federation.sites import Sites as SimulatedSites
from fedkoopman.federation.workers import Workers
from fedkoopman.koopman.bands import COVERED, SPANS, calibrated
from fedkoopman.koopman.card import spectrum_rows, state_names
from fedkoopman.koopman.inputs import ahead_of
from fedkoopman.koopman.kinds.edmd import EDMD
from fedkoopman.koopman.learned import Learned
from fedkoopman.koopman.model import DeepKoopman
from fedkoopman.koopman.rollout import rollout, starts_of
from fedkoopman.koopman.trajectories import windows_of
from fedkoopman.runs.comparison import Holdings, degree_of
from fedkoopman.runs.site_preparation import PreparedSite, Sites
from fedkoopman.sensors import Sensor

__all__ = ["LEADS", "evidence_of", "holdings_of_clients"]

LEADS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 75, 100)
"""Steps ahead, applications of K; as far as held-out trajectories reach."""
STARTS = 1_000
"""Held-out samples from which forecasts are judged, about."""
SEGMENTS = 1_000
"""Segments of simulated clients that EDMD is fitted to, at most."""
SHOWN = 300
"""Samples of a trajectory that is shown."""
MOST_SITES, MOST_STATES = 12, 6
"""Sites and states that are shown."""
LEVELS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Shares of outcomes that bands should cover."""

Matrix = NDArray[np.float64]
Rollout = Callable[[Matrix, Sequence[int], Matrix | None], list[Matrix]]
"""From windows, rising steps and inputs to the states after so many steps each."""


def evidence_of(
    experiment: Experiment, model: DeepKoopman, sites: Sites | None = None
) -> dict[str, Any]:
    """What stands in the file; numbers that are not finite are None.

    Arguments:
        sites: what real sites have prepared.
    """
    learned = model.learned_
    parts = [path for test in held_out(experiment) for path in test.trajectories]
    with Workers(cores()) as workers:
        training = _training(experiment, sites, workers)
        views = _views(experiment, sites, workers)
    rivals = _rivals(learned, training, model.relift_)
    found: dict[str, Any] = {
        "relift": model.relift_,
        "names": list(state_names(model)),
        "units": list(model.units_ or ()),
        "dt": learned.dt,
        "depth": learned.architecture.depth,
        "spectrum": spectrum_rows(model),
        "edmd": {"degree": degree_of(learned.architecture.state_dim), "segments": len(training)},
        "sites": views,
    }
    reach = [h for h in LEADS if h * learned.architecture.depth <= _longest(learned, parts)]
    if reach:
        found |= _judged(learned, parts, rivals, reach)
        found["valid"] = _valid(experiment, rivals, learned)
    return _plain(found)


def holdings_of_clients(experiment: Experiment) -> dict[str, Holdings]:
    """What each simulated client brings to a comparison: its segments, and the true states that
    everybody is tested on."""
    alone, scheme = scheme_of(experiment)
    wanted = [Address(slot, n) for slot in range(1, experiment.slots + 1)
              for n in arrived(alone, slot)]  # fmt: skip
    with Workers(cores()) as workers:
        segments = SimulatedSites(alone, scheme.perfect, scheme.raw).segments(wanted, workers)
    tests, found = held_out(experiment), dict[str, Holdings]()
    for n, client in enumerate(alone.clients):
        mine = [address for address in wanted if address.client == n]
        known = [(a.slot, path) for a in mine if (path := segments[a]) is not None]
        tested = tests[min(n, len(tests) - 1)].trajectories
        found[f"client {n}"] = Holdings(
            client.identity,
            [path for _, path in known],
            [(slot, place) for place, (slot, _) in enumerate(known)],
            [HeldOut(str(i), path, path) for i, path in enumerate(tested)],
        )
    return found


def _longest(learned: Learned, parts: Sequence[Matrix]) -> int:
    return max((len(part) for part in parts), default=0) - learned.architecture.window


def _training(experiment: Experiment, sites: Sites | None, workers: Workers) -> list[Matrix]:
    """States that clients train on; of simulated ones, the first segments."""
    if sites is not None:
        if experiment.privacy.mode == "site":  # sites would send sums of their states
            return []
        return [part for site in sites.sites for path in site.train for part in stretches(path)]
    alone, scheme = scheme_of(experiment)
    wanted: list[Address] = []
    for slot in range(1, experiment.slots + 1):
        wanted += [Address(slot, n) for n in arrived(alone, slot)]
        if len(wanted) >= SEGMENTS:
            break
    simulated = SimulatedSites(alone, scheme.perfect, scheme.raw)
    segments = simulated.segments(wanted[:SEGMENTS], workers).values()
    return [part for path in segments if path is not None for part in stretches(path)]


def _rivals(learned: Learned, training: list[Matrix], relift: int) -> dict[str, Rollout]:
    """Forecasts by name: the model's own way, lifted once, holding the last state, and EDMD."""
    kind = learned.architecture

    def by(model: Learned, anew: int) -> Rollout:
        width = model.architecture.input_dim
        return lambda windows, leads, inputs: list(
            rollout(model, windows[:, -width:], leads, anew, inputs)
        )

    found: dict[str, Rollout] = {
        "model": by(learned, relift),
        "holding": lambda windows, leads, _: [windows[:, -kind.state_dim :]] * len(leads),
    }
    if relift:
        found["once"] = by(learned, 0)
    if training:
        edmd = EDMD.of(
            state_dim=kind.state_dim, depth=kind.depth, inputs=kind.inputs,
            degree=degree_of(kind.state_dim),
        )  # fmt: skip
        fixed = edmd.fixed(edmd.scale_sums(training))
        sums = edmd.sums(fixed, {}, training)
        if sums["pairs"][0] > 0:
            weights = edmd.from_named(edmd.solve(fixed, {}, sums))
            found["edmd"] = by(
                Learned(edmd, weights, learned.dt, np.zeros((1, kind.state_dim))), relift
            )
    return found


def _judged(
    learned: Learned, parts: list[Matrix], rivals: dict[str, Rollout], leads: list[int]
) -> dict[str, Any]:
    """Errors, bands and their calibration over all held-out trajectories, and the first shown."""
    kind = learned.architecture
    d, depth = kind.state_dim, kind.depth
    if len(parts) == 1:  # bands are measured on one half, and judged by the other
        parts = np.array_split(parts[0], 2)
    windows, last, left = starts_of(parts, kind.window, depth, STARTS, kind.inputs)
    leads = [lead for lead in leads if (left >= lead).any()]
    if not leads:
        return {}
    rows = np.concatenate(parts)
    inputs = ahead_of(rows, last, max(leads), kind.inputs)
    odd = np.searchsorted(np.cumsum([len(part) for part in parts]), last, side="right") % 2 == 1
    errors: dict[str, list[Matrix]] = {}
    std, calibration = list[Matrix](), list[dict[str, Any]]()
    lengths = [max(0, len(part) - kind.window) // depth for part in parts]
    for name, forecast in rivals.items():
        errors[name] = []
        for lead, states in zip(leads, forecast(windows, leads, inputs), strict=True):
            known = left >= lead
            with np.errstate(over="ignore", invalid="ignore"):  # a model may have diverged
                wrong = states[known] - rows[last[known] + lead * depth, :d]
                errors[name].append(np.sqrt(np.mean(wrong**2, axis=0)))
            if name != "model":
                continue
            enough = sum(n // lead for n in lengths) >= SPANS and np.isfinite(wrong).all()
            std.append(_width(wrong) if enough else np.full(d, np.nan))
            mine, others = wrong[odd[known]], wrong[~odd[known]]
            if enough and len(mine) and len(others):
                covered = _covered(mine, _width(others))
                calibration.append({"lead": lead, "covered": covered, "count": len(mine)})
    return {
        "leads": leads,
        "errors": errors,
        "std": std,
        "spread": rows[:, :d].std(axis=0),
        "levels": LEVELS,
        "calibration": calibration,
        "shown": _shown(learned, rows[: min(SHOWN + 1, len(parts[0]))], rivals, leads),
    }


def _width(errors: Matrix) -> Matrix:
    """The standard deviations that bands have, as of `fedkoopman predict`."""
    return np.sqrt(np.diagonal(calibrated(errors)))


def _covered(errors: Matrix, std: Matrix) -> list[float]:
    """The share of errors within bands of each level, by bands measured on other trajectories.

    Bands say ±2σ for 95 of 100 (`koopman.bands`); other shares are those of a Gaussian.
    """
    widths = [2 * _quantile(level) / _quantile(COVERED) for level in LEVELS]
    return [float(np.mean(np.abs(errors) <= width * std)) for width in widths]


def _quantile(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + level) / 2))


def _shown(
    learned: Learned, path: Matrix, rivals: dict[str, Rollout], leads: list[int]
) -> dict[str, Any]:
    """The first held-out trajectory, and what was forecast for each of its samples so many steps
    before: row k is for sample k, None before there is one."""
    kind = learned.architecture
    d, depth, shown = kind.state_dim, kind.depth, min(kind.state_dim, MOST_STATES)
    windows = windows_of(path, kind.window, kind.inputs)
    ends = np.arange(kind.window - 1, len(path))
    leads = [h for h in leads if h * depth < len(windows)]
    forecasts: dict[str, list[Matrix]] = {}
    if leads:
        inputs = _padded_inputs(path, ends, max(leads), kind.inputs)
        for name in ("model", "edmd"):
            if name not in rivals:
                continue
            forecasts[name] = []
            for lead, states in zip(leads, rivals[name](windows, leads, inputs), strict=True):
                row = np.full((len(path), d), np.nan)
                ahead = lead * depth
                row[ends[:-ahead] + ahead] = states[:-ahead]
                forecasts[name].append(row[:, :shown])
    return {"truth": path[:, :shown], "leads": leads, "forecasts": forecasts}


def _padded_inputs(path: Matrix, ends: NDArray[np.intp], steps: int, inputs: int) -> Matrix | None:
    """Inputs of the steps to come; past the end, where nothing is judged, the last one stays."""
    if not inputs:
        return None
    place = np.minimum(ends[:, None] + np.arange(steps), len(path) - 1)
    return path[place][..., -inputs:]


def _valid(
    experiment: Experiment, rivals: dict[str, Rollout], learned: Learned
) -> dict[str, list[float]]:
    """Samples for which forecasts from the beginnings of held-out trajectories stay valid."""
    kind = learned.architecture
    d, depth = kind.state_dim, kind.depth
    found: dict[str, list[float]] = {name: [] for name in rivals}
    for test in held_out(experiment):
        paths = test.trajectories
        steps = min((paths.shape[1] - kind.window) // depth, SHOWN)
        if steps < 1:
            continue
        windows = np.concatenate([windows_of(p[: kind.window], kind.window, kind.inputs)
                                  for p in paths])  # fmt: skip
        inputs = None
        if kind.inputs:
            inputs = paths[:, kind.window - 1 : kind.window - 1 + steps, -kind.inputs :]
        truth = paths[:, kind.window - 1 + depth :: depth, :d][:, :steps]
        for name, forecast in rivals.items():
            ahead = forecast(windows, list(range(1, steps + 1)), inputs)
            states = np.stack(ahead, axis=1)
            with np.errstate(over="ignore", invalid="ignore"):
                far = np.sqrt(((states - truth) ** 2).sum(axis=-1))
                good = np.cumprod(far <= test.valid_error * test.spread, axis=1).sum(axis=1)
            found[name] += (depth * good).tolist()
    return {name: values for name, values in found.items() if values}


def _views(experiment: Experiment, sites: Sites | None, workers: Workers) -> list[dict[str, Any]]:
    """A segment of each site: what it observed, what it made of that, and the truth if known."""
    if sites is not None:
        return [_site_view(experiment, one) for one in sites.sites[:MOST_SITES] if one.held_out]
    alone, scheme = scheme_of(experiment)
    if experiment.recordings is not None or SCHEMES[experiment.scheme].perfect:
        slot = 1
    else:
        slot = experiment.slots  # the model was not trained on much of it, and it always exists
    wanted = [Address(slot, n) for n in range(min(len(alone.clients), MOST_SITES))]
    simulated = SimulatedSites(alone, scheme.perfect, scheme.raw)
    found = []
    for address, view in simulated.views(wanted, workers).items():
        sensor = alone.clients[address.client].sensor
        found.append({"name": f"client {address.client}", **_seen(sensor, view)})
    return found


def _site_view(experiment: Experiment, site: PreparedSite) -> dict[str, Any]:
    """States alone: what a real site observed is not passed on with a run."""
    one, d = site.held_out[0], min(experiment.architecture.state_dim, MOST_STATES)
    found = {"name": site.name, "segment": one.name, "mean": one.states[:SHOWN, :d]}
    return found if one.std is None else found | {"std": one.std[:SHOWN, :d]}


def _seen(sensor: Sensor, view: View) -> dict[str, Any]:
    """A simulated client's states, and what its sensor shows of them without noise.

    The uncertainty of what it shows is that of the states along the sensor's tangent.
    """
    z, mean, cov, truth = (part[:SHOWN] for part in (view.observations, view.mean, view.cov,
                                                     view.truth))  # fmt: skip
    with jax.enable_x64(True):
        values, slopes = (np.asarray(part) for part in _sensed(sensor, jnp.asarray(mean)))
        true = np.asarray(_sensed(sensor, jnp.asarray(truth))[0])
    through = np.einsum("tmi,tij,tmj->tm", slopes, cov, slopes)
    found = {
        "observed": z, "seen": values, "seen_std": np.sqrt(np.maximum(through, 0)),
        "true_seen": true, "mean": mean, "std": np.sqrt(np.diagonal(cov, axis1=1, axis2=2)),
        "truth": truth,
    }  # fmt: skip
    return {name: part[:, :MOST_STATES] for name, part in found.items()}


@jax.jit
def _sensed(
    sensor: Sensor, states: Float[Array, "time state"]
) -> tuple[Float[Array, "time observed"], Float[Array, "time observed state"]]:
    return jax.vmap(sensor)(states), jax.vmap(jax.jacfwd(sensor))(states)


def _plain(value: Any) -> Any:
    """As JSON has it, with as many digits as a picture needs."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.5g}") if np.isfinite(value) else None
    return value
