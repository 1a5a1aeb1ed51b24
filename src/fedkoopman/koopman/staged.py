"""Model kinds that are learned in stages, each of which needs only sums over the data.

    scale     sites add up counts, sums and squares; from these come mean and standard deviation
    look      the sums of the last stage, once, with features as they are drawn
    features  gradient training of what the kind trains, if it trains anything
    sums      sites add up products of lifted states; from these the model is solved in closed form

A federation (`federation/algorithms/staged.py`) and `DeepKoopman.fit` go through the same stages
by the same functions. A kind may leave out the second stage, or the third.

The range of the states comes from sums too: counts of states per quarter of a standard deviation,
and per doubling further out, where states may lie that came after the scale was agreed on.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.errors import InputError
from fedkoopman.koopman.kind import Kind, Shapes, Weights
from fedkoopman.koopman.onnx import Graph
from fedkoopman.systems.checks import number

__all__ = ["BINS", "MARGIN", "Arrays", "Staged", "bounds_of", "held_graph", "range_counts"]

Arrays = Mapping[str, NDArray[Any]]
"""Arrays by name."""

_FAR = 8.0 * 2.0 ** np.arange(1, 41)
EDGES = np.concatenate([-_FAR[::-1], np.linspace(-8, 8, 65), _FAR])
"""Of the counts of states, in standard deviations: quarters up to 8, then doublings; both ends are
open."""
BINS = len(EDGES) - 1
MARGIN = 0.1
"""By which share of its half-width the range of the training states is widened, usually."""


@dataclass(frozen=True)
class Staged(Kind):
    """A kind with stages; its weights are arrays by name.

    Every such kind standardises states, u = (x − mean) / std, with the two among its weights. Where
    there are inputs, these follow the states in mean and std. Their products B u are of inputs
    divided by their root mean square: then nothing has to be added to K y for their mean.
    """

    algorithm: ClassVar[str] = "staged"
    takes_inputs: ClassVar[bool] = True

    def settle_ridge(self, name: str = "ridge") -> None:
        """Check the share of the largest mean square below which directions are left out."""
        value = number(getattr(self, name), name)
        if not 0 <= value < 1:
            raise InputError(
                f"{name} is {value:g}: it must be at least 0 and below 1, a share of the largest "
                "mean square"
            )
        object.__setattr__(self, name, float(value))

    def settle_margin(self, name: str = "margin") -> None:
        """Check the share by which the range of the training states is widened."""
        value = number(getattr(self, name), name)
        if not value >= 0:
            raise InputError(f"{name} is {value:g}: it must be at least 0")
        object.__setattr__(self, name, float(value))

    def settings(self) -> dict[str, Any]:
        """The fields; the usual margin, which is younger than the form of the file, is left out."""
        found = super().settings()
        if found.get("margin") == MARGIN:
            del found["margin"]
        return found

    # First stage: the scale

    def scale_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what a site adds to the scale."""
        d = self.row_dim
        return {"count": (1,), "total": (d,), "squares": (d,)}

    def scale_sums(self, segments: Sequence[NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
        """What segments (T_i, d + m) add to the scale."""
        x = np.concatenate([np.zeros((0, self.row_dim)), *segments]).astype(np.float64)
        return {
            "count": np.array([float(len(x))]),
            "total": x.sum(axis=0),
            "squares": (x**2).sum(axis=0),
        }

    def fixed_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what is made of the scale's sums, and stays as it is from then on."""
        return {"mean": (self.row_dim,), "std": (self.row_dim,)}

    def fixed(self, sums: Arrays | None = None) -> dict[str, NDArray[np.float64]]:
        """What the sums of all sites say; without any, what leaves states as they are."""
        if sums is None or not sums["count"][0]:
            return {"mean": np.zeros(self.row_dim), "std": np.ones(self.row_dim)}
        mean = sums["total"] / sums["count"]
        variance = sums["squares"] / sums["count"] - mean**2
        # What does not vary is only rounding away from its mean, and stays as it is.
        varies = variance > 1e-14 * (mean**2 + 1e-300)
        return {"mean": mean, "std": np.sqrt(np.where(varies, variance, 1.0))}

    def scale_fault(self, sums: Arrays, samples: int) -> str:
        """What is wrong with a site's part of the scale, after "sends …"; empty if nothing is.

        Arguments:
            samples: from how many states it is said to be.
        """
        count, total, squares = float(sums["count"][0]), sums["total"], sums["squares"]
        if count != samples:
            return f"a count of {count:,.6g} from {samples:,} samples"
        if not count and (total.any() or squares.any()):
            return "sums of no samples that are not zero"
        if (squares * count < total**2 * (1 - 1e-9)).any():
            return "squares that are less than its mean allows"
        return ""

    def scale_sizes(self, sums: Arrays, centre: NDArray[Any]) -> NDArray[np.float64]:
        """How large a site says that things are which the scale is made of, as root mean squares.

        Arguments:
            centre: of the states of all sites, from which distances are measured.
        """
        mean = sums["total"] / sums["count"]
        square = sums["squares"] / sums["count"] - 2 * centre * mean + centre**2
        return np.sqrt(np.maximum(square, 0.0))

    # Second stage: features

    @property
    def trains(self) -> bool:
        """Whether its features are trained; otherwise they stay as they are drawn."""
        return False

    def feature_shapes(self) -> Shapes:
        """Names and shapes of what features are made of, and of what is trained with them."""
        yield from ()

    def first_features(self, *, seed: int, dtype: Any = np.float32) -> dict[str, NDArray[Any]]:
        """Features as they are drawn."""
        return {}

    @property
    def trainee(self) -> Weights:
        """The features."""
        return {name: np.zeros(shape) for name, shape in self.feature_shapes()}

    # Third stage: sums, and the solution

    def looked(self, fixed: Arrays, sums: Arrays) -> dict[str, NDArray[np.float64]]:
        """What is fixed, after a first look at the sums with features as they are drawn."""
        return dict(fixed)

    def sum_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of what a site adds to the solution; none: there is no third stage."""
        return {}

    def sums(
        self, fixed: Arrays, features: Arrays, segments: Sequence[NDArray[Any]]
    ) -> dict[str, NDArray[np.float64]]:
        """What segments (T_i, d + m) add to the solution."""
        return {}

    def solve(
        self, fixed: Arrays, features: Arrays, sums: Arrays
    ) -> dict[str, NDArray[np.float64]]:
        """The weights in closed form, from the sums of all sites."""
        return self.unsolved(fixed, features)

    def sums_fault(self, fixed: Arrays, sums: Arrays, samples: int) -> str:
        """What no data could give in a site's sums, after "sends …"; empty if there is nothing.

        Arguments:
            samples: from how many states they are said to be.
        """
        return ""

    def misfit(self, sums: Arrays, others: Arrays, common: Arrays) -> dict[str, float]:
        """How badly one model explains a site's sums and the others' together: numbers that are 0
        for sums of the same dynamics, up to noise (`koopman.agreement`); none: nothing is known.

        Arguments:
            common: sums that say what is large, from several sites.
        """
        return {}

    def variants(self) -> list[Self]:
        """The kind as it is or, where a setting is left open, with each value to choose from."""
        return [self]

    @abstractmethod
    def unsolved(self, fixed: Arrays, features: Arrays) -> dict[str, NDArray[np.float64]]:
        """The weights before there are sums: a model that expects no change, or a trained one."""

    def initialise(self, *, seed: int, dtype: Any = np.float32) -> Weights:
        """The weights before anything is learned."""
        first = self.unsolved(self.fixed(), self.first_features(seed=seed, dtype=dtype))
        return {name: np.asarray(leaf, dtype) for name, leaf in first.items()}

    # What the kinds share

    def standardised(
        self, weights: Mapping[str, Any], x: Float[Array, "input n"]
    ) -> Float[Array, "input n"]:
        """u for windows x, one per column."""
        mean, std = (self.of_window(weights[name], jnp)[:, None] for name in ("mean", "std"))
        return (x - mean) / std

    def of_window(self, row: Any, xp: Any = np) -> Any:
        """What belongs to the entries of a row (d + m,), for those of a window (d_X,)."""
        states = xp.tile(row[: self.state_dim], self.window)
        if not self.inputs or self.window == 1:
            return states
        return xp.concatenate([xp.tile(row[self.state_dim :], self.window - 1), states])

    def input_scale(self, weights: Mapping[str, Any]) -> Any:
        """The root mean square of each input, (m,)."""
        mean, std = (weights[name][self.state_dim :] for name in ("mean", "std"))
        return (mean**2 + std**2) ** 0.5

    def input_matrix(self, weights: Mapping[str, Any]) -> Float[Array, "lifted inputs"]:
        """B, in the inputs' own units."""
        return weights["input_matrix"] / self.input_scale(weights)

    def input_products(self, weights: Mapping[str, Any]) -> Float[Array, "inputs lifted lifted"]:
        """All N_i, in the inputs' own units."""
        return weights["input_products"] / self.input_scale(weights)[:, None, None]

    def usual_inputs(self, weights: Mapping[str, Any]) -> NDArray[np.float64]:
        """Their mean."""
        return np.asarray(weights["mean"][self.state_dim :], np.float64)

    def standard_rows(self, fixed: Arrays, segments: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Rows [u, inputs as in windows, inputs as in B u] of segments, (T_i, d + 2 m)."""
        found = [(rows - fixed["mean"]) / fixed["std"] for rows in segments]
        if not self.inputs:
            return found
        drives = [rows[:, self.state_dim :] / self.input_scale(fixed) for rows in segments]
        return [np.hstack(pair) for pair in zip(found, drives, strict=True)]

    def held(
        self, weights: Mapping[str, Any], x: Float[Array, "input n"]
    ) -> Float[Array, "input n"]:
        """u, held within the range of the training states: functions of u beyond it mean nothing,
        and a forecast that is lifted again and again cannot run away. Inputs are as they are."""
        u = self.standardised(weights, x)
        if "low" not in weights:
            return u
        low, high = (jnp.tile(weights[name], self.window)[:, None] for name in ("low", "high"))
        past = self.input_dim - len(low)
        if not past:
            return jnp.clip(u, low, high)
        return jnp.concatenate([u[:past], jnp.clip(u[past:], low, high)])

    def restored(
        self, weights: Mapping[str, Any], u: Float[Array, "input n"]
    ) -> Float[Array, "input n"]:
        """Windows x from u."""
        mean, std = (self.of_window(weights[name], jnp)[:, None] for name in ("mean", "std"))
        return u * std + mean

    def newest_graph(self, g: Graph, weights: Mapping[str, Any], y: str, first: int) -> str:
        """The state whose standardised entries stand in `y` from place `first` on, in a graph."""
        entries = g.columns(y, np.arange(first, first + self.state_dim))
        mean, std = (weights[name][: self.state_dim] for name in ("mean", "std"))
        return g.add("Add", g.add("Mul", entries, g.constant(std, "std")), g.constant(mean, "mean"))

    def bounds(self, weights: Mapping[str, Any]) -> NDArray[np.float64] | None:
        """The lowest and highest states that the model knows, (2, d); None if it has no bounds."""
        if "low" not in weights:
            return None
        edges = np.stack([np.asarray(weights["low"]), np.asarray(weights["high"])])
        mean, std = (np.asarray(weights[name])[: self.state_dim] for name in ("mean", "std"))
        return edges * std + mean


def held_graph(g: Graph, kind: Staged, weights: Mapping[str, Any], x: str) -> str:
    """`Staged.held` for the value `x` of a graph, (batch, μ d); the name of its output."""
    mean, std = (kind.of_window(np.asarray(weights[name])) for name in ("mean", "std"))
    u = g.add("Sub", x, g.constant(mean, "window.mean"))
    u = g.add("Div", u, g.constant(std, "window.std"))
    if "low" not in weights:
        return u
    ends = {name: np.tile(weights[name], kind.window) for name in ("low", "high")}
    past = kind.input_dim - len(ends["low"])
    held = g.columns(u, np.arange(past, kind.input_dim)) if past else u
    held = g.add("Max", held, g.constant(ends["low"], "window.low"))
    held = g.add("Min", held, g.constant(ends["high"], "window.high"))
    return g.add("Concat", g.columns(u, np.arange(past)), held, axis=-1) if past else held


def range_counts(
    kind: Staged, fixed: Arrays, segments: Sequence[NDArray[Any]]
) -> NDArray[np.float64]:
    """How many states lie between each two of `EDGES`, (d, BINS)."""
    mean, std = (fixed[name][: kind.state_dim] for name in ("mean", "std"))
    counts = np.zeros((len(mean), BINS))
    for states in segments:
        place = np.searchsorted(EDGES, (states[:, : len(mean)] - mean) / std, side="right") - 1
        place = np.clip(place, 0, BINS - 1)
        for j in range(len(mean)):
            counts[j] += np.bincount(place[:, j], minlength=BINS)
    return counts


def bounds_of(
    counts: NDArray[np.float64], margin: float = MARGIN
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The range of the states, widened, in standard deviations: (d,) low and high.

    Arguments:
        margin: by which share of its half-width.
    """
    some = counts > 0
    some[~some.any(axis=1)] = np.abs(EDGES[:-1] + EDGES[1:]) < 16  # as far as 8
    low = EDGES[:-1][some.argmax(axis=1)]
    high = EDGES[1:][BINS - 1 - some[:, ::-1].argmax(axis=1)]
    more = margin * (high - low) / 2
    return low - more, high + more
