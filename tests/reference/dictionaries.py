"""Textbook twin of the closed-form kinds: data matrices in NumPy, one row per window.

Nothing here adds up products of functions: everything is solved from the matrices themselves.
"""

import numpy as np
from sklearn.preprocessing import PolynomialFeatures


def windows(segments, window=1, depth=1, ahead=1):
    """Windows that are followed by `ahead` steps of `depth` samples in their segment, oldest state
    first, (n, window · d), and the state at each of these steps, (n, ahead, d), one by one."""
    rows, later, states = [], [], []
    for segment in segments:
        for k in range(len(segment)):
            last = k + window - 1
            if last + ahead * depth >= len(segment):
                continue
            rows.append(np.ravel(segment[k : k + window]))
            later.append(np.ravel(segment[k + depth : k + depth + window]))
            states.append([segment[last + depth * step] for step in range(1, ahead + 1)])
    d = segments[0].shape[1]
    shape = (-1, window * d)
    return (
        np.reshape(rows, shape),
        np.reshape(later, shape),
        np.reshape(states, (-1, ahead, d)),
    )


def monomials(u, degree):
    """Of the rows of u, by scikit-learn."""
    return PolynomialFeatures(degree).fit_transform(u)


def fourier(u, frequencies):
    """cos(Ω u + b) of every row; the matrix is [Ω b]."""
    return np.cos([[row[:-1] @ x + row[-1] for row in frequencies] for x in u])


def gaussians(u, centres):
    """exp(−‖u − c‖² / 2s²) of every row; the matrix is [c s]."""
    return np.array(
        [[np.exp(-np.sum((x - row[:-1]) ** 2) / (2 * row[-1] ** 2)) for row in centres] for x in u]
    )


def layers(u, matrices):
    """All hidden layers of a perceptron with SiLU, side by side."""
    found, level = [], u
    for matrix in matrices:
        level = level @ matrix[:, :-1].T + matrix[:, -1]
        level = level / (1 + np.exp(-level))
        found.append(level)
    return np.hstack(found)


def scale(segments):
    """Mean and standard deviation of all states."""
    x = np.concatenate(segments)
    return x.mean(axis=0), x.std(axis=0)


def subspace(now, later, future, rank, discount, weights=None):
    """Reduced-rank regression of the future window on functions, from data matrices.

    Arguments:
        now, later: functions of windows and of their successors, (n, D).
        future: the window's own numbers first, then the state at every step, a list of (n, …).
        rank: how many directions are kept.
        discount: step l weighs (l + 1)^−discount.
        weights: of the windows.

    Returns:
        Predictions of every window's own numbers after 0, 1, 2, … steps are
        `scores @ operator^l @ decoder`; here scores, operator and decoder, and the lifting with
        `scores = now @ lifting`.
    """
    root = np.ones((len(now), 1)) if weights is None else np.sqrt(weights)[:, None]
    # An orthonormal basis of the functions' span over the data, by a singular value decomposition.
    basis, values, right = np.linalg.svd(root * now, full_matrices=False)
    kept = values > 1e-9 * values[0]
    basis, inverse = basis[:, kept], right[kept].T / values[kept]
    targets = [(i + 1.0) ** -discount * root * part for i, part in enumerate(future)]
    fitted = basis @ (basis.T @ np.hstack(targets))  # all of the future that is told by the present
    leading = np.linalg.svd(fitted, full_matrices=False)[0][:, :rank]
    lifting = inverse @ (basis.T @ leading)
    operator = np.linalg.lstsq(root * (now @ lifting), root * (later @ lifting), rcond=None)[0]
    decoder = np.linalg.lstsq(root * (now @ lifting), root * future[0], rcond=None)[0]
    return now @ lifting, operator, decoder, lifting
