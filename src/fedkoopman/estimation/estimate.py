"""`fk.estimate`: observations in, states with covariances out. The checked, NumPy-friendly edge."""

import warnings
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from fedkoopman.errors import InputError
from fedkoopman.estimation import checks
from fedkoopman.estimation.batches import Progress, pieces, run_pieces
from fedkoopman.estimation.estimates import DivergenceWarning, Estimates
from fedkoopman.estimation.fused import fused
from fedkoopman.estimation.gaussian import Noise, State, track
from fedkoopman.estimation.linalg import UNROLLED, cholesky
from fedkoopman.estimation.models import Batched, Conditions, model_of
from fedkoopman.estimation.particle import particle_track
from fedkoopman.estimation.problem import Problem, problem_of
from fedkoopman.estimation.transforms import Transform
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System
from fedkoopman.systems.checks import check_seed
from fedkoopman.systems.integrate import trajectory_key


def widest(n: int) -> int:
    """Trajectories per compiled piece, for n states.

    Wider pieces fall out of the second-level cache; from about a dozen states the matrices of a
    single trajectory are large enough to keep the processor busy.
    """
    return 128 if n <= UNROLLED else 64 if n <= 12 else 1


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
            exact Jacobians; "particle" is a bootstrap particle filter.
        smooth: run the smoother backwards (Rauch-Tung-Striebel; backward simulation for particles).
        alpha, beta, kappa: spread of the sigma points (eq. (8)-(9); the paper's values).
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
    checks.check_method(method)
    n = checks.first_of(system, System, "system").dim
    transform = checks.transform_of(method, n, alpha, beta, kappa) if method != "particle" else None
    problem, form = problem_of(
        system,
        sensor,
        z,
        process_noise=process_noise,
        observation_noise=observation_noise,
        initial_mean=initial_mean,
        initial_cov=initial_cov,
        inputs=inputs,
        dt=dt,
    )
    if room is not None and transform is not None:  # particles compile for T itself
        problem = problem.filled(room)
    check_seed(seed)
    if transform is not None:
        run = partial(_gaussian, transform=transform, smooth=smooth)
    else:
        run = partial(_particles, particles=particles, seed=seed, smooth=smooth)
    fields = _in_pieces(problem, run, widest(n) if transform else 1, progress)
    found = _result(fields, problem, form, method, smooth, definite=beta >= alpha**2)
    if warn:
        checks.warn_of_beta(method, alpha, beta)
        _warn_of_divergence(np.atleast_1d(found.ok))
    return found


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


def _in_pieces(problem: Problem, run: Any, widest: int, progress: Progress | None) -> dict:
    """Run `run` on pieces of the batch and put the results together, batch first."""
    batch, steps, m = problem.z.shape
    n = problem.mean.shape[1]
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
            results, overlap = run(piece, rows)
            if whole:
                fields.update({k: _batch_first(v) for k, v in results.items()})
                return overlap
            for name, value in results.items():
                target = fields[name]
                if name in ("mean", "cov", "innovations", "innovation_cov"):
                    target = target[:, :longest]
                target[rows] = np.moveaxis(np.asarray(value), -1, 0)
        return overlap

    run_pieces(one, list(pieces(lengths, widest)), progress)
    return fields


def _gaussian(
    piece: Problem, rows: np.ndarray, *, transform: Transform, smooth: bool
) -> tuple[dict[str, Any], bool]:
    """Filter and smooth one piece; results have the batch last. Says if pieces may overlap."""
    del rows
    system, system_batched = _stack(piece.system, "system")
    sensor, sensor_batched = _stack(piece.sensor, "sensor")
    steps = piece.z.shape[1]
    valid = None if piece.lengths is None else np.arange(steps)[:, None] < piece.lengths
    given = (
        system,
        sensor,
        State(_batch_last(piece.mean), _batch_last(piece.cov)),
        np.ascontiguousarray(_batch_last(piece.z)),
        Conditions(process_noise=_constant(piece.q), observation_noise=_constant(piece.r)),
        Conditions(
            inputs=_time_first(piece.inputs),
            dt=_time_first(piece.dt),
            process_noise=_changing(piece.q),
            observation_noise=_changing(piece.r),
        ),
        valid,
    )
    static = {
        "transform": transform,
        "batched": Batched(system_batched, sensor_batched),
        "smooth": smooth,
    }
    result = _track(*given, **static)
    result["log_likelihood"] = np.asarray(result["log_likelihood"]).sum(axis=0)
    return result, _track.is_one_kernel(*given, **static)


def _batch_last(array: np.ndarray) -> Any:
    return array.transpose(*range(1, array.ndim), 0)  # `moveaxis`, without its checks


def _batch_first(value: Any) -> np.ndarray:
    """A writable copy with the batch on the first axis instead of the last."""
    array = np.asarray(value)
    return np.array(array.transpose(array.ndim - 1, *range(array.ndim - 1)), order="C")


def _time_first(value: np.ndarray | None) -> Any:
    return None if value is None else np.moveaxis(value, 0, 1)


def _constant(cov: np.ndarray) -> Any:
    if cov.ndim == 2:
        return cov[..., None]
    return _batch_last(cov[:, 0]) if cov.ndim == 4 and cov.shape[1] == 1 else None


def _changing(cov: np.ndarray) -> Any:
    if _constant(cov) is not None:
        return None
    return cov[..., None] if cov.ndim == 3 else np.moveaxis(cov, 0, -1)


def _stack(value: Any, name: str) -> tuple[Any, bool]:
    """One pytree of all systems (sensors) of a batch, leaves with a leading axis."""
    if not isinstance(value, list):
        return value, False
    shapes = {tuple(np.shape(leaf) for leaf in jax.tree.leaves(v)) for v in value}
    if len({jax.tree.structure(v) for v in value}) > 1 or len(shapes) > 1:
        raise InputError(
            f"the {name}s of a batch are of different kinds or dimensions: estimate each kind in "
            "its own call"
        )
    return jax.tree.map(lambda *leaves: np.stack(leaves), *value), True


@partial(fused, static_argnames=("transform", "batched", "smooth"))
def _track(
    system: System,
    sensor: Sensor,
    initial: State,
    z: Array,
    constant: Conditions,
    changing: Conditions,
    valid: Array | None,
    *,
    transform: Transform,
    batched: Batched,
    smooth: bool,
) -> dict[str, Array]:
    factored = jax.vmap(lambda cov: Noise(cov, cholesky(cov)))
    q: Any = constant.process_noise
    r: Any = constant.observation_noise
    changing = changing._replace(
        process_noise=None if q is not None else factored(changing.process_noise),
        observation_noise=None if r is not None else factored(changing.observation_noise),
    )
    q, r = (None if cov is None else Noise.of(cov) for cov in (q, r))
    result = track(
        transform,
        lambda now: model_of(system, sensor, now, batched),
        initial,
        z,
        changing,
        lambda now: (q or now.process_noise, r or now.observation_noise),
        valid,
        smooth,
    )
    return {
        "mean": result.states.mean,
        "cov": result.states.cov,
        "initial_mean": result.initial.mean,
        "initial_cov": result.initial.cov,
        "log_likelihood": result.info.log_likelihood,
        "innovations": result.info.innovation,
        "innovation_cov": result.info.innovation_cov,
    }


def _particles(
    piece: Problem, rows: np.ndarray, *, particles: int, seed: int, smooth: bool
) -> tuple[dict[str, Any], bool]:
    """One trajectory through the particle filter; its draws depend on its own row only."""
    key = trajectory_key(seed, int(rows[0]))
    one = partial(jax.tree.map, lambda a: a[0])
    system = piece.system[0] if isinstance(piece.system, list) else piece.system
    sensor = piece.sensor[0] if isinstance(piece.sensor, list) else piece.sensor
    q, r = (one(cov) if cov.ndim == 4 else cov for cov in (piece.q, piece.r))
    q, r = (cov[0] if cov.ndim == 3 and len(cov) == 1 else cov for cov in (q, r))
    steps = piece.z.shape[1] if piece.lengths is None else int(piece.lengths[0])
    result, overlap = particle_track(
        system,
        sensor,
        one(piece.mean),
        one(piece.cov),
        piece.z[0, :steps],
        q if q.ndim == 2 else q[:steps],
        r if r.ndim == 2 else r[:steps],
        None if piece.inputs is None else piece.inputs[0, :steps],
        None if piece.dt is None else piece.dt[0, :steps],
        key=key,
        particles=particles,
        smooth=smooth,
    )
    return {name: np.asarray(value)[..., None] for name, value in result.items()}, overlap


def _result(
    fields: dict, problem: Problem, form: str, method: str, smooth: bool, definite: bool
) -> Estimates:
    z, lengths = problem.z, problem.lengths
    batch = len(z)
    missing = np.isnan(z)
    angles = checks.first_of(problem.system, System, "system").angles
    if lengths is not None:
        for b, length in enumerate(lengths):
            for name in ("mean", "cov", "innovations", "innovation_cov"):
                fields[name][b, length:] = 0
    ok = np.ones(batch, bool)
    # One that is not finite anywhere makes the sum so; what is not summed here enters the mean.
    with np.errstate(invalid="ignore", over="ignore"):
        for name in ("mean", "cov", "initial_mean", "initial_cov", "log_likelihood"):
            value = fields[name]
            ok &= np.isfinite(value.sum(axis=tuple(range(1, value.ndim))))
    if method.startswith("ukf") and not definite:
        # Only β < α² can cost a covariance its definiteness.
        values = np.linalg.eigvalsh(fields["cov"][ok])
        ok[ok] = (values[..., 0] >= -1e-12 * values[..., -1]).all(axis=1)
    if missing.any():
        fields["innovations"][missing] = np.nan
    if form != "list" and lengths is not None:  # filled up: there is only one length
        for name in ("mean", "cov", "innovations", "innovation_cov"):
            fields[name] = fields[name][:, : lengths[0]]
    if form == "list":
        ends = np.full(batch, z.shape[1]) if lengths is None else lengths
        for name in ("mean", "cov", "innovations", "innovation_cov"):
            fields[name] = [row[:end] for row, end in zip(fields[name], ends, strict=True)]
    if form == "single":
        fields = {name: value[0] for name, value in fields.items()}
        fields["log_likelihood"] = float(fields["log_likelihood"])
        return Estimates(**fields, ok=bool(ok[0]), method=method, smoothed=smooth, angles=angles)
    return Estimates(**fields, ok=ok, method=method, smoothed=smooth, angles=angles)
