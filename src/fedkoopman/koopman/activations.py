"""Activations by name, each as a JAX function and as operations of an ONNX graph.

In the graph they are written out in operations that runtimes know in both precisions: ONNX's own
`Elu`, `Gelu`, `Mish`, … hold their constants in float32, and onnxruntime has them in float32 alone.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from fedkoopman.koopman.onnx import Graph


class Activation(NamedTuple):
    """A nonlinearity between hidden layers."""

    function: Callable[[Array], Array]
    graph: Callable[[Graph, str], str]
    """Adds it to a graph, for the value of a name; returns the name of its output."""


def _leaky_relu(g: Graph, x: str) -> str:
    return g.add("Max", x, g.scaled(x, 0.01))


def _exponential(above: float, below: float) -> Callable[[Graph, str], str]:
    """above · x for x > 0, below · (exp x − 1) elsewhere.

    Both are scaled before they are added: onnxruntime would move a factor at the end into the
    product that follows, where it keeps it in float32.
    """

    def activation(g: Graph, x: str) -> str:
        curve = g.shifted(g.add("Exp", g.add("Min", x, g.constant(0.0))), -1.0)
        return g.add("Add", g.scaled(g.add("Relu", x), above), g.scaled(curve, below))

    return activation


def _gelu(g: Graph, x: str) -> str:
    """x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))), the form that JAX takes by default."""
    cube = g.add("Mul", x, g.add("Mul", x, x))
    inner = g.scaled(g.add("Add", x, g.scaled(cube, 0.044715)), math.sqrt(2 / math.pi))
    return g.scaled(g.add("Mul", x, g.shifted(g.add("Tanh", inner), 1.0)), 0.5)


def _softplus(g: Graph, x: str) -> str:
    """max(x, 0) + log(1 + exp(−|x|)), in which nothing overflows."""
    small = g.add("Exp", g.add("Neg", g.add("Abs", x)))
    return g.add("Add", g.add("Relu", x), g.add("Log", g.shifted(small, 1.0)))


def _softsign(g: Graph, x: str) -> str:
    return g.add("Div", x, g.shifted(g.add("Abs", x), 1.0))


SELU, SELU_BELOW = 1.0507009873554805, 1.0507009873554805 * 1.6732632423543772

ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(jax.nn.relu, lambda g, x: g.add("Relu", x)),
    "leaky_relu": Activation(jax.nn.leaky_relu, _leaky_relu),
    "elu": Activation(jax.nn.elu, _exponential(1.0, 1.0)),
    "selu": Activation(jax.nn.selu, _exponential(SELU, SELU_BELOW)),
    "celu": Activation(jax.nn.celu, _exponential(1.0, 1.0)),
    "gelu": Activation(jax.nn.gelu, _gelu),
    "silu": Activation(jax.nn.silu, lambda g, x: g.add("Mul", x, g.add("Sigmoid", x))),
    "mish": Activation(jax.nn.mish, lambda g, x: g.add("Mul", x, g.add("Tanh", _softplus(g, x)))),
    "tanh": Activation(jnp.tanh, lambda g, x: g.add("Tanh", x)),
    "sigmoid": Activation(jax.nn.sigmoid, lambda g, x: g.add("Sigmoid", x)),
    "softplus": Activation(jax.nn.softplus, _softplus),
    "softsign": Activation(jax.nn.soft_sign, _softsign),
    "sin": Activation(jnp.sin, lambda g, x: g.add("Sin", x)),
    "identity": Activation(lambda x: x, lambda g, x: x),
}
