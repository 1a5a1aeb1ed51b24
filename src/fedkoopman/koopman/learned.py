"""What training leaves behind: weights with what is needed to use, save and train them on.

The operator K advances a lifted state, y' = K y. Its spectrum tells of time: with K v_j = λ_j v_j
and w_j K = λ_j w_j, scaled to w_j v_j = 1, every lifted state is y = Σ_j v_j (w_j y), and K
multiplies each part by its λ_j.
"""

import json
import math
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Complex, Float
from numpy import ndarray
from numpy.typing import NDArray

from fedkoopman.covariance import one_covariance
from fedkoopman.errors import InputError, short
from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.koopman.training import PRECISIONS, Training, check_training
from fedkoopman.systems.checks import check_count, check_positive, check_seed, finite_array, number

LONGEST_NAME = 100
DEEPEST = 50
"""Lists within lists, in `information`."""
DEFECTIVE = 1e-10
"""Below this reciprocal condition number the eigenvectors are not inverted."""


class Spectrum(NamedTuple):
    """An operator's eigenvalues and eigenvectors, read-only."""

    eigenvalues: Complex[ndarray, " lifted"]
    """λ_j, by falling modulus; equal moduli by rising angle, conjugates side by side."""
    right: Complex[ndarray, "lifted lifted"]
    """v_j in the columns, of length 1, the largest entry real and positive."""
    left: Complex[ndarray, "lifted lifted"]
    """w_j in the rows, w_j v_j = 1; of length 1 where K has too few eigenvectors for that."""


def decompose(operator: Float[ndarray, "lifted lifted"]) -> Spectrum:
    """The spectrum of K, in float64."""
    values, left, right = scipy.linalg.eig(np.asarray(operator, np.float64), left=True, right=True)
    # LAPACK puts conjugates side by side, the one above the real axis first. Their moduli and
    # angles are equal to the last bit, so a stable sort by these keeps them so.
    order = np.lexsort((np.abs(np.angle(values)), -np.abs(values)))
    values, left, right = values[order], left[:, order].conj().T, right[:, order]
    right = right / np.linalg.norm(right, axis=0)
    largest = np.take_along_axis(right, np.abs(right).argmax(axis=0)[None], axis=0)
    right = right * (np.abs(largest) / largest)
    if 1 / np.linalg.cond(right) > DEFECTIVE:
        left = np.linalg.inv(right)
    else:
        left = left / np.linalg.norm(left, axis=1, keepdims=True)
    spectrum = Spectrum(*(np.asarray(part, np.complex128) for part in (values, right, left)))
    for part in spectrum:
        part.setflags(write=False)
    return spectrum


def continuous_eigenvalues(
    eigenvalues: Complex[ndarray, " lifted"], step: float
) -> Complex[ndarray, " lifted"]:
    """log(λ) / step, of the principal branch; −∞ for λ = 0, which forgets at once."""
    with np.errstate(divide="ignore"):
        logarithm = np.log(np.asarray(eigenvalues, np.complex128))
    # By parts: a complex division would make −∞ + 0i into NaN.
    result = np.empty_like(logarithm)
    result.real, result.imag = logarithm.real / step, logarithm.imag / step
    return result


def frequencies(continuous: Complex[ndarray, " lifted"]) -> Float[ndarray, " lifted"]:
    """Turns per unit of time, |Im| / 2π."""
    return np.abs(continuous.imag) / (2 * math.pi)


def decay_rates(continuous: Complex[ndarray, " lifted"]) -> Float[ndarray, " lifted"]:
    """−Re: positive where a mode decays, negative where it grows."""
    return 0.0 - continuous.real


