"""A model as one ONNX graph, for programs that have neither Python nor JAX.

    x      (batch, μ d)         windows of states, oldest first
  → lifted (batch, O)           φ(x)
    next   (batch, d)           the newest state of φ⁻¹(K φ(x))
    ahead  (batch, steps, d)    the same after 1, 2, … steps applications of K

The graph has the precision of the model's weights, while Python evaluates every model in float64.
Activations are written out in operations that runtimes know in both precisions: ONNX's own `Elu`,
`Gelu`, `Mish`, … hold their constants in float32, and onnxruntime has them in float32 alone.
"""

import json
import math
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fedkoopman.durable import write_whole
from fedkoopman.errors import InputError, short
from fedkoopman.koopman.fitted import Fitted
from fedkoopman.koopman.learned import Learned
from fedkoopman.systems.checks import check_count
from fedkoopman.version import __version__

__all__ = ["ACTIVATIONS", "to_onnx", "write_onnx"]

OPSET, IR_VERSION = 17, 8
"""Of 2022: what has been written since needs nothing newer."""


class _Graph:
    """Nodes and constants as they are added; values are known by their names."""

    def __init__(self, onnx: Any, dtype: np.dtype[Any]) -> None:
        self.onnx, self.dtype = onnx, dtype
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def add(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """A node; returns the name of its output."""
        output = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, value: Any, name: str = "") -> str:
        """A number or array in the graph's precision."""
        name = name or f"constant_{value!r}"
        array = np.asarray(value, self.dtype)
        self.constants[name] = self.onnx.numpy_helper.from_array(array, name)
        return name

    def scaled(self, x: str, factor: float) -> str:
        return self.add("Mul", x, self.constant(factor))

    def shifted(self, x: str, by: float) -> str:
        return self.add("Add", x, self.constant(by))


def _leaky_relu(g: _Graph, x: str) -> str:
    return g.add("Max", x, g.scaled(x, 0.01))


def _exponential(above: float, below: float) -> Callable[[_Graph, str], str]:
    """above · x for x > 0, below · (exp x − 1) elsewhere.

    Both are scaled before they are added: a factor at the end onnxruntime would move into the
    product that follows, where it keeps it in float32.
    """

    def activation(g: _Graph, x: str) -> str:
        curve = g.shifted(g.add("Exp", g.add("Min", x, g.constant(0.0))), -1.0)
        return g.add("Add", g.scaled(g.add("Relu", x), above), g.scaled(curve, below))

    return activation


def _gelu(g: _Graph, x: str) -> str:
    """x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))), the form that JAX takes by default."""
    cube = g.add("Mul", x, g.add("Mul", x, x))
    inner = g.scaled(g.add("Add", x, g.scaled(cube, 0.044715)), math.sqrt(2 / math.pi))
    return g.scaled(g.add("Mul", x, g.shifted(g.add("Tanh", inner), 1.0)), 0.5)


def _softplus(g: _Graph, x: str) -> str:
    """max(x, 0) + log(1 + exp(−|x|)), in which nothing overflows."""
    small = g.add("Exp", g.add("Neg", g.add("Abs", x)))
    return g.add("Add", g.add("Relu", x), g.add("Log", g.shifted(small, 1.0)))


def _softsign(g: _Graph, x: str) -> str:
    return g.add("Div", x, g.shifted(g.add("Abs", x), 1.0))


ACTIVATIONS: dict[str, Callable[[_Graph, str], str]] = {
    "relu": lambda g, x: g.add("Relu", x),
    "leaky_relu": _leaky_relu,
    "elu": _exponential(1.0, 1.0),
    "selu": _exponential(1.0507009873554805, 1.0507009873554805 * 1.6732632423543772),
    "celu": _exponential(1.0, 1.0),
    "gelu": _gelu,
    "silu": lambda g, x: g.add("Mul", x, g.add("Sigmoid", x)),
    "mish": lambda g, x: g.add("Mul", x, g.add("Tanh", _softplus(g, x))),
    "tanh": lambda g, x: g.add("Tanh", x),
    "sigmoid": lambda g, x: g.add("Sigmoid", x),
    "softplus": _softplus,
    "softsign": _softsign,
    "sin": lambda g, x: g.add("Sin", x),
    "identity": lambda g, x: x,
}
"""The network's activations by name, as parts of a graph; a test compares the names."""


def write_onnx(path: str | os.PathLike[str], model: Fitted, *, steps: int = 1) -> None:
    """Write the graph to a file, whole or not at all."""
    write_whole(Path(path), to_onnx(model, steps=steps))


