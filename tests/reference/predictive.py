"""Predictive control as in a textbook: one quadratic program with all states, none eliminated.

J. B. Rawlings, D. Q. Mayne, M. M. Diehl, "Model Predictive Control", 2nd ed., section 1.3; bounds
of states are softened by a linear penalty.
"""

import numpy as np
import scipy.sparse as sp


def plan(A, B, x, goal, Q, R, u_min, u_max, x_min, x_max, softening):
    """Inputs (H, m) and states (H, d) for x' = A x + B u, by Clarabel.

    Variables are all x_1 … x_H, all u_0 … u_{H−1}, and the excess e_1 … e_H of the states.
    """
    import clarabel

    H, (d, m) = len(goal), B.shape
    n = H * (2 * d + m)
    P = sp.block_diag(
        [sp.kron(sp.eye(H), 2 * Q), sp.kron(sp.eye(H), 2 * R), 1e-6 * softening * sp.eye(H * d)]
    )
    q = np.concatenate([(-2 * goal @ Q).ravel(), np.zeros(H * m), np.full(H * d, float(softening))])
    dynamics = np.zeros((H * d, n))
    offset = np.zeros(H * d)
    for k in range(H):
        rows = slice(k * d, (k + 1) * d)
        dynamics[rows, rows] = np.eye(d)
        if k:
            dynamics[rows, (k - 1) * d : k * d] = -A
        else:
            offset[rows] = A @ x
        dynamics[rows, H * d + k * m : H * d + (k + 1) * m] = -B
    states, inputs = np.eye(H * d, n), np.eye(H * m, n, k=H * d)
    excess = np.eye(H * d, n, k=H * (d + m))
    lines = [
        (inputs, np.tile(u_max, H)),
        (-inputs, -np.tile(u_min, H)),
        (states - excess, np.tile(x_max, H)),
        (-states - excess, -np.tile(x_min, H)),
        (-excess, np.zeros(H * d)),
    ]
    rows = np.vstack([matrix for matrix, _ in lines])
    limits = np.concatenate([limit for _, limit in lines])
    kept = np.isfinite(limits)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    solved = clarabel.DefaultSolver(
        sp.csc_matrix(sp.triu(P)), q, sp.csc_matrix(np.vstack([dynamics, rows[kept]])),
        np.concatenate([offset, limits[kept]]),
        [clarabel.ZeroConeT(H * d), clarabel.NonnegativeConeT(int(kept.sum()))], settings,
    ).solve()  # fmt: skip
    found = np.array(solved.x)
    return found[H * d : H * (d + m)].reshape(H, m), found[: H * d].reshape(H, d)


def can_be_kept(A, B, x, horizon, used, u_min, u_max, du_max, x_min, x_max):
    """Whether some plan holds all bounds with a little to spare, by a linear program of SciPy."""
    from scipy.optimize import linprog

    (d, m), rows, limits = B.shape, [], []
    moved, still = np.zeros((d, horizon * m)), np.array(x)
    for k in range(horizon):
        moved, still = A @ moved, A @ still
        moved[:, k * m : (k + 1) * m] += B
        rows += [moved.copy(), -moved]
        limits += [x_max - still, still - x_min]
    change = np.eye(horizon * m) - np.eye(horizon * m, k=-m)
    first = np.concatenate([used, np.zeros((horizon - 1) * m)])
    rows += [change, -change]
    limits += [np.tile(du_max, horizon) + first, np.tile(du_max, horizon) - first]
    bounds = list(zip(np.tile(u_min, horizon), np.tile(u_max, horizon), strict=True))
    cost, limits = np.zeros(horizon * m), np.concatenate(limits) - 1e-6
    return linprog(cost, np.vstack(rows), limits, bounds=bounds).status == 0