def half_lives(rates: Float[ndarray, " lifted"]) -> Float[ndarray, " lifted"]:
    """Time to half the size, log 2 / rate; negative: time to double; ∞: neither."""
    with np.errstate(divide="ignore"):
        return math.log(2) / np.asarray(rates, np.float64)


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained model. It is evaluated in float64, whatever the precision of its weights.

    Attributes:
        architecture, weights: the model; the architecture is a model kind with its sizes.
        dt: the sampling interval.
        reference: the window about which modes are taken, (μ, d).
        names, units: of the state's components, where known.
        training, random_state: how it was, and goes on being, trained.
        updates: how often it was trained here.
        windows: how many windows `reference` is the mean of.
        information: whatever its maker wants to keep with it, as JSON knows it.
        noise: how far off K is per application, the covariance (O, O) of φ(x⁺) − K φ(x) as
            `koopman.forecast` estimates it; None where nobody measured it.
        relift: after how many applications of K a forecast is lifted anew, where nobody says; 0:
            never (`koopman.rollout`).
        input_names: of the inputs, where known.
    """

    architecture: Kind
    weights: Weights
    dt: float
    reference: NDArray[np.float64]
    names: tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None
    training: Training = field(default_factory=Training)
    random_state: int | None = 0
    updates: int = 0
    windows: int = 0
    information: dict[str, Any] = field(default_factory=dict)
    noise: NDArray[np.float64] | None = None
    relift: int = 0
    input_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        weights = _checked_weights(self.architecture, self.weights)
        shape = (self.architecture.window, self.architecture.state_dim)
        reference = finite_array(self.reference, "reference")
        if reference.size != math.prod(shape):
            raise InputError(
                f"reference has shape {reference.shape}: give one window, of shape {shape}"
            )
        dt = number(self.dt, "dt")
        check_positive(dt, "dt")
        precision = str(jax.tree.leaves(weights)[0].dtype)
        values = {
            "weights": weights,
            "reference": reference.reshape(shape),
            "dt": float(dt),
            "names": _checked_words(self.names, "names", shape[1]),
            "units": _checked_words(self.units, "units", shape[1]),
            "input_names": _checked_words(
                self.input_names, "input_names", self.architecture.inputs, "inputs"
            ),
            "training": check_training(replace(self.training, precision=precision)),
            "random_state": None if self.random_state is None else check_seed(self.random_state),
            "updates": check_count(self.updates, "updates", least=0),
            "windows": check_count(self.windows, "windows", least=0),
            "information": _checked_information(self.information),
            "relift": check_count(self.relift, "relift", least=0),
        }
        if self.noise is not None:
            values["noise"] = one_covariance(self.noise, self.architecture.components, "noise")
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @cached_property
    def spectrum(self) -> Spectrum:
        """Of K."""
        return decompose(self.operator)

    @cached_property
    def modes(self) -> NDArray[np.complex128]:
        """How the newest state moves, to first order about `reference`, with each eigenvector."""
        lifted = self.lift(self.reference_window)
        with np.errstate(over="ignore", invalid="ignore"):  # of weights near the largest double
            found = self.lower_slope(lifted)[0] @ self.spectrum.right
        found.setflags(write=False)
        return found

    @property
    def reference_window(self) -> NDArray[np.float64]:
        """The reference as φ takes it, (1, d_X), with usual inputs between its states."""
        kind = self.architecture
        past = np.tile(kind.usual_inputs(self.wide), kind.window - 1)
        return np.concatenate([past, self.reference.ravel()])[None]

    def lift(self, windows: NDArray[np.float64]) -> NDArray[np.float64]:
        """φ of every row, (n, μ d) → (n, O)."""
        return self._by_columns(_value, "lift", windows)

    def lower(self, lifted: NDArray[np.float64]) -> NDArray[np.float64]:
        """The newest state of φ⁻¹ of every row, (n, O) → (n, d)."""
        return self.lower_window(lifted)[:, -self.architecture.state_dim :]

    def lower_window(self, lifted: NDArray[np.float64]) -> NDArray[np.float64]:
        """φ⁻¹ of every row, (n, O) → (n, μ d)."""
        return self._by_columns(_value, "decode", lifted)

    def lift_slope(self, windows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The Jacobian of φ at every row, (n, μ d) → (n, O, μ d)."""
        return self._by_columns(_slope, "lift", windows)

    def lower_slope(self, lifted: NDArray[np.float64]) -> NDArray[np.float64]:
        """The Jacobian of the newest state of φ⁻¹ at every row, (n, O) → (n, d, O)."""
        return self.lower_window_slope(lifted)[:, -self.architecture.state_dim :]

    def lower_window_slope(self, lifted: NDArray[np.float64]) -> NDArray[np.float64]:
        """The Jacobian of φ⁻¹ at every row, (n, O) → (n, μ d, O)."""
        return self._by_columns(_slope, "decode", lifted)

    def step(
        self, lifted: NDArray[np.float64], inputs: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """K y + B u + Σ u_i N_i y of every row, (n, O) → (n, O); without inputs, K y.

        Arguments:
            inputs: (n, m).
        """
        ahead = lifted @ self.operator.T
        if inputs is None or not self.architecture.inputs:
            return ahead
        ahead = ahead + inputs @ self.input_matrix.T
        if self.architecture.bilinear:
            for i, product in enumerate(self.input_products):
                ahead = ahead + inputs[:, i : i + 1] * (lifted @ product.T)
        return ahead

    def advance(
        self,
        lifted: NDArray[np.float64],
        applications: int,
        inputs: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """`step` for every row, over and over: (n, O) → (applications, n, O).

        Arguments:
            inputs: (n, applications, m).
        """
        result = np.empty((applications, *lifted.shape))
        for i in range(applications):
            lifted = result[i] = self.step(lifted, None if inputs is None else inputs[:, i])
        return result

    def step_matrix(self, u: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """What a lifted state is multiplied by under inputs (…, m): K + Σ u_i N_i, (…, O, O)."""
        if u is None or not self.architecture.bilinear:
            return self.operator
        return self.operator + np.tensordot(u, self.input_products, 1)

    def drive(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        """What one unit of each input adds at a lifted state y (O,): B + [N_1 y, …], (O, m)."""
        if not self.architecture.bilinear:
            return self.input_matrix
        return self.input_matrix + np.stack([n @ y for n in self.input_products], axis=1)

    @cached_property
    def input_matrix(self) -> NDArray[np.float64]:
        """B, (O, m), in the inputs' own units."""
        with jax.enable_x64(True):
            return np.ascontiguousarray(self.architecture.input_matrix(self.wide), np.float64)

    @cached_property
    def input_products(self) -> NDArray[np.float64]:
        """All N_i, (m, O, O), in the inputs' own units."""
        with jax.enable_x64(True):
            return np.ascontiguousarray(self.architecture.input_products(self.wide), np.float64)

    @cached_property
    def operator(self) -> NDArray[np.float64]:
        """K, (O, O)."""
        with jax.enable_x64(True):
            return np.asarray(self.architecture.operator(self.wide), np.float64)

    @property
    def bounds(self) -> NDArray[np.float64] | None:
        """The range of the training states, a little widened, (2, d); None if nobody knows."""
        return self.architecture.bounds(self.wide)

    @cached_property
    def wide(self) -> Weights:
        """The weights in float64, in which the model is evaluated."""
        return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), self.weights)

    def _by_columns(self, function: Any, part: str, rows: NDArray) -> NDArray[np.float64]:
        # Room in powers of two: data come in every length, and each shape is compiled once.
        columns = np.zeros((rows.shape[1], 1 << (len(rows) - 1).bit_length()))
        columns[:, : len(rows)] = rows.T
        with jax.enable_x64(True):
            result = np.asarray(function(self.architecture, part, self.wide, columns))
        return np.ascontiguousarray(np.moveaxis(result, -1, 0)[: len(rows)])


@partial(jax.jit, static_argnums=(0, 1))
def _value(architecture: Kind, part: str, weights: Weights, x: Float[Array, "from n"]) -> Array:
    return getattr(architecture, part)(weights, x)


@partial(jax.jit, static_argnums=(0, 1))
def _slope(architecture: Kind, part: str, weights: Weights, x: Float[Array, "from n"]) -> Array:
    """∂f_i/∂x_j at every column: one forward derivative of all columns for each j."""
    function = partial(getattr(architecture, part), weights)

    def along(direction: Float[Array, " from"]) -> Array:
        return jax.jvp(function, (x,), (jnp.broadcast_to(direction[:, None], x.shape),))[1]

    return jax.vmap(along, out_axes=1)(jnp.eye(len(x), dtype=x.dtype))


def _checked_weights(architecture: Kind, weights: Weights) -> Weights:
    """The weights in one precision, with the names and shapes of the architecture, and finite."""
    tensors = {name: np.asarray(leaf) for name, leaf in architecture.named(weights).items()}
    for name, tensor in tensors.items():
        if str(tensor.dtype) not in PRECISIONS:
            raise InputError(
                f"the tensor {name} holds {tensor.dtype}: give float32 or float64 weights"
            )
    checked = architecture.from_named(tensors)
    if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
        raise InputError(
            "the weights are not all finite: the training that made them diverged; use an earlier "
            "model or a lower learning rate"
        )
    return jax.tree.map(partial(np.asarray, dtype=np.result_type(*tensors.values())), checked)


def _checked_words(words: Any, what: str, count: int, of: str = "states") -> tuple[str, ...] | None:
    if words is None:
        return None
    listed = tuple(words) if isinstance(words, tuple | list | np.ndarray) else ()
    if len(listed) != count or not all(isinstance(word, str) for word in listed):
        raise InputError(f"{what} is {short(words)}: give one text for each of {count} {of}")
    for i, word in enumerate(listed):
        if len(word) > LONGEST_NAME or not word.isprintable():  # it heads columns and axes
            raise InputError(
                f"{what}[{i}] is {short(word)}, of {len(word)} characters: give printable text of "
                f"at most {LONGEST_NAME}"
            )
    return tuple(str(word) for word in listed)


def _checked_information(information: Any) -> dict[str, Any]:
    try:
        if not isinstance(information, dict):
            raise TypeError("it is not a dict")
        text = json.dumps(information, allow_nan=False)
        json.dumps(information, ensure_ascii=False).encode()  # half a character is refused
        level: list[Any] = [information]
        for _ in range(DEEPEST):
            level = [e for v in level for e in (v.values() if isinstance(v, dict) else v)]
            level = [e for e in level if isinstance(e, dict | list | tuple)]
        if level:
            raise ValueError(f"lists or dicts stand more than {DEEPEST} deep within each other")
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"information cannot be kept with the model ({short(str(error))}): give a dict of "
            "texts, finite numbers, lists and dicts"
        ) from None
