"""Sums of products of lifted states, and what is solved from them.

For a dictionary ψ and windows k that are followed, in their segment, by L steps (by one if L = 0),

    G = Σ ψ_k ψ_kᵀ      S = Σ ψ_k ψ_{k+τ}ᵀ      A_l = Σ ψ_k u_{k+lτ}ᵀ,   l = 1 … L,

with u the standardised states; each window may have a weight. All sums are over the same windows: a
window near the end of a segment that took part in some of them only would bias what is solved. They
add up over sites, so that what is solved from them is what the pooled data would give. Sums run
over blocks of one fixed size in the order of the data, by one compiled function on one core: the
same data give the same sums in every process.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from fedkoopman.compilation import one_core

__all__ = [
    "Regressors",
    "balancing",
    "contained",
    "gram_shapes",
    "gram_sums",
    "least_squares",
    "whitening",
]

BLOCK = 1024
"""Windows that are lifted together."""

MOST_WEIGHT = 5.0
"""Of a window: one odd state should not outweigh all others."""

Float64 = NDArray[np.float64]
Lift = Callable[[Mapping[str, Any], Array], Array]


@dataclass(frozen=True)
class Regressors:
    """What the next lifted state is regressed on where a system is driven: ψ_k, then the inputs.

    Linear: [ψ_k, u_k]; bilinear: [ψ_k, u_1 ψ_k, u_2 ψ_k, …], where ψ begins with 1, so that the
    inputs themselves are among them. Then the inputs of later steps, u_{k+1} … u_{k+later}, where
    states further ahead are looked at: what these do to the states is not to be laid to ψ_k.

    Attributes:
        inputs: m.
        bilinear: whether inputs multiply ψ.
        later: how many later steps.
    """

    inputs: int = 0
    bilinear: bool = False
    later: int = 0

    def size(self, functions: int) -> int:
        """How many there are, of so many functions ψ."""
        now = self.inputs * (functions if self.bilinear else 1)
        return functions + now + self.later * self.inputs

    def __call__(
        self, lifted: Float[Array, "functions n"], u: Sequence[Float[Array, "inputs n"]]
    ) -> Float[Array, "regressors n"]:
        """Of lifted states and their inputs, now and later."""
        if not self.inputs:
            return lifted
        products = [lifted * u[0][i] for i in range(self.inputs)] if self.bilinear else [u[0]]
        return jnp.concatenate([lifted, *products, *u[1:]])


def gram_shapes(
    size: int, state_dim: int, ahead: int, regressors: int | None = None
) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the sums of a dictionary of so many functions.

    Arguments:
        ahead: L.
        regressors: how many numbers all is multiplied by, where these are not the functions alone.
    """
    left = size if regressors is None else regressors
    return {
        "gram": (left, left),
        "shift": (left, size),
        "ahead": (ahead, left, state_dim),
        "pairs": (1,),
    }


AUTONOMOUS = Regressors()


def gram_sums(
    lift: Lift,
    weights: Mapping[str, Any],
    segments: Sequence[Float64],
    balance: Float64 | None = None,
    *,
    shapes: Mapping[str, tuple[int, ...]],
    window: int,
    depth: int,
    regressors: Regressors = AUTONOMOUS,
) -> dict[str, Float64]:
    """G, S, all A_l and the number of windows, or the sum of their weights.

    Arguments:
        lift: ψ of standardised windows, one per column; hashable, as it chooses what is compiled.
        weights: what ψ needs.
        segments: standardised states (T_i, d); where there are inputs, `Staged.standard_rows`.
        balance: from `balancing`, by which rare states weigh more; None: all weigh 1.
        shapes: from `gram_shapes`.
    """
    total = {name: np.zeros(shape) for name, shape in shapes.items()}
    ahead = shapes["ahead"][0]
    wide = {name: np.asarray(leaf, np.float64) for name, leaf in weights.items()}
    with jax.enable_x64(True):
        for states, left in _blocks(segments, window, max(ahead, 1) * depth):
            found = _block(
                wide, states, left, balance, lift=lift, window=window, depth=depth, ahead=ahead,
                regressors=regressors,
            )  # fmt: skip
            for name, part in zip(total, found, strict=True):
                total[name] += np.asarray(part)
    return total


