"""How well any method can predict a measured double pendulum one sample ahead.

Squared errors of one step on the test recording, state by state. They are of holding the state, of
advancing the angles by the recorded velocities, of the paper's equation, and of linear maps that
least squares finds in all segments that the clients of a seed hold. None of them is a network: they
show what the data and the choice of the state allow.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.study import Study

if TYPE_CHECKING:
    from fedkoopman.federation.experiment import Experiment

States = NDArray[np.float64]

HOLD = "persistence"
VELOCITY = "angles advanced by their velocities"
EQUATION = "the paper's equation"
TRUE = "linear map of one state, true states"
ESTIMATED = "linear map of one state, estimated states"
TWO = "linear map of two states, true states"
TWO_ESTIMATED = "linear map of two states, estimated states"


def limits(study: Study, seed: int) -> dict[str, Any]:
    """Errors of every way to predict, by state; errors of the estimated states; size of the test.

    Segments and test set are those of the study, which has recordings.
    """
    from fedkoopman.federation.sites import held_out
    from fedkoopman.runs.experiment import experiment_of
    from fedkoopman.systems import simulate

    experiment = experiment_of(study, seed)
    test = held_out(experiment)[0].trajectories
    true, estimated = _segments(experiment)
    turned = experiment.system.dt * np.array([1, 0, 1, 0])
    ways: dict[str, tuple[int, Callable[[States], States]]] = {
        HOLD: (1, lambda x: x),
        VELOCITY: (1, lambda x: x + turned * x[:, [1, 1, 3, 3]]),
        EQUATION: (1, lambda x: simulate(experiment.system, 1, initial=x)[:, 1]),
        TRUE: (1, _least_squares(true, 1)),
        ESTIMATED: (1, _least_squares(estimated, 1)),
        TWO: (2, _least_squares(true, 2)),
        TWO_ESTIMATED: (2, _least_squares(estimated, 2)),
    }
    return {
        "names": list(experiment.system.names),
        "errors": {label: _error(test, *way).tolist() for label, way in ways.items()},
        "test": [test.shape[0], test.shape[1] - 1],
        "estimates": np.sqrt(np.mean((estimated - true) ** 2, axis=(0, 1))).tolist(),
    }


def _segments(experiment: "Experiment") -> tuple[States, States]:
    """True and estimated states (segments, ζ, d) of all arrivals whose filter stayed finite."""
    from fedkoopman.federation.arrivals import arrivals
    from fedkoopman.federation.sites import Address, Sites
    from fedkoopman.federation.workers import Workers

    wanted = [
        Address(slot, int(n))
        for slot in range(1, experiment.slots + 1)
        for n in np.flatnonzero(arrivals(experiment.seed, slot, experiment.clients))
    ]
    with Workers(1) as workers:
        true = Sites(experiment, perfect=True).segments(wanted, workers)
        found = Sites(experiment, perfect=False).segments(wanted, workers)
    pairs = [(true[address], found[address]) for address in wanted]
    good = [(x, y) for x, y in pairs if x is not None and y is not None]
    return np.stack([x for x, _ in good]), np.stack([y for _, y in good])


def _least_squares(segments: States, window: int) -> Callable[[States], States]:
    """The affine map from `window` states to the next one, by least squares."""
    x, y = _pairs(segments, window)
    found = np.linalg.lstsq(_with_one(x), y)[0]
    return lambda given: _with_one(given) @ found


def _error(test: States, window: int, predict: Callable[[States], States]) -> States:
    x, y = _pairs(test, window)
    error: States = np.mean((predict(x) - y) ** 2, axis=0)
    return error


def _pairs(trajectories: States, window: int) -> tuple[States, States]:
    """Windows (n, window · d), oldest state first, and the state that follows each."""
    length = trajectories.shape[1] - window
    windows = np.concatenate([trajectories[:, i : i + length] for i in range(window)], axis=-1)
    following = trajectories[:, window:]
    return windows.reshape(-1, windows.shape[-1]), following.reshape(-1, following.shape[-1])


def _with_one(x: States) -> States:
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)
