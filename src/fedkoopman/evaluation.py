"""How good a model is on held-out, noise-free trajectories (Section V-A).

Test losses ℓ1, ℓ2, ℓ3; the prediction errors E₁, E₂ and E, eq. (39)-(41); rollouts, and how long
they stay valid. E_{1,l} and E_{2,l} average over k = 0 … ζ − l, which takes ζ + 1 states in a row.
Where one application of K advances τ samples, l counts applications; where inputs are windows of μ
states, whole windows are compared.

Where test data stay apart, every site scores on windows of its own held-out segments. What
is recorded is the mean over all windows, which needs of each site its means and their number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.compilation import one_core
from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.koopman.training import Training


class Metrics(NamedTuple):
    """One model's scores."""

    l1: float
    l2: float
    l3: float
    e1: float
    """E₁ = Σ_l E_{1,l} / l₁: error of predicted states."""
    e2: float
    """E₂ = Σ_l E_{2,l} / l₂: error of predicted lifted states."""
    horizon: float
    """Mean number of samples for which a rollout stays valid."""

    @property
    def e(self) -> float:
        """E = (E₁ + E₂) / 2."""
        return (self.e1 + self.e2) / 2


@dataclass(frozen=True, eq=False)
class TestSet:
    """Held-out trajectories and how they are scored.

    Attributes:
        trajectories: (R, T, d), noise-free; T = ζ + 1 where they are simulated.
        horizon: l₁ = l₂, the most applications of K in E₁ and E₂.
        valid_error: a rollout is valid until its error exceeds this share of the spread of the
            test states.
    """

    trajectories: NDArray
    horizon: int = 5
    valid_error: float = 0.4
    inputs: int = 0

    @property
    def states(self) -> NDArray:
        """The trajectories without inputs."""
        return self.trajectories[..., : self.trajectories.shape[-1] - self.inputs]

    @cached_property
    def spread(self) -> float:
        """Root mean square distance of the test states from their mean."""
        states = self.states.reshape(-1, self.states.shape[-1])
        return float(np.sqrt(((states - states.mean(axis=0)) ** 2).sum(axis=1).mean()))

    __test__ = False  # not a test, whatever pytest makes of the name


def evaluate(architecture: Kind, weights: Weights, test: TestSet) -> Metrics:
    """Score a model."""
    dtype = np.asarray(jax.tree.leaves(weights)[0]).dtype
    with jax.enable_x64(dtype == np.float64):
        values = _metrics(
            weights,
            np.asarray(test.trajectories, dtype),
            np.asarray(test.valid_error * test.spread, dtype),
            architecture=architecture,
            horizon=test.horizon,
        )
        return Metrics(*(float(value) for value in np.asarray(values)))


def persistence(test: TestSet) -> Metrics:
    """The scores of x̂_{k+l} = x_k, which is the lift y = x with K = I.

    One-step errors of a good model are below it; at short sampling intervals that is hard.
    """
    x = test.states
    held = [float(np.mean((x[:, k:] - x[:, :-k]) ** 2)) for k in range(1, test.horizon + 1)]
    error = np.sqrt(((x[:, 1:] - x[:, :1]) ** 2).sum(axis=-1))
    valid = np.cumprod(error <= test.valid_error * test.spread, axis=1).sum(axis=1).mean()
    far = float(np.mean(held))
    return Metrics(l1=held[0], l2=0.0, l3=held[0], e1=far, e2=far, horizon=float(valid))


