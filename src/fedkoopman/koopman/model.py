"""`DeepKoopman`: a Koopman model as an estimator with scikit-learn's manners."""

import os
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import ComputationError, InputError
from fedkoopman.koopman.fitted import NotFittedError
from fedkoopman.koopman.kind import Kind
from fedkoopman.koopman.kinds import find_kind, name_of
from fedkoopman.koopman.learned import Learned
from fedkoopman.koopman.selection import Parts, Selection, candidates, choose, distinct, folds
from fedkoopman.koopman.skill import WORST
from fedkoopman.koopman.staged import Staged
from fedkoopman.koopman.trained import Trained
from fedkoopman.koopman.training import Training, check_huber, check_training
from fedkoopman.koopman.trajectories import Trajectories
from fedkoopman.systems.checks import check_count

AUTO = "auto"
EPOCHS, STEPS = 100, 15_000
"""Of training, where nobody says: epochs, and gradient steps of the kind spectral."""
HORIZON = 30
"""Steps of the future that the kind spectral looks at, where trajectories are long enough."""


class DeepKoopman(Trained):
    """A linear model in lifted coordinates: y = φ(x), y' = K y, x' = φ⁻¹(y'), all learned together.

    Rows are time. Trajectories are (T, n), (N, T, n) or a list of (T_i, n); no training pair
    crosses from one to another. One application of K advances `depth` samples. With `n_delays` > 0
    the network sees windows of n_delays + 1 consecutive states, oldest first, and results have
    n_delays fewer rows than the trajectory.

    Arguments:
        n_components: O, the dimension of the lifted state; None: as the kind has it; "auto":
            the smallest that forecasts about as well as any in cross-validation over whole
            trajectories, of up to 16 times the state's; see `n_components_` and `cv_results_`.
        kind: what φ and φ⁻¹ are: the name of a model kind, "file.py:name" or a class. "spectral",
            the one we recommend, learns features and solves for K; "edmd" has a fixed dictionary;
            "inclusive" is a network beside the state; "paper" is the paper's network. A kind takes
            those of the parameters below that it has; where they are None, its own defaults.
        dt: the sampling interval, for everything in units of time; tables with times tell it, so
            that 1, the default, need not be changed.
        n_delays: how many earlier states join the present one in the network's input.
        depth: how many samples one application of K advances.
        degree: of the highest monomials (spectral, edmd).
        dictionary: "polynomial", "fourier" or "rbf" (edmd).
        features: units in each layer (spectral), or how many random functions there are (edmd).
        learned: whether the features are trained, or stay random, which is quick (spectral).
        horizon: steps of the future that the components are chosen by; None: 30, or a third of the
            longest trajectory (spectral).
        discount: how fast further steps count less (spectral).
        ridge: how much of the dictionary is left out as noise (spectral, edmd).
        margin: by which share of its half-width the range of the training states is widened, within
            which states are held when they are lifted; None: 0.1 (spectral, edmd).
        hidden_layers, width, activation: of the encoder and of the decoder (paper, inclusive). The
            activation is a name or a function written with `jax.numpy`; a model with a function
            cannot be saved.
        epochs: passes over the data; None: 100, or for the features of the kind spectral as many
            as make about 15,000 steps, at most 200.
        batch_size, learning_rate, weight_decay, decay: Adam, with an L2 term in the gradient; the
            learning rate is multiplied by `decay` after every epoch.
        loss_weights: of the losses of linearity, reconstruction and prediction.
        huber: error beyond which the losses grow linearly instead of as its square, so that gross
            outliers pull less; 0: squares everywhere. In the units in which the kind trains: of
            the states (paper), of their standard deviations (inclusive), of a usual move within
            the lead (spectral, whose K and decoder are least squares all the same).
        bilinear: whether the inputs of a driven system also multiply the lifted state.
        precision: of training, "float32" or "float64". Fitted models are evaluated in float64.
        random_state: seed of the first weights and of the order of samples; None: a new one
            every time.
        verbose: 1 tells the loss on stderr after every tenth of the epochs; 0 is silent.
    """

    _cv_results: dict[str, NDArray[Any]] | None = None

    def __init__(
        self,
        n_components: int | str | None = None,
        *,
        kind: str | type[Kind] = "spectral",
        dt: float = 1.0,
        n_delays: int = 0,
        depth: int = 1,
        degree: int | None = None,
        dictionary: str | None = None,
        features: int | None = None,
        learned: bool | None = None,
        horizon: int | None = None,
        discount: float | None = None,
        ridge: float | None = None,
        margin: float | None = None,
        hidden_layers: int = 1,
        width: int = 30,
        activation: str | Callable[[Any], Any] = "relu",
        epochs: int | None = None,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-7,
        decay: float = 0.995,
        loss_weights: tuple[float, float, float] = (1 / 3, 1 / 3, 1 / 3),
        huber: float = 0.0,
        bilinear: bool = False,
        precision: str = "float32",
        random_state: int | None = 0,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.kind = kind
        self.dt = dt
        self.n_delays = n_delays
        self.depth = depth
        self.degree = degree
        self.dictionary = dictionary
        self.features = features
        self.learned = learned
        self.horizon = horizon
        self.discount = discount
        self.ridge = ridge
        self.margin = margin
        self.hidden_layers = hidden_layers
        self.width = width
        self.activation = activation
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.decay = decay
        self.loss_weights = loss_weights
        self.huber = huber
        self.bilinear = bilinear
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def _of(cls, learned: Learned) -> Self:
        architecture, training = learned.architecture, learned.training
        known = cls._defaults()
        named = {"batch", *known}  # of the options, those that a user of this class gives
        options = {f.name: getattr(training, f.name) for f in fields(training) if f.name in named}
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

    def fit(self, X: Any, y: Any = None, *, U: Any = None) -> Self:
        """Train from new weights; `y` is ignored.

        Arguments:
            U: the known inputs that drove the system, in the form of X, (T_i, m) each: u_k is held
                from sample k to sample k + 1. The model is then y' = K y + B u or, with `bilinear`,
                y' = K y + B u + Σ u_i N_i y.
        """
        given, inputs, named = self._with_inputs(X, U)
        dt, longest = self._interval(given), max(map(len, given.parts))
        selection = self._select(given, inputs) if self._is_auto else None
        architecture = self._architecture(
            given.parts[0].shape[1] - inputs,
            inputs=inputs,
            components=selection.components if selection else None,
            longest=longest,
        )
        training = self._training(architecture, sum(map(len, given.parts)))
        dtype = np.dtype(training.precision)
        weights = architecture.initialise(seed=self._seed(0), dtype=dtype)
        reference = np.zeros((architecture.window, architecture.state_dim))
        start = Learned(architecture, weights, dt, reference, given.names, input_names=named)
        self._train(start, training, given)
        self._cv_results = selection.results if selection else None
        return self

    def partial_fit(self, X: Any, y: Any = None, *, U: Any = None) -> Self:
        """Train on more data for `epochs` epochs, from the present weights and with a fresh Adam,
        as in a round of federated learning; the first call is `fit`."""
        if not self.__sklearn_is_fitted__():
            return self.fit(X, U=U)
        given, learned = self._given(X, U=U), self.learned_
        architecture = self._architecture(
            self.n_features_in_, learned.architecture, inputs=learned.architecture.inputs
        )
        if architecture != learned.architecture:
            raise InputError(
                f"the model was trained as {learned.architecture} and its parameters now ask for "
                f"{architecture}: call fit to start anew"
            )
        if isinstance(architecture, Staged):
            raise InputError(
                f"a model of the kind {architecture.name} is solved from all data at once, and "
                "partial_fit would forget what it learned: call fit with all trajectories"
            )
        start = replace(learned, dt=self._interval(given, learned.dt))
        return self._train(start, self._training(architecture, 0), given)

    def _select(self, given: Trajectories, inputs: int) -> Selection:
        """The number of components by cross-validation."""
        dim = given.parts[0].shape[1] - inputs
        sizes = candidates(dim, check_count(self.n_delays, "n_delays", least=0) + 1, inputs)
        found = distinct(
            sizes, lambda size: self._architecture(dim, components=size, inputs=inputs)
        )
        first = next(iter(found))
        least = first.window + first.depth
        given.check_lengths(least, "training")

        def trial(size: int, training: Parts, held: Parts) -> float:
            options = self.get_params() | {"n_components": size, "verbose": 0}
            long = [part for part in training if len(part) >= least]
            (x, u), (held_x, held_u) = (_parted(parts, inputs) for parts in (long, held))
            try:
                return type(self)(**options).fit(x, U=u).score(held_x, U=held_u)
            except ComputationError:  # it diverged
                return WORST

        return choose(trial, list(found.values()), folds(given.parts, least), self._tell)

    @property
    def cv_results_(self) -> dict[str, NDArray[Any]]:
        """The cross-validation of n_components="auto", as scikit-learn's searches have it."""
        if self._cv_results is None:
            raise NotFittedError('no cross-validation was made: fit with n_components="auto"')
        return self._cv_results

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.n_components, str) and self.n_components == AUTO

    def _architecture(
        self,
        state_dim: int,
        like: Kind | None = None,
        components: Any = None,
        longest: int | None = None,
        inputs: int = 0,
    ) -> Kind:
        """The kind and sizes that the parameters ask for.

        Arguments:
            like: gives what is not a parameter, if it is of the kind asked for.
            components: instead of those that the parameters ask for.
            longest: samples in the longest trajectory, where that is known.
            inputs: how many.
        """
        kind = find_kind(self.kind)
        asked = {name: value for name, value in self.get_params().items() if value is not None}
        settings = (vars(like) if type(like) is kind else {}) | asked
        settings["window"] = check_count(self.n_delays, "n_delays", least=0) + 1
        settings["inputs"] = inputs
        if longest is not None and self.horizon is None:
            depth = check_count(self.depth, "depth")
            reach = max(1, (longest // 3 - settings["window"]) // depth)
            if reach < HORIZON:
                settings["horizon"] = reach
        if components is None:
            components = like.components if self._is_auto and like else self.n_components
        if components is None:
            components = kind.usual_components(state_dim, settings)
        settings["components"] = check_count(components, "n_components")
        return kind.of(**settings | {"state_dim": state_dim})

    def _training(self, architecture: Kind, samples: int) -> Training:
        """The options of training.

        Arguments:
            samples: how many there are.
        """
        epochs, huber = self.epochs, check_huber(self.huber, architecture)
        if epochs is None:
            epochs = EPOCHS
            if architecture.name == "spectral":
                epochs = min(
                    2 * EPOCHS,
                    1 + STEPS * check_count(self.batch_size, "batch_size") // max(1, samples),
                )
        return check_training(
            Training(
                epochs,
                self.batch_size,
                self.learning_rate,
                self.weight_decay,
                self.decay,
                self.loss_weights,
                self.precision,
                huber=huber,
            )
        )


def _parted(parts: Parts, inputs: int) -> tuple[list[Any], list[Any] | None]:
    """States and inputs of joined rows."""
    if not inputs:
        return list(parts), None
    return [part[:, :-inputs] for part in parts], [part[:, -inputs:] for part in parts]


def load_model(path: str | os.PathLike[str], kind: str | type[Kind] | None = None) -> DeepKoopman:
    """Read a model that `DeepKoopman.save` or a run wrote.

    Arguments:
        kind: the model kind, if it is not an installed one: a class, or "file.py:name".
    """
    return DeepKoopman.load(path, kind)
