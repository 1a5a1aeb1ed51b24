"""Dictionaries: nonlinear functions ψ(u) of a standardised window, in which dynamics are linear.

    ψ = [1, u, monomials of u of degree 2 … p, features of u]

Features are random cosines (random Fourier features), Gaussians about random centres, or the hidden
layers of a network. A dictionary is written once for JAX and once as operations of an ONNX graph.
Samples are columns here, as everywhere inside models; in a graph they are rows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fedkoopman.errors import InputError, unknown_name
from fedkoopman.koopman.activations import ACTIVATIONS
from fedkoopman.koopman.kind import Shapes
from fedkoopman.koopman.onnx import Graph

FEATURES = ("none", "fourier", "rbf", "network")
MOST = 2_000
"""Functions in a dictionary: a site sends sums of all their products, 32 MB for so many."""


@dataclass(frozen=True)
class Dictionary:
    """Which functions there are.

    Attributes:
        inputs: how many numbers u holds.
        degree: p, of the highest monomials; 1 for u alone.
        features: one of `FEATURES`.
        count: how many features; in each hidden layer, where they are those of a network.
        layers: hidden layers of such a network; all of them are features.
        activation: of these layers.
    """

    inputs: int
    degree: int = 3
    features: str = "none"
    count: int = 0
    layers: int = 2
    activation: str = "silu"

    def __post_init__(self) -> None:
        if self.features not in FEATURES:
            raise unknown_name("dictionary", self.features, FEATURES)
        if self.activation not in ACTIVATIONS:
            raise unknown_name("activation", self.activation, ACTIVATIONS)
        if self.size > MOST:
            raise InputError(
                f"a dictionary of degree {self.degree} in {self.inputs} numbers with "
                f"{self.feature_count} features has {self.size} functions: give a lower degree, "
                f"fewer features or a shorter window, for at most {MOST}"
            )

    @property
    def feature_count(self) -> int:
        """How many functions are no monomials."""
        layers = {"none": 0, "network": self.layers}.get(self.features, 1)
        return layers * self.count

    @property
    def size(self) -> int:
        """D, how many functions there are."""
        return math.comb(self.inputs + self.degree, self.degree) + self.feature_count

    @property
    def linear(self) -> bool:
        """Whether ψ is u and a constant, and nothing else."""
        return self.degree == 1 and not self.feature_count

    def shapes(self) -> Shapes:
        """Names and shapes of what the features are made of, each as one matrix [W b]."""
        if self.features == "fourier":
            yield "frequencies", (self.count, self.inputs + 1)
        elif self.features == "rbf":
            yield "centres", (self.count, self.inputs + 1)
        elif self.features == "network":
            for i in range(self.layers):
                before = self.count if i else self.inputs
                yield f"features.{i}", (self.count, before + 1)

    def draw(self, random: np.random.Generator) -> dict[str, np.ndarray]:
        """Random features, for standardised inputs.

        Cosines cos(Ω u + b) have Ω ~ N(0, 1) and b ~ U(0, 2π); Gaussians exp(−‖u − c‖²/2s²) have
        centres c ~ N(0, 1) and a width of s = √inputs, a typical distance; layers have
        W ~ N(0, 1/fan-in) and b ~ U(−1, 1).
        """
        found = {}
        for name, (rows, columns) in self.shapes():
            weight = random.normal(size=(rows, columns - 1))
            if name == "centres":
                last = np.full((rows, 1), math.sqrt(self.inputs))
            elif name == "frequencies":
                last = random.uniform(0, 2 * math.pi, (rows, 1))
            else:
                weight, last = weight / math.sqrt(columns - 1), random.uniform(-1, 1, (rows, 1))
            found[name] = np.hstack([weight, last])
        return found

    def __call__(
        self, weights: Mapping[str, Any], u: Float[Array, "inputs n"]
    ) -> Float[Array, "functions n"]:
        """ψ(u), one column per sample."""
        parts, level = [jnp.ones_like(u[:1]), u], u
        for before, factor in steps_of(self.inputs, self.degree):
            level = level[before] * u[factor]
            parts.append(level)
        return jnp.concatenate([*parts, *self.layer_values(weights, u)])

    def layer_values(self, weights: Mapping[str, Any], u: Array) -> list[Array]:
        """The features: one array, or one for each hidden layer."""
        if self.features == "fourier":
            return [jnp.cos(_affine(weights["frequencies"], u))]
        if self.features == "rbf":
            centres, width = weights["centres"][:, :-1], weights["centres"][:, -1:]
            square = jnp.sum((u[None] - centres[:, :, None]) ** 2, axis=1)
            return [jnp.exp(-square / (2 * width**2))]
        found, level = [], u
        for i in range(self.layers if self.features == "network" else 0):
            level = ACTIVATIONS[self.activation].function(_affine(weights[f"features.{i}"], level))
            found.append(level)
        return found

    def graph(self, g: Graph, weights: Mapping[str, Any], u: str) -> str:
        """ψ of the value `u`, (batch, inputs), added to a graph; the name of its output."""
        one = g.shifted(g.scaled(g.columns(u, np.zeros(1, int)), 0.0), 1.0)
        parts, level = [one, u], u
        for before, factor in steps_of(self.inputs, self.degree):
            level = g.add("Mul", g.columns(level, before), g.columns(u, factor))
            parts.append(level)
        return g.add("Concat", *parts, *self._feature_graph(g, weights, u), axis=-1)

    def _feature_graph(self, g: Graph, weights: Mapping[str, Any], u: str) -> list[str]:
        if self.features == "fourier":
            matrix = weights["frequencies"]
            return [g.add("Cos", g.affine(u, matrix[:, :-1], matrix[:, -1], "frequencies"))]
        if self.features == "rbf":
            # ‖u − c‖² = ‖u‖² − 2 u·c + ‖c‖², as one product and a sum over the columns.
            centres, width = weights["centres"][:, :-1], weights["centres"][:, -1]
            ones = g.constant(np.ones((self.inputs, self.count)), "rbf.ones")
            norm = g.add("MatMul", g.add("Mul", u, u), ones)
            cross = g.affine(u, -2 * centres, (centres**2).sum(axis=1), "centres")
            scale = g.constant(-1 / (2 * width**2), "rbf.scale")
            return [g.add("Exp", g.add("Mul", g.add("Add", norm, cross), scale))]
        found, level = [], u
        for i in range(self.layers if self.features == "network" else 0):
            matrix = weights[f"features.{i}"]
            affine = g.affine(level, matrix[:, :-1], matrix[:, -1], f"features.{i}")
            level = ACTIVATIONS[self.activation].graph(g, affine)
            found.append(level)
        return found


@lru_cache(maxsize=64)
def steps_of(inputs: int, degree: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """How the monomials of degree 2, 3, … come from those one degree lower: their places, and the
    input that each is multiplied by. Each monomial x_i x_j x_k … with i ≤ j ≤ k … is there once."""
    found, last = [], np.arange(inputs, dtype=np.int32)
    for _ in range(2, degree + 1):
        pairs = [(i, j) for i, highest in enumerate(last) for j in range(highest, inputs)]
        before, factor = (np.array(column, np.int32) for column in zip(*pairs, strict=True))
        found.append((before, factor))
        last = factor
    return found


def _affine(matrix: Any, x: Array) -> Array:
    return matrix[:, :-1] @ x + matrix[:, -1:]
