"""What an operator says about time: eigenvalues, eigenvectors, frequencies, decay, modes.

K advances a lifted state, y' = K y. With K v_j = λ_j v_j and w_j K = λ_j w_j, scaled to
w_j v_j = 1, every lifted state is y = Σ_j v_j (w_j y), and K multiplies each part by its λ_j.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Complex, Float
from numpy import ndarray

__all__ = [
    "Spectrum",
    "continuous_eigenvalues",
    "decay_rates",
    "decompose",
    "frequencies",
    "half_lives",
    "modes",
]

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


def modes(
    jacobian: Float[ndarray, "state lifted"], right: Complex[ndarray, "lifted lifted"]
) -> Complex[ndarray, "state lifted"]:
    """How the state moves, to first order, with each eigenvector of the lifted state."""
    with np.errstate(over="ignore", invalid="ignore"):  # of weights near the largest double
        return jacobian @ right
