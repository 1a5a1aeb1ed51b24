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

from fedkoopman.control.targets import Target, check_driven, target

__all__ = ["LinearSystem", "linearised"]

Array = NDArray[np.float64]

MARGINAL = 1e-7
"""Below 1 by no more than this, a modulus does not fade."""
UNMOVED = 1e-8
"""A direction that inputs move by less than this share of their size is not moved."""


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
    A = learned.step_matrix(at.input)
    B, C = learned.drive(at.lifted), learned.lower_slope(at.lifted[None])[0]
    unmoved = _unmoved(A, B)
    # Of what no input moves, an invariant part holds all that does not fade. (Eigenvectors would
    # not do: a constant and an integrator have the same eigenvalue, and theirs may be mixed.)
    triangle, vectors, count = scipy.linalg.schur(
        (unmoved.T @ A @ unmoved).T, output="complex", sort=lambda value: abs(value) > 1 - MARGINAL
    )
    stuck = unmoved @ vectors[:, :count]
    kept = np.eye(len(A))
    if count:  # real vectors that span the same space as conjugate pairs do
        kept = scipy.linalg.null_space(np.hstack([stuck.real, stuck.imag]).T, rcond=1e-8)
    lost = np.diagonal(triangle)[:count].astype(np.complex128)
    return LinearSystem(kept.T @ A @ kept, kept.T @ B, C @ kept, kept, at, lost)


def _unmoved(A: Array, B: Array) -> Array:
    """Orthonormal directions w that no input ever moves: wᵀ Aᵏ B = 0 for all k, (n, r).

    The directions that inputs do move are gathered one application of A after the other.
    """
    moved, block = np.zeros((len(A), 0)), B / max(float(np.linalg.norm(B)), 1e-300)
    size = max(float(np.linalg.norm(A)), 1e-300)
    while block.shape[1]:
        for _ in range(2):  # once leaves rounding behind
            block = block - moved @ (moved.T @ block)
        new, sizes, _ = np.linalg.svd(block, full_matrices=False)
        new = new[:, sizes > UNMOVED]
        moved, block = np.hstack([moved, new]), A @ new / size
    if not moved.shape[1]:
        return np.eye(len(A))
    return np.asarray(scipy.linalg.null_space(moved.T))
