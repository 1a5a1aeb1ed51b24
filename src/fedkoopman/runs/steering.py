"""A learned model steers a simulated system: what `fedkoopman control` does.

The controller may see other coordinates than the true system has (`seen`), some of them only
(`observe`, through a filter), and all of them with noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman import control
from fedkoopman.config.formats import FORMATS
from fedkoopman.covariance import one_covariance
from fedkoopman.data.observations import read_states
from fedkoopman.errors import ComputationError, InputError, short
from fedkoopman.koopman.card import state_names
from fedkoopman.koopman.fitted import Fitted
from fedkoopman.koopman.kalman import KoopmanFilter, lift_noise
from fedkoopman.runs.site_estimation import load_system
from fedkoopman.sensors import LinearSensor
from fedkoopman.systems import System
from fedkoopman.user_code import calling, finished, load_object, plain_function

__all__ = ["Sight", "Steered", "driven_system", "function_of", "reference_of", "steer"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sight:
    """How the controller sees the system.

    Attributes:
        seen: from the true state to the model's; None: they are the same.
        noise: variance on what is seen.
        observe: names of the model's states that a sensor shows; None: all.
        process_noise: of the filter's model, in the states' units; None: as the model knows it.
        seed: of the noise.
    """

    seen: Callable[[Array], Any] | None = None
    noise: Any = 0.0
    observe: tuple[str, ...] | None = None
    process_noise: Any = None
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Steered:
    """A closed loop, with what it was asked for.

    Attributes:
        model, system, loop: who acted on what, and what happened.
        goal: the states wanted, (T, d) or (1, d).
        known: what was said of the model before.
        visible: the model's states during the loop, without noise, (T + 1, d).
        limits: u_min, u_max (m,), x_min, x_max (d,).
        same: whether the model's coordinates are the system's.
    """

    model: Fitted
    system: System
    loop: control.ClosedLoop
    goal: Array
    known: list[str]
    visible: Array
    limits: dict[str, Array]
    same: bool

    @cached_property
    def wanted(self) -> Array:
        """At every sample of the loop, (T + 1, d); at the first, what is wanted next."""
        at = np.clip(np.arange(len(self.visible)) - 1, 0, len(self.goal) - 1)
        return self.goal[at]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the model's states; a model that has none may borrow the system's."""
        return self.system.names if self.same else state_names(self.model)


def steer(
    model: Fitted,
    system: System,
    goal: Array,
    initial: Any,
    steps: int,
    *,
    method: str = "mpc",
    sight: Sight = Sight(),  # noqa: B008 - it is frozen
    Q: Any = 1.0,
    R: Any = 0.1,
    u_min: Any = -np.inf,
    u_max: Any = np.inf,
    **plans: Any,
) -> Steered:
    """Let a model's controller act on a system.

    Arguments:
        goal: (d,), or for mpc (T, d).
        method: "mpc", "lqr" or "lqg".
        plans: further settings of `control.MPC`.
    """
    start = np.atleast_1d(np.asarray(initial, np.float64))
    _check_fit(model, system, start, sight.seen)
    if goal.ndim == 2 and method != "mpc":
        raise InputError(
            f"--reference is a file of states, and {method} holds one state: give --method mpc"
        )
    bounds = {"u_min": u_min, "u_max": u_max}
    linear = None
    try:
        linear = control.lqr(model, goal[-1] if goal.ndim == 2 else goal, Q, R, **bounds)
    except ComputationError:
        if method != "mpc":  # which needs no Riccati equation
            raise
    controller: control.Controller
    if method == "mpc" or linear is None:
        controller = control.MPC(model, goal, Q=Q, R=R, **bounds, **plans)
    else:
        controller = linear if method == "lqr" else control.LQG(linear, _filter(model, sight))
    loop = control.closed_loop(system, controller, start, steps, seen=_eye(model, sight))
    known = control.facts(model, np.atleast_2d(goal)[-1], linear)
    free = np.full(model.learned_.architecture.state_dim, np.inf)
    x_min, x_max = (np.broadcast_to(plans.get(n, e), free.shape)
                    for n, e in (("x_min", -free), ("x_max", free)))  # fmt: skip
    shape = (model.n_inputs_,)
    limits = {
        "u_min": np.broadcast_to(u_min, shape), "u_max": np.broadcast_to(u_max, shape),
        "x_min": x_min, "x_max": x_max,
    }  # fmt: skip
    exact = loop.states
    if sight.seen is not None:
        exact = np.array([sight.seen(x) for x in loop.states], np.float64)
    return Steered(
        model, system, loop, np.atleast_2d(goal), known.sentences, exact, limits, sight.seen is None
    )  # fmt: skip


