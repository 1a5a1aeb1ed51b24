"""The recommended kind: learned features, and the subspace of them that tells the future.

    y = B ψ(u),   y' = K y,   x = mean + std ∘ C y,   ψ = [1, u, monomials, h₁, h₂, …]

Three stages (`koopman.staged`), after the scale of the states is known:

1. Hidden layers h are trained to predict u_{k+l} − u_k for several leads l at once, by linear
   heads on [1, u, h] that are thrown away. No K takes part, so nothing can grow, and far leads are
   learned directly.
2. Sites send sums of products of ψ with itself, with its successor, and with the states of the
   next `horizon` steps.
3. In closed form: whiten ψ; take the directions in which the future window [u_k, u_{k+1}, …] is
   known best (a singular value decomposition, step l weighted by (l + 1)^−`discount`); K is least
   squares between successive y, its eigenvalues held within the unit circle; C is least squares.

A small `discount` favours the far future, a large one the next steps; with few components that is
a real choice. Weights that fall as a power of l serve both ends better than powers of a number do.
States that are rare weigh more in the sums (`gram.balancing`): a first look at the data, with the
features as they are drawn, tells which. In closed form all this is a reduced-rank regression of the
future window, as in canonical variate analysis: W. E. Larimore, American Control Conference (1983).

Where a system is driven, the future is regressed on ψ and on the inputs that come, and only what is
ψ's counts when the directions are chosen: what inputs did is known without ψ. Then K, B and N_i are
least squares between successive y with the inputs in between. The heads see the inputs as well.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.errors import InputError, short
from fedkoopman.koopman.agreement import gram_fault, gram_misfit
from fedkoopman.koopman.dictionary import Dictionary
from fedkoopman.koopman.gram import (
    Regressors,
    balancing,
    contained,
    gram_shapes,
    gram_sums,
    least_squares,
    whitening,
)
from fedkoopman.koopman.kind import Shapes
from fedkoopman.koopman.losses import powers
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
from fedkoopman.systems.checks import number

__all__ = ["KIND", "Spectral"]

LEADS = (1, 2, 3, 5, 8, 12, 20, 30)
"""Steps ahead that features are trained to predict, as far as the horizon."""
LAYERS = 2
INPUT_RIDGE = 1e-6
"""Below this share of its squares a function of the state is taken to be one of the inputs."""
RIDGES = (1e-10, 1e-12, 1e-8, 1e-6, 1e-4)
"""From which one is chosen: small for clean states, large for noisy ones."""


@dataclass(frozen=True)
class Spectral(Staged):
    """A rank-limited linear model of learned features.

    Attributes:
        features: units in each of two hidden layers.
        learned: whether these are trained; otherwise they stay random, which is quick.
        degree: of the highest monomials among the functions.
        horizon: L, how many steps of the future the subspace is chosen by.
        discount: how fast further steps count less; None: 2, or 1.5 where there are components to
            spare (five and more for each number in).
        ridge: directions of ψ whose mean square is below this share of the largest are left out;
            None: 1e-10 or, where there are data at hand to choose by, what serves them best.
        margin: by which share of its half-width the range of the training states is widened,
            within which states are held when they are lifted.
    """

    name: ClassVar[str] = "spectral"
    linear_decoder: ClassVar[bool] = True
    precision: ClassVar[str | None] = "float64"

    features: int = field(default=64, kw_only=True)
    learned: bool = field(default=True, kw_only=True)
    degree: int = field(default=3, kw_only=True)
    horizon: int = field(default=30, kw_only=True)
    discount: float | None = field(default=None, kw_only=True)
    ridge: float | None = field(default=None, kw_only=True)
    margin: float = field(default=MARGIN, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settle_counts("features", "degree", "horizon")
        self.settle_margin()
        if self.ridge is not None:
            self.settle_ridge()
        if self.discount is not None:
            discount = number(self.discount, "discount")
            if discount < 0:
                raise InputError(f"discount is {discount:g}: it must be at least 0")
            object.__setattr__(self, "discount", float(discount))
        if not isinstance(self.learned, bool):
            raise InputError(f"learned is {short(self.learned)}: give true or false")
        size = self.functions.size
        if not self.input_dim <= self.components <= size:
            raise InputError(
                f"components is {self.components}, but the model has {self.input_dim} numbers in "
                f"and {size} functions of them: give a whole number from {self.input_dim} to {size}"
            )

    @classmethod
    def usual_components(cls, state_dim: int, settings: Mapping[str, Any]) -> int:
        """20, or four for every state where that is more."""
        window = settings.get("window", 1)
        seen = state_dim * window + settings.get("inputs", 0) * (window - 1)
        return max(20, 4 * state_dim, seen)

    @property
    def functions(self) -> Dictionary:
        """ψ."""
        return Dictionary(self.input_dim, self.degree, "network", self.features, LAYERS)

    @property
    def description(self) -> str:
        """Features and rank."""
        how = "learned" if self.learned else "random"
        return (
            f"φ are the {self.components} best of {self.functions.size} functions ({LAYERS} layers "
            f"of {self.features} {how} features and monomials up to degree {self.degree}), φ⁻¹ is "
            "linear"
        )

    def shapes(self) -> Shapes:
        """B, K and C, the scale, the range, and the layers."""
        yield "lifting", (self.components, self.functions.size)
        yield "operator", (self.components, self.components)
        yield "decoder", (self.input_dim, self.components)
        yield from self.fixed_shapes_of_model()
        yield from self.functions.shapes()
        yield from self.input_shapes()

    def fixed_shapes_of_model(self) -> Shapes:
        """Mean, standard deviation, and the ends of the range."""
        for name in ("mean", "std"):
            yield name, (self.row_dim,)
        for name in ("low", "high"):
            yield name, (self.state_dim,)

    # The scale, and how far states move within each lead

    @property
    def leads(self) -> tuple[int, ...]:
        """In samples."""
        return tuple(self.depth * lead for lead in LEADS if lead <= self.horizon)

    def scale_shapes(self) -> dict[str, tuple[int, ...]]:
        """Also squares of the moves within each lead."""
        leads = len(self.leads)
        more = {"moves": (leads, self.state_dim), "moved": (leads,)}
        return super().scale_shapes() | more

    def scale_sums(self, segments: Sequence[NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
        """Also squares of the moves within each lead."""
        moves, moved = np.zeros((len(self.leads), self.state_dim)), np.zeros(len(self.leads))
        for states in segments:
            only = np.asarray(states, np.float64)[:, : self.state_dim]
            for i, lead in enumerate(self.leads):
                change = only[lead:] - only[:-lead]
                moves[i] += (change**2).sum(axis=0)
                moved[i] += len(change)
        return super().scale_sums(segments) | {"moves": moves, "moved": moved}

    def scale_fault(self, sums: Arrays, samples: int) -> str:
        """Also moves that are further than the states are apart."""
        if fault := super().scale_fault(sums, samples):
            return fault
        moves, moved = sums["moves"], sums["moved"]
        if (moves < 0).any() or (moved < 0).any() or (moved > samples).any():
            return "squares below zero, or of more moves than there are samples"
        if not samples:
            return "moves of no samples" if moves.any() else ""
        # (a − b)² ≤ 2 (a² + b²), and a state is the beginning and the end of one move at most.
        squares, total = (sums[name][: self.state_dim] for name in ("squares", "total"))
        spread = squares - total**2 / sums["count"]
        if (moves > 4 * spread * (1 + 1e-9) + 1e-9 * squares).any():
            return "moves that are further than its states are apart"
        return ""

    def scale_sizes(self, sums: Arrays, centre: NDArray[Any]) -> NDArray[np.float64]:
        """Also the moves."""
        moves = np.sqrt(sums["moves"] / np.maximum(sums["moved"], 1.0)[:, None])
        return np.concatenate([super().scale_sizes(sums, centre), moves.ravel()])

    def fixed_shapes(self) -> dict[str, tuple[int, ...]]:
        """Also the usual size of a move, in standard deviations, and weights of rare states."""
        more = {"moves": (len(self.leads), self.state_dim), "balance": (self._low, self._low)}
        return super().fixed_shapes() | more

    @property
    def _low(self) -> int:
        """Functions that are monomials of degree 2 at most: by these rare states are found."""
        return math.comb(self.input_dim + min(self.degree, 2), self.input_dim)

    def fixed(self, sums: Arrays | None = None) -> dict[str, NDArray[np.float64]]:
        """Also the root mean square of the moves; 1 where nothing moved."""
        found = super().fixed(sums)
        moves = np.ones((len(self.leads), self.state_dim))
        if sums is not None:
            std = found["std"][: self.state_dim]
            square = sums["moves"] / np.maximum(sums["moved"], 1.0)[:, None] / std**2
            moves = np.sqrt(np.where(square > 0, square, 1.0))
        return found | {"moves": moves, "balance": np.zeros((self._low, self._low))}

    def looked(self, fixed: Arrays, sums: Arrays) -> dict[str, NDArray[np.float64]]:
        """With weights of rare states."""
        balance = balancing(sums["gram"], float(sums["pairs"][0]), self._low)
        return {**fixed, "balance": balance}

    # Features, trained by heads for all leads at once

    @property
    def trains(self) -> bool:
        """Unless the features stay random."""
        return self.learned

    def feature_shapes(self) -> Shapes:
        """The layers and, where they are trained, the heads."""
        yield from self.functions.shapes()
        if self.learned:
            seen = 1 + self.input_dim + self.functions.feature_count
            seen += max(self.leads) * self.inputs
            yield "heads", (len(self.leads) * self.state_dim, seen)

    def first_features(self, *, seed: int, dtype: Any = np.float32) -> dict[str, NDArray[Any]]:
        """Random layers; heads that predict no change."""
        found = self.functions.draw(np.random.default_rng(seed))
        shapes = dict(self.feature_shapes())
        if "heads" in shapes:
            found["heads"] = np.zeros(shapes["heads"])
        return {name: leaf.astype(dtype) for name, leaf in found.items()}

    def loss(
        self,
        trained: Mapping[str, Any],
        fixed: Mapping[str, Any],
        x: Float[Array, "input n"],
        ahead: tuple[Float[Array, "input n"], ...],
        share: Float[Array, " n"] | None,
        loss_weights: tuple[float, float, float],
        huber: float = 0.0,
    ) -> Float[Array, ""]:
        """The mean square of (u_{k+l} − u_k) / s_l − head, over states, leads and samples."""
        u = self.standardised(fixed, x)
        functions = [jnp.ones_like(u[:1]), u, *self.functions.layer_values(trained, u)]
        if self.inputs:
            inputs, ahead = ahead[-1], ahead[:-1]
            functions.append(inputs / jnp.tile(self.input_scale(fixed), max(self.leads))[:, None])
        predicted = trained["heads"] @ jnp.concatenate(functions)
        d = self.state_dim
        std = fixed["std"][:d, None]
        moves = [
            (later[-d:] - x[-d:]) / (std * fixed["moves"][i][:, None])
            for i, later in enumerate(ahead)
        ]
        square = jnp.mean(powers(jnp.concatenate(moves) - predicted, huber), axis=0)
        return jnp.mean(square) if share is None else jnp.sum(square * share)

    @property
    def takes_huber(self) -> bool:
        """In training features, in usual moves; what is solved in closed form stays of squares."""
        return self.learned

    # Sums, and the solution

    def sum_shapes(self) -> dict[str, tuple[int, ...]]:
        """Products of functions with each other and with the future, and the states' range."""
        return {**self._gram_shapes, "range": (self.state_dim, BINS)}

    @property
    def _gram_shapes(self) -> dict[str, tuple[int, ...]]:
        size = self.functions.size
        return gram_shapes(size, self.state_dim, self.horizon, self._regressors.size(size))

    @property
    def _regressors(self) -> Regressors:
        return Regressors(self.inputs, self.bilinear, self.horizon - 1)

    def sums(
        self, fixed: Arrays, features: Arrays, segments: Sequence[NDArray[Any]]
    ) -> dict[str, NDArray[np.float64]]:
        """G, S, A and the range."""
        found = gram_sums(
            self.functions,
            {name: features[name] for name, _ in self.functions.shapes()},
            self.standard_rows(fixed, segments),
            fixed["balance"] if fixed["balance"].any() else None,
            shapes=self._gram_shapes,
            window=self.window,
            depth=self.depth,
            regressors=self._regressors,
        )
        return {**found, "range": range_counts(self, fixed, segments)}

    def solve(
        self, fixed: Arrays, features: Arrays, sums: Arrays
    ) -> dict[str, NDArray[np.float64]]:
        """The lift, K and C, and what inputs are multiplied by."""
        pairs, size = float(sums["pairs"][0]), self.functions.size
        if not pairs:
            return self.unsolved(fixed, features)
        white = whitening(sums["gram"][:size, :size], pairs, self._ridge)
        now = white.T @ sums["gram"][:size, 1 : 1 + self.input_dim] / pairs
        future = self._future(white, sums)
        parts = [(i + 1) ** -self._discount * part for i, part in enumerate([now, *future])]
        rank = self.components
        left = np.linalg.svd(np.concatenate(parts, axis=1), full_matrices=False)[0][:, :rank]
        lifting = np.zeros((rank, self.functions.size))
        lifting[: left.shape[1]] = (white @ left).T
        operator = np.zeros((rank, rank))
        known = slice(0, left.shape[1])
        driven: dict[str, NDArray[Any]] = {}
        if self.inputs:
            driven = self._driven(lifting, sums)
            operator = driven.pop("operator")
        else:
            operator[known, known] = (lifting[known] @ (sums["shift"] / pairs) @ lifting[known].T).T
        decoder = np.zeros((self.input_dim, rank))
        decoder[:, known] = now.T @ left
        solved = {"lifting": lifting, "operator": contained(operator), "decoder": decoder, **driven}
        return self._weights(fixed, features, solved, bounds_of(sums["range"], self.margin))

    def _future(self, white: NDArray[Any], sums: Arrays) -> list[NDArray[Any]]:
        """What whitened functions tell of each step ahead, beside the inputs."""
        pairs, size = float(sums["pairs"][0]), self.functions.size
        found = [white.T @ later[:size] / pairs for later in sums["ahead"]]
        if not self.inputs:
            return found
        # In f = Θ w + Φ r, with w white and r the inputs: Θ S = E[f wᵀ] − E[f r] E[r r]⁻¹ E[r wᵀ].
        among = sums["gram"][size:, size:]
        cross = sums["gram"][size:, :size] @ white / pairs
        explained = least_squares(among, pairs * cross, pairs, INPUT_RIDGE)
        rest = np.eye(len(found[0])) - explained.T @ cross
        values, vectors = np.linalg.eigh((rest + rest.T) / 2)
        kept = values > INPUT_RIDGE
        inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
        pairs_of = zip(found, sums["ahead"], strict=True)
        return [inverse @ (own - explained.T @ later[size:] / pairs) for own, later in pairs_of]

    def _driven(self, lifting: NDArray[Any], sums: Arrays) -> dict[str, NDArray[Any]]:
        """K, B and the N_i, by least squares of y' on y, u and all u_i y."""
        pairs, (rank, size), m = float(sums["pairs"][0]), lifting.shape, self.inputs
        # From the regressors of the sums to [y, u, u_1 y, u_2 y, …].
        columns = self._regressors.size(size)
        choice = np.zeros((rank + m + (rank * m if self.bilinear else 0), columns))
        choice[:rank, :size] = lifting
        for i in range(m):
            first = size * (1 + i) if self.bilinear else size + i
            choice[rank + i, first] = 1.0
            if self.bilinear:
                place = rank + m + i * rank
                choice[place : place + rank, first : first + size] = lifting
        gram, shift = choice @ sums["gram"] @ choice.T, choice @ sums["shift"] @ lifting.T
        found = least_squares(gram, shift, pairs, 0.0).T
        parts = {"operator": found[:, :rank], "input_matrix": found[:, rank : rank + m]}
        if self.bilinear:
            products = found[:, rank + m :].reshape(rank, m, rank)
            parts["input_products"] = products.swapaxes(0, 1)
        # In one piece, as they come from a file: products of them are then the same bit for bit.
        return {name: np.ascontiguousarray(leaf) for name, leaf in parts.items()}

    @property
    def _ridge(self) -> float:
        return RIDGES[0] if self.ridge is None else self.ridge

    @property
    def _discount(self) -> float:
        few = self.components < 5 * self.input_dim
        return (2.0 if few else 1.5) if self.discount is None else self.discount

    @property
    def _newest(self) -> slice:
        """Where the newest state stands among the functions."""
        return slice(1 + self.input_dim - self.state_dim, 1 + self.input_dim)

    def sums_fault(self, fixed: Arrays, sums: Arrays, samples: int) -> str:
        """What no data could give."""
        weighted = bool(fixed["balance"].any())
        return gram_fault(sums, samples, self.functions, self._newest, weighted)

    def misfit(self, sums: Arrays, others: Arrays, common: Arrays) -> dict[str, float]:
        """By functions and by states, from G, S and A."""
        usual = np.diagonal(common["gram"])[: self.functions.size] / common["pairs"]
        return gram_misfit(
            sums, others, usual, newest=self._newest, ridge=self._ridge, discount=self._discount
        )

    def variants(self) -> list[Self]:
        """With each ridge, unless one is asked for."""
        return [self] if self.ridge is not None else [replace(self, ridge=one) for one in RIDGES]

    def unsolved(self, fixed: Arrays, features: Arrays) -> dict[str, NDArray[np.float64]]:
        """y holds u, and K = I: nothing changes."""
        lifting = np.eye(self.components, self.functions.size, 1)
        lifting[self.input_dim :] = 0.0
        first = {
            "lifting": lifting,
            "operator": np.eye(self.components),
            "decoder": np.eye(self.input_dim, self.components),
            **{name: np.zeros(shape) for name, shape in self.input_shapes()},
        }
        wide = np.full(self.state_dim, 8.0)
        return self._weights(fixed, features, first, (-wide, wide))

    def _weights(
        self, fixed: Arrays, features: Arrays, solved: Arrays, bounds: tuple[Any, Any]
    ) -> dict[str, NDArray[np.float64]]:
        every = {**fixed, **features, **solved, "low": bounds[0], "high": bounds[1]}
        return {name: np.asarray(every[name], np.float64) for name, _ in self.shapes()}

    # The model

    def lift(
        self, weights: Mapping[str, Any], x: Float[Array, "input n"]
    ) -> Float[Array, "lifted n"]:
        """B ψ of the standardised windows, held within the range of the training states."""
        return weights["lifting"] @ self.functions(weights, self.held(weights, x))

    def operator(self, weights: Mapping[str, Any]) -> Float[Array, "lifted lifted"]:
        """K."""
        return weights["operator"]

    def decode(
        self, weights: Mapping[str, Any], y: Float[Array, "lifted n"]
    ) -> Float[Array, "input n"]:
        """mean + std ∘ C y."""
        return self.restored(weights, weights["decoder"] @ y)

    def lift_graph(self, g: Graph, weights: Mapping[str, Any], x: str) -> str:
        """Scale, range, dictionary and B."""
        functions = self.functions.graph(g, weights, held_graph(g, self, weights, x))
        return g.add("MatMul", functions, g.constant(np.transpose(weights["lifting"]), "lifting"))

    def decode_graph(self, g: Graph, weights: Mapping[str, Any], y: str) -> str:
        """The newest state."""
        d = self.state_dim
        newest = weights["decoder"][-d:] * weights["std"][:d, None]
        return g.affine(y, newest, weights["mean"][:d], "decoder")


KIND = Spectral