def _blocks(
    segments: Sequence[Float64], window: int, reach: int
) -> Iterator[tuple[Float64, NDArray[np.int32]]]:
    """All windows in blocks: states (d, BLOCK + what follows) and, for each window, how many
    samples its segment has after it (negative where the window itself does not fit)."""
    lengths = [len(states) for states in segments]
    if not sum(lengths):
        return
    states = np.concatenate([np.asarray(one, np.float64) for one in segments])
    ends = np.repeat(np.cumsum(lengths), lengths) - 1
    left = (ends - np.arange(len(states)) - (window - 1)).astype(np.int32)
    halo = window - 1 + reach
    blocks = -(-len(states) // BLOCK)
    padded = np.zeros((states.shape[1], blocks * BLOCK + halo))
    padded[:, : len(states)] = states.T
    room = np.full(blocks * BLOCK, -1, np.int32)
    room[: len(states)] = left
    for first in range(0, blocks * BLOCK, BLOCK):
        yield padded[:, first : first + BLOCK + halo], room[first : first + BLOCK]


@one_core("lift", "window", "depth", "ahead", "regressors")
def _block(
    weights: dict[str, Array],
    states: Float[Array, "row room"],
    left: Int[Array, " block"],
    balance: Float[Array, "first first"] | None,
    *,
    lift: Lift,
    window: int,
    depth: int,
    ahead: int,
    regressors: Regressors,
) -> tuple[Array, ...]:
    """The sums of one block, in the order of `gram_shapes`."""
    n, m = len(left), regressors.inputs
    state_dim = len(states) - 2 * m
    states, past, drive = jnp.split(states, [state_dim, state_dim + m])
    before = [past[:, i : i + n + depth] for i in range(window - 1)] if m else []
    u = jnp.concatenate(before + [states[:, i : i + n + depth] for i in range(window)])
    lifted = lift(weights, u)
    drives = [drive[:, i : i + n] for i in range(window - 1, window + regressors.later)]
    on = regressors(lifted[:, :n], drives)
    weight = (left >= max(ahead, 1) * depth).astype(lifted.dtype)
    if balance is not None:
        distance = jnp.sum((balance @ lifted[: len(balance), :n]) ** 2, axis=0)
        weight = weight * jnp.minimum(jnp.sqrt(distance), MOST_WEIGHT)
    now = weight * on
    first = [window - 1 + depth * step for step in range(1, ahead + 1)]
    # One product for all that is multiplied by ψ_k.
    right = jnp.concatenate(
        [
            on,
            lifted[:, depth : depth + n],
            *(states[:, i : i + n] for i in first),
        ]
    )
    product, size = now @ right.T, len(on)
    gram, shift, future = jnp.split(product, [size, size + len(lifted)], axis=1)
    future = future.reshape(size, ahead, state_dim).swapaxes(0, 1)
    return gram, shift, future, jnp.sum(weight)[None]


def balancing(gram: Float64, pairs: float, first: int) -> Float64:
    """The matrix W by which `gram_sums` weighs windows, (first, first).

    A window's weight is ‖W ψ‖, over the first functions of the dictionary: the square root of its
    leverage, of which the mean is 1. States far from most others, as those at which trajectories
    start, are few; without weights a model of limited rank leaves them out.

    Arguments:
        first: how many functions; low monomials are enough.
    """
    white = whitening(gram[:first, :first], pairs, 1e-12)
    result = np.zeros((first, first))
    result[: white.shape[1]] = white.T / np.sqrt(white.shape[1])
    return result


def whitening(gram: Float64, pairs: float, ridge: float) -> Float64:
    """W with Wᵀ (G/n) W = I, (D, rank): directions that the data tell apart.

    Functions are scaled to a mean square of 1 first. Directions whose mean square is below `ridge`
    times the largest one's are left out, as in a pseudo-inverse; those that only rounding tells
    from nothing always are. The sum of the windows' weights, `pairs`, may be any above 0.
    """
    mean = gram / (pairs or 1.0)
    size = np.sqrt(np.diagonal(mean))
    size = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(mean / size[:, None] / size)
    least = max(ridge, len(gram) * np.finfo(np.float64).eps)
    kept = values > least * max(values[-1], 0.0)
    return (vectors[:, kept] / np.sqrt(values[kept])) / size[:, None]


def least_squares(gram: Float64, right: Float64, pairs: float, ridge: float) -> Float64:
    """The matrix X with the least Σ ‖b_k − Xᵀ ψ_k‖², from G = Σ ψ_k ψ_kᵀ and Σ ψ_k b_kᵀ.

    Of many solutions, one without a part in the directions that `whitening` leaves out.
    """
    w = whitening(gram, pairs, ridge)
    return w @ (w.T @ right) / (pairs or 1.0)


def contained(operator: Float64) -> Float64:
    """K with all |λ| at most 1: what would grow without bound stays as large as it is."""
    values, right = np.linalg.eig(operator)
    size = np.abs(values)
    if size.max(initial=0.0) <= 1:
        return operator
    if np.linalg.cond(right) < 1e10:
        limited = values / np.maximum(size, 1.0)
        found = np.real((right * limited) @ np.linalg.inv(right))
        # Rounding may leave a modulus a little above 1.
        return found / max(1.0, np.abs(np.linalg.eigvals(found)).max() * (1 + 1e-15))
    return operator / size.max()
