"""The lifted model about a target, as a linear system in deviations from it.

    z = y − φ(x*),   z' = A z + B v,   v = u − u*,   x ≈ x* + C z

With A = K + Σ u*_i N_i and B as it acts at the target. A lift often holds functions that no input
moves and that do not fade: a constant, for one. They stay 0 in z, and no Riccati equation has a
solution with them. So the system is restricted to the z in which they are 0, an invariant subspace.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fedkoopman.control.targets import Target, check_driven, drive_matrix, step_matrix, target

__all__ = ["LinearSystem", "linearised"]

Array = NDArray[np.float64]

MARGINAL = 1e-7
"""Below 1 by no more than this, a modulus does not fade."""
UNMOVED = 1e-8
"""A mode that inputs move by less than this share of their size is not moved."""


@dataclass(frozen=True, eq=False)
class LinearSystem:
    """A, B and C in coordinates w of the subspace, z = basis w.

    Attributes:
        A, B, C: (r, r), (r, m), (d, r).
        basis: (O, r), orthonormal.
        target: about which.
        left_out: eigenvalues of the modes that are not in the subspace.
    """

    A: Array
    B: Array
    C: Array
    basis: Array
    target: Target
    left_out: NDArray[np.complex128]


def linearised(model: Any, reference: Any, input: Any = None) -> LinearSystem:
    """The linear system about a target.

    Arguments:
        reference: the state (d,), or a `Target`.
        input: the input that holds it; None finds one.
    """
    model = check_driven(model)
    at = reference if isinstance(reference, Target) else target(model, reference, input)
    learned = model.learned_
    A = step_matrix(model, at.input)
    B, C = drive_matrix(model, at.lifted), learned.lower_slope(at.lifted[None])[0]
    values, left = scipy.linalg.eig(A, left=True, right=False)
    moved = np.abs(left.conj().T @ B).max(axis=1)
    size = np.linalg.norm(left, axis=0) * max(np.linalg.norm(B), 1e-300)
    stuck = (np.abs(values) > 1 - MARGINAL) & (moved < UNMOVED * size)
    kept = scipy.linalg.null_space(_real(left[:, stuck]).T) if stuck.any() else np.eye(len(A))
    return LinearSystem(kept.T @ A @ kept, kept.T @ B, C @ kept, kept, at, values[stuck])


def _real(vectors: NDArray[Any]) -> Array:
    """Real vectors that span the same space as conjugate pairs do."""
    return np.hstack([vectors.real, vectors.imag])
