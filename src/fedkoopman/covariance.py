"""Covariances as users write them (variance, diagonal, matrix, per step), in one checked form."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkoopman.errors import InputError, short


def covariance(value: ArrayLike, dim: int, name: str) -> NDArray[np.float64]:
    """Turn any accepted form of a covariance into matrices, and check them.

    | `value`                        | result               |
    |--------------------------------|----------------------|
    | variance, a scalar             | (dim, dim)           |
    | diagonal (dim,)                | (dim, dim)           |
    | matrix (dim, dim)              | (dim, dim)           |
    | per step (T, dim, dim)         | (T, dim, dim)        |
    | per trajectory (B, T, dim, dim)| (B, T, dim, dim), T may be 1 |

    Every matrix must be finite, symmetric and positive semi-definite, the latter two up to rounding
    in the precision in which the value came (1e-9 of its largest entry in float64, 1e-5 below).

    Arguments:
        value: the covariance in one of the forms above.
        dim: the number of components it speaks of.
        name: the argument's name, for messages.
    """
    given = _numbers(value, name)
    tolerance = 1e-9 if given.dtype.itemsize >= 8 else 1e-5
    array = given.astype(np.float64)
    if array.ndim == 0:
        if 0 <= array < np.inf:  # nothing else can be wrong with a variance
            return np.asarray(array * np.eye(dim))
        array = np.diag(np.full(dim, array))
    elif array.shape == (dim,):
        array = np.diag(array)
    elif array.ndim not in (2, 3, 4) or array.shape[-2:] != (dim, dim) or 0 in array.shape:
        raise InputError(
            f"{name} has shape {array.shape} but dimension {dim} needs a scalar, ({dim},), "
            f"({dim}, {dim}), (T, {dim}, {dim}) or (B, T, {dim}, {dim}): reshape it"
        )
    if not _plainly_definite(array):
        _check(array, tolerance, name)
    with np.errstate(over="ignore"):  # of entries near the largest double
        return (array + np.swapaxes(array, -1, -2)) / 2


def one_covariance(value: ArrayLike, dim: int, name: str) -> NDArray[np.float64]:
    """`covariance` where only one matrix will do."""
    cov = covariance(value, dim, name)
    if cov.ndim != 2:
        raise InputError(f"{name} has shape {cov.shape}: give one matrix, ({dim}, {dim})")
    return cov


def noise_roots(
    noise: ArrayLike, dim: int, steps: int, size: int, name: str
) -> NDArray[np.float64]:
    """Square roots (B | 1, steps | 1, d, d) of a noise covariance; fits it to steps and batch."""
    q = covariance(noise, dim, name)
    q = q.reshape((1,) * (4 - q.ndim) + q.shape)
    if q.shape[0] not in (1, size) or q.shape[1] not in (1, steps):
        raise InputError(
            f"{name} has matrices for {q.shape[0]} trajectories and {q.shape[1]} steps but there "
            f"are {size} and {steps}: give 1 or as many"
        )
    return square_root(q)


def square_root(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """A factor S with S Sᵀ = P for each P; unlike for Cholesky's, P may be singular."""
    eigenvalues, vectors = np.linalg.eigh(matrices)
    roots = np.sqrt(np.maximum(eigenvalues, 0.0))
    factor: NDArray[np.float64] = vectors * roots[..., None, :]
    return factor


def _numbers(value: ArrayLike, name: str) -> NDArray[np.generic]:
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise InputError(
            f"{name} must be real numbers, got {short(value)}: "
            "give a variance, a diagonal or a matrix"
        )
    return array


def _plainly_definite(array: NDArray[np.float64]) -> bool:
    """Whether one matrix is symmetric with a Cholesky factor: what users mostly give, at a tenth
    of the cost of the full check."""
    if array.ndim != 2 or not np.isfinite(array).all() or not np.array_equal(array, array.T):
        return False
    try:
        np.linalg.cholesky(array)
    except np.linalg.LinAlgError:
        return False
    return True


def _check(array: NDArray[np.float64], tolerance: float, name: str) -> None:
    infinite = ~np.isfinite(array).all(axis=(-1, -2))
    if infinite.any():
        at, matrix = _first(array, infinite, name)
        bad = matrix[~np.isfinite(matrix)][0]
        raise InputError(f"{at} contains {bad}: every entry must be finite")
    scale = np.abs(array).max(axis=(-1, -2))
    skew = np.abs(array - np.swapaxes(array, -1, -2)).max(axis=(-1, -2))
    if (skew > tolerance * scale).any():
        at, matrix = _first(array, skew > tolerance * scale, name)
        i, j = np.unravel_index(np.argmax(np.abs(matrix - matrix.T)), matrix.shape)
        raise InputError(
            f"{at} is not symmetric: entry ({i}, {j}) is {matrix[i, j]:.6g} but ({j}, {i}) is "
            f"{matrix[j, i]:.6g}: give (P + Pᵀ)/2"
        )
    lowest = np.linalg.eigvalsh(array)[..., 0]
    if (lowest < -tolerance * scale).any():
        at, matrix = _first(array, lowest < -tolerance * scale, name)
        raise InputError(
            f"{at} is not positive semi-definite: its lowest eigenvalue is "
            f"{np.linalg.eigvalsh(matrix)[0]:.6g}: a covariance needs eigenvalues of at least 0"
        )


def _first(array: NDArray[np.float64], bad: Any, name: str) -> tuple[str, NDArray[np.float64]]:
    """Where the first bad matrix sits, in words, and the matrix."""
    if array.ndim == 2:
        return name, array
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{name}[{', '.join(map(str, index))}]", array[index]
