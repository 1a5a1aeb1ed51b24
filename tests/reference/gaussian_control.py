"""Linear-quadratic-Gaussian control as in a textbook: a Kalman filter and a gain, apart.

B. D. O. Anderson, J. B. Moore, "Optimal Control: Linear Quadratic Methods", chapter 8.
"""

import numpy as np
import scipy.linalg


def gain(A, B, Q, R):
    """F of u = −F x, by SciPy's Riccati equation."""
    P = scipy.linalg.solve_discrete_are(A, B, Q, R)
    return np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)


def inputs(A, B, C, Q, R, process, observation, mean, cov, zs):
    """u_0, u_1, … for observations z_0, z_1, … that no input changes; before z_0, u is 0.

    Arguments:
        mean, cov: of the state one sample before z_0.
    """
    F, u, found = gain(A, B, Q, R), np.zeros(B.shape[1]), []
    for z in zs:
        mean, cov = A @ mean + B @ u, A @ cov @ A.T + process
        S = C @ cov @ C.T + observation
        K = cov @ C.T @ np.linalg.inv(S)
        mean, cov = mean + K @ (z - C @ mean), cov - K @ S @ K.T
        u = -F @ mean
        found.append(u)
    return np.array(found)