def driven_system(name: str) -> System:
    """The system of `file.py:name`, which takes inputs."""
    system = load_system(name)
    if not system.input_dim:
        raise InputError(
            f"--simulate is {name!r}, which takes no inputs: give a System with input_dim > 0"
        )
    return system


def function_of(name: str | None) -> Callable[[Array], Any] | None:
    """The function `file.py:name`."""
    if name is None:
        return None
    return plain_function(load_object(name, Path.cwd()), name, "f(x)", "a function f(x)")


def reference_of(text: str, model: Fitted) -> Array:
    """A state (d,) from numbers with commas, or states (T, d) from a file."""
    if Path(text).suffix.lower().removeprefix(".") in FORMATS:
        _, found, _ = read_states(Path(text), model, inputs=None)
        if len(found.trajectories) != 1:
            raise InputError(
                f"--reference {text} holds {len(found.trajectories)} segments: give a file of one"
            )
        return np.asarray(found.trajectories[0], np.float64)
    try:
        return np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise InputError(
            f"--reference is {short(text)}: give one number per state with commas, as 1,0, or a "
            f"file of states ({', '.join(FORMATS)})"
        ) from None


def _check_fit(
    model: Fitted, system: System, start: Array, seen: Callable[[Array], Any] | None
) -> None:
    if len(start) != system.dim:
        raise InputError(
            f"--initial has {len(start)} numbers: give one for each of the system's {system.dim} "
            "states"
        )
    if model.n_inputs_ not in (0, system.input_dim):
        raise InputError(
            f"the model has {model.n_inputs_} inputs and the system {system.input_dim}: give the "
            "system that the model was learned from"
        )
    if not np.isclose(model.dt_, float(system.dt), rtol=1e-6):
        raise InputError(
            f"the model's samples are {model.dt_:g} apart and the system's {float(system.dt):g}: "
            "give a system with the model's dt"
        )
    if seen is None:
        if model.n_features_in_ != system.dim:
            raise InputError(
                f"the model has {model.n_features_in_} states and the system {system.dim}: give "
                "--seen, a function from the one to the other"
            )
        return
    with calling(seen, "the function of --seen failed"):
        shape = np.shape(finished(seen(start)))
    if shape != (model.n_features_in_,):
        raise InputError(
            f"the function of --seen returns an array of shape {shape}: let it return the model's "
            f"state, of shape ({model.n_features_in_},)"
        )


def _rows(model: Fitted, sight: Sight) -> list[int]:
    """Which of the model's states are observed."""
    names = state_names(model)
    if sight.observe is None:
        return list(range(len(names)))
    for name in sight.observe:
        if name not in names:
            raise InputError(
                f"--observe names {short(name)}, which is no state of the model: give some of "
                f"{', '.join(names)}"
            )
    return [names.index(name) for name in sight.observe]


def _filter(model: Fitted, sight: Sight) -> KoopmanFilter:
    rows = _rows(model, sight)
    variance = one_covariance(sight.noise, len(rows), "--noise")
    if np.linalg.eigvalsh(variance)[0] <= 0:
        raise InputError("--noise is 0, and a filter weighs observations by it: give a variance")
    noise = None if sight.process_noise is None else lift_noise(model, sight.process_noise)
    if noise is None and model.noise_ is None:
        raise InputError(
            "the model does not say how far off it is: give --process-noise, a variance per sample"
        )
    # Before it has seen anything, the state may be anywhere in the range of the training.
    spread = 1.0 if model.range_ is None else (np.ptp(model.range_, axis=0) / 4) ** 2
    return KoopmanFilter(
        model, LinearSensor(np.eye(model.n_features_in_)[rows]), observation_noise=variance,
        process_noise=noise, initial_cov=spread,
    )  # fmt: skip


def _eye(model: Fitted, sight: Sight) -> Callable[[Array], Any] | None:
    """From the true state to what the controller is given."""
    rows = _rows(model, sight)
    variance = one_covariance(sight.noise, len(rows), "--noise")
    if sight.seen is None and not variance.any() and sight.observe is None:
        return None
    random, root = np.random.default_rng(sight.seed), np.linalg.cholesky(
        variance + 1e-300 * np.eye(len(rows))
    )  # fmt: skip

    def eye(x: Array) -> Any:
        found = np.asarray(x if sight.seen is None else sight.seen(x), np.float64)
        return found[rows] + root @ random.normal(size=len(rows))

    return eye
