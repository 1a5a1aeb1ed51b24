"""What a model kind is: its weights, lift, operator, decoder, loss, file and ONNX graph.

Every kind is a linear model in lifted coordinates, y = φ(x), y' = K y, x' = φ⁻¹(y'). Kinds differ
in what φ and φ⁻¹ are and in how they are found. A kind is one file in `koopman/kinds/`. All else
(training, forecasts, spectrum, model files, federation) uses a kind through this class alone.

Inside, samples are columns: φ maps windows (d_X, n) to lifted states (O, n), and K acts from the
left, as in the paper.

Where a system is driven, y' = K y + B u or, bilinear, y' = K y + B u + Σ u_i N_i y. The input u_k
is held from sample k to sample k + 1. Segments then have rows [x_k, u_k], states first. A window of
μ rows holds the μ − 1 inputs between its states too, and these stand before the states, so that the
newest state is always the last: X = [u_{k−μ+1} … u_{k−1}, x_{k−μ+1} … x_k].
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.errors import InputError, short
from fedkoopman.koopman.losses import Losses
from fedkoopman.koopman.onnx import Graph
from fedkoopman.systems.checks import check_count

__all__ = ["Kind", "Shapes", "Weights"]

Weights: TypeAlias = Any
"""Everything that is learned: a tree of arrays, whose structure only the kind knows."""
Shapes: TypeAlias = Iterator[tuple[str, tuple[int, ...]]]
"""Names of tensors with their shapes, one after the other: a file may claim more than there are."""


@dataclass(frozen=True)
class Kind(ABC):
    """One shape of a model; hashable, so that it may choose what is compiled.

    A subclass is a frozen dataclass too. Its fields are settings that JSON can hold. By default
    the weights are a dict of arrays with the names in `shapes`.

    Attributes:
        name: of the kind, the same for all its shapes.
        algorithm: by which a federation learns it, where a study says `algorithm.name = "auto"`.
        state_dim: d_x.
        components: O, the dimension of the lifted state.
        window: μ, the number of consecutive states in one input.
        depth: τ, the number of samples that one application of K advances.
        inputs: m, the number of known inputs that drive the system.
        bilinear: whether inputs also multiply the lifted state.
    """

    name: ClassVar[str]
    takes_inputs: ClassVar[bool] = False
    """Whether there may be inputs; such a kind has the tensors of `input_shapes`."""
    linear_decoder: ClassVar[bool] = False
    """Whether φ⁻¹ is linear, or constant plus linear, whatever the weights."""
    algorithm: ClassVar[str] = "fedavg-m"
    precision: ClassVar[str | None] = None
    """Of its weights, where that is not the precision of training."""

    state_dim: int
    components: int
    window: int = field(default=1, kw_only=True)
    depth: int = field(default=1, kw_only=True)
    inputs: int = field(default=0, kw_only=True)
    bilinear: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self.settle_counts("state_dim", "components", "window", "depth")
        self.settle_counts("inputs", least=0)
        if not isinstance(self.bilinear, bool):
            raise InputError(f"bilinear is {short(self.bilinear)}: give true or false")
        if self.bilinear and not self.inputs:
            raise InputError(
                "bilinear is true, but the model has no inputs: give some, or leave it"
            )
        if self.inputs and not self.takes_inputs:
            raise InputError(
                f"the model kind {self.name} takes no inputs, and {self.inputs} are given: choose "
                "another kind, or leave the inputs out"
            )
        if self.inputs and self.depth > 1:
            raise InputError(
                f"depth is {self.depth}, but a model with inputs advances one sample at a time: "
                "give depth 1"
            )

    def settle_counts(self, *names: str, least: int = 1) -> None:
        """Check fields that are whole numbers, and store them as plain ones."""
        for name in names:
            object.__setattr__(self, name, check_count(getattr(self, name), name, least))

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """One shape, from those of the given settings that this kind has."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in settings.items() if name in known})

    @classmethod
    def usual_components(cls, state_dim: int, settings: Mapping[str, Any]) -> int:
        """The dimension of the lifted state where nobody says which.

        Arguments:
            settings: all others, also those that this kind does not have.
        """
        inputs, window = settings.get("inputs", 0), settings.get("window", 1)
        return max(4 * state_dim, 2 * (window * (state_dim + inputs) - inputs) if inputs else 0)

    @property
    def input_dim(self) -> int:
        """d_X = μ d_x + (μ − 1) m, the numbers in one window."""
        return self.window * self.state_dim + (self.window - 1) * self.inputs

    @property
    def row_dim(self) -> int:
        """d_x + m, the numbers in one row of a segment."""
        return self.state_dim + self.inputs

    @property
    def description(self) -> str:
        """What φ and φ⁻¹ are, as the beginning of a sentence on the model's card."""
        return f"The model is of the kind {self.name}"

    # The weights

    @abstractmethod
    def shapes(self) -> Shapes:
        """Names and shapes of the weights, in the order in which they are sent."""

    @abstractmethod
    def initialise(self, *, seed: int, dtype: Any = np.float32) -> Weights:
        """The first weights, as NumPy arrays."""

    def named(self, weights: Weights) -> dict[str, Any]:
        """The weights by name, in the order of `shapes`; JAX sorts the keys of a dict."""
        known = {name: weights[name] for name, _ in self.shapes() if name in weights}
        return known | weights

    def assemble(self, tensors: Mapping[str, Any]) -> Weights:
        """The weights from all tensors by name, which were checked; the inverse of `named`."""
        return dict(tensors)

    def from_named(self, tensors: Mapping[str, Any]) -> Weights:
        """The weights from tensors by name; other names or shapes are refused."""
        expected = dict(self.shapes())
        model = f"a model of the kind {self.name} with these settings"
        for name in sorted(expected.keys() - tensors.keys()):
            raise InputError(f"the tensor {name!r} is missing: give all tensors of {model}")
        for name in sorted(tensors.keys() - expected.keys()):
            raise InputError(
                f"{short(name)} is not among the tensors of {model}: give {short(list(expected))}"
            )
        for name, shape in expected.items():
            if (found := np.shape(tensors[name])) != shape:
                raise InputError(
                    f"the tensor {name} has shape {found}: it must be {shape} in {model}"
                )
        return self.assemble({name: tensors[name] for name in expected})

    @property
    def template(self) -> Weights:
        """Weights of the right shapes, whose values mean nothing."""
        return self.assemble({name: np.zeros(shape) for name, shape in self.shapes()})

    # The model

    @abstractmethod
    def lift(self, weights: Weights, x: Float[Array, "input n"]) -> Float[Array, "lifted n"]:
        """Y = φ(X)."""

    @abstractmethod
    def operator(self, weights: Weights) -> Float[Array, "lifted lifted"]:
        """K."""

    @abstractmethod
    def decode(self, weights: Weights, y: Float[Array, "lifted n"]) -> Float[Array, "input n"]:
        """X = φ⁻¹(Y)."""

    # Inputs

    def input_shapes(self) -> Shapes:
        """Names and shapes of what inputs are multiplied by: B (O, m), and the N_i (m, O, O)."""
        if self.inputs:
            yield "input_matrix", (self.components, self.inputs)
        if self.bilinear:
            yield "input_products", (self.inputs, self.components, self.components)

    def input_matrix(self, weights: Weights) -> Float[Array, "lifted inputs"]:
        """B, in the inputs' own units."""
        return weights["input_matrix"]

    def input_products(self, weights: Weights) -> Float[Array, "inputs lifted lifted"]:
        """All N_i, in the inputs' own units; only of bilinear models."""
        return weights["input_products"]

    def usual_inputs(self, weights: Weights) -> NDArray[np.float64]:
        """The inputs that modes are taken at, (m,)."""
        return np.zeros(self.inputs)

    def advance(
        self,
        weights: Weights,
        y: Float[Array, "lifted n"],
        u: Float[Array, "inputs n"] | None = None,
    ) -> Float[Array, "lifted n"]:
        """K y + B u + Σ u_i N_i y, as far as the model has these."""
        ahead = self.operator(weights) @ y
        if self.inputs and u is not None:
            ahead = ahead + self.input_matrix(weights) @ u
            if self.bilinear:
                products = self.input_products(weights)
                ahead = ahead + sum((products[i] @ y) * u[i] for i in range(self.inputs))
        return ahead

    def losses(
        self,
        weights: Weights,
        x: Float[Array, "input n"],
        target: Float[Array, "input n"],
        share: Float[Array, " n"] | None = None,
    ) -> Losses:
        """What gradient training minimises, for windows X and their targets X^τ.

        A kind that is found in closed form has none, and leaves this as it is.

        Arguments:
            x, target: one window per column.
            share: each sample's share in the mean, where it is not 1/n (0 for padding).

        A kind that takes inputs has a further argument `inputs`, (m, n): the u of each window.
        """
        raise InputError(
            f"the model kind {self.name} has no loss, so it cannot be trained by gradients: "
            "choose another kind"
        )

    # Gradient training

    @property
    def leads(self) -> tuple[int, ...]:
        """How many samples ahead the windows lie that training looks at."""
        return (self.depth,)

    @property
    def trainee(self) -> Weights:
        """What training changes: a tree of the right shapes, whose values mean nothing."""
        return self.template

    def loss(
        self,
        trained: Weights,
        fixed: Mapping[str, Any],
        x: Float[Array, "input n"],
        ahead: tuple[Float[Array, "input n"], ...],
        share: Float[Array, " n"] | None,
        loss_weights: tuple[float, float, float],
        huber: float = 0.0,
    ) -> Float[Array, ""]:
        """The number that training makes small.

        Arguments:
            trained: of the form of `trainee`.
            fixed: arrays that the loss needs and training leaves alone.
            x: one window per column.
            ahead: the windows that follow, one array for each of `leads`; where there are inputs,
                these come last, from the newest sample of the window to the farthest lead, as
                (lead m, n).
            share: each sample's share in the mean, where it is not 1/n (0 for padding).
            loss_weights: w₁, w₂, w₃.
            huber: as of `losses.powers`; only kinds that take it are given one.
        """
        more: dict[str, Any] = {"huber": huber} if huber else {}
        if self.inputs:
            more["inputs"] = ahead[-1]
        return self.losses(trained, x, ahead[0], share, **more).weighted(loss_weights)

    @property
    def takes_huber(self) -> bool:
        """Whether its loss can be Huber's; then `losses` or `loss` take `huber`."""
        return False

    def bounds(self, weights: Weights) -> Any:
        """The lowest and highest states that the model knows, (2, d); None if it has no bounds."""
        return None

    # The model file

    def settings(self) -> dict[str, Any]:
        """The fields, as JSON, for the header of a model file; of inputs nothing if it has none."""
        found = asdict(self)
        for name in ("inputs", "bilinear"):
            if not found[name]:
                del found[name]
        return found

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Self:
        """The shape whose `settings` a model file holds."""
        return cls(**settings)

    def file_shapes(self) -> Shapes:
        """Names and shapes of the tensors in a model file; "reference" and "noise" are taken."""
        return self.shapes()

    def to_file(self, weights: Weights) -> dict[str, Any]:
        """The tensors of a model file."""
        return self.named(weights)

    def from_file(self, tensors: Mapping[str, Any]) -> Weights:
        """The weights from the tensors of a model file, whose names and shapes were checked."""
        return self.assemble(tensors)

    # The ONNX graph, in which samples are rows

    @abstractmethod
    def lift_graph(self, g: Graph, weights: Weights, x: str) -> str:
        """Add φ of the value `x`, (batch, μ d), to a graph; returns the name of its output."""

    @abstractmethod
    def decode_graph(self, g: Graph, weights: Weights, y: str) -> str:
        """Add the newest state of φ⁻¹, (…, O) → (…, d), to a graph; returns its output's name."""
