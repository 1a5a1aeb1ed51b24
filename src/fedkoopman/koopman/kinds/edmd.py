"""Extended dynamic mode decomposition: a dictionary of functions, and K by least squares.

    y = ψ(u),   K = argmin Σ ‖ψ_{k+τ} − K ψ_k‖²,   u = (x − mean) / std

Sites send sums of products (`koopman.gram`), so a federation finds in one round what the pooled
data would give. The states are among the functions, and the decoder picks them. Of a driven system,
K, B and N_i are found together, by least squares on `gram.Regressors`.

Reference: M. O. Williams, I. G. Kevrekidis, C. W. Rowley, "A data-driven approximation of the
Koopman operator: extending dynamic mode decomposition", J. Nonlinear Science 25 (2015).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.errors import InputError, unknown_name
from fedkoopman.koopman.agreement import gram_fault, gram_misfit
from fedkoopman.koopman.dictionary import Dictionary
from fedkoopman.koopman.gram import Regressors, gram_shapes, gram_sums, least_squares
from fedkoopman.koopman.kind import Shapes
from fedkoopman.koopman.onnx import Graph
from fedkoopman.koopman.staged import (
    BINS,
    MARGIN,
    Arrays,
    Staged,
    bounds_of,
    held_graph,
    range_counts,
)

__all__ = ["DICTIONARIES", "EDMD", "KIND"]

DICTIONARIES = {"polynomial": "none", "fourier": "fourier", "rbf": "rbf"}
"""By name, the features that a dictionary has beside monomials."""


@dataclass(frozen=True)
class EDMD(Staged):
    """A fixed dictionary; `components` is how many functions it has.

    Attributes:
        degree: of the highest monomials, where the dictionary is "polynomial"; others have the
            states and a constant beside their features.
        dictionary: a name in `DICTIONARIES`.
        features: how many features, where they are no monomials.
        ridge: directions of the dictionary whose mean square is below this share of the largest
            are left out.
        margin: by which share of its half-width the range of the training states is widened,
            within which states are held when they are lifted.
    """

    name: ClassVar[str] = "edmd"
    linear_decoder: ClassVar[bool] = True
    precision: ClassVar[str | None] = "float64"

    degree: int = field(default=3, kw_only=True)
    dictionary: str = field(default="polynomial", kw_only=True)
    features: int = field(default=100, kw_only=True)
    ridge: float = field(default=1e-12, kw_only=True)
    margin: float = field(default=MARGIN, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settle_counts("degree", "features")
        self.settle_ridge()
        self.settle_margin()
        if self.dictionary not in DICTIONARIES:
            raise unknown_name("dictionary", self.dictionary, DICTIONARIES)
        if self.components != self.functions.size:
            raise InputError(
                f"components is {self.components}, but the {self.dictionary} dictionary has "
                f"{self.functions.size} functions: leave components to be found, or change degree, "
                "features or the window"
            )

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """One shape; the dictionary decides how many components there are. None is the default."""
        settings = {name: value for name, value in settings.items() if value is not None}
        size = cls.usual_components(settings["state_dim"], settings)
        return super().of(**settings | {"components": size})

    @classmethod
    def usual_components(cls, state_dim: int, settings: Mapping[str, Any]) -> int:
        """The number of functions in the dictionary."""
        chosen = settings.get("dictionary", "polynomial")
        if chosen not in DICTIONARIES:
            raise unknown_name("dictionary", chosen, DICTIONARIES)
        window = settings.get("window", 1)
        inputs = state_dim * window + settings.get("inputs", 0) * (window - 1)
        return _functions(
            inputs, chosen, settings.get("degree", 3), settings.get("features", 100)
        ).size

    @property
    def functions(self) -> Dictionary:
        """ψ."""
        return _functions(self.input_dim, self.dictionary, self.degree, self.features)

    @property
    def description(self) -> str:
        """The dictionary."""
        what = f"monomials up to degree {self.degree}"
        if self.dictionary != "polynomial":
            of = {"fourier": "random Fourier features", "rbf": "Gaussians about random centres"}
            what = f"the state and {self.features} {of[self.dictionary]}"
        return f"φ is a dictionary ({what}), φ⁻¹ picks the state"

    def shapes(self) -> Shapes:
        """The scale, the range, K, and what the features are made of."""
        yield "operator", (self.components, self.components)
        yield from self.fixed_shapes().items()
        if not self.functions.linear:
            yield "low", (self.state_dim,)
            yield "high", (self.state_dim,)
        yield from self.functions.shapes()
        yield from self.input_shapes()

    def first_features(self, *, seed: int, dtype: Any = np.float32) -> dict[str, NDArray[Any]]:
        """The random features."""
        drawn = self.functions.draw(np.random.default_rng(seed))
        return {name: leaf.astype(dtype) for name, leaf in drawn.items()}

    def feature_shapes(self) -> Shapes:
        """Names and shapes of the random features."""
        return self.functions.shapes()

    def sum_shapes(self) -> dict[str, tuple[int, ...]]:
        """Products of lifted states, and counts of the states' range."""
        return {**self._gram_shapes, "range": (self.state_dim, BINS)}

    @property
    def _gram_shapes(self) -> dict[str, tuple[int, ...]]:
        size = self._regressors.size(self.components)
        return gram_shapes(self.components, self.state_dim, 0, size)

    @property
    def _regressors(self) -> Regressors:
        return Regressors(self.inputs, self.bilinear)

    def sums(
        self, fixed: Arrays, features: Arrays, segments: Sequence[NDArray[Any]]
    ) -> dict[str, NDArray[np.float64]]:
        """G, S and the range."""
        found = gram_sums(
            self.functions,
            features,
            self.standard_rows(fixed, segments),
            shapes=self._gram_shapes,
            window=self.window,
            depth=self.depth,
            regressors=self._regressors,
        )
        return {**found, "range": range_counts(self, fixed, segments)}

    def solve(
        self, fixed: Arrays, features: Arrays, sums: Arrays
    ) -> dict[str, NDArray[np.float64]]:
        """K, B and N_i by least squares."""
        if not sums["pairs"][0]:
            return self.unsolved(fixed, features)
        pairs = float(sums["pairs"][0])
        found = least_squares(sums["gram"], sums["shift"], pairs, self.ridge).T
        bounds = bounds_of(sums["range"], self.margin)
        return self._weights(fixed, features, self._parted(found), bounds)

    def _parted(self, found: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """K, B and N_i from the matrix that all regressors are multiplied by."""
        size = self.components
        parts = {"operator": found[:, :size]}
        if not self.inputs:
            return parts
        if self.bilinear:
            products = found[:, size:].reshape(size, self.inputs, size).swapaxes(0, 1)
            # What multiplies u_i · 1 is B's.
            parts["input_matrix"] = products[:, :, 0].T
            parts["input_products"] = np.where(np.arange(size) == 0, 0.0, products)
        else:
            parts["input_matrix"] = found[:, size:]
        # In one piece, as they come from a file: products of them are then the same bit for bit.
        return {name: np.ascontiguousarray(part) for name, part in parts.items()}

    def sums_fault(self, fixed: Arrays, sums: Arrays, samples: int) -> str:
        """What no data could give."""
        return gram_fault(sums, samples, self.functions, self._newest, weighted=False)

    def misfit(self, sums: Arrays, others: Arrays, common: Arrays) -> dict[str, float]:
        """By functions and by states, from G and S."""
        usual = np.diagonal(common["gram"])[: self.components] / common["pairs"]
        return gram_misfit(sums, others, usual, newest=self._newest, ridge=self.ridge)

    @property
    def _newest(self) -> slice:
        """Where the newest state stands among the functions."""
        return slice(1 + self.input_dim - self.state_dim, 1 + self.input_dim)

    def unsolved(self, fixed: Arrays, features: Arrays) -> dict[str, NDArray[np.float64]]:
        """K = I: nothing changes."""
        wide, size = np.full(self.state_dim, 8.0), self.components
        first = np.eye(size, self._regressors.size(size))
        return self._weights(fixed, features, self._parted(first), (-wide, wide))

    def _weights(
        self, fixed: Arrays, features: Arrays, solved: Arrays, bounds: tuple[Any, Any]
    ) -> dict[str, NDArray[np.float64]]:
        every = {**solved, **fixed, "low": bounds[0], "high": bounds[1], **features}
        return {name: np.asarray(every[name], np.float64) for name, _ in self.shapes()}

    def lift(
        self, weights: Mapping[str, Any], x: Float[Array, "input n"]
    ) -> Float[Array, "lifted n"]:
        """ψ of the standardised windows, held within the range of the training states."""
        return self.functions(weights, self.held(weights, x))

    def operator(self, weights: Mapping[str, Any]) -> Float[Array, "lifted lifted"]:
        """K."""
        return weights["operator"]

    def decode(
        self, weights: Mapping[str, Any], y: Float[Array, "lifted n"]
    ) -> Float[Array, "input n"]:
        """The functions that are the states themselves."""
        return self.restored(weights, y[1 : 1 + self.input_dim])

    def lift_graph(self, g: Graph, weights: Mapping[str, Any], x: str) -> str:
        """Scale, range and dictionary."""
        return self.functions.graph(g, weights, held_graph(g, self, weights, x))

    def decode_graph(self, g: Graph, weights: Mapping[str, Any], y: str) -> str:
        """The newest state."""
        return self.newest_graph(g, weights, y, 1 + self.input_dim - self.state_dim)


def _functions(inputs: int, dictionary: str, degree: int, features: int) -> Dictionary:
    degree = degree if dictionary == "polynomial" else 1
    return Dictionary(inputs, degree, DICTIONARIES[dictionary], features)


KIND = EDMD
