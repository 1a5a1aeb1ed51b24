"""A site's loss on some states, as an attacker who knows the study computes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from fedkoopman.audit.watching import Update
from fedkoopman.federation.algorithm import Problem
from fedkoopman.federation.messages import Arrays
from fedkoopman.koopman.kind import Kind
from fedkoopman.koopman.staged import Staged

__all__ = ["LocalLoss", "flat", "trained_updates", "windows"]


def trained_updates(problem: Problem, updates: Sequence[Update]) -> list[Update]:
    """Those that were trained by gradients, and not summed."""
    schemas = problem.algorithm.messages(problem)
    return [update for update in updates if schemas[update.reply.kind].changes]


def windows(
    kind: Kind, states: Float[Array, "time state"], starts: NDArray[Any] | Int[Array, " n"]
) -> tuple[Float[Array, "input n"], tuple[Float[Array, "input n"], ...]]:
    """Windows of a trajectory in columns, and for each lead those that follow."""

    def at(first: Any) -> Float[Array, "input n"]:
        return jnp.concatenate([states[first + i].T for i in range(kind.window)], axis=0)

    return at(starts), tuple(at(starts + lead) for lead in kind.leads)


def starts_in(kind: Kind, length: int) -> NDArray[np.int64]:
    """Where windows with their targets start in a trajectory."""
    return np.arange(length - kind.window - max(kind.leads) + 1)


def flat(arrays: Arrays) -> NDArray[np.float64]:
    """All entries of named arrays, one after the other."""
    return np.concatenate([np.ravel(np.float64(leaf)) for leaf in arrays.values()])


@dataclass(frozen=True)
class LocalLoss:
    """The loss of the weights that a request asked to train; hashable, to choose what is compiled.

    Attributes:
        kind: of the model.
        shares: w₁, w₂, w₃.
        names, shapes: of the weights, in the order of `flat`.
    """

    kind: Kind
    shares: tuple[float, float, float]
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, problem: Problem, update: Update) -> "LocalLoss":
        """From what server and site said."""
        reply = update.reply.arrays
        shapes = tuple(np.shape(leaf) for leaf in reply.values())
        return cls(problem.architecture, problem.training.loss_weights, tuple(reply), shapes)

    def given(self, update: Update) -> tuple[NDArray[np.float64], dict[str, NDArray[Any]]]:
        """What a request holds: the weights to be trained, and what the loss needs beside them."""
        arrays = update.request.arrays
        fixed = {name: np.asarray(leaf) for name, leaf in arrays.items() if name not in self.names}
        return flat({name: arrays[name] for name in self.names}), fixed

    def weights(self, vector: Float[Array, " parameters"]) -> Any:
        """The tree of weights of a flat vector."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1].tolist()
        parts = jnp.split(vector, ends)
        named = {
            name: part.reshape(shape)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }
        return named if isinstance(self.kind, Staged) else self.kind.from_named(named)

    def __call__(
        self,
        vector: Float[Array, " parameters"],
        fixed: Mapping[str, Any],
        x: Float[Array, "input n"],
        ahead: tuple[Float[Array, "input n"], ...],
        shares: tuple[float, float, float] | None = None,
    ) -> Float[Array, ""]:
        """The mean loss of windows."""
        one = jnp.full(x.shape[1], 1 / x.shape[1], vector.dtype)
        return self.kind.loss(self.weights(vector), fixed, x, ahead, one, shares or self.shares)

    def gradient(
        self,
        vector: Float[Array, " parameters"],
        fixed: Mapping[str, Any],
        states: Float[Array, "time state"],
    ) -> Float[Array, " parameters"]:
        """By the weights, of all windows of one trajectory."""
        x, ahead = windows(self.kind, states, starts_in(self.kind, len(states)))
        return jax.grad(lambda w: self(w, fixed, x, ahead))(vector)
