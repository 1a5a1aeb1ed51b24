"""`fk.estimate`: observations in, states with covariances out. The checked, NumPy-friendly edge.

A large or ragged batch is cut into equal pieces, which run on all cores.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedkoopman.cell_output import facts
from fedkoopman.errors import InputError
from fedkoopman.estimation import checks
from fedkoopman.estimation.estimator import Estimator, Options, Problem, problem_of
from fedkoopman.estimation.methods import ESTIMATORS
from fedkoopman.plot import draw
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System
from fedkoopman.systems.checks import check_seed

Arrays = np.ndarray | list[np.ndarray]
"""An array, or one array per trajectory when the trajectories have different lengths."""

Progress = Callable[[int, int], None]
"""Called with (trajectories done, trajectories in all)."""

PER_STEP = ("mean", "cov", "innovations", "innovation_cov")
"""Fields of `Estimates` with a row for each observation."""


class DivergenceWarning(RuntimeWarning):
    """Some trajectories could not be estimated; `Estimates.ok` says which."""


@dataclass(frozen=True)
class Estimates:
    """States estimated from observations z_1 … z_T; rows are time.

    A batch (B, T, m) of observations gives every field a leading B; a list of trajectories gives
    lists. `mean` and `cov` are smoothed (or filtered, with `smooth=False`) at times 1 … T,
    `initial_mean` and `initial_cov` at time 0, before the first observation.
    """

    mean: Arrays
    cov: Arrays
    initial_mean: np.ndarray
    initial_cov: np.ndarray
    log_likelihood: np.ndarray | float
    """log p(z_1 … z_T), the missing components integrated out."""
    innovations: Arrays
    """z_k − E[z_k | z_1 … z_{k−1}]; NaN where z is missing."""
    innovation_cov: Arrays
    ok: np.ndarray | bool
    """False for a trajectory whose filter diverged: its numbers must not be used."""
    method: str
    smoothed: bool
    angles: tuple[int, ...] = ()
    """Components of the state that wrap at 2π; their means are in (−π, π]."""
    names: tuple[str, ...] = ()
    """Of the components of the state."""
    units: tuple[str, ...] = ()
    """Of the components of the state."""
    dt: float = 1.0
    """The system's sampling interval."""

    @property
    def std(self) -> Arrays:
        """Standard deviations of the components of `mean`."""
        covs = self.cov if isinstance(self.cov, list) else [self.cov]
        stds = [np.sqrt(np.diagonal(cov, axis1=-2, axis2=-1)) for cov in covs]
        return stds if isinstance(self.cov, list) else stds[0]

    def plot(self, **options: Any) -> Any:
        """Draw the states with their bands.

        Arguments:
            options: of `fk.plot.estimates`, as `truth`, `states`, `ax`.
        """
        return draw("estimates", ("estimates",), self, **options)

    def _repr_html_(self) -> str:
        several = isinstance(self.mean, list) or self.mean.ndim == 3
        parts = list(self.mean) if several else [self.mean]
        lengths = [len(part) for part in parts]
        d, good = self.initial_mean.shape[-1], int(np.sum(self.ok))
        rows = [
            ("method", f"{self.method}, {'smoothed' if self.smoothed else 'filtered'}"),
            ("trajectories", f"{len(lengths)}, of which {good} could be estimated"),
            ("samples", f"{min(lengths)} to {max(lengths)}" if several else lengths[0]),
            ("states", ", ".join(self.names) if len(self.names) == d else d),
            ("log-likelihood", f"{float(np.sum(self.log_likelihood)):.6g}"),
        ]
        return facts("Estimates", rows)


