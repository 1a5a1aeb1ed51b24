"""Sums of clipped gradients, one gradient for every example, without ever writing them all down.

DP-SGD needs Σ_i g_i · min(1, C / ‖g_i‖) over the examples of a batch, g_i being the gradient of one
example's loss. Written down, all g_i together are as large as the network times the batch, and that
costs four times as much as training without. But weights enter a network by products with columns,
z = W a, and by biases, z = z' + b. So g_i is a sum of a few outer products δ aᵀ, with δ = ∂ℓ_i/∂z:

    ‖Σ_u δ_u a_uᵀ‖² = Σ_u Σ_v (δ_u · δ_v)(a_u · a_v),     Σ_i c_i Σ_u δ_ui a_uiᵀ is one product

`products_of` finds these products in the loss as JAX sees it, so that kinds need not know of it. A
loss that uses weights in another way takes the plain way, `jax.vmap` of `jax.grad`.

Reference: I. Goodfellow, "Efficient per-example gradient computations", arXiv:1510.01799 (2015).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import Array, Float
from numpy.typing import NDArray

__all__ = ["clip_factors", "clipped_sum", "products_of", "written_down"]

SummedLoss = Callable[[Any, tuple[Array, ...]], Array]
"""(vector of weights, arrays whose last axis counts examples) → the sum of the examples' losses."""

_VIEWS = (
    "slice", "split", "squeeze", "reshape", "transpose", "broadcast_in_dim", "copy", "copy_p",
)  # fmt: skip
"""Operations after which entries of a matrix are still entries of that matrix."""
_CALLS = ("pjit", "jit", "closed_call")


class NoProducts(Exception):
    """The loss uses weights in another way than by products and biases."""


@dataclass
class _Found:
    """Where weights enter a loss."""

    places: list[NDArray[np.int64]] = field(default_factory=list)
    """By use: which weights, as places in the vector, (out, in)."""
    columns: list[int] = field(default_factory=list)
    """By use: how many columns of one example they are multiplied with."""


def clip_factors(
    squares: Float[Array, " n"], clip: float, taken: Float[Array, " n"]
) -> Float[Array, " n"]:
    """min(1, C / ‖g_i‖), and 0 for examples that do not take part or have no finite gradient."""
    factor = jnp.minimum(1.0, clip * jax.lax.rsqrt(jnp.maximum(squares, 1e-30)))
    return jnp.where(jnp.isfinite(squares), factor, 0.0) * taken


def clipped_sum(
    loss: SummedLoss,
    vector: Float[Array, " parameters"],
    examples: tuple[Float[Array, "_ n"], ...],
    taken: Float[Array, " n"],
    clip: float,
) -> Float[Array, " parameters"]:
    """Σ_i g_i · min(1, C / ‖g_i‖) over the examples that are taken.

    Arguments:
        loss: of one example.
        examples: arrays whose last axis counts the examples.
        taken: 1 for examples that take part, 0 for others.
        clip: C.
    """
    try:
        return products_of(loss, vector, examples, taken, clip)
    except NoProducts:
        return written_down(loss, vector, examples, taken, clip)


def written_down(
    loss: SummedLoss,
    vector: Float[Array, " parameters"],
    examples: tuple[Float[Array, "_ n"], ...],
    taken: Float[Array, " n"],
    clip: float,
) -> Float[Array, " parameters"]:
    """`clipped_sum` of any loss: all gradients one beside the other."""
    alone = jax.tree.map(lambda one: one[..., None, :], examples)
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, -1))(vector, alone)
    factors = clip_factors(jnp.sum(gradients**2, axis=1), clip, taken)
    # 0 · ∞ is no number: gradients that are not finite are left out before the product.
    return factors @ jnp.where(factors[:, None] > 0, gradients, 0.0)


