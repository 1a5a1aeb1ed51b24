"""The processes of `quadratics` in expectation, without a draw.

Steps are affine in the models and noise is independent of them, so second moments follow a linear
recursion. The state is z = (ω^1 − ω*, …, ω^N − ω*, 1); its second moment M = E[z zᵀ] holds the
means in the last column. A slot maps M to A M Aᵀ + η² Q. A selection gives all clients the model
Σ_n q_n ω^n, of which only E[q_n²] and E[q_n q_m] matter. M is kept for all p at once, p last.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkoopman.paper.quadratics import Process, Quadratics
from fedkoopman.theory import selected

__all__ = ["Expected", "expect"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Expected:
    """Exact expectations, a row for each probability p.

    Attributes:
        distance: E‖ω_t − ω*‖² for t = 0 … T; NaN where FedAvg-M's server has no model.
        spread: (1/N) Σ_n E‖ν_t^n − ν_t‖² for t = 1 … T, how far apart clients are before selection.
        gradient_square: G², the largest E‖∇L_n(ω_t^n; ξ)‖² over clients and slots.
    """

    distance: Array
    spread: Array
    gradient_square: Array


def expect(
    problem: Quadratics,
    step_sizes: Array,
    process: Process,
    *,
    probabilities: Sequence[float],
    steps: int,
    never_empty: bool = False,
) -> Expected:
    """Expectations of a process for several p at once; arguments as in `simulate`."""
    n, d = problem.minima.shape
    size, count = n * d + 1, len(probabilities)
    gradients, read, blocks = _gradients(problem), _readings(problem), _blocks(n, d)
    noise = np.append(np.repeat((problem.gradient_noise**2 + problem.error**2) / d, d), 0.0)
    nobody, same, other = np.transpose([_weights(n, p, never_empty) for p in probabilities])

    z = np.append(np.tile(problem.start - problem.target, n), 1.0)
    moment = before = np.repeat(np.outer(z, z)[:, :, None], count, axis=2)
    distance = np.full((len(step_sizes) + 1, count), np.nan)
    spread = np.empty((len(step_sizes), count))
    squares, (distance[0], _) = np.split(read @ moment.reshape(-1, count), [n])
    largest = np.zeros(count)
    for t, eta in enumerate(step_sizes):
        largest = np.maximum(largest, (squares + problem.gradient_noise[:, None] ** 2).max(axis=0))
        step = np.eye(size)
        step[:-1] -= eta * gradients
        for _ in range(2):  # A M Aᵀ of a symmetric M: from the left, turned over, once more
            moment = (step @ moment.reshape(size, -1)).reshape(moment.shape).swapaxes(0, 1)
        moment = moment + np.diag(eta**2 * noise)[:, :, None]
        squares, (apart, own) = np.split(read @ moment.reshape(-1, count), [n])
        spread[t] = own - apart
        ends = (t + 1) % steps == 0
        if ends:
            alike, unlike, mean = np.split(blocks @ moment.reshape(-1, count), [d * d, 2 * d * d])
            square = (same * alike + other * unlike).reshape(d, d, count)
            mean = np.tile((1 - nobody) * mean, (n, 1))
            moment = nobody * (moment if process == "appendix" else before)
            moment[:-1, :-1] += np.tile(square, (n, n, 1))
            moment[:-1, -1] += mean
            moment[-1, :-1] += mean
            moment[-1, -1] = 1.0
            before = moment
            squares, (apart, _) = np.split(read @ moment.reshape(-1, count), [n])
        if ends or process == "appendix":
            distance[t + 1] = apart
    return Expected(distance.T, spread.T, largest)


def _gradients(problem: Quadratics) -> Array:
    """Z with Z z = (∇L_1(ω^1), …, ∇L_N(ω^N))."""
    n, d = problem.minima.shape
    matrix = np.zeros((n * d, n * d + 1))
    for i, (curvature, minimum) in enumerate(zip(problem.curvatures, problem.minima, strict=True)):
        rows = slice(i * d, (i + 1) * d)
        matrix[rows, rows] = curvature
        matrix[rows, -1] = -curvature @ (minimum - problem.target)
    return matrix


def _readings(problem: Quadratics) -> Array:
    """What is read from M, linear in it: E‖∇L_n‖² of each client, E‖ω−ω*‖², mean E‖ω^n−ω*‖²."""
    n, d = problem.minima.shape
    rows = np.split(_gradients(problem), n)
    models = np.eye(n * d, n * d + 1)
    mean = models.reshape(n, d, -1).mean(axis=0)
    forms = [*(row.T @ row for row in rows), mean.T @ mean, models.T @ models / n]
    return np.stack([form.ravel() for form in forms])


def _blocks(n: int, d: int) -> Array:
    """What a selection needs of M: Σ_n M_nn, Σ_{n≠m} M_nm, and the mean of all models."""
    places = np.arange((n * d + 1) ** 2).reshape(n * d + 1, -1)
    pairs = places[:-1, :-1].reshape(n, d, n, d)
    alike, unlike = np.zeros((2, d * d, places.size))
    for i in range(n):
        for j in range(n):
            chosen = alike if i == j else unlike
            chosen[np.arange(d * d), pairs[i, :, j].ravel()] = 1.0
    mean = np.zeros((d, places.size))
    for i in range(n):
        mean[np.arange(d), places[i * d : (i + 1) * d, -1]] = 1 / n
    return np.concatenate([alike, unlike, mean])


def _weights(clients: int, probability: float, never_empty: bool) -> tuple[float, float, float]:
    """Pr{nobody is selected}, E[q_n²] and E[q_n q_m] for m ≠ n, q_n = 1/k for the k selected."""
    chance = selected(clients, probability, never_empty)
    k = np.arange(1, clients + 1)
    same = np.sum(chance[1:] / k) / clients
    other = np.sum(chance[1:] * (k - 1) / k) / (clients * max(clients - 1, 1))
    return float(chance[0]), float(same), float(other)
