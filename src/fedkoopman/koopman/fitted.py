"""What every model has once it is fitted: predictions, a score and a spectrum."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedkoopman.cell_output import facts
from fedkoopman.errors import InputError
from fedkoopman.koopman.bookkeeping import agreed_interval
from fedkoopman.koopman.forecast import Forecast, forecast, lifted_noise
from fedkoopman.koopman.frames import Rows, frames_of
from fedkoopman.koopman.inputs import ahead_of, given_inputs, joined, past_inputs, steps_of
from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.koopman.learned import (
    Learned,
    continuous_eigenvalues,
    decay_rates,
    frequencies,
    half_lives,
)
from fedkoopman.koopman.manners import Manners
from fedkoopman.koopman.rollout import rollout
from fedkoopman.koopman.skill import mean_skill, skill
from fedkoopman.koopman.starts import as_starts
from fedkoopman.koopman.trajectories import (
    Trajectories,
    as_trajectories,
    check_names,
    windows_of,
)
from fedkoopman.plot import draw
from fedkoopman.systems.checks import check_count


class NotFittedError(InputError, AttributeError):
    """A fitted value was asked for before `fit`; an AttributeError, so that `hasattr` says no."""


class Fitted(Manners):
    """What a model does and knows once it is fitted, all from `learned_`."""

    _learned: Learned | None = None

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def plot(self, what: str = "spectrum", *given: Any, **options: Any) -> Any:
        """Draw the model: "spectrum", "modes" or, of states X, "forecast".

        Arguments:
            given, options: of the function of that name in `fk.plot`, as X or `ax`.
        """
        return draw(what, ("spectrum", "modes", "forecast"), self, *given, **options)

    def _repr_html_(self) -> str:
        if self._learned is None:
            return facts(type(self).__name__, [("parameters", repr(self)), ("fitted", "not yet")])
        learned, growing = self._learned, int(np.sum(np.abs(self.eigenvalues_) > 1))
        kind, names = learned.architecture, learned.names
        rows = [
            ("kind", kind.name),
            ("states", ", ".join(names) if names else kind.state_dim),
            ("inputs", kind.inputs or None),
            ("components", kind.components),
            ("sampling interval", f"{learned.dt:g}"),
            ("one application of K", f"{kind.depth} samples" if kind.depth > 1 else None),
            ("delays", kind.window - 1 or None),
            ("growing modes", growing or None),
            *((name, learned.information.get(name)) for name in ("study", "rounds", "samples")),
        ]
        return facts(type(self).__name__, rows)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the lifted coordinates, the columns of `transform`."""
        del input_features
        prefix, count = type(self).__name__.lower(), self.learned_.architecture.components
        return np.array([f"{prefix}{i}" for i in range(count)], dtype=object)

    def predict(self, X: Any, n_steps: int = 1, *, U: Any = None, relift: int | None = None) -> Any:
        """The state `n_steps` applications of K ahead of every row.

        Of a DataFrame the index and the columns `segment` and `time` are kept, and the time is
        that of the predicted state.

        Arguments:
            X: trajectories, or with n_delays = 0 a single state (n,), which gives (n,).
            U: the inputs of a driven system, one row for every row of X; the last one is held.
            relift: after how many applications of K to lift anew; 0: never, as in the paper;
                None: `relift_`, the model's own way.
        """
        steps, learned, way = check_count(n_steps, "n_steps"), self.learned_, self._way(relift)
        rows = Rows(ahead=steps * learned.architecture.depth, dt=learned.dt, bookkeeping=True)

        def ahead(windows: NDArray, inputs: NDArray | None) -> NDArray:
            return next(rollout(learned, windows, [steps], way, inputs))

        return self._each_window(X, ahead, rows, U, steps)

    def simulate(
        self,
        x0: Any,
        n_steps: int | None = None,
        *,
        U: Any = None,
        past: Any = None,
        relift: int | None = None,
    ) -> Any:
        """Apply K again and again: (n_steps, n), row 0 one application ahead.

        Arguments:
            x0: a state (n,) or a batch (B, n), which gives (B, n_steps, n); with n_delays > 0
                windows (n_delays + 1, n) or (B, n_delays + 1, n). A row of a DataFrame gives a
                DataFrame; so do several rows, or with n_delays > 0 segments, each a `segment`.
            n_steps: how many applications; of a driven system as many as there are inputs.
            U: the inputs of a driven system, (n_steps, m) or (B, n_steps, m); row 0 acts from x0
                on until the next sample.
            past: with n_delays > 0, the inputs between the states of x0, (n_delays, m) or
                (B, n_delays, m).
            relift: after how many applications of K to lift anew; 0: never, as in the paper;
                None: `relift_`, the model's own way.
        """
        learned, way = self.learned_, self._way(relift)
        architecture, n = learned.architecture, self.n_features_in_
        start = as_starts(x0, architecture.window, n)
        check_names(start.names, learned.names, "x0")
        inputs, count, m = None, len(start.windows), architecture.inputs
        self._check_driven(U)
        if m:
            inputs = steps_of(U, count, m)
            n_steps = inputs.shape[1] if n_steps is None else n_steps
        elif n_steps is None:
            raise InputError("n_steps is missing: say how many steps to simulate")
        steps = check_count(n_steps, "n_steps")
        if inputs is not None and inputs.shape[1] != steps:
            raise InputError(
                f"n_steps is {steps} and U has {inputs.shape[1]} rows: leave n_steps out, or give "
                "one row of inputs for every step"
            )
        windows = np.hstack([past_inputs(past, count, architecture.window, m), start.windows])
        every = rollout(learned, windows, range(1, steps + 1), way, inputs)
        states = np.stack(list(every), axis=1)
        return start.like(states, Rows(ahead=architecture.depth, dt=learned.dt))

    def forecast(
        self,
        X: Any,
        n_steps: int,
        *,
        std: Any = None,
        relift: int | None = None,
        U: Any = None,
        future: Any = None,
    ) -> Forecast:
        """What follows the last window of each trajectory, with covariances: see `Forecast`.

        How far off the model is, is measured on the trajectories given, so give many or long ones.

        Arguments:
            X: trajectories of states.
            n_steps: how many applications of K.
            std: standard deviations of the states, in the form of X; None takes them as exact.
            relift: as in `simulate`.
            U: the inputs of a driven system, one row for every row of X.
            future: the inputs to come, (n_steps, m) or (B, n_steps, m), the first from the last
                row of X on; None holds the last row of U.
        """
        steps, given = check_count(n_steps, "n_steps"), self._given(X, U=U)
        kind = self.learned_.architecture
        given.check_lengths(kind.window, "a forecast")
        inputs, count = None, len(given.parts)
        if kind.inputs:
            held = np.stack(
                [np.tile(part[-1:, -kind.inputs :], (steps, 1)) for part in given.parts]
            )
            inputs = held if future is None else steps_of(future, count, kind.inputs, "future")
            if inputs.shape[1] != steps:
                raise InputError(
                    f"future has {inputs.shape[1]} rows and n_steps is {steps}: give one row of "
                    "inputs for every step"
                )
        elif future is not None:
            raise InputError("future is given, but the model has no inputs: leave it out")
        return forecast(self.learned_, given, steps, std, self._way(relift), inputs)

    def _way(self, relift: int | None) -> int:
        if relift is None:
            return self.learned_.relift
        return check_count(relift, "relift", least=0)

    @property
    def relift_(self) -> int:
        """After how many applications of K forecasts are lifted anew, unless one says otherwise; 0:
        never. It is the better way on data that were held out."""
        return self.learned_.relift

    @property
    def range_(self) -> NDArray[np.float64] | None:
        """The lowest and highest states, (2, n), between which the model was trained; it treats
        states beyond as if they were there. None if it does not know them."""
        return self.learned_.bounds

    def transform(self, X: Any, U: Any = None) -> Any:
        """The lifted states φ(x), (T − n_delays, O); with inputs and delays, U as in `fit`."""
        names = self.get_feature_names_out().tolist()
        lifted = self._each_window(X, lambda x, _: self.learned_.lift(x), Rows(names), U)
        return frames_of(lifted, names) if self._wants_pandas else lifted

    def inverse_transform(self, Y: Any) -> Any:
        """The states φ⁻¹(y), (T, n); of a window, the newest."""
        learned, given = self.learned_, as_trajectories(Y, single=True, whole=True)
        given.check_features(learned.architecture.components, type(self).__name__, "components")
        given.check_lengths(1, "inverse_transform")
        states = learned.lower(np.concatenate(given.parts))
        names = learned.names or [f"x{i + 1}" for i in range(self.n_features_in_)]
        rows = Rows(names, bookkeeping=True)
        return given.like(states, [len(part) for part in given.parts], rows)

    def eigenfunctions(self, X: Any, U: Any = None) -> Any:
        """ψ_j(x) = w_j φ(x), (T − n_delays, O); one application of K multiplies each by λ_j."""
        left = self.learned_.spectrum.left
        names = [f"eigenfunction{i}" for i in range(len(left))]
        return self._each_window(
            X, lambda windows, _: self.learned_.lift(windows) @ left.T, Rows(names), U
        )

    def score(self, X: Any, y: Any = None, *, U: Any = None) -> float:
        """Skill: how much better than holding the last state the model forecasts.

        1 − RMSE(model) / RMSE(holding) at 1, 2, 5, 10, 20 and 50 applications of K, as far as the
        trajectories reach, lifted anew as `relift_` says, and the mean of these: 1 is perfect, 0 as
        good as holding, negative worse. Errors are divided by each component's standard deviation
        in X. A horizon counts at least −100, also if the forecast is not finite. `y` is ignored.
        See `koopman.skill`. Of a driven system, U are the inputs.
        """
        return mean_skill(self.skill(X, U=U))

    def skill(self, X: Any, *, U: Any = None) -> dict[int, float]:
        """What `score` is the mean of, by horizon in applications of K."""
        architecture, given = self.learned_.architecture, self._given(X, U=U)
        window, depth = architecture.window, architecture.depth
        given.check_lengths(window + depth, "a score")
        way = partial(rollout, self.learned_, relift=self.learned_.relift)
        return skill(way, given.parts, window, depth, architecture.inputs)

    def _each_window(
        self,
        X: Any,
        function: Callable[[NDArray, NDArray | None], NDArray],
        rows: Rows,
        U: Any = None,
        steps: int = 0,
    ) -> Any:
        """A function of windows and of the next inputs, for all windows of all trajectories.

        Arguments:
            steps: how many of the inputs that follow are needed; after the last, it is held.
        """
        window, m = self.learned_.architecture.window, self.learned_.architecture.inputs
        needed = m > 0 and (steps > 0 or window > 1)
        given = self._given(X, single=window == 1, U=U, needed=needed)
        given.check_lengths(window, f"a window of n_delays={window - 1}" if window > 1 else "X")
        m = m if needed else 0
        windows = [windows_of(part, window, m) for part in given.parts]
        lengths = [len(part) for part in windows]
        drives: NDArray[Any] | None = None
        if steps and m:
            found = [ahead_of(p, np.arange(window - 1, len(p)), steps, m) for p in given.parts]
            drives = np.concatenate([part for part in found if part is not None])
        return given.like(function(np.concatenate(windows), drives), lengths, rows)

    def _given(
        self, X: Any, single: bool = False, U: Any = None, needed: bool = True
    ) -> Trajectories:
        """Checked trajectories, with inputs after the states where the model has some.

        Arguments:
            needed: whether inputs are; otherwise those given are not looked at.
        """
        given = as_trajectories(X, single=single)
        given.check_names(self.learned_.names)
        given.check_features(self.n_features_in_, type(self).__name__)
        agreed_interval(given.interval, self.learned_.dt, "the model's dt")
        m = self.learned_.architecture.inputs
        if not needed or not m:
            if U is not None:
                self._check_driven(U)
            return given
        self._check_driven(U)
        inputs, names = given_inputs(U, given)
        check_names(names, self.learned_.input_names, "U")
        if inputs[0].shape[1] != m:
            raise InputError(f"U has {inputs[0].shape[1]} columns: the model has {m} inputs")
        return joined(given, inputs)

    def _check_driven(self, U: Any) -> None:
        """Refuse inputs to a model that has none, and none to a model that has some."""
        m = self.learned_.architecture.inputs
        if U is None and m:
            raise InputError(f"the model has {m} input{'s'[: m > 1]}, and none are given: give U")
        if U is not None and not m:
            raise InputError("U is given, but the model has no inputs: leave it out")

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
    def n_components_(self) -> int:
        """O, the dimension of the lifted state."""
        return self.learned_.architecture.components

    @property
    def dt_(self) -> float:
        """The sampling interval: `dt`, or that of the tables' times."""
        return self.learned_.dt

    @property
    def units_(self) -> tuple[str, ...] | None:
        """Units of the state's components, where they are known."""
        return self.learned_.units

    @property
    def information_(self) -> dict[str, Any]:
        """What its maker kept with the model."""
        return self.learned_.information

    def measure_noise(self, X: Any, U: Any = None) -> Self:
        """Measure `noise_`, how far off K is, on trajectories that it should be good for."""
        noise = lifted_noise(self.learned_, self._given(X, U=U).parts)
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
    def n_inputs_(self) -> int:
        """m, the number of inputs; 0 of an autonomous model."""
        return self.learned_.architecture.inputs

    @property
    def input_names_(self) -> tuple[str, ...] | None:
        """Names of the inputs, where they are known."""
        return self.learned_.input_names

    @property
    def input_matrix_(self) -> NDArray[np.float64]:
        """B, (O, m): what the inputs, in their own units, add to the next lifted state."""
        self._check_driven(())
        return self.learned_.input_matrix.copy()

    @property
    def bilinear_(self) -> NDArray[np.float64] | None:
        """N_1 … N_m, (m, O, O), in y' = K y + B u + Σ u_i N_i y; None if the model has none."""
        return self.learned_.input_products.copy() if self.architecture_.bilinear else None

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
