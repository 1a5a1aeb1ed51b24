"""Other people's libraries on driven, measured data: each fitted once, in a competent way.

Every function takes trajectories (X (T, d), U (T, m)) in which u_k is held from sample k to sample
k + 1, and returns a `Driven` model. What a library does not offer, it is not made to do: then
`Unavailable` says why. Settings were chosen on training data, except those of
jax-sysid's network, which were raised after a look at the arrow (6.98 and 6.29 mV before).

pykoopman fits nobody's pins; it runs in the Python of its own environment (`make bench-measured`).
"""

import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from accuracy_peers import HERE, PYKOOPMAN, Unavailable
from numpy.typing import NDArray

Array = NDArray[np.float64]
Trajectories = Sequence[tuple[Array, Array]]
Simulate = Callable[[Array, Array], Array]
"""(known (w, d), U (w + n − 1, m)) → (n, d): the rows after the known ones, outputs fed back. Row k
of U acts from row k on."""
BUDGET = 180
"""Seconds that a peer may take to learn, where it can be told."""


class Driven(NamedTuple):
    """A fitted model."""

    simulate: Simulate
    seconds: float
    """CPU time of the fit, imports excluded."""
    how: str
    """The configuration, in words."""


def windows(X: Array, U: Array, delays: int) -> Array:
    """[x_k, x_{k−1} … x_{k−delays}, u_{k−1} … u_{k−delays}] for every k that has them."""
    n = len(X) - delays
    past = [X[delays - i : delays - i + n] for i in range(delays + 1)]
    return np.hstack([*past, *(U[delays - i : delays - i + n] for i in range(1, delays + 1))])


def pairs(data: Trajectories, delays: int) -> tuple[Array, Array, Array]:
    """Windows, the inputs that act on them, and the windows one step later; none across two
    trajectories."""
    found = [(windows(X, U, delays), U[delays:]) for X, U in data]
    z, u = (np.concatenate([part[i][:-1] for part in found]) for i in (0, 1))
    return z, u, np.concatenate([part[0][1:] for part in found])


def recursion(step: Callable[[Array, Array], Array], delays: int) -> Simulate:
    """Free simulation by a map (window, input) → next state (d,); stops where it is not finite."""

    def simulate(known: Array, U: Array) -> Array:
        rows, first = [*known], len(known)
        found = np.full((len(U) - first + 1, known.shape[1]), np.nan)
        with np.errstate(over="ignore", invalid="ignore"):
            for k in range(len(found)):
                now = first - 1 + k
                past = [rows[now - i] for i in range(delays + 1)]
                past += [U[now - i] for i in range(1, delays + 1)]
                found[k] = step(np.concatenate(past), U[now])
                if not np.isfinite(found[k]).all() or np.abs(found[k]).max() > 1e6:
                    found[k:] = np.inf
                    break
                rows.append(found[k])
        return found

    return simulate


def pydmd_dmdc(data: Trajectories, delays: int = 0) -> Driven:
    """PyDMD's DMD with control.

    It takes one sequence of snapshots. With all first windows before all second ones, a lag of as
    many columns makes the right pairs and no wrong one.
    """
    from pydmd import DMDc

    z, u, later = pairs(data, delays)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of the condition of every X
        model = DMDc(svd_rank=-1, lag=len(z)).fit(np.concatenate([z, later]).T, u.T)
    operator = model.basis @ model.operator.as_numpy_array @ model.basis.T
    seconds, d = time.process_time() - began, data[0][0].shape[1]
    simulate = recursion(lambda w, v: np.real(operator @ w + model.B @ v)[:d], delays)
    return Driven(simulate, seconds, f"`DMDc(svd_rank=-1)`, {delays} delays")


def pykoop_edmd(data: Trajectories, delays: int = 0, degree: int = 3, alpha: float = 0.0) -> Driven:
    """pykoop's EDMD: scale, delays and all monomials of states and inputs, lifted anew every
    step."""
    import pykoop
    from sklearn.preprocessing import StandardScaler

    m, d = data[0][1].shape[1], data[0][0].shape[1]
    rows = np.concatenate([np.c_[np.full(len(X), i), X, U] for i, (X, U) in enumerate(data)])
    began = time.process_time()
    parts = [("scale", pykoop.SkLearnLiftingFn(StandardScaler()))]
    if delays:
        parts.append(("delay", pykoop.DelayLiftingFn(delays, delays)))
    parts.append(("monomials", pykoop.PolynomialLiftingFn(order=degree)))
    parts.append(("constant", pykoop.ConstantLiftingFn()))
    model = pykoop.KoopmanPipeline(lifting_functions=parts, regressor=pykoop.Edmd(alpha=alpha))
    model.fit(rows, n_inputs=m, episode_feature=True)
    seconds = time.process_time() - began
    # Its own predict_trajectory gives the same to the last digits, and takes more than twice as
    # long: 40,000 steps are minutes.
    matrix, last = model.regressor_.coef_.T, delays + 1
    scaler = model.lifting_functions_[0][1].transformer_

    def step(rows_known: Array, inputs: Array) -> Array:
        numbered = np.c_[np.zeros(last), rows_known, inputs]
        return (matrix @ model.transform(numbered)[-1, 1:])[:d]

    def simulate(known: Array, U: Array) -> Array:
        found = np.full((len(U) - len(known) + 1, d), np.nan)
        history = [*known]
        for k in range(len(found)):
            now = len(history)
            ahead = step(np.array(history[-last:]), U[now - last : now])
            found[k] = ahead * scaler.scale_[:d] + scaler.mean_[:d]
            if not np.isfinite(found[k]).all() or np.abs(found[k]).max() > 1e6:
                found[k:] = np.inf
                break
            history.append(found[k])
        return found

    return Driven(
        simulate, seconds, f"`Edmd`, {delays} delays, monomials of degree {degree}, lifted anew"
    )