def estimate(
    system: System | list[System],
    sensor: Sensor | list[Sensor],
    z: Any,
    *,
    process_noise: Any = 1.0,
    observation_noise: Any = 1.0,
    initial_mean: Any = None,
    initial_cov: Any = None,
    method: str = "ukf",
    smooth: bool = True,
    alpha: float = 0.1,
    beta: float = 2.0,
    kappa: float = -1.0,
    particles: int = 1000,
    seed: int = 0,
    inputs: Any = None,
    dt: Any = None,
    progress: Progress | None = None,
    warn: bool = True,
    room: int | None = None,
) -> Estimates:
    """Estimate the states behind observations z_1 … z_T.

    Arguments:
        system: the dynamics, or a list with one per trajectory.
        sensor: how the state is seen, or a list with one per trajectory.
        z: observations (T, m), a batch (B, T, m), or a list of (T_i, m). NaN is missing: a whole
            row, or single components.
        process_noise, observation_noise: covariances Σ_f and Σ_h: a variance, a diagonal (d,), a
            matrix (d, d), one matrix per step (T, d, d), or per trajectory and step (B, T, d, d).
        initial_mean, initial_cov: the state at time 0, before the first prediction; zeros and the
            identity unless given. One for all, or one per trajectory.
        method: "ukf" is the paper's filter, which uses the propagated sigma points again to
            correct; "ukf-resampled" draws new ones and is statistically consistent; "ekf" uses
            exact Jacobians; "particle" is a bootstrap particle filter; another package's method by
            its name, or "file.py:name" for an `Estimator` of your own.
        smooth: run the smoother backwards (Rauch-Tung-Striebel; backward simulation for particles).
        alpha, beta, kappa: spread of the sigma points (eq. (4)-(5); the paper's values).
        particles, seed: for method "particle".
        inputs: known inputs u_k, (T, u) or (B, T, u), for systems that take them.
        dt: intervals between observations, (T,) or (B, T), where they are not the system's own.
        progress: called with (trajectories done, trajectories in all).
        warn: warn of divergence; callers that look at `ok` themselves need no warning.
        room: steps for which to compile, at least T: calls with different T then share what is
            compiled. For noise that does not change with time.

    Computes in float64 and leaves the caller's JAX settings alone. A trajectory whose filter
    diverges has `ok` False, with a `DivergenceWarning`.
    """
    estimator = ESTIMATORS.find(method)
    options = Options(alpha, beta, kappa, particles, seed)
    estimator.check(options, checks.first_of(system, System, "system").dim)
    if smooth and not estimator.smooths:
        raise InputError(f"method {method!r} has no smoother: pass smooth=False")
    problem, form = problem_of(
        system, sensor, z, process_noise=process_noise, observation_noise=observation_noise,
        initial_mean=initial_mean, initial_cov=initial_cov, inputs=inputs, dt=dt,
    )  # fmt: skip
    if room is not None and estimator.takes_padding:
        problem = problem.filled(room)
    check_seed(seed)
    doubt = estimator.indefinite(options)
    fields = _in_pieces(problem, estimator, options, smooth, progress)
    ok = _sound(fields, problem.lengths, definite=not doubt)
    if warn:
        if doubt:
            warnings.warn(doubt, stacklevel=2)
        _warn_of_divergence(ok)
    return _result(fields, ok, problem, form, method, smooth)


def _warn_of_divergence(ok: np.ndarray) -> None:
    if ok.all():
        return
    rows = np.flatnonzero(~ok)
    warnings.warn(
        f"{len(rows)} of {len(ok)} trajectories diverged (rows {rows[:10].tolist()}"
        f"{', …' if len(rows) > 10 else ''}): their estimates are not usable. Check units, the "
        "noise covariances and the initial state, or try a smaller dt",
        DivergenceWarning,
        stacklevel=3,
    )


def _in_pieces(
    problem: Problem,
    estimator: Estimator,
    options: Options,
    smooth: bool,
    progress: Progress | None,
) -> dict[str, Any]:
    """Estimate the batch in pieces and put the results together, batch first."""
    batch, steps, m = problem.z.shape
    n = problem.mean.shape[1]
    widest = estimator.widest(n)
    lengths = np.full(batch, steps) if problem.lengths is None else problem.lengths
    shapes = {
        "mean": (steps, n),
        "cov": (steps, n, n),
        "initial_mean": (n,),
        "initial_cov": (n, n),
        "log_likelihood": (),
        "innovations": (steps, m),
        "innovation_cov": (steps, m, m),
    }
    whole = batch <= widest and problem.lengths is None
    fields = {} if whole else {k: np.empty((batch, *shape)) for k, shape in shapes.items()}

    def one(rows: np.ndarray) -> bool:
        piece = problem if whole else problem.take(rows)
        longest = int(lengths[rows].max())
        if widest > 1:  # a power of two, as `pieces` groups them, so that few lengths are compiled
            longest = min(steps, 1 << (longest - 1).bit_length())
        if longest < steps:
            piece = piece.cut(longest)
        # The settings of JAX are per thread, so each piece sets its own.
        with jax.enable_x64(True):
            results, overlap = estimator.run(piece, rows, options, smooth)
            if whole:
                fields.update({k: _batch_first(v) for k, v in results.items()})
                return overlap
            for name, value in results.items():
                target = fields[name]
                if name in PER_STEP:
                    target = target[:, :longest]
                target[rows] = np.moveaxis(np.asarray(value), -1, 0)
        return overlap

    run_pieces(one, list(pieces(lengths, widest)), progress)
    return fields