def products_of(
    loss: SummedLoss,
    vector: Float[Array, " parameters"],
    examples: tuple[Float[Array, "_ n"], ...],
    taken: Float[Array, " n"],
    clip: float,
) -> Float[Array, " parameters"]:
    """`clipped_sum` of a loss that uses weights in products and biases only.

    Columns that are multiplied by weights are whole blocks of examples: the first n columns belong
    to examples 1 … n, the next n columns again, and so on.
    """
    n = len(taken)
    found = _Found()

    def tapped(taps: Sequence[Array] | None) -> tuple[Any, list[Array]]:
        closed = jax.make_jaxpr(loss)(vector, examples)
        inputs: list[Array] = []
        every = _Entries(np.arange(vector.size), vector)
        walk = _Walk(taps, found, inputs)
        (result,) = walk.run(closed, [every, *jax.tree.leaves(examples)])
        return result, inputs

    jax.eval_shape(lambda: tapped(None))  # finds the uses
    if any(columns % n for columns in found.columns):
        raise NoProducts("columns that are no whole blocks of examples")
    shapes = [(len(p), m) for p, m in zip(found.places, found.columns, strict=True)]
    zeros = [jnp.zeros(shape, vector.dtype) for shape in shapes]
    slopes, inputs = jax.grad(tapped, has_aux=True)(zeros)
    groups = _groups(found.places, vector.size)

    def blocks(side: Sequence[Array], uses: Sequence[int]) -> Array:
        return jnp.concatenate([side[u].reshape(len(side[u]), -1, n) for u in uses], axis=1)

    joined = [(blocks(slopes, uses), blocks(inputs, uses)) for uses in groups]
    squares = _squares(joined)
    factors = clip_factors(squares, clip, taken)

    def added(clean: Callable[[Array], Array]) -> Array:
        parts = []
        for delta, a in joined:
            left, right = (delta * factors, a) if len(delta) < len(a) else (delta, a * factors)
            left, right = (clean(one).reshape(len(one), -1) for one in (left, right))
            parts.append(left @ right.T)
        return jnp.concatenate([jnp.ravel(part) for part in parts])

    # 0 · ∞ is no number: what is not finite is left out before the product, where there is any.
    flat = jax.lax.cond(
        jnp.isfinite(jnp.sum(squares)),
        lambda: added(lambda part: part),
        lambda: added(lambda part: jnp.where(factors > 0, part, 0.0)),
    )
    order = np.concatenate([found.places[uses[0]].ravel() for uses in groups])
    if len(order) < vector.size:  # weights that the loss does not use have no gradient
        missing = np.setdiff1d(np.arange(vector.size), order)
        order, flat = np.concatenate([order, missing]), jnp.pad(flat, (0, len(missing)))
    in_order = (order == np.arange(vector.size)).all()
    return flat if in_order else flat[np.argsort(order)]


def _squares(
    joined: Sequence[tuple[Float[Array, "out m n"], Float[Array, "in m n"]]],
) -> Float[Array, " n"]:
    """‖g_i‖² of every example, from δ and a of all products.

    All sums over rows are one product with a matrix of zeros and ones: XLA:CPU pays for every
    kernel, and a reduction for each pair of each product would take longer than training.
    """
    total = jnp.zeros(joined[0][0].shape[2], joined[0][0].dtype)
    for m in sorted({delta.shape[1] for delta, _ in joined}):
        some = [one for one in joined if one[0].shape[1] == m]
        pairs = [(u, v) for u in range(m) for v in range(u, m)]
        sides = []
        for rows in zip(*some, strict=True):
            every, sizes = jnp.concatenate(rows), [len(one) for one in rows]
            which = np.repeat(np.eye(len(rows)), sizes, axis=1)
            products = jnp.concatenate([every[:, u] * every[:, v] for u, v in pairs], axis=1)
            sides.append(jnp.asarray(which, every.dtype) @ products)
        shared = (sides[0] * sides[1]).reshape(len(some), len(pairs), -1)
        twice = jnp.asarray([1.0 if u == v else 2.0 for u, v in pairs], shared.dtype)
        total = total + jnp.sum(shared * twice[:, None], axis=(0, 1))
    return total


