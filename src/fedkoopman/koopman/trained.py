"""What estimators share that learn from trajectories: one update, the interval, and model files."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import ComputationError, InputError
from fedkoopman.koopman.bookkeeping import agreed_interval
from fedkoopman.koopman.files import read_model, write_model
from fedkoopman.koopman.fitted import Fitted, NotFittedError
from fedkoopman.koopman.fitting import fitted
from fedkoopman.koopman.forecast import lifted_noise
from fedkoopman.koopman.inputs import given_inputs, joined
from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.koopman.learned import Learned
from fedkoopman.koopman.training import Training
from fedkoopman.koopman.trajectories import Trajectories, as_trajectories, windows_of
from fedkoopman.koopman.watched import Watch, print_line
from fedkoopman.systems.checks import check_count, check_seed, number


class Trained(Fitted, ABC):
    """An estimator that learns from trajectories, whose parameters have at least these.

    Attributes:
        dt: the sampling interval.
        random_state: seed of all that is drawn; None: a new one every time.
    """

    dt: float
    random_state: int | None
    verbose: int = 0
    _history: NDArray[np.float64] | None = None

    @classmethod
    @abstractmethod
    def _of(cls, learned: Learned) -> Self:
        """The estimator with the parameters by which a model was learned, and the model."""

    @abstractmethod
    def fit(self, X: Any, y: Any = None, *, U: Any = None) -> Self:
        """Learn from trajectories, and from the inputs U that drove them; `y` is ignored."""

    def fit_transform(self, X: Any, y: Any = None, *, U: Any = None) -> Any:
        """`fit`, then `transform`."""
        return self.fit(X, U=U).transform(X, U=U)

    @staticmethod
    def _with_inputs(X: Any, U: Any) -> tuple[Trajectories, int, tuple[str, ...] | None]:
        """Trajectories with inputs after the states, how many inputs there are, and their names."""
        given = as_trajectories(X)
        if U is None:
            return given, 0, None
        inputs, names = given_inputs(U, given)
        return joined(given, inputs), inputs[0].shape[1], names

    @classmethod
    def from_weights(
        cls,
        architecture: Kind,
        weights: Weights,
        *,
        dt: float,
        reference: Any = None,
        names: Sequence[str] | None = None,
        units: Sequence[str] | None = None,
        information: dict[str, Any] | None = None,
        training: Training | None = None,
        random_state: int | None = 0,
        noise: Any = None,
        relift: int = 0,
        input_names: Sequence[str] | None = None,
    ) -> Self:
        """A fitted estimator around weights that were trained elsewhere.

        Arguments:
            architecture: the model kind with its sizes, as PaperNetwork(3, 12).
            dt: the sampling interval.
            reference: the window about which `modes_` are taken; None: zeros.
            names, units: of the state's components.
            information: what should be saved along, as JSON knows it.
            training, random_state: for `partial_fit`.
            noise: how far off K is per application, (O, O); see `koopman.forecast`.
            relift: after how many applications of K forecasts are lifted anew; 0: never.
            input_names: of the inputs, where the model has some.
        """
        if reference is None:
            reference = np.zeros((architecture.window, architecture.state_dim))
        learned = Learned(
            architecture,
            weights,
            dt,
            reference,
            None if names is None else tuple(names),
            None if units is None else tuple(units),
            training or Training(),
            random_state,
            information=information or {},
            noise=noise,
            relift=relift,
            input_names=None if input_names is None else tuple(input_names),
        )
        return cls._of(learned)

    @classmethod
    def load(cls, path: str | os.PathLike[str], kind: str | type[Kind] | None = None) -> Self:
        """The model that `save` wrote.

        Arguments:
            kind: the model kind, if it is not an installed one: a class, or "file.py:name".
        """
        return cls._of(read_model(path, kind))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file (safetensors with JSON), whole or not at all."""
        write_model(path, self)

    def _train(self, start: Learned, training: Training, given: Trajectories) -> Self:
        architecture = start.architecture
        window, depth = architecture.window, architecture.depth
        given.check_lengths(window + depth, f"training with n_delays={window - 1}, depth={depth}")
        dtype, largest = np.dtype(training.precision), max(np.abs(p).max() for p in given.parts)
        if largest > np.finfo(dtype).max:
            raise InputError(f"X has {largest:g}, too large for {dtype}: scale the states")
        weights = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), start.weights)
        seed = self._seed(1 + start.updates)
        watch = Watch(training.epochs, self._tell)
        weights, relift = fitted(
            architecture, training, weights, given.parts, seed=seed, update=watch.update
        )
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(weights)):
            raise ComputationError(
                f"training diverged, the weights are not finite after {training.epochs} epochs: "
                f"lower learning_rate ({training.learning_rate:g}) or scale the states, which "
                f"reach {largest:g}"
            )
        d = architecture.state_dim
        windows = np.concatenate([windows_of(p[:-depth, :d], window) for p in given.parts])
        count = start.windows + len(windows)
        mean = windows.mean(axis=0).reshape(window, -1)
        learned = replace(
            start,
            weights=weights,
            reference=start.reference + (mean - start.reference) * (len(windows) / count),
            names=start.names or given.names,
            training=training,
            random_state=self.random_state,
            updates=start.updates + 1,
            windows=count,
            relift=relift,
        )
        noise = lifted_noise(learned, given.parts)
        before = self._history if start.updates else None
        self._history = watch.losses if before is None else np.append(before, watch.losses)
        self._learned = replace(learned, noise=noise if np.isfinite(noise).all() else None)
        return self

    @property
    def history_(self) -> NDArray[np.float64]:
        """The training loss after every epoch since `fit`; a file does not keep it."""
        if self._history is None or not len(self._history):
            why = "is of a kind found in closed form" if self._learned else "was not trained"
            raise NotFittedError(f"there is no history: the model {why}, or not here")
        return self._history.copy()

    @property
    def _tell(self) -> Callable[[str], None] | None:
        """Whom lines of progress go to."""
        return print_line if check_count(self.verbose, "verbose", least=0) else None

    def _interval(self, given: Trajectories, known: float | None = None) -> float:
        """The sampling interval: what was asked for or is known, or else what tables tell."""
        dt = float(number(self.dt, "dt"))
        asked = dt != self._defaults()["dt"]
        if not asked and known is not None:
            dt, asked = known, True
        found = given.interval
        return found if found is not None and not asked else agreed_interval(found, dt, "dt")

    def _seed(self, purpose: int) -> int:
        """The seed of the first weights (0) or of the order of samples in an update (1, 2, …)."""
        given = None if self.random_state is None else [check_seed(self.random_state), purpose]
        return int(np.random.SeedSequence(given).generate_state(1, np.uint64)[0] >> 1)
