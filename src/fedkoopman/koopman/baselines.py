"""`EDMD` and `DMD`: the usual baselines, in the manners of `DeepKoopman`.

Both are of the kind `edmd`: least squares in closed form, nothing is trained. They are what a
learned model has to beat on the same data.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from fedkoopman.errors import InputError
from fedkoopman.koopman.kinds.edmd import EDMD as Dictionary
from fedkoopman.koopman.learned import Learned
from fedkoopman.koopman.trained import Trained
from fedkoopman.koopman.training import Training
from fedkoopman.systems.checks import check_count, number

__all__ = ["DMD", "EDMD"]


class _LeastSquares(Trained):
    """An estimator of the kind `edmd`.

    Attributes:
        fixed: settings of the kind that are no parameters.
    """

    n_delays: int
    fixed: Mapping[str, Any] = MappingProxyType({})

    def _architecture(self, state_dim: int, inputs: int = 0) -> Dictionary:
        settings = {**self.fixed, **self.get_params()}
        if number(settings["ridge"], "ridge") < 0:
            raise InputError(f"ridge is {settings['ridge']:g}: it must be at least 0")
        for name in ("degree", "features"):
            check_count(settings.get(name, 1), name)
        window = check_count(self.n_delays, "n_delays", least=0) + 1
        sizes = {"state_dim": state_dim, "window": window, "inputs": inputs}
        return Dictionary.of(**settings | sizes)

    @classmethod
    def _of(cls, learned: Learned) -> Self:
        architecture = learned.architecture
        if not isinstance(architecture, Dictionary):
            raise InputError(
                f"the model is of the kind {architecture.name}, which is no {cls.__name__}: load "
                "it with fk.load_model"
            )
        known = cls._defaults()
        options = {name: value for name, value in vars(architecture).items() if name in known}
        model = cls().set_params(
            **options,
            n_delays=architecture.window - 1,
            dt=learned.dt,
            random_state=learned.random_state,
        )
        if model._architecture(architecture.state_dim, architecture.inputs) != architecture:
            raise InputError(
                f"the model is {architecture}, which is no {cls.__name__}: load it with "
                "fk.EDMD.load or fk.load_model"
            )
        model._learned = learned
        return model

    def fit(self, X: Any, y: Any = None, *, U: Any = None) -> Self:
        """Solve least squares; `y` is ignored.

        Arguments:
            U: the known inputs that drove the system, as of `DeepKoopman.fit` (DMD and EDMD with
                control).
        """
        given, inputs, named = self._with_inputs(X, U)
        architecture = self._architecture(given.parts[0].shape[1] - inputs, inputs)
        weights = architecture.initialise(seed=self._seed(0), dtype=np.float64)
        reference = np.zeros((architecture.window, architecture.state_dim))
        dt = self._interval(given)
        start = Learned(architecture, weights, dt, reference, given.names, input_names=named)
        return self._train(start, Training(precision="float64"), given)


class EDMD(_LeastSquares):
    """Extended dynamic mode decomposition: K by least squares between dictionaries ψ(x) and ψ(x').

    States are standardised inside. They are among the functions of the dictionary, so predictions
    are read off. Data, results and attributes are those of `DeepKoopman`.

    Arguments:
        degree: of the highest monomials of a polynomial dictionary.
        dictionary: "polynomial", or the states with random "fourier" features or "rbf" Gaussians.
        features: how many of these.
        n_delays: how many earlier states join the present one.
        depth: how many samples one application of K advances.
        ridge: directions of the dictionary whose mean square is below this share of the largest
            are left out, as in a pseudo-inverse.
        bilinear: whether the inputs of a driven system also multiply the functions.
        margin: by which share of its half-width the range of the training states is widened, within
            which states are held when they are lifted; see `range_`.
        dt: the sampling interval; tables with times tell it.
        random_state: seed of the random features.

    Reference: M. O. Williams, I. G. Kevrekidis, C. W. Rowley, J. Nonlinear Science 25 (2015).
    """

    def __init__(
        self,
        degree: int = 3,
        *,
        dictionary: str = "polynomial",
        features: int = 100,
        n_delays: int = 0,
        depth: int = 1,
        ridge: float = 1e-12,
        bilinear: bool = False,
        margin: float = 0.1,
        dt: float = 1.0,
        random_state: int | None = 0,
    ) -> None:
        self.degree = degree
        self.dictionary = dictionary
        self.features = features
        self.n_delays = n_delays
        self.depth = depth
        self.ridge = ridge
        self.bilinear = bilinear
        self.margin = margin
        self.dt = dt
        self.random_state = random_state


class DMD(_LeastSquares):
    """Dynamic mode decomposition: x' = A x + b by least squares, of states or windows of them.

    It is `EDMD` with nothing but the state and a constant in the dictionary. The constant makes it
    DMD of data from which the mean is removed, whatever their offset.

    Arguments:
        n_delays: how many earlier states join the present one (Hankel or delay DMD).
        depth: how many samples one application advances.
        ridge: as of `EDMD`.
        bilinear: as of `EDMD`.
        dt: the sampling interval; tables with times tell it.
        random_state: changes nothing, as nothing is drawn.
    """

    fixed = MappingProxyType({"degree": 1, "dictionary": "polynomial"})

    def __init__(
        self,
        *,
        n_delays: int = 0,
        depth: int = 1,
        ridge: float = 1e-12,
        bilinear: bool = False,
        dt: float = 1.0,
        random_state: int | None = 0,
    ) -> None:
        self.n_delays = n_delays
        self.depth = depth
        self.ridge = ridge
        self.bilinear = bilinear
        self.dt = dt
        self.random_state = random_state
