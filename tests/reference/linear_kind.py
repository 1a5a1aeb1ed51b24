"""A small model kind of a user's own: the window itself, and linear features after it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from fedkoopman.errors import InputError
from fedkoopman.koopman.kind import Kind
from fedkoopman.koopman.losses import koopman_losses


@dataclass(frozen=True)
class Linear(Kind):
    """φ(x) = [x; F x], of which φ⁻¹ is a projection; F and K are learned, K from the identity."""

    name: ClassVar[str] = "linear"

    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.components < self.input_dim:
            raise InputError(f"components is {self.components}: give {self.input_dim} or more")

    def shapes(self):
        yield "operator", (self.components, self.components)
        yield "features", (self.components - self.input_dim, self.input_dim)

    def initialise(self, *, seed: int, dtype: Any = np.float32) -> Any:
        shapes = dict(self.shapes())
        features = np.random.default_rng(seed).normal(0, self.scale, shapes["features"])
        return {
            "operator": np.eye(self.components, dtype=dtype),
            "features": features.astype(dtype),
        }

    def lift(self, weights, x):
        return jnp.concatenate([x, weights["features"] @ x])

    def operator(self, weights):
        return weights["operator"]

    def decode(self, weights, y):
        return y[: self.input_dim]

    def losses(self, weights, x, target, share=None):
        lift, decode = partial(self.lift, weights), partial(self.decode, weights)
        return koopman_losses(lift, weights["operator"], decode, x, target, share)

    def lift_graph(self, g, weights, x):
        features = g.constant(np.transpose(weights["features"]), "features")
        return g.add("Concat", x, g.add("MatMul", x, features), axis=-1)

    def decode_graph(self, g, weights, y):
        newest = np.eye(self.components)[:, self.input_dim - self.state_dim : self.input_dim]
        return g.add("MatMul", y, g.constant(newest, "newest"))


@dataclass(frozen=True)
class LeastSquares(Linear):
    """The same model in closed form: K by least squares, with the features as they are drawn."""

    name: ClassVar[str] = "least-squares"

    losses = Kind.losses  # it has none

    def solved(self, weights: Mapping[str, Any], x: Any) -> Any:
        """The weights for one trajectory (T, d)."""
        y = np.asarray(self.lift(weights, x.T))
        operator = np.linalg.lstsq(y[:, :-1].T, y[:, 1:].T, rcond=None)[0].T
        return {**weights, "operator": operator.astype(y.dtype)}
