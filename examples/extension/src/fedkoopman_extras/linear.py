"""A model kind: the state itself, and linear features after it.

In a study: network.kind = "linear". Of the keys of [network] it has components, window and depth.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from fedkoopman import InputError
from fedkoopman.koopman.kind import Kind, Shapes
from fedkoopman.koopman.losses import Losses, koopman_losses
from fedkoopman.koopman.onnx import Graph

__all__ = ["KIND", "Linear"]

Weights = Mapping[str, Any]


@dataclass(frozen=True)
class Linear(Kind):
    """φ(x) = [x; F x], of which φ⁻¹ is a projection; F and K are learned, K from the identity.

    Attributes:
        scale: standard deviation of the entries of F before training.
    """

    name: ClassVar[str] = "linear"

    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.components < self.input_dim:
            raise InputError(f"components is {self.components}: give {self.input_dim} or more")

    def shapes(self) -> Shapes:
        """The names and shapes of all that is learned."""
        yield "operator", (self.components, self.components)
        yield "features", (self.components - self.input_dim, self.input_dim)

    def initialise(self, *, seed: int, dtype: Any = np.float32) -> Weights:
        """K = I, and random features."""
        shape = dict(self.shapes())["features"]
        features = np.random.default_rng(seed).normal(0, self.scale, shape)
        weights = {"operator": np.eye(self.components), "features": features}
        return {name: leaf.astype(dtype) for name, leaf in weights.items()}

    def lift(self, weights: Weights, x: Array) -> Array:
        """φ, for one window per column."""
        return jnp.concatenate([x, weights["features"] @ x])

    def operator(self, weights: Weights) -> Array:
        """K."""
        return weights["operator"]

    def decode(self, weights: Weights, y: Array) -> Array:
        """φ⁻¹."""
        return y[: self.input_dim]

    def losses(self, weights: Weights, x: Array, target: Array, share: Any = None) -> Losses:
        """What training minimises; a kind that is solved in closed form leaves this out."""
        lift, decode = partial(self.lift, weights), partial(self.decode, weights)
        return koopman_losses(lift, weights["operator"], decode, x, target, share)

    def lift_graph(self, g: Graph, weights: Weights, x: str) -> str:
        """φ in ONNX, where samples are rows."""
        features = g.constant(np.transpose(weights["features"]), "features")
        return g.add("Concat", x, g.add("MatMul", x, features), axis=-1)

    def decode_graph(self, g: Graph, weights: Weights, y: str) -> str:
        """The newest state of φ⁻¹ in ONNX."""
        newest = np.eye(self.components)[:, self.input_dim - self.state_dim : self.input_dim]
        return g.add("MatMul", y, g.constant(newest, "newest"))


KIND = Linear
