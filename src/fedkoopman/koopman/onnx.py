"""A model as one ONNX graph, for programs that have neither Python nor JAX.

    x      (batch, μ d)         windows of states, oldest first
  → lifted (batch, O)           φ(x)
    next   (batch, d)           the newest state of φ⁻¹(K φ(x))
    ahead  (batch, steps, d)    the same after 1, 2, … steps applications of K

A driven system's model has a second input, u (batch, steps, m), the inputs of the steps to come;
windows x then begin with the inputs between their states (`koopman.kind`).

The model's kind writes φ and φ⁻¹, K is the same for all kinds. The graph has the precision of the
model's weights, while Python evaluates every model in float64.
"""

import json
import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkoopman.durable import write_whole
from fedkoopman.errors import InputError
from fedkoopman.systems.checks import check_count
from fedkoopman.version import __version__

if TYPE_CHECKING:  # model kinds, which these are built on, take Graph from here
    from fedkoopman.koopman.fitted import Fitted
    from fedkoopman.koopman.kind import Kind
    from fedkoopman.koopman.learned import Learned

OPSET, IR_VERSION = 17, 8
"""Of 2022: what has been written since needs nothing newer."""


class Graph:
    """A graph while it is built, to which a model kind adds its parts; values have names.

    Arguments:
        onnx: the package.
        dtype: the precision of all numbers.
    """

    def __init__(self, onnx: Any, dtype: np.dtype[Any]) -> None:
        self.onnx, self.dtype = onnx, dtype
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def add(self, operation: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node; returns the name of its output."""
        output = name or f"{operation.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operation, inputs, [output], **attributes))
        return output

    def constant(self, value: Any, name: str = "") -> str:
        """Add a number or array in the graph's precision; adding it again changes nothing."""
        name = name or f"constant_{value!r}"
        array = np.asarray(value, self.dtype)
        self.constants[name] = self.onnx.numpy_helper.from_array(array, name)
        return name

    def scaled(self, x: str, factor: float) -> str:
        """Add factor · x."""
        return self.add("Mul", x, self.constant(factor))

    def shifted(self, x: str, by: float) -> str:
        """Add x + by."""
        return self.add("Add", x, self.constant(by))

    def columns(self, x: str, places: Any) -> str:
        """Add the columns of x at some places."""
        name = f"places_{len(self.nodes)}"
        self.constants[name] = self.onnx.numpy_helper.from_array(np.asarray(places, np.int64), name)
        return self.add("Gather", x, name, axis=-1)

    def affine(self, x: str, matrix: Any, offset: Any, name: str) -> str:
        """Add x Wᵀ + b, for rows x.

        Arguments:
            matrix, offset: W (out, in) and b (out,).
            name: what the constants are called before ".weight" and ".bias".
        """
        weight = self.constant(np.transpose(matrix), f"{name}.weight")
        bias = self.constant(offset, f"{name}.bias")
        return self.add("Add", self.add("MatMul", x, weight), bias)


def write_onnx(path: str | os.PathLike[str], model: "Fitted", *, steps: int = 1) -> None:
    """Write the graph to a file, whole or not at all."""
    write_whole(Path(path), to_onnx(model, steps=steps))


def to_onnx(model: "Fitted", *, steps: int = 1) -> bytes:
    """The graph as an ONNX file's content.

    Arguments:
        steps: how many applications of K the output `ahead` holds.
    """
    onnx, learned = _library(), model.learned_
    steps = check_count(steps, "steps")
    g = Graph(onnx, np.dtype(learned.training.precision))
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


def _fill(g: Graph, learned: "Learned") -> None:
    """φ, one step, steps in a loop, and φ⁻¹ after each."""
    kind, weights = learned.architecture, learned.weights
    g.constant(learned.operator.T, "operator")
    if kind.inputs:
        g.constant(learned.input_matrix.T, "input_matrix")
        for i in range(kind.inputs if kind.bilinear else 0):
            g.constant(learned.input_products[i].T, f"input_products.{i}")
            g.constants[f"place.{i}"] = g.onnx.numpy_helper.from_array(np.array([i]), f"place.{i}")
        g.constants["first"] = g.onnx.numpy_helper.from_array(np.array(0), "first")
        g.add("Transpose", "u", perm=[1, 0, 2], name="u_by_step")
    g.add("Identity", kind.lift_graph(g, weights, "x"), name="lifted")
    g.nodes += _step(g, kind, "lifted", "first", "following")
    g.add("Identity", kind.decode_graph(g, weights, "following"), name="next")
    every = g.add("Transpose", _loop(g, kind), perm=[1, 0, 2])
    g.add("Identity", kind.decode_graph(g, weights, every), name="ahead")


def _step(g: Graph, kind: "Kind", before: str, index: str, after: str) -> list[Any]:
    """Nodes for K y + B u + Σ u_i N_i y, u being that of the step `index`."""
    node = g.onnx.helper.make_node
    if not kind.inputs:
        return [node("MatMul", [before, "operator"], [after])]
    drive, total = f"{after}.u", f"{after}.0"
    nodes = [
        node("Gather", ["u_by_step", index], [drive], axis=0),
        node("MatMul", [before, "operator"], [f"{after}.K"]),
        node("MatMul", [drive, "input_matrix"], [f"{after}.B"]),
        node("Add", [f"{after}.K", f"{after}.B"], [total]),
    ]
    for i in range(kind.inputs if kind.bilinear else 0):
        parts = [f"{after}.N{i}", f"{after}.u{i}", f"{after}.uN{i}"]
        nodes += [
            node("MatMul", [before, f"input_products.{i}"], [parts[0]]),
            node("Gather", [drive, f"place.{i}"], [parts[1]], axis=1),
            node("Mul", parts[:2], [parts[2]]),
            node("Add", [total, parts[2]], [f"{after}.{i + 1}"]),
        ]
        total = f"{after}.{i + 1}"
    return [*nodes, node("Identity", [total], [after])]


def _loop(g: Graph, model: "Kind") -> str:
    """`steps` steps; all the lifted states, (steps, batch, O)."""
    helper, kind = g.onnx.helper, g.onnx.TensorProto
    number = helper.np_dtype_to_tensor_dtype(g.dtype)
    shape = ["batch", model.components]
    body = helper.make_graph(
        [
            *_step(g, model, "before", "i", "after"),
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


def _model(g: Graph, learned: "Learned", steps: int) -> Any:
    onnx, helper = g.onnx, g.onnx.helper
    number = helper.np_dtype_to_tensor_dtype(g.dtype)
    architecture = learned.architecture
    dim = architecture.state_dim

    def value(name: str, *shape: str | int) -> Any:
        return helper.make_tensor_value_info(name, number, shape)

    graph = helper.make_graph(
        g.nodes,
        "fedkoopman",
        [
            value("x", "batch", architecture.input_dim),
            *([value("u", "batch", steps, architecture.inputs)] if architecture.inputs else []),
        ],
        [
            value("lifted", "batch", architecture.components),
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
        **({"input_names": learned.input_names} if architecture.inputs else {}),
    }
    helper.set_model_props(made, {name: json.dumps(thing) for name, thing in about.items()})
    onnx.checker.check_model(made)
    return made