def sysidentpy_narx(
    data: Trajectories, lags: int = 2, degree: int = 3, terms: int | None = None
) -> Driven:
    """sysidentpy's polynomial NARX by FROLS, least squares, terms chosen by BIC unless given."""
    from sysidentpy.basis_function import Polynomial
    from sysidentpy.model_structure_selection import FROLS
    from sysidentpy.parameter_estimation import LeastSquares

    [(X, U)] = data if len(data) == 1 else [(None, None)]
    if X is None or X.shape[1] != 1:
        raise Unavailable("it learns one output from one sequence")
    began = time.process_time()
    scale, drive = X.std(), U.std()
    how = {"n_terms": terms, "order_selection": False} if terms else {"order_selection": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of parameters that it does not use
        model = FROLS(
            ylag=lags,
            xlag=lags + 1,  # its newest input is the one before: here that acts on the next row
            basis_function=Polynomial(degree=degree),
            estimator=LeastSquares(),
            info_criteria="bic",
            n_info_values=30,
            model_type="NARMAX",
            **how,
        )
        model.fit(X=U / drive, y=X / scale)
    seconds = time.process_time() - began

    def simulate(known: Array, U: Array) -> Array:
        first, most = len(known), lags + 1
        n = len(U) - first + 1
        given = np.zeros((most + n, 1))
        given[:most] = known[first - most :] / scale
        inputs = np.vstack([U[first - most :], U[-1:]]) / drive  # of the last row nothing is asked
        return model.predict(X=inputs, y=given)[most:] * scale

    kept = len(model.final_model)
    return Driven(
        simulate, seconds, f"`FROLS`, degree {degree}, {lags} outputs, {kept} terms, least squares"
    )


def jax_sysid_network(
    data: Trajectories, states: int, width: int = 8, adam: int = 800, lbfgs: int = 300
) -> Driven:
    """jax-sysid's nonlinear state space: a linear part and one hidden layer, fitted by simulation
    error with Adam, then L-BFGS."""
    import jax
    import jax.numpy as jnp
    from jax_sysid.models import Model

    d, m = data[0][0].shape[1], data[0][1].shape[1]
    seen, drive = (np.concatenate([one[i] for one in data]) for i in (0, 1))
    mean, std, middle, size = seen.mean(0), seen.std(0), drive.mean(0), drive.std(0)

    @jax.jit
    def ahead(x, u, params):
        A, B, W1, b1, W2 = params[:5]
        hidden = jax.nn.swish(W1 @ jnp.concatenate([x, u]) + b1)
        return A @ x + B @ u + W2 @ hidden

    @jax.jit
    def output(x, u, params):
        return params[5] @ x

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    began, wall = time.process_time(), time.perf_counter()
    random = np.random.default_rng(0)
    model = Model(states, d, m, state_fcn=ahead, output_fcn=output)
    model.init(
        params=[
            0.9 * np.eye(states),
            0.1 * random.normal(size=(states, m)),
            0.6 * random.normal(size=(width, states + m)),
            0.6 * random.normal(size=width),
            0.1 * random.normal(size=(states, width)),
            random.normal(size=(d, states)),
        ]
    )
    model.loss(rho_x0=1e-4, rho_th=1e-8)
    model.optimization(
        adam_eta=0.01, adam_epochs=adam, lbfgs_epochs=lbfgs, lbfgs_tol=1e-16, memory=20, iprint=-1
    )
    Y, V = [(X - mean) / std for X, _ in data], [(U - middle) / size for _, U in data]
    model.fit(*(Y, V) if len(data) > 1 else (Y[0], V[0]))
    seconds, wall = time.process_time() - began, time.perf_counter() - wall
    jax.config.update("jax_enable_x64", before)

    def simulate(known: Array, U: Array) -> Array:
        before = jax.config.jax_enable_x64
        jax.config.update("jax_enable_x64", True)
        try:
            seen, V = (known - mean) / std, (np.vstack([U, U[-1:]]) - middle) / size
            x0 = model.learn_x0(V[: len(seen)], seen, verbosity=False, LBFGS_refinement=True)
            found, _ = model.predict(x0.reshape(-1), V)
        finally:
            jax.config.update("jax_enable_x64", before)
        return np.asarray(found)[len(known) :] * std + mean

    return Driven(
        simulate,
        seconds,
        f"{states} states, linear part and {width} hidden units, Adam {adam} and L-BFGS {lbfgs} "
        f"iterations ({wall:.0f} s)",
    )


def pykoopman_edmdc(
    data: Trajectories, known: Array, U: Array, delays: int = 0, degree: int = 3
) -> tuple[dict[str, Array], float]:
    """pykoopman's EDMDc of windows and their monomials, by a process of its own environment.

    Returns:
        The simulated rows by way ("lifted once", "lifted anew"), and CPU seconds of the fit.
    """
    z, u, later = pairs(data, delays)
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.npz", Path(folder) / "made.npz"
        np.savez(given, z=z, u=u, later=later, known=known, inputs=U, delays=delays, degree=degree)
        command = [PYKOOPMAN, HERE / "pykoopman_driven.py", given, made]
        try:
            subprocess.run(
                list(map(str, command)), capture_output=True, timeout=1800, cwd=folder, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise Unavailable(str(error)) from error
        with np.load(made) as result:
            names = {"once": "lifted once", "anew": "lifted anew"}
            return {names[k]: result[k] for k in names}, float(result["seconds"])
