"""The state inside the lift: standardised states first, learned features after them.

    y = [u; g(u)],   y' = K y,   x = mean + std ∘ (first entries of y),   u = (x − mean) / std

g is a perceptron, trained together with K on the losses of linearity and prediction; the decoder is
a projection, so reconstruction is exact. K begins as the identity: the first model expects no
change. Sites agree on mean and std by counts, sums and squares before anybody trains.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.errors import InputError, unknown_name
from fedkoopman.koopman.activations import ACTIVATIONS
from fedkoopman.koopman.kind import Shapes
from fedkoopman.koopman.losses import Losses, koopman_losses
from fedkoopman.koopman.onnx import Graph
from fedkoopman.koopman.staged import Arrays, Staged, held_graph

__all__ = ["KIND", "Inclusive"]


@dataclass(frozen=True)
class Inclusive(Staged):
    """A network beside the state, and K, learned together.

    Attributes:
        hidden_layers, width: of the network; 0 layers make its features linear.
        activation: a name in `ACTIVATIONS`.
    """

    name: ClassVar[str] = "inclusive"
    linear_decoder: ClassVar[bool] = True

    hidden_layers: int = 1
    width: int = 30
    activation: str = "relu"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settle_counts("width")
        self.settle_counts("hidden_layers", least=0)
        if self.activation not in ACTIVATIONS:
            raise unknown_name("activation", self.activation, ACTIVATIONS)
        if self.components <= self.input_dim:
            raise InputError(
                f"components is {self.components}, but the state alone takes {self.input_dim} of "
                f"them: give more than {self.input_dim}"
            )

    @property
    def description(self) -> str:
        """Layers, width and activation."""
        layers = f"{self.hidden_layers} hidden layers of {self.width}, {self.activation}"
        return f"φ is the state and features of it (a network, {layers}), φ⁻¹ picks the state"

    @property
    def trains(self) -> bool:
        """The network and K."""
        return True

    def shapes(self) -> Shapes:
        """K, the network and the scale."""
        yield from self.feature_shapes()
        yield from self.fixed_shapes().items()

    def feature_shapes(self) -> Shapes:
        """K and the network, layer by layer as [W b]; B and N_i, where there are inputs."""
        yield "operator", (self.components, self.components)
        before = self.input_dim
        for i in range(self.hidden_layers + 1):
            last = i == self.hidden_layers
            after = self.components - self.input_dim if last else self.width
            yield f"encoder.{i}", (after, before + 1)
            before = after
        yield from self.input_shapes()

    def first_features(self, *, seed: int, dtype: Any = np.float32) -> dict[str, NDArray[Any]]:
        """K = I; weights N(0, 2/fan-in), biases 0; inputs do nothing."""
        random = np.random.default_rng(seed)
        found = {name: np.zeros(shape) for name, shape in self.feature_shapes()}
        for name, (rows, *more) in self.feature_shapes():
            if name == "operator":
                found[name] = np.eye(rows)
            elif name.startswith("encoder"):
                columns = more[0]
                weight = random.normal(0, math.sqrt(2 / (columns - 1)), (rows, columns - 1))
                found[name] = np.hstack([weight, np.zeros((rows, 1))])
        return {name: leaf.astype(dtype) for name, leaf in found.items()}

    def unsolved(self, fixed: Arrays, features: Arrays) -> dict[str, NDArray[np.float64]]:
        """Scale and network as they are."""
        return {**features, **{name: fixed[name] for name in self.fixed_shapes()}}

    def losses(
        self,
        weights: Mapping[str, Any],
        x: Float[Array, "input n"],
        target: Float[Array, "input n"],
        share: Float[Array, " n"] | None = None,
        huber: float = 0.0,
        inputs: Float[Array, "inputs n"] | None = None,
    ) -> Losses:
        """ℓ1, ℓ2 and ℓ3 of standardised states."""
        u, later = self.standardised(weights, x), self.standardised(weights, target)
        lift, d = partial(self._lifted, weights), self.input_dim
        operator = weights["operator"]
        driven = partial(self.advance, weights, u=inputs) if self.inputs else None
        return koopman_losses(lift, operator, lambda y: y[:d], u, later, share, huber, driven)

    @property
    def takes_huber(self) -> bool:
        """In standard deviations of the states."""
        return True

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
        """Their weighted sum, with the scale as it is."""
        inputs = ahead[-1] if self.inputs else None
        found = self.losses({**trained, **fixed}, x, ahead[0], share, huber, inputs)
        return found.weighted(loss_weights)

    def lift(
        self, weights: Mapping[str, Any], x: Float[Array, "input n"]
    ) -> Float[Array, "lifted n"]:
        """[u; g(u)]."""
        return self._lifted(weights, self.standardised(weights, x))

    def _lifted(self, weights: Mapping[str, Any], u: Array) -> Array:
        level = u
        for i in range(self.hidden_layers + 1):
            matrix = weights[f"encoder.{i}"]
            level = matrix[:, :-1] @ level + matrix[:, -1:]
            if i < self.hidden_layers:
                level = ACTIVATIONS[self.activation].function(level)
        return jnp.concatenate([u, level])

    def operator(self, weights: Mapping[str, Any]) -> Float[Array, "lifted lifted"]:
        """K."""
        return weights["operator"]

    def decode(
        self, weights: Mapping[str, Any], y: Float[Array, "lifted n"]
    ) -> Float[Array, "input n"]:
        """The first entries, in the states' units."""
        return self.restored(weights, y[: self.input_dim])

    def lift_graph(self, g: Graph, weights: Mapping[str, Any], x: str) -> str:
        """Scale and network."""
        u = held_graph(g, self, weights, x)
        level = u
        for i in range(self.hidden_layers + 1):
            matrix = np.asarray(weights[f"encoder.{i}"])
            level = g.affine(level, matrix[:, :-1], matrix[:, -1], f"encoder.{i}")
            if i < self.hidden_layers:
                level = ACTIVATIONS[self.activation].graph(g, level)
        return g.add("Concat", u, level, axis=-1)

    def decode_graph(self, g: Graph, weights: Mapping[str, Any], y: str) -> str:
        """The newest state."""
        return self.newest_graph(g, weights, y, self.input_dim - self.state_dim)


KIND = Inclusive
