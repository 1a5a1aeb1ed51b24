"""What every model has: scikit-learn's manners, and once it is fitted predictions and a spectrum.

scikit-learn itself is not needed.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError, unknown_name
from fedkoopman.koopman.forecast import Forecast, forecast, lifted_noise
from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.koopman.learned import (
    Learned,
    continuous_eigenvalues,
    decay_rates,
    frequencies,
    half_lives,
)
from fedkoopman.koopman.trajectories import Trajectories, array_of, as_trajectories, windows_of
from fedkoopman.systems.checks import check_count


class NotFittedError(InputError, AttributeError):
    """A fitted value was asked for before `fit`; an AttributeError, so that `hasattr` says no."""


class Fitted:
    """What a model does and knows once it is fitted, all from `learned_`.

    Its parameters are its constructor's arguments, stored as they were given. With this,
    `sklearn.base.clone`, pipelines and searches take the estimator for one of theirs.
    """

    _learned: Learned | None = None

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {
            name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()
        }

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; there are no estimators inside, so `deep` changes nothing."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters; they are checked when next used."""
        known = self._defaults()
        for name in parameters:
            if name not in known:
                raise unknown_name(f"parameter of {type(self).__name__}", name, known)
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = self._defaults()
        given = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if repr(value) != repr(defaults[name])
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def __sklearn_tags__(self) -> Any:
        utils = import_module("sklearn.utils")  # only scikit-learn asks for these
        return utils.Tags(
            estimator_type=None,
            target_tags=utils.TargetTags(required=False),
            transformer_tags=utils.TransformerTags(),
            input_tags=utils.InputTags(two_d_array=True, three_d_array=True),
        )

    def predict(self, X: Any, n_steps: int = 1) -> Any:
        """The state `n_steps` applications of K ahead of every row.

        Arguments:
            X: trajectories, or with n_delays = 0 a single state (n,), which gives (n,).
        """
        steps = check_count(n_steps, "n_steps")
        return self._each_window(X, lambda windows: self._ahead(windows, steps))

    def simulate(self, x0: Any, n_steps: int) -> NDArray[np.float64]:
        """Lift once, apply K again and again: (n_steps, n), row 0 one application ahead.

        Arguments:
            x0: a state (n,) or a batch (B, n), which gives (B, n_steps, n); with n_delays > 0
                windows (n_delays + 1, n) or (B, n_delays + 1, n).
        """
        steps, learned = check_count(n_steps, "n_steps"), self.learned_
        start, n = array_of(x0, "x0"), self.n_features_in_
        window = self._window_shape
        if (
            start.ndim not in (len(window), len(window) + 1)
            or start.shape[-len(window) :] != window
        ):
            batch = ", ".join(("B", *map(str, window)))
            raise InputError(f"x0 has shape {start.shape}: give {window} or ({batch})")
        if not start.size:
            raise InputError(f"x0 has shape {start.shape}: give at least one state")
        rows = start.reshape(-1, learned.architecture.input_dim)
        lifted = learned.advance(learned.lift(rows), steps).swapaxes(0, 1)
        states = learned.lower(lifted.reshape(-1, lifted.shape[-1])).reshape(-1, steps, n)
        return states if start.ndim > len(window) else states[0]

    def forecast(self, X: Any, n_steps: int, *, std: Any = None) -> Forecast:
        """What follows the last window of each trajectory, with covariances: see `Forecast`.

        How far off the model is, is measured on the trajectories given, so give many or long ones.

        Arguments:
            X: trajectories of states.
            n_steps: how many applications of K.
            std: standard deviations of the states, in the form of X; None takes them as exact.
        """
        steps, given = check_count(n_steps, "n_steps"), self._given(X)
        given.check_lengths(self.learned_.architecture.window, "a forecast")
        return forecast(self.learned_, given, steps, std)

    def transform(self, X: Any) -> Any:
        """The lifted states φ(x), (T − n_delays, O)."""
        return self._each_window(X, self.learned_.lift)

    def inverse_transform(self, Y: Any) -> Any:
        """The states φ⁻¹(y), (T, n); of a window, the newest."""
        learned, given = self.learned_, as_trajectories(Y, single=True)
        given.check_features(learned.architecture.components, type(self).__name__, "components")
        given.check_lengths(1, "inverse_transform")
        states = learned.lower(np.concatenate(given.parts))
        return given.like(states, [len(part) for part in given.parts])

    def eigenfunctions(self, X: Any) -> Any:
        """ψ_j(x) = w_j φ(x), (T − n_delays, O); one application of K multiplies each by λ_j."""
        left = self.learned_.spectrum.left
        return self._each_window(X, lambda windows: self.learned_.lift(windows) @ left.T)

    def score(self, X: Any, y: Any = None) -> float:
        """R² of predictions by one application of K, the mean over components; `y` is ignored.

        1 is perfect, 0 is as good as the mean of the states.
        """
        learned, given = self.learned_, self._given(X)
        window, depth = learned.architecture.window, learned.architecture.depth
        given.check_lengths(window + depth, "a score")
        windows = np.concatenate([windows_of(part[:-depth], window) for part in given.parts])
        truth = np.concatenate([part[window - 1 + depth :] for part in given.parts])
        if len(truth) < 2:
            raise InputError(
                "X gives 1 prediction, but a score needs at least 2: give more samples"
            )
        residual = ((truth - self._ahead(windows, 1)) ** 2).sum(axis=0)
        total = ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
        constant = total == 0
        share = residual / np.where(constant, 1, total)
        return float(np.where(constant, residual == 0, 1 - share).mean())

    def _ahead(self, windows: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
        learned, lifted = self.learned_, self.learned_.lift(windows)
        for _ in range(steps):
            lifted = learned.advance(lifted, 1)[0]
        return learned.lower(lifted)

    def _each_window(self, X: Any, function: Callable[[NDArray], NDArray]) -> Any:
        """A function of windows, for all windows of all trajectories at once."""
        window = self.learned_.architecture.window
        given = self._given(X, single=window == 1)
        given.check_lengths(window, f"a window of n_delays={window - 1}" if window > 1 else "X")
        windows = [windows_of(part, window) for part in given.parts]
        return given.like(function(np.concatenate(windows)), [len(part) for part in windows])

    def _given(self, X: Any, single: bool = False) -> Trajectories:
        given = as_trajectories(X, single=single)
        given.check_names(self.learned_.names)
        given.check_features(self.n_features_in_, type(self).__name__)
        return given

    @property
    def learned_(self) -> Learned:
        """All that was learned; every other fitted value comes from it."""
        if self._learned is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self._learned

    @property
    def _window_shape(self) -> tuple[int, ...]:
        architecture = self.learned_.architecture
        state = (architecture.state_dim,)
        return state if architecture.window == 1 else (architecture.window, *state)

    @property
    def n_features_in_(self) -> int:
        """n, the dimension of the state."""
        return self.learned_.architecture.state_dim

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Names of the state's components, where they are known."""
        if self.learned_.names is None:
            raise AttributeError("the states have no names: fit tables with named columns")
        return np.array(self.learned_.names, dtype=object)

    @property
    def units_(self) -> tuple[str, ...] | None:
        """Units of the state's components, where they are known."""
        return self.learned_.units

    @property
    def information_(self) -> dict[str, Any]:
        """What its maker kept with the model."""
        return self.learned_.information

    def measure_noise(self, X: Any) -> Self:
        """Measure `noise_`, how far off K is, on trajectories that it should be good for."""
        noise = lifted_noise(self.learned_, self._given(X).parts)
        self._learned = replace(self.learned_, noise=noise)
        return self

    @property
    def noise_(self) -> NDArray[np.float64] | None:
        """How far off K is per application: the covariance of φ(x⁺) − K φ(x), if measured."""
        noise = self.learned_.noise
        return None if noise is None else noise.copy()

    @property
    def architecture_(self) -> Kind:
        """The model kind with its sizes."""
        return self.learned_.architecture

    @property
    def weights_(self) -> Weights:
        """Everything that was learned."""
        return self.learned_.weights

    @property
    def operator_(self) -> NDArray[np.float64]:
        """K, (O, O)."""
        return self.learned_.operator.copy()

    @property
    def reference_(self) -> NDArray[np.float64]:
        """The mean of the training windows, about which modes are taken; an `x0` of `simulate`."""
        return self.learned_.reference.reshape(self._window_shape).copy()

    @property
    def eigenvalues_(self) -> NDArray[np.complex128]:
        """λ_j of K, by falling modulus, conjugates side by side."""
        return self.learned_.spectrum.eigenvalues

    @property
    def eigenvalues_continuous_(self) -> NDArray[np.complex128]:
        """log(λ_j) / (depth dt)."""
        learned = self.learned_
        step = learned.architecture.depth * learned.dt
        return continuous_eigenvalues(learned.spectrum.eigenvalues, step)

    @property
    def modes_(self) -> NDArray[np.complex128]:
        """How the state moves with each eigenvector, to first order about `reference_`, (n, O)."""
        return self.learned_.modes

    @property
    def frequencies_(self) -> NDArray[np.float64]:
        """Turns per unit of time of each mode."""
        return frequencies(self.eigenvalues_continuous_)

    @property
    def decay_rates_(self) -> NDArray[np.float64]:
        """Rate at which each mode decays; negative: grows."""
        return decay_rates(self.eigenvalues_continuous_)

    @property
    def half_lives_(self) -> NDArray[np.float64]:
        """Time in which each mode halves; negative: doubles."""
        return half_lives(self.decay_rates_)