def to_onnx(model: Fitted, *, steps: int = 1) -> bytes:
    """The graph as an ONNX file's content.

    Arguments:
        steps: how many applications of K the output `ahead` holds.
    """
    onnx, learned = _library(), model.learned_
    steps = check_count(steps, "steps")
    architecture = learned.architecture
    if not isinstance(architecture.activation, str) or architecture.activation not in ACTIVATIONS:
        raise InputError(
            f"the activation {short(architecture.activation)} is a function of your own, which "
            f"ONNX does not know: train with one of {', '.join(ACTIVATIONS)}"
        )
    g = _Graph(onnx, np.dtype(np.asarray(learned.weights.operator).dtype))
    _fill(g, learned)
    g.constants["steps"] = onnx.numpy_helper.from_array(np.asarray(steps, np.int64), "steps")
    content: bytes = _model(g, learned, steps).SerializeToString()
    return content


def _library() -> Any:
    try:
        return import_module("onnx")
    except ImportError:
        raise InputError(
            "writing ONNX needs the package onnx, which is not installed: "
            "pip install 'fedkoopman[onnx]'"
        ) from None


def _fill(g: _Graph, learned: Learned) -> None:
    """Encoder, K once, K in a loop, and the decoder after each."""
    dim = learned.architecture.state_dim
    operator = g.constant(np.transpose(learned.weights.operator), "operator")
    activation = ACTIVATIONS[str(learned.architecture.activation)]

    def perceptron(x: str, layers: list[tuple[str, str]], name: str = "") -> str:
        *hidden, last = layers
        for weight, bias in hidden:
            x = activation(g, g.add("Add", g.add("MatMul", x, weight), bias))
        return g.add("Add", g.add("MatMul", x, last[0]), last[1], name=name)

    def layers(part: str, newest: int | None = None) -> list[tuple[str, str]]:
        names = []
        matrices = [np.asarray(layer.matrix) for layer in getattr(learned.weights, part)]
        if newest is not None:  # of a window, only the newest state is asked for
            matrices[-1] = matrices[-1][-newest:]
        for i, matrix in enumerate(matrices):
            weight = g.constant(matrix[:, :-1].T, f"{part}.{i}.weight")
            names.append((weight, g.constant(matrix[:, -1], f"{part}.{i}.bias")))
        return names

    perceptron("x", layers("encoder"), name="lifted")
    decoder = layers("decoder", newest=dim)
    perceptron(g.add("MatMul", "lifted", operator), decoder, name="next")
    every = _loop(g, operator, learned.architecture.components)
    perceptron(g.add("Transpose", every, perm=[1, 0, 2]), decoder, name="ahead")


def _loop(g: _Graph, operator: str, components: int) -> str:
    """K applied `steps` times; all the lifted states, (steps, batch, O)."""
    helper, kind = g.onnx.helper, g.onnx.TensorProto
    number = helper.np_dtype_to_tensor_dtype(g.dtype)
    shape = ["batch", components]
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["before", operator], ["after"]),
            helper.make_node("Identity", ["after"], ["kept"]),
            helper.make_node("Identity", ["go_on"], ["still"]),
        ],
        "one_step",
        [
            helper.make_tensor_value_info("i", kind.INT64, []),
            helper.make_tensor_value_info("go_on", kind.BOOL, []),
            helper.make_tensor_value_info("before", number, shape),
        ],
        [
            helper.make_tensor_value_info("still", kind.BOOL, []),
            helper.make_tensor_value_info("after", number, shape),
            helper.make_tensor_value_info("kept", number, shape),
        ],
    )
    g.nodes.append(helper.make_node("Loop", ["steps", "", "lifted"], ["last", "every"], body=body))
    return "every"


def _model(g: _Graph, learned: Learned, steps: int) -> Any:
    onnx, helper = g.onnx, g.onnx.helper
    number = helper.np_dtype_to_tensor_dtype(g.dtype)
    architecture = learned.architecture
    dim, components = architecture.state_dim, architecture.components

    def value(name: str, *shape: str | int) -> Any:
        return helper.make_tensor_value_info(name, number, shape)

    graph = helper.make_graph(
        g.nodes,
        "fedkoopman",
        [value("x", "batch", architecture.input_dim)],
        [
            value("lifted", "batch", components),
            value("next", "batch", dim),
            value("ahead", "batch", steps, dim),
        ],
        list(g.constants.values()),
    )
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="fedkoopman",
        producer_version=__version__,
    )
    about = {
        "dt": learned.dt,
        "depth": architecture.depth,
        "window": architecture.window,
        "names": learned.names,
        "units": learned.units,
    }
    helper.set_model_props(made, {name: json.dumps(thing) for name, thing in about.items()})
    onnx.checker.check_model(made)
    return made
