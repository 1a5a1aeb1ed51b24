"""The paper's deep Koopman network (Section IV-A): encoder φ, operator K and decoder φ⁻¹."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fedkoopman.errors import InputError, short, unknown_name
from fedkoopman.koopman.activations import ACTIVATIONS
from fedkoopman.koopman.kind import Kind, Shapes
from fedkoopman.koopman.losses import Losses, koopman_losses
from fedkoopman.koopman.onnx import Graph
from fedkoopman.user_code import calling, finished

__all__ = ["KIND", "Layer", "PaperNetwork", "Weights"]

OPERATOR_STD = 0.01
"""K ~ N(0, 10⁻⁴)."""
MOST_WEIGHTS = 2**28
"""A model file has at most 1 GiB."""


class Layer(NamedTuple):
    """One affine layer, x ↦ W x + b, as the single matrix [W b].

    The gradient of the bias then comes out of the product for the weight's. Kept apart, it would
    be a reduction of its own, and XLA:CPU pays for every kernel.
    """

    matrix: Any
    """[W b], (out, in + 1)."""

    @property
    def weight(self) -> Any:
        """W, (out, in)."""
        return self.matrix[:, :-1]

    @property
    def bias(self) -> Any:
        """b, (out,)."""
        return self.matrix[:, -1]

    def __call__(self, x: Float[Array, "in n"]) -> Float[Array, "out n"]:
        """W x + b = [W b] [x; 1], for every column x."""
        return self.matrix @ jnp.concatenate([x, jnp.ones_like(x[:1])], axis=0)


class Weights(NamedTuple):
    """Everything that is learned: ω in the paper."""

    encoder: tuple[Layer, ...]
    operator: Any
    """K, (O, O)."""
    decoder: tuple[Layer, ...]
    input_matrix: Any = None
    """B, (O, m), of a driven system."""
    input_products: Any = None
    """All N_i, (m, O, O), of a bilinear model."""


@dataclass(frozen=True)
class PaperNetwork(Kind):
    """Perceptrons as encoder and decoder, and a matrix K, all learned together.

    Attributes:
        hidden_layers: Z, of the encoder and of the decoder.
        width: H.
        activation: a name in `ACTIVATIONS`, or a function written with `jax.numpy`.
    """

    name: ClassVar[str] = "paper"
    takes_inputs: ClassVar[bool] = True

    hidden_layers: int = 1
    width: int = 30
    activation: str | Callable[[Any], Any] = "relu"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settle_counts("width")
        self.settle_counts("hidden_layers", least=0)
        if isinstance(self.activation, str) and self.activation not in ACTIVATIONS:
            raise unknown_name("activation", self.activation, ACTIVATIONS)
        # By numbers alone: a list of layers might itself be too long.
        between = (self.hidden_layers - 1) * self.width * (self.width + 1)
        through = self.width * (self.input_dim + self.components + 2) + between
        layers = through if self.hidden_layers else (self.input_dim + 1) * (self.components + 1)
        if (weights := 2 * layers + self.components**2) > MOST_WEIGHTS:
            raise InputError(
                f"a network of {self.components} components, {self.hidden_layers} hidden layers of "
                f"{self.width} and a window of {self.window} has about {weights:.2g} weights: give "
                f"smaller numbers, for at most {MOST_WEIGHTS:,} weights"
            )

    @property
    def description(self) -> str:
        """Layers, width and activation."""
        hidden = self.hidden_layers
        named = self.activation if isinstance(self.activation, str) else "a function"
        layers = f"{hidden} hidden layer{'' if hidden == 1 else 's'} of {self.width}, {named}"
        return f"φ and φ⁻¹ are networks ({layers if hidden else 'no hidden layers'})"

    # The weights

    def shapes(self) -> Shapes:
        """Those of the encoder, K, and those of the decoder."""
        yield from self._layer_shapes("encoder")
        yield "operator", (self.components, self.components)
        yield from self._layer_shapes("decoder")
        yield from self.input_shapes()

    def _layer_shapes(self, part: str) -> Shapes:
        first, last = self.input_dim, self.components
        if part == "decoder":
            first, last = last, first
        before = first
        for i in range(self.hidden_layers + 1):
            after = last if i == self.hidden_layers else self.width
            yield f"{part}.{i}", (after, before + 1)
            before = after

    @staticmethod
    def named(weights: Weights) -> dict[str, Any]:
        """The matrices [W b] by their places, and K, in the order of the tree."""
        found = {f"encoder.{i}": layer.matrix for i, layer in enumerate(weights.encoder)}
        found["operator"] = weights.operator
        found |= {f"decoder.{i}": layer.matrix for i, layer in enumerate(weights.decoder)}
        driven = {name: getattr(weights, name) for name in ("input_matrix", "input_products")}
        return found | {name: leaf for name, leaf in driven.items() if leaf is not None}

    def assemble(self, tensors: Mapping[str, Any]) -> Weights:
        """The inverse of `named`."""

        def layers(part: str) -> tuple[Layer, ...]:
            return tuple(Layer(tensors[f"{part}.{i}"]) for i in range(self.hidden_layers + 1))

        driven = (tensors.get(name) for name in ("input_matrix", "input_products"))
        return Weights(layers("encoder"), tensors["operator"], layers("decoder"), *driven)

    def initialise(self, *, seed: int, dtype: Any = np.float32) -> Weights:
        """He initialisation: weights N(0, 2/fan-in), biases 0, K ~ N(0, 10⁻⁴); inputs do nothing.

        Drawn in float64, so that both precisions start from the same numbers.
        """
        random = np.random.default_rng(seed)

        def drawn(name: str, *shape: int) -> Any:
            if name.startswith("input"):
                return np.zeros(shape)
            rows, columns = shape
            if name == "operator":
                return random.normal(0, OPERATOR_STD, (rows, columns))
            weight = random.normal(0, math.sqrt(2 / (columns - 1)), (rows, columns - 1))
            return np.concatenate([weight, np.zeros((rows, 1))], axis=1)

        return self.assemble(
            {name: drawn(name, *shape).astype(dtype) for name, shape in self.shapes()}
        )

    # The model

    def activate(self, x: Array) -> Array:
        """The nonlinearity."""
        if isinstance(self.activation, str):
            return ACTIVATIONS[self.activation].function(x)
        with calling(self.activation, "the activation failed"):
            result: Array = finished(self.activation(x))
            return result

    def lift(self, weights: Weights, x: Float[Array, "input n"]) -> Float[Array, "lifted n"]:
        """Y = φ(X)."""
        return self._perceptron(weights.encoder, x)

    def operator(self, weights: Weights) -> Float[Array, "lifted lifted"]:
        """K."""
        return weights.operator

    def input_matrix(self, weights: Weights) -> Float[Array, "lifted inputs"]:
        """B."""
        return weights.input_matrix

    def input_products(self, weights: Weights) -> Float[Array, "inputs lifted lifted"]:
        """All N_i."""
        return weights.input_products

    def decode(self, weights: Weights, y: Float[Array, "lifted n"]) -> Float[Array, "input n"]:
        """X = φ⁻¹(Y)."""
        return self._perceptron(weights.decoder, y)

    def _perceptron(self, layers: tuple[Layer, ...], x: Array) -> Array:
        *hidden, last = layers
        for layer in hidden:
            x = self.activate(layer(x))
        return last(x)

    def losses(
        self,
        weights: Weights,
        x: Float[Array, "input n"],
        target: Float[Array, "input n"],
        share: Float[Array, " n"] | None = None,
        huber: float = 0.0,
        inputs: Float[Array, "inputs n"] | None = None,
    ) -> Losses:
        """ℓ1, ℓ2 and ℓ3."""
        lift, decode = partial(self.lift, weights), partial(self.decode, weights)
        driven = partial(self.advance, weights, u=inputs) if self.inputs else None
        return koopman_losses(lift, weights.operator, decode, x, target, share, huber, driven)

    @property
    def takes_huber(self) -> bool:
        """In the units of the states and of the lifted states."""
        return True

    # The model file: W and b apart

    def settings(self) -> dict[str, Any]:
        """The fields; an activation that is a function is refused."""
        if not isinstance(self.activation, str):
            raise InputError(
                f"the activation {short(self.activation)} is a function, which a model file cannot "
                "hold: use a named activation, or save model.weights_ yourself"
            )
        return super().settings()

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Self:
        """The network whose settings a file holds."""
        made = super().from_settings(settings)
        if not isinstance(made.activation, str):
            raise InputError(f"the activation is {short(made.activation)}: it must be a name")
        return made

    def file_shapes(self) -> Shapes:
        """K, and weight and bias of every layer."""
        yield "operator", (self.components, self.components)
        for part in ("encoder", "decoder"):
            for name, (rows, columns) in self._layer_shapes(part):
                yield f"{name}.weight", (rows, columns - 1)
                yield f"{name}.bias", (rows,)
        yield from self.input_shapes()

    def to_file(self, weights: Weights) -> dict[str, Any]:
        """K, and weight and bias of every layer."""
        found = {"operator": weights.operator}
        for part in ("encoder", "decoder"):
            for i, layer in enumerate(getattr(weights, part)):
                found |= {f"{part}.{i}.weight": layer.weight, f"{part}.{i}.bias": layer.bias}
        return found | {name: getattr(weights, name) for name, _ in self.input_shapes()}

    def from_file(self, tensors: Mapping[str, Any]) -> Weights:
        """The inverse of `to_file`."""

        def joined(name: str) -> Any:
            if name == "operator" or name.startswith("input"):
                return tensors[name]
            return np.column_stack([tensors[f"{name}.weight"], tensors[f"{name}.bias"]])

        return self.assemble({name: joined(name) for name, _ in self.shapes()})

    # The ONNX graph

    def lift_graph(self, g: Graph, weights: Weights, x: str) -> str:
        """The encoder."""
        return self._perceptron_graph(g, "encoder", [layer.matrix for layer in weights.encoder], x)

    def decode_graph(self, g: Graph, weights: Weights, y: str) -> str:
        """The decoder, whose last layer is cut to the newest state of the window."""
        *hidden, last = (layer.matrix for layer in weights.decoder)
        return self._perceptron_graph(g, "decoder", [*hidden, last[-self.state_dim :]], y)

    def _perceptron_graph(self, g: Graph, part: str, matrices: list[Any], x: str) -> str:
        if not isinstance(self.activation, str):
            raise InputError(
                f"the activation {short(self.activation)} is a function of your own, which ONNX "
                f"does not know: train with one of {', '.join(ACTIVATIONS)}"
            )
        for i, matrix in enumerate(matrices):
            x = g.affine(x, matrix[:, :-1], matrix[:, -1], f"{part}.{i}")
            if i < len(matrices) - 1:
                x = ACTIVATIONS[self.activation].graph(g, x)
        return x


KIND = PaperNetwork