def _groups(places: Sequence[NDArray[np.int64]], size: int) -> list[list[int]]:
    """Uses of the same weights together; different uses must not share some weights only."""
    found: dict[tuple[tuple[int, ...], bytes], list[int]] = {}
    for use, place in enumerate(places):
        found.setdefault((place.shape, place.tobytes()), []).append(use)
    every = np.concatenate([places[uses[0]].ravel() for uses in found.values()])
    if np.bincount(every, minlength=size).max() > 1:
        raise NoProducts("two uses share some of their weights")
    return sorted(found.values(), key=lambda uses: int(places[uses[0]].flat[0]))


class _Entries(NamedTuple):
    """Some of the weights: their places in the vector, and their values."""

    place: NDArray[np.int64]
    value: Array


class _Walk:
    """Computes a loss operation by operation, adding a tap where weights enter."""

    def __init__(self, taps: Sequence[Array] | None, found: _Found, inputs: list[Array]) -> None:
        self._taps, self._found, self._inputs = taps, found, inputs

    def run(self, closed: ClosedJaxpr, values: Sequence[Any]) -> list[Any]:
        """The results, none of which may be weights themselves."""
        return self._run(closed.jaxpr, closed.consts, values)

    def _run(self, jaxpr: Jaxpr, constants: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
        known |= dict(zip(jaxpr.invars, values, strict=True))
        for equation in jaxpr.eqns:
            given = [v.val if isinstance(v, Literal) else known[v] for v in equation.invars]
            found = self._step(equation, given)
            known |= dict(zip(equation.outvars, found, strict=True))
        return [v.val if isinstance(v, Literal) else known[v] for v in jaxpr.outvars]

    def _step(self, equation: Any, given: list[Any]) -> list[Any]:
        primitive, name, options = equation.primitive, equation.primitive.name, equation.params
        ours = [isinstance(value, _Entries) for value in given]
        if not any(ours):
            return _computed(primitive, given, options)
        if name in _CALLS:
            inner = options["jaxpr"] if "jaxpr" in options else options["call_jaxpr"]
            return self._run(inner.jaxpr, inner.consts, given)
        if name in _VIEWS:
            values = _computed(primitive, [given[0].value], options)
            with jax.ensure_compile_time_eval():
                places = _computed(primitive, [jnp.asarray(given[0].place, jnp.int32)], options)
            return [_Entries(np.asarray(p), v) for p, v in zip(places, values, strict=True)]
        if name == "dot_general" and ours == [True, False]:
            (left, right), batched = options["dimension_numbers"]
            plain = (tuple(left), tuple(right), *map(len, batched)) == ((1,), (0,), 0, 0)
            if plain and given[0].place.ndim == 2 and given[1].ndim == 2:
                (z,) = _computed(primitive, [given[0].value, given[1]], options)
                return [self._tapped(given[0].place, given[1], z)]
        if name in ("add", "add_any") and sum(ours) == 1:
            return [self._bias(given[ours.index(True)], given[ours.index(False)])]
        raise NoProducts(f"weights enter by {name}")

    def _bias(self, bias: _Entries, z: Float[Array, "out m"]) -> Float[Array, "out m"]:
        """z + b, b being the same for every column: [b] times a row of ones."""
        place = bias.place
        if z.ndim != 2 or place.shape not in (z.shape, (len(z), 1)):
            raise NoProducts("a bias of another shape")
        if (place != place[:, :1]).any():
            raise NoProducts("a bias that differs from column to column")
        ones = jnp.ones((1, z.shape[1]), z.dtype)
        return self._tapped(place[:, :1], ones, z + bias.value)

    def _tapped(self, place: NDArray[np.int64], a: Array, z: Array) -> Array:
        self._inputs.append(a)
        if self._taps is None:
            self._found.places.append(np.ascontiguousarray(place))
            self._found.columns.append(a.shape[1])
            return z
        return z + self._taps[len(self._inputs) - 1]


def _computed(primitive: Any, given: Sequence[Any], options: dict[str, Any]) -> list[Any]:
    """What an operation gives."""
    functions, chosen = (), primitive.get_bind_params(options)
    if isinstance(chosen, tuple):  # JAX before 0.10
        functions, chosen = chosen
    found = primitive.bind(*functions, *given, **chosen)
    return list(found) if primitive.multiple_results else [found]
