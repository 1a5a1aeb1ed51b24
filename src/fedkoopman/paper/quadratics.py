"""Quadratic losses on which every constant of Theorem 1 is known, and the processes it speaks of.

Client n has L_n(w) = ½ (w − a_n)ᵀ H_n (w − a_n) + c_n. In every slot it steps along a stochastic
gradient of variance δ_n² plus an error of variance σ_n², both normal and drawn anew.

The appendix's process and FedAvg-M differ in one thing only. In both, a round of E slots starts
from the clients' models, and the mean of the selected clients' results becomes everybody's model.
When nobody is selected, the appendix lets every client keep its own result, while FedAvg-M's server
keeps the model from before the round (a client without data trains to no effect).

We decide what the appendix leaves open. All clients start from one ω_0. Losses do not change over
time, because ω* is the same in all slots. Selected and unselected clients have the error, as in the
definition of ν_{t+1}. FedAvg-M's step sizes count every slot, also those of empty rounds.

`simulate` draws many runs of a process. `expect` gives its exact expectations: steps are affine in
the models and noise is independent of them, so second moments follow a linear recursion. The state
is z = (ω^1 − ω*, …, ω^N − ω*, 1); its second moment M = E[z zᵀ] holds the means in the last column.
A slot maps M to A M Aᵀ + η² Q. A selection gives all clients the model Σ_n q_n ω^n, of which only
E[q_n²] and E[q_n q_m] matter. M is kept for all p at once, with p as the last axis.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedkoopman.theory import Constants, selected

Process = Literal["appendix", "fedavg-m"]
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Quadratics:
    """The losses of N clients in d dimensions, their noise, and where all start.

    Attributes:
        curvatures: H_n, symmetric and positive definite: (N, d, d).
        minima: a_n: (N, d).
        lowest: c_n, the least value of each loss: (N,).
        start: ω_0: (d,).
        gradient_noise: δ_n: (N,).
        error: σ_n: (N,).
    """

    curvatures: Array
    minima: Array
    lowest: Array
    start: Array
    gradient_noise: Array
    error: Array

    @property
    def clients(self) -> int:
        """N."""
        return len(self.minima)

    @cached_property
    def smoothness(self) -> float:
        """L: the largest eigenvalue of any H_n."""
        return float(np.linalg.eigvalsh(self.curvatures).max())

    @cached_property
    def convexity(self) -> float:
        """μ: the smallest eigenvalue of any H_n."""
        return float(np.linalg.eigvalsh(self.curvatures).min())

    @cached_property
    def target(self) -> Array:
        """ω*, where the mean of the losses is least."""
        pull = np.einsum("nij,nj->i", self.curvatures, self.minima)
        solution: Array = np.linalg.solve(self.curvatures.sum(axis=0), pull)
        return solution

    def losses(self, model: Array) -> Array:
        """Every client's loss of a model."""
        apart = model - self.minima
        values: Array = np.einsum("ni,nij,nj->n", apart, self.curvatures, apart) / 2 + self.lowest
        return values

    @property
    def heterogeneity(self) -> float:
        """Γ = L(ω*) − (1/N) Σ_n L_n*."""
        return float(self.losses(self.target).mean() - self.lowest.mean())

    @property
    def initial(self) -> float:
        """‖ω_0 − ω*‖²."""
        return float(np.sum((self.start - self.target) ** 2))

    def constants(
        self, gradient_square: float, probability: float, steps: int, never_empty: bool = False
    ) -> Constants:
        """What Theorem 1 needs: everything is the problem's own but G², p and E."""
        return Constants(
            smoothness=self.smoothness,
            convexity=self.convexity,
            gradient_bound=float(np.sqrt(gradient_square)),
            clients=self.clients,
            probability=probability,
            local_steps=steps,
            heterogeneity=self.heterogeneity,
            gradient_noise=tuple(self.gradient_noise.tolist()),
            error=tuple(self.error.tolist()),
            never_empty=never_empty,
        )