def _batch_first(value: Any) -> np.ndarray:
    """A writable copy with the batch on the first axis instead of the last."""
    array = np.asarray(value)
    return np.array(array.transpose(array.ndim - 1, *range(array.ndim - 1)), order="C")


def _sound(fields: dict[str, Any], lengths: np.ndarray | None, definite: bool) -> np.ndarray:
    """Which trajectories were estimated, (B,): their numbers are finite, and covariances definite.

    Fields are set to 0 after a trajectory's end.
    """
    for b, length in enumerate(() if lengths is None else lengths):
        for name in PER_STEP:
            fields[name][b, length:] = 0
    ok = np.ones(len(fields["mean"]), bool)
    # One that is not finite anywhere makes the sum so; what is not summed here enters the mean.
    with np.errstate(invalid="ignore", over="ignore"):
        for name in ("mean", "cov", "initial_mean", "initial_cov", "log_likelihood"):
            value = fields[name]
            ok &= np.isfinite(value.sum(axis=tuple(range(1, value.ndim))))
    if not definite:
        values = np.linalg.eigvalsh(fields["cov"][ok])
        ok[ok] = (values[..., 0] >= -1e-12 * values[..., -1]).all(axis=1)
    return ok


def _result(
    fields: dict[str, Any], ok: np.ndarray, problem: Problem, form: str, method: str, smooth: bool
) -> Estimates:
    """The estimates in the form in which the observations came."""
    z, lengths = problem.z, problem.lengths
    missing = np.isnan(z)
    system = checks.first_of(problem.system, System, "system")
    about: dict[str, Any] = {
        "method": method, "smoothed": smooth, "angles": system.angles, "names": system.names,
        "units": system.units, "dt": float(system.dt),
    }  # fmt: skip
    if missing.any():
        fields["innovations"][missing] = np.nan
    if form != "list" and lengths is not None:  # filled up: there is only one length
        for name in PER_STEP:
            fields[name] = fields[name][:, : lengths[0]]
    if form == "list":
        ends = np.full(len(z), z.shape[1]) if lengths is None else lengths
        for name in PER_STEP:
            fields[name] = [row[:end] for row, end in zip(fields[name], ends, strict=True)]
    if form == "single":
        fields = {name: value[0] for name, value in fields.items()}
        fields["log_likelihood"] = float(fields["log_likelihood"])
        return Estimates(**fields, ok=bool(ok[0]), **about)
    return Estimates(**fields, ok=ok, **about)


def pieces(lengths: np.ndarray, widest: int) -> Iterator[np.ndarray]:
    """Row numbers of each piece, at most `widest` each.

    Trajectories are grouped by length rounded up to a power of two, so that padding at most doubles
    the work and the number of compiled shapes stays logarithmic; within a group the pieces are of
    one width (the last is filled up by repeating a row), so that one compilation serves them all.
    """
    if len(lengths) <= widest and (lengths == lengths[0]).all():
        yield np.arange(len(lengths))
        return
    bucket = np.ceil(np.log2(np.maximum(lengths, 1))).astype(int)
    for size in np.unique(bucket):
        rows = np.flatnonzero(bucket == size)
        count = -(-len(rows) // widest)
        width = -(-len(rows) // count)
        for start in range(0, len(rows), width):
            piece = rows[start : start + width]
            yield np.concatenate([piece, np.repeat(piece[-1:], width - len(piece))])


def cores() -> int:
    """The cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def run_pieces(
    run: Callable[[np.ndarray], bool], work: list[np.ndarray], progress: Progress | None
) -> None:
    """Call `run` on every piece; the first call compiles, and says whether others may overlap.

    A piece that is one kernel runs on one core and releases Python's lock, so threads use all
    cores. What XLA already spreads over the cores must not compete with itself, so it
    runs piece by piece.
    """
    if len(work) == 1 and progress is None:
        run(work[0])
        return
    total = len(np.unique(np.concatenate(work)))
    done: set[int] = set()

    def finish(piece: np.ndarray) -> None:
        done.update(piece.tolist())
        if progress is not None:
            progress(len(done), total)

    overlap = run(work[0])
    finish(work[0])
    with ThreadPoolExecutor(cores() if overlap else 1) as pool:
        for piece, _ in zip(work[1:], pool.map(run, work[1:]), strict=True):
            finish(piece)
