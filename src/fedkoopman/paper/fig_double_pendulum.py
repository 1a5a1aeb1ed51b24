"""Fig. 5c: the measured double pendulum, of which clients see noisy linear images.

The paper does not say how 100 samples are taken in a slot: both readings are run, windows at random
places and one window after the other (50 slots of 100 samples are the whole recording). Beside the
paper's network stands one that was chosen to beat persistence, x̂_{k+1} = x_k, and what it does on
samples that had no part in the choice.

Beside the runs stands how well any method can predict one sample from those before it (`limits`):
squared errors of one step on the test recording, state by state. They are of holding the state, of
advancing the angles by the recorded velocities, of the paper's equation, and of linear maps that
least squares finds in all segments that the clients of a seed hold. None of them is a network: they
show what the data and the choice of the state allow.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.study import Study
from fedkoopman.durable import write_whole, writing
from fedkoopman.errors import InputError
from fedkoopman.paper import double_pendulum_judging as judging
from fedkoopman.paper.arms import Arm, Runs
from fedkoopman.paper.double_pendulum_data import SOURCE, read_trials
from fedkoopman.paper.items import FEW, Options, Tell

if TYPE_CHECKING:
    from fedkoopman.federation.experiment import Experiment

States = NDArray[np.float64]

SLICES = {
    "trial-1.csv": (1, 1000, 6000),
    "trial-2.csv": (2, 1000, 6000),
    "trial-3.csv": (3, 1000, 3000),
    "trial-3-later.csv": (3, 3000, 5000),
}
"""Trial, first and last sample of every file that the studies name."""
FOLDER = "double-pendulum-data"

PAPER = {
    "system.name": "double-pendulum",
    "slots": 50,
    "segments.steps": 100,
    "trajectories": "per-client",
    "clients.sensor": {"kind": "perturbed-identity"},
    "clients.observation_noise": {"diagonal": [0.01, 1.0, 0.01, 1.0]},
    "clients.process_noise": {"diagonal": [0.01, 1.0, 0.01, 1.0]},
    "training.epochs": 25,
    "recordings": {"train": ["trial-1.csv", "trial-2.csv"], "test": ["trial-3.csv"]},
    # The default of 50 would be the whole run.
    "evaluation.tail_slots": 10,
}
BETTER = {
    "network.hidden_layers": 0,
    "policy.segments": 25,
    "training.epochs": 100,
    "training.decay": 0.95,
}
"""What differs in the network that was chosen to beat persistence."""
ARMS: dict[str, dict[str, Any]] = {
    judging.RANDOM: {},
    judging.CONSECUTIVE: {"recordings.windows": "consecutive"},
    judging.PERFECT: {"scheme": "perfect-data"},
    judging.LINEAR: BETTER,
    judging.LINEAR_CONSECUTIVE: BETTER | {"recordings.windows": "consecutive"},
    judging.LINEAR_PERFECT: BETTER | {"scheme": "perfect-data"},
    judging.LATER: BETTER | {"recordings.test": ["trial-3-later.csv"]},
    judging.LATER_CONSECUTIVE: BETTER
    | {"recordings.test": ["trial-3-later.csv"], "recordings.windows": "consecutive"},
}


def arms(options: Options) -> tuple[Arm, ...]:
    """The paper's experiment in both readings and with true states, and the better network."""
    default = Study.from_dict({}, options.runs / FOLDER)
    return tuple(
        Arm(label, default.with_values({**PAPER, **changes, "name": f"double pendulum, {label}"}))
        for label, changes in ARMS.items()
    )


@dataclass(frozen=True)
class DoublePendulum(Runs):
    """Runs on slices of the measured data, which are written beside them."""

    def settings(self, options: Options) -> dict[str, Any]:
        """Seeds, studies and data; the samples beyond the slices by what is taken from them."""
        trials = _trials(options)
        digests = {n: hashlib.sha256(text).hexdigest() for n, text in slices(trials).items()}
        return {**super().settings(options), "data": digests, "motion": judging.motion(trials)}

    def compute(self, options: Options, tell: Tell) -> dict[str, Any]:
        """Write the slices, run the studies, and find what could be reached."""
        tell("measured data")
        trials = _trials(options)
        _write(options.runs / FOLDER, slices(trials))
        found = super().compute(options, tell)
        tell("what one state tells of the next")
        found["arms"][0]["limits"] = limits(self.chosen(options)[0].study, options.seed)
        found["arms"][0]["motion"] = judging.motion(trials)
        return found


def slices(trials: Sequence[np.ndarray]) -> dict[str, bytes]:
    """The recordings as CSV, by the name of their file."""
    return {
        name: _csv(trials[trial - 1][first : last + 1])
        for name, (trial, first, last) in SLICES.items()
    }


def _trials(options: Options) -> list[np.ndarray]:
    if options.data is None:
        raise InputError(f"fig-double-pendulum needs --data PATH: {SOURCE}")
    return read_trials(options.data)


def _csv(states: np.ndarray) -> bytes:
    """Numbers as they are read back exactly."""
    lines = ["theta1,omega1,theta2,omega2", *(",".join(map(repr, row)) for row in states.tolist())]
    return ("\n".join(lines) + "\n").encode()


def _write(folder: Path, files: dict[str, bytes]) -> None:
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        with writing(path):
            before = path.read_bytes() if path.exists() else None
        if before is None:
            write_whole(path, content)
        elif before != content:
            raise InputError(
                f"{path} was made from other data than --data now names: give the same as before, "
                "or choose another --out"
            )


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
        judging.HOLD: (1, lambda x: x),
        judging.VELOCITY: (1, lambda x: x + turned * x[:, [1, 1, 3, 3]]),
        judging.EQUATION: (1, lambda x: simulate(experiment.system, 1, initial=x)[:, 1]),
        judging.TRUE: (1, _least_squares(true, 1)),
        judging.ESTIMATED: (1, _least_squares(estimated, 1)),
        judging.TWO: (2, _least_squares(true, 2)),
        judging.TWO_ESTIMATED: (2, _least_squares(estimated, 2)),
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


ITEM = DoublePendulum(arms, judging.judge, seeds=FEW)