def draw_quadratics(
    random: np.random.Generator,
    *,
    clients: int,
    dim: int,
    smoothness: float,
    convexity: float,
    heterogeneity: float,
    initial: float,
    gradient_noise: float,
    error: float,
) -> Quadratics:
    """Random frames and minima with given constants, which they have to rounding.

    Arguments:
        random: what frames, minima and the direction of the start are drawn from.
        smoothness, convexity: the eigenvalues of all H_n lie between them, evenly on a
            logarithmic scale, in random order.
        heterogeneity: Γ.
        initial: ‖ω_0 − ω*‖².
        gradient_noise, error: δ_n and σ_n of every client.
    """
    eigenvalues = random.permutation(np.geomspace(convexity, smoothness, clients * dim))
    frames, _ = np.linalg.qr(random.normal(size=(clients, dim, dim)))
    scaled = frames * eigenvalues.reshape(clients, 1, dim)
    curvatures = scaled @ frames.swapaxes(1, 2)
    lowest = random.random(clients)
    direction = random.normal(size=dim)
    noise = np.full(clients, gradient_noise), np.full(clients, error)
    raw = Quadratics(curvatures, random.normal(size=(clients, dim)), lowest, direction, *noise)
    scale = np.sqrt(heterogeneity / raw.heterogeneity) if heterogeneity else 0.0
    start = raw.target + direction * np.sqrt(initial / np.sum(direction**2))
    return Quadratics(
        curvatures, raw.target + scale * (raw.minima - raw.target), lowest, start, *noise
    )


@dataclass(frozen=True, eq=False)
class Draws:
    """Means over draws.

    Attributes:
        distance: of ‖ω_t − ω*‖² for t = 0 … T; NaN where FedAvg-M's server has no model.
        uncertainty: their standard errors.
        gradient_square: G², the largest over clients and slots of the mean of ‖∇L_n(ω_t^n)‖² + δ_n²
            (the noise itself is left out of the mean, whose share in it is known).
    """

    distance: Array
    uncertainty: Array
    gradient_square: float


def simulate(
    problem: Quadratics,
    step_sizes: Array,
    process: Process,
    *,
    probability: float,
    steps: int,
    draws: int,
    random: np.random.Generator,
    never_empty: bool = False,
) -> Draws:
    """Run a process many times at once.

    Arguments:
        problem: losses, noise and start.
        step_sizes: η_0 … η_{T−1}.
        process: "appendix" or "fedavg-m".
        probability: p.
        steps: E, slots in a round.
        draws: how many runs, at least 2.
        random: what all draws are made of.
        never_empty: whether rounds without a selected client are drawn again.
    """
    n, d = problem.minima.shape
    deviation = np.sqrt((problem.gradient_noise**2 + problem.error**2) / d)[:, None, None]
    minima, target = problem.minima[:, :, None], problem.target[:, None]
    distance, uncertainty = np.full((2, len(step_sizes) + 1), np.nan)
    distance[0], uncertainty[0], largest = problem.initial, 0.0, 0.0
    models = before = np.tile(problem.start[:, None], (n, 1, draws))
    for t, size in enumerate(step_sizes):
        gradient = problem.curvatures @ (models - minima)
        squares = np.sum(gradient**2, axis=(1, 2)) / draws + problem.gradient_noise**2
        largest = max(largest, float(squares.max()))
        # the gradient's noise and the error are normal: only their sum matters
        noise = random.standard_normal(models.shape) * deviation
        models = models - size * (gradient + noise)
        ends = (t + 1) % steps == 0
        if ends:
            mask = _selection(random, n, draws, probability, never_empty)
            count = mask.sum(axis=0)
            mean = (mask[:, None] * models).sum(axis=0) / np.maximum(count, 1)
            kept = models if process == "appendix" else before
            models = before = np.where(count > 0, mean, kept)
        if ends or process == "appendix":
            apart = np.sum((models.mean(axis=0) - target) ** 2, axis=0)
            distance[t + 1] = apart.mean()
            uncertainty[t + 1] = apart.std(ddof=1) / np.sqrt(draws)
    return Draws(distance, uncertainty, largest)


def _selection(
    random: np.random.Generator, clients: int, draws: int, probability: float, never_empty: bool
) -> Array:
    """1 for each selected client, else 0: (N, R)."""
    luck = random.random((clients, draws))
    if not never_empty:
        return (luck < probability).astype(float)
    chance = selected(clients, probability, never_empty=True)
    count = random.choice(clients + 1, size=draws, p=chance)
    rank = luck.argsort(axis=0).argsort(axis=0)
    return (rank < count).astype(float)


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
