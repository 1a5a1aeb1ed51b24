"""`DeepKoopman`: a Koopman model as an estimator with scikit-learn's manners."""

import os
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, Self

import jax
import numpy as np

from fedkoopman.errors import ComputationError, InputError
from fedkoopman.koopman.files import read_model, write_model
from fedkoopman.koopman.fitted import Fitted
from fedkoopman.koopman.fitting import fitted_weights
from fedkoopman.koopman.forecast import lifted_noise
from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.koopman.kinds import find_kind, name_of
from fedkoopman.koopman.learned import Learned
from fedkoopman.koopman.training import Training, check_training
from fedkoopman.koopman.trajectories import Trajectories, as_trajectories, windows_of
from fedkoopman.systems.checks import check_count, check_seed


class DeepKoopman(Fitted):
    """A linear model in lifted coordinates: y = φ(x), y' = K y, x' = φ⁻¹(y'), all learned together.

    Rows are time. Trajectories are (T, n), (N, T, n) or a list of (T_i, n); no training pair
    crosses from one to another. One application of K advances `depth` samples. With `n_delays` > 0
    the network sees windows of n_delays + 1 consecutive states, oldest first, and results have
    n_delays fewer rows than the trajectory.

    Arguments:
        n_components: O, the dimension of the lifted state; None: four times the state's.
        kind: what φ and φ⁻¹ are: the name of a model kind, "file.py:name" or a class. "paper" is
            the paper's network. A kind takes those of the parameters below that it has.
        dt: the sampling interval, for everything in units of time.
        n_delays: how many earlier states join the present one in the network's input.
        depth: how many samples one application of K advances.
        hidden_layers, width, activation: of the encoder and of the decoder. The activation is a
            name or a function written with `jax.numpy`; a model with a function cannot be saved.
        epochs, batch_size, learning_rate, weight_decay, decay: Adam, with an L2 term in the
            gradient; the learning rate is multiplied by `decay` after every epoch.
        loss_weights: of the losses of linearity, reconstruction and prediction.
        precision: of training, "float32" or "float64". Fitted models are evaluated in float64.
        random_state: seed of the first weights and of the order of samples; None: a new one
            every time.
    """

    def __init__(
        self,
        n_components: int | None = 12,
        *,
        kind: str | type[Kind] = "paper",
        dt: float = 1.0,
        n_delays: int = 0,
        depth: int = 1,
        hidden_layers: int = 1,
        width: int = 30,
        activation: str | Callable[[Any], Any] = "relu",
        epochs: int = 100,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-7,
        decay: float = 0.995,
        loss_weights: tuple[float, float, float] = (1 / 3, 1 / 3, 1 / 3),
        precision: str = "float32",
        random_state: int | None = 0,
    ) -> None:
        self.n_components = n_components
        self.kind = kind
        self.dt = dt
        self.n_delays = n_delays
        self.depth = depth
        self.hidden_layers = hidden_layers
        self.width = width
        self.activation = activation
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.decay = decay
        self.loss_weights = loss_weights
        self.precision = precision
        self.random_state = random_state

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

    @classmethod
    def _of(cls, learned: Learned) -> Self:
        architecture, training = learned.architecture, learned.training
        options = {one.name: getattr(training, one.name) for one in fields(training)}
        known = cls._defaults()
        options |= {name: value for name, value in vars(architecture).items() if name in known}
        model = cls(
            architecture.components,
            kind=name_of(type(architecture)),
            dt=learned.dt,
            n_delays=architecture.window - 1,
            batch_size=options.pop("batch"),
            **options,
            random_state=learned.random_state,
        )
        model._learned = learned
        return model

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train from new weights; `y` is ignored."""
        given = as_trajectories(X)
        architecture = self._architecture(given.parts[0].shape[1])
        training = self._training()
        dtype = np.dtype(training.precision)
        weights = architecture.initialise(seed=self._seed(0), dtype=dtype)
        reference = np.zeros((architecture.window, architecture.state_dim))
        start = Learned(architecture, weights, self.dt, reference, given.names)
        return self._train(start, training, given)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Train on more data for `epochs` epochs, from the present weights and with a fresh Adam,
        as in a round of federated learning; the first call is `fit`."""
        if not self.__sklearn_is_fitted__():
            return self.fit(X)
        given, learned = self._given(X), self.learned_
        architecture = self._architecture(self.n_features_in_, learned.architecture)
        if architecture != learned.architecture:
            raise InputError(
                f"the model was trained as {learned.architecture} and its parameters now ask for "
                f"{architecture}: call fit to start anew"
            )
        return self._train(learned, self._training(), given)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """`fit`, then `transform`."""
        return self.fit(X).transform(X)

    def _train(self, start: Learned, training: Training, given: Trajectories) -> Self:
        architecture = start.architecture
        window, depth = architecture.window, architecture.depth
        given.check_lengths(window + depth, f"training with n_delays={window - 1}, depth={depth}")
        dtype, largest = np.dtype(training.precision), max(np.abs(p).max() for p in given.parts)
        if largest > np.finfo(dtype).max:
            raise InputError(f"X has {largest:g}, too large for {dtype}: scale the states")
        weights = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), start.weights)
        seed = self._seed(1 + start.updates)
        weights = fitted_weights(architecture, training, weights, given.parts, seed=seed)
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(weights)):
            raise ComputationError(
                f"training diverged, the weights are not finite after {training.epochs} epochs: "
                f"lower learning_rate ({training.learning_rate:g}) or scale the states, which "
                f"reach {largest:g}"
            )
        windows = np.concatenate([windows_of(part[:-depth], window) for part in given.parts])
        count = start.windows + len(windows)
        mean = windows.mean(axis=0).reshape(window, -1)
        learned = replace(
            start,
            dt=self.dt,
            weights=weights,
            reference=start.reference + (mean - start.reference) * (len(windows) / count),
            names=start.names or given.names,
            training=training,
            random_state=self.random_state,
            updates=start.updates + 1,
            windows=count,
        )
        noise = lifted_noise(learned, given.parts)
        self._learned = replace(learned, noise=noise if np.isfinite(noise).all() else None)
        return self

    def _architecture(self, state_dim: int, like: Kind | None = None) -> Kind:
        """The kind and sizes that the parameters ask for.

        Arguments:
            like: gives what is not a parameter, if it is of the kind asked for.
        """
        components = 4 * state_dim if self.n_components is None else self.n_components
        kind = find_kind(self.kind)
        rest = vars(like) if type(like) is kind else {}
        asked = {
            "state_dim": state_dim,
            "components": check_count(components, "n_components"),
            "window": check_count(self.n_delays, "n_delays", least=0) + 1,
        }
        return kind.of(**rest | self.get_params() | asked)

    def _training(self) -> Training:
        return check_training(
            Training(
                self.epochs,
                self.batch_size,
                self.learning_rate,
                self.weight_decay,
                self.decay,
                self.loss_weights,
                self.precision,
            )
        )

    def _seed(self, purpose: int) -> int:
        """The seed of the first weights (0) or of the order of samples in an update (1, 2, …)."""
        given = None if self.random_state is None else [check_seed(self.random_state), purpose]
        return int(np.random.SeedSequence(given).generate_state(1, np.uint64)[0] >> 1)


def load_model(path: str | os.PathLike[str], kind: str | type[Kind] | None = None) -> DeepKoopman:
    """Read a model that `DeepKoopman.save` or a run wrote.

    Arguments:
        kind: the model kind, if it is not an installed one: a class, or "file.py:name".
    """
    return DeepKoopman.load(path, kind)
