"""The deep Koopman network (Section IV-A): encoder φ, operator K, decoder φ⁻¹.

Inside, samples are columns: φ maps windows (d_X, n) to lifted states (O, n), and K acts from the
left, as in the paper.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fedkoopman.errors import InputError, unknown_name
from fedkoopman.systems.checks import check_count
from fedkoopman.user_code import calling, finished

__all__ = [
    "ACTIVATIONS",
    "Architecture",
    "Layer",
    "Weights",
    "decode",
    "encode",
    "initialise",
    "named",
]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "leaky_relu": jax.nn.leaky_relu,
    "elu": jax.nn.elu,
    "selu": jax.nn.selu,
    "celu": jax.nn.celu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "mish": jax.nn.mish,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "softplus": jax.nn.softplus,
    "softsign": jax.nn.soft_sign,
    "sin": jnp.sin,
    "identity": lambda x: x,
}
"""The nonlinearities between hidden layers, by name."""

MOST_WEIGHTS = 2**28
"""A model file has at most 1 GiB."""
OPERATOR_STD = 0.01
"""K ~ N(0, 10⁻⁴)."""


@dataclass(frozen=True)
class Architecture:
    """The shape of a network; hashable, so that it may choose what is compiled.

    Attributes:
        state_dim: d_x.
        components: O, the dimension of the lifted state.
        hidden_layers: Z, of the encoder and of the decoder.
        width: H.
        activation: a name in `ACTIVATIONS`, or a function written with `jax.numpy`.
        window: μ, the number of consecutive states in one input.
        depth: τ, the number of samples that one application of K advances.
    """

    state_dim: int
    components: int
    hidden_layers: int = 1
    width: int = 30
    activation: str | Callable[[Any], Any] = "relu"
    window: int = 1
    depth: int = 1

    def __post_init__(self) -> None:
        for name in ("state_dim", "components", "width", "window", "depth"):
            check_count(getattr(self, name), name)
        check_count(self.hidden_layers, "hidden_layers", least=0)
        if isinstance(self.activation, str) and self.activation not in ACTIVATIONS:
            raise unknown_name("activation", self.activation, ACTIVATIONS)

    def check_size(self) -> None:
        """Refuse a network that no memory could hold, before anything is allocated."""
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
    def input_dim(self) -> int:
        """d_X = μ d_x."""
        return self.window * self.state_dim

    @property
    def encoder_dims(self) -> tuple[int, ...]:
        """Dimensions from the encoder's input to its output; the decoder's are these reversed."""
        return (self.input_dim, *(self.width,) * self.hidden_layers, self.components)

    def activate(self, x: Array) -> Array:
        """The nonlinearity."""
        if isinstance(self.activation, str):
            return ACTIVATIONS[self.activation](x)
        with calling(self.activation, "the activation failed"):
            result: Array = finished(self.activation(x))
            return result

    @property
    def template(self) -> "Weights":
        """Weights of the right shapes, whose values mean nothing."""
        self.check_size()

        def chain(dims: tuple[int, ...]) -> tuple[Layer, ...]:
            return tuple(Layer(np.zeros((after, before + 1))) for before, after in pairwise(dims))

        square = np.zeros((self.components, self.components))
        return Weights(chain(self.encoder_dims), square, chain(self.encoder_dims[::-1]))


class Layer(NamedTuple):
    """One affine layer, x ↦ W x + b, as the single matrix [W b].

    The gradient of the bias then comes out of the product for the weight's; apart, it is a
    reduction of its own, and XLA:CPU pays for every kernel.
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


def named(weights: Weights) -> dict[str, Any]:
    """The leaves by name, in the order of the tree."""
    found = {f"encoder.{i}": layer.matrix for i, layer in enumerate(weights.encoder)}
    found["operator"] = weights.operator
    return found | {f"decoder.{i}": layer.matrix for i, layer in enumerate(weights.decoder)}


def initialise(architecture: Architecture, *, seed: int, dtype: Any = np.float32) -> Weights:
    """He initialisation: weights N(0, 2/fan-in), biases 0, K ~ N(0, 10⁻⁴), as NumPy arrays.

    Drawn in float64, so that both precisions start from the same numbers.
    """
    random, template = np.random.default_rng(seed), architecture.template

    def layer(like: Layer) -> Layer:
        std = math.sqrt(2 / like.weight.shape[1])
        weight = random.normal(0, std, like.weight.shape)
        return Layer(np.concatenate([weight, np.zeros((len(weight), 1))], axis=1).astype(dtype))

    return Weights(
        tuple(map(layer, template.encoder)),
        random.normal(0, OPERATOR_STD, template.operator.shape).astype(dtype),
        tuple(map(layer, template.decoder)),
    )


def encode(
    architecture: Architecture, weights: Weights, x: Float[Array, "input n"]
) -> Float[Array, "lifted n"]:
    """Y = φ(X)."""
    return _perceptron(architecture, weights.encoder, x)


def decode(
    architecture: Architecture, weights: Weights, y: Float[Array, "lifted n"]
) -> Float[Array, "input n"]:
    """X = φ⁻¹(Y)."""
    return _perceptron(architecture, weights.decoder, y)


def _perceptron(architecture: Architecture, layers: tuple[Layer, ...], x: Array) -> Array:
    *hidden, last = layers
    for layer in hidden:
        x = architecture.activate(layer(x))
    return last(x)