def errors_over_holding(
    predict: Callable[[NDArray, int], NDArray],
    tests: Sequence[NDArray],
    leads: Sequence[int],
    *,
    first: int,
    depth: int,
    inputs: int = 0,
) -> NDArray[np.float64]:
    """Root mean square errors of predictions, over those of holding the last state, by lead.

    Every state counts the same, whatever its unit. Only the newest state of a window is compared
    and all models start from the same samples, so that kinds and windows can be compared. Of each
    element of `tests`, which may lie at a site of its own, sums are taken and nothing else.

    Arguments:
        predict: from trajectories (R, T, d) and a number of applications of K to the states so
            long after each window, (R, T − μ + 1, d).
        tests: trajectories (R, T, d).
        leads: numbers of applications. Without a trajectory long enough, the result is NaN.
        first: the sample, from 0, at which the first prediction starts; at least μ − 1.
        depth: τ.
        inputs: how many columns of the trajectories, the last ones, are inputs.
    """
    dim = tests[0].shape[-1] - inputs
    squares = np.zeros((2, len(leads), dim))
    for rows in tests:
        x = rows[..., :dim]
        for i, lead in enumerate(leads):
            start, truth = (
                x[:, first : max(x.shape[1] - lead * depth, 0)],
                x[:, first + lead * depth :],
            )
            if not start.size:
                continue
            with np.errstate(over="ignore", invalid="ignore"):  # a model may have diverged
                ahead = np.asarray(predict(rows, lead))
                begin = first - (x.shape[1] - ahead.shape[1])
                ahead = ahead[:, begin : begin + start.shape[1]]
                for place, guess in enumerate((ahead, start)):
                    squares[place, i] += ((guess - truth) ** 2).sum(axis=(0, 1))
    found = np.full(len(leads), np.nan)
    for i, (model, held) in enumerate(squares.swapaxes(0, 1)):
        if (moving := held > 0).any():
            ratio = float(np.sqrt(np.mean(model[moving] / held[moving])))
            found[i] = ratio if np.isfinite(ratio) else np.inf
    return found


@one_core("architecture", "horizon")
def _metrics(
    weights: Weights,
    trajectories: Float[Array, "runs time state"],
    valid: Float[Array, ""],
    *,
    architecture: Kind,
    horizon: int,
) -> Float[Array, " metrics"]:
    depth, window = architecture.depth, architecture.window
    d, m, count = architecture.state_dim, architecture.inputs, trajectories.shape[1] - window + 1
    paths = trajectories[..., :d]
    # What was put in from the newest state of each window on, (runs, m, count).
    drives = trajectories[:, window - 1 :, d:].swapaxes(1, 2)
    first = paths[:, :window].reshape(len(trajectories), -1).T
    applications = (count - 1) // depth
    operator = architecture.operator(weights)
    if m:
        past = trajectories[:, : window - 1, d:].reshape(len(trajectories), -1).T
        start = architecture.lift(weights, jnp.concatenate([past, first]))
        lifted = _driven(architecture, weights, start, drives, applications)
    else:
        lifted = _powers(operator, architecture.lift(weights, first), applications)

    def one(total: Array, given: tuple[Array, Array, Array]) -> tuple[Array, None]:
        """Add one trajectory: small enough to stay in the cache."""
        rows, free, drive = given
        states, inputs = rows[:d], rows[d:]
        before = [inputs[:, i : i + count] for i in range(window - 1)] if m else []
        x = jnp.concatenate(before + [states[:, i : i + count] for i in range(window)])
        y = architecture.lift(weights, x)
        ahead = [y[:, : count - depth]]
        for step in range(horizon):
            # What would reach past the end is dropped, l applications at a time.
            known = ahead[-1] if len(ahead) == 1 else ahead[-1][:, :-depth]
            if m:
                u = drive[:, step : step + known.shape[1]]
                ahead.append(architecture.advance(weights, known, u))
            else:
                ahead.append(operator @ known)
        # One pass through the decoder for all that is to be decoded.
        decoded = architecture.decode(weights, jnp.concatenate([*ahead, free], axis=1))
        widths = np.cumsum([columns.shape[1] for columns in ahead]).tolist()
        # Inputs among the windows are known, and no model's merit.
        decoded, x = decoded[(window - 1) * m :], x[(window - 1) * m :]
        reconstructed, *predicted, rolled = jnp.split(decoded, widths, axis=1)

        e1 = [jnp.mean((x[:, (i + 1) * depth :] - p) ** 2) for i, p in enumerate(predicted)]
        e2 = [jnp.mean((y[:, (i + 1) * depth :] - p) ** 2) for i, p in enumerate(ahead[1:])]
        truth = x[-d:, depth::depth]
        error = jnp.sqrt(jnp.sum((rolled[-d:] - truth) ** 2, axis=0))
        metrics = [
            e2[0],
            jnp.mean((x[:, : count - depth] - reconstructed) ** 2),
            e1[0],
            sum(e1) / horizon,
            sum(e2) / horizon,
            depth * jnp.sum(jnp.cumprod(error <= valid)).astype(x.dtype),
        ]
        return total + jnp.stack(metrics), None

    given = (trajectories.swapaxes(1, 2), jnp.moveaxis(lifted, 2, 0), drives)
    total = jax.lax.scan(one, jnp.zeros(6, trajectories.dtype), given)[0]
    return total / len(trajectories)


