"""An ONNX graph while it is built, which a model kind adds its parts to."""

from typing import Any

import numpy as np

__all__ = ["Graph"]


class Graph:
    """Nodes and constants as they are added; values are known by their names."""

    def __init__(self, onnx: Any, dtype: np.dtype[Any]) -> None:
        """Arguments:
        onnx: the package.
        dtype: the precision of all numbers.
        """
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

    def affine(self, x: str, matrix: Any, offset: Any, name: str) -> str:
        """Add x Wᵀ + b, for rows x.

        Arguments:
            matrix, offset: W (out, in) and b (out,).
            name: what the constants are called before ".weight" and ".bias".
        """
        weight = self.constant(np.transpose(matrix), f"{name}.weight")
        bias = self.constant(offset, f"{name}.bias")
        return self.add("Add", self.add("MatMul", x, weight), bias)