def _driven(
    architecture: Kind,
    weights: Weights,
    y: Float[Array, "lifted n"],
    drives: Float[Array, "n inputs time"],
    steps: int,
) -> Float[Array, "lifted steps n"]:
    """The lifted states of a driven model, one step after the other."""

    def step(y: Array, u: Array) -> tuple[Array, Array]:
        ahead = architecture.advance(weights, y, u.T)
        return ahead, ahead

    found = jax.lax.scan(step, y, jnp.moveaxis(drives, 2, 0)[:steps])[1]
    return found.swapaxes(0, 1)


def _powers(
    operator: Float[Array, "lifted lifted"], y: Float[Array, "lifted n"], steps: int
) -> Float[Array, "lifted steps n"]:
    """K y, K² y, … by doubling: log₂ as many products as one step after the other.

    Powers of K overflow before K does; a rollout counts as invalid from there on.
    """
    found, power = (operator @ y)[:, None], operator
    while found.shape[1] < steps:
        ahead = (power @ found.reshape(len(y), -1)).reshape(found.shape)
        found, power = jnp.concatenate([found, ahead], axis=1), power @ power
    return found[:, :steps]


def windows_of_site(
    held_out: Sequence[NDArray[np.float64]], steps: int, most: int
) -> NDArray[np.float64] | None:
    """A site's held-out states as consecutive windows of equal length, (R, ζ + 1, d).

    Arguments:
        held_out: states (T_i, d) of its segments; without any, the result is None.
        steps: ζ, or less where its shortest segment has fewer.
        most: how many windows are taken, from the first on.
    """
    if not held_out:
        return None
    steps = min(steps, *(len(states) - 1 for states in held_out))
    windows = [
        states[first : first + steps + 1]
        for states in held_out
        for first in range(0, len(states) - steps, steps)
    ]
    return np.stack(windows[:most])


def site_test_set(
    held_out: Sequence[NDArray[np.float64]],
    *,
    steps: int,
    most: int,
    horizon: int,
    valid_error: float,
    inputs: int = 0,
) -> TestSet | None:
    """What a site scores on; None if it holds nothing out."""
    windows = windows_of_site(held_out, steps, most)
    return None if windows is None else TestSet(windows, horizon, valid_error, inputs)


def combined(scores: Sequence[tuple[Metrics, int]]) -> Metrics:
    """Means over all windows, from each site's means and their number.

    Arguments:
        scores: in the sites' order, which decides how the sums are rounded.
    """
    if len(scores) == 1:
        return scores[0][0]
    total = sum(windows for _, windows in scores)
    columns = zip(*(metrics for metrics, _ in scores), strict=True)
    counts = [windows for _, windows in scores]
    return Metrics(
        *(
            sum(value * n for value, n in zip(column, counts, strict=True)) / total
            for column in columns
        )
    )


def scores_of(found: Metrics, training: Training) -> dict[str, float]:
    """A model's scores as they stand in a record."""
    w1, w2, w3 = training.loss_weights
    return {
        "loss": w1 * found.l1 + w2 * found.l2 + w3 * found.l3,
        "l1": found.l1,
        "l2": found.l2,
        "l3": found.l3,
        "E1": found.e1,
        "E2": found.e2,
        "E": found.e,
        "horizon": found.horizon,
    }
