"""States from the gradient of a few consecutive samples: the worst that training can reveal.

Levenberg-Marquardt from several starts; the guess that explains the gradient best is taken.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.audit.local_loss import LocalLoss, trained_updates
from fedkoopman.audit.reconstruction import DOUBT, Prior, Reconstruction, judged, ratios
from fedkoopman.audit.watching import Update, spread_out
from fedkoopman.federation.algorithm import Problem
from fedkoopman.federation.options import PrivacyOptions

__all__ = ["gradient_attack", "sent_gradient"]

SAMPLES = 8
"""Samples behind the one gradient."""
STARTS, ITERATIONS = 8, 40
MOST = 2
"""Sites whose mean gradient is followed back; the more there are, the more they hide."""


def gradient_attack(
    problem: Problem,
    updates: Sequence[Update],
    *,
    victims: int,
    together: int = 1,
    seed: int,
    tell: Callable[[int, int], None] = lambda *_: None,
) -> Reconstruction | str:
    """States from the gradient of a few consecutive samples.

    Arguments:
        victims: sites' segments that are attacked, with models from all over the federation.
        together: sites whose mean gradient the server sees; at most two are taken.
    """
    together = min(together, MOST)
    kept = trained_updates(problem, updates)
    length = SAMPLES + problem.architecture.window + max(problem.architecture.leads) - 1
    kept = [u for u in kept if any(len(s) >= length for s in u.segments)]
    if not kept:
        return "its sites send sums, and no gradients"
    found = []
    for number, update in enumerate(spread_out(kept, victims)):
        tell(number, victims)
        random = np.random.default_rng([seed, number])
        loss = LocalLoss.of(problem, update)
        start, fixed = loss.given(update)
        others = [u for u in kept if u.client != update.client]
        donors = [update, *(others[i] for i in random.permutation(len(others))[: together - 1])]
        truth = np.stack([_piece(donor, length, random) for donor in donors])
        with jax.enable_x64(True):
            sent, noise = sent_gradient(loss, start, fixed, truth, problem.privacy, random)
        prior = Prior.besides(kept, {donor.client for donor in donors})
        starts = np.stack([
            np.stack([prior.draw(length, random) for _ in donors]) for _ in range(STARTS)
        ])  # fmt: skip
        scale = float(np.linalg.norm(sent))
        doubt = max(DOUBT, noise / max(scale, 1e-300))
        with jax.enable_x64(True):
            guesses, costs = _inverted(
                starts, start, fixed, sent / max(scale, 1e-300), 1 / max(scale, 1e-300), doubt,
                prior.mean, prior.spread, loss=loss, clip=_clip(problem.privacy),
            )  # fmt: skip
        best = np.asarray(guesses)[int(np.nanargmin(np.asarray(costs)))]
        found.append(ratios(best, truth, starts, prior))
    tell(victims, victims)
    return judged(found, samples=length, together=together, seed=seed)


def sent_gradient(
    loss: LocalLoss,
    start: NDArray[np.float64],
    fixed: dict[str, NDArray[Any]],
    truth: NDArray[np.float64],
    privacy: PrivacyOptions,
    random: np.random.Generator,
) -> tuple[NDArray[np.float64], float]:
    """The mean gradient of some sites' samples as the server gets it, and the noise in it.

    With privacy at the sites every record's gradient is shortened to `clip`, and the sum over a
    site's records gets noise of standard deviation `noise` times `clip`. A record is a sample, or
    all samples together, as they are of one segment.

    Arguments:
        truth: states of each site, (sites, time, state).
    """
    mean = np.asarray(_mean_gradient(start, fixed, truth, loss=loss, clip=_clip(privacy)))
    if privacy.mode != "site":
        return mean, 0.0
    records = SAMPLES if privacy.record == "sample" else 1
    noise = privacy.noise * privacy.clip / records / np.sqrt(len(truth))
    return mean + noise * random.standard_normal(mean.shape), noise


def _clip(privacy: PrivacyOptions) -> tuple[float, str] | None:
    """Longest gradient of a record, and what a record is; None without privacy at the sites."""
    return (privacy.clip, privacy.record) if privacy.mode == "site" else None


@partial(jax.jit, static_argnames=("loss", "clip"))
def _mean_gradient(
    start: Float[Array, " parameters"],
    fixed: dict[str, Array],
    states: Float[Array, "sites time state"],
    *,
    loss: LocalLoss,
    clip: tuple[float, str] | None,
) -> Float[Array, " parameters"]:
    longest, record = clip or (jnp.inf, "segment")
    gradient = jax.vmap(lambda one: loss.gradient(start, fixed, one))
    if record == "segment":
        return jnp.mean(_shortened(gradient(states), longest), axis=0)
    window = loss.kind.window + max(loss.kind.leads)
    count = states.shape[1] - window + 1
    pieces = jnp.stack([states[:, i : i + window] for i in range(count)], axis=1)
    return jnp.mean(_shortened(jax.vmap(gradient)(pieces), longest), axis=(0, 1))


def _shortened(each: Float[Array, "*records parameters"], longest: float) -> Array:
    """Gradients that are no longer than so much."""
    if not np.isfinite(longest):
        return each
    lengths = jnp.linalg.norm(each, axis=-1, keepdims=True)
    return each * jnp.minimum(1, longest / jnp.maximum(lengths, 1e-30))


@partial(jax.jit, static_argnames=("loss", "clip"))
def _inverted(
    starts: Float[Array, "starts sites time state"],
    weights: Float[Array, " parameters"],
    fixed: dict[str, Array],
    sent: Float[Array, " parameters"],
    scale: Float[Array, ""] | float,
    doubt: Float[Array, ""] | float,
    mean: Float[Array, " state"],
    spread: Float[Array, " state"],
    *,
    loss: LocalLoss,
    clip: tuple[float, str] | None,
) -> tuple[Float[Array, "starts sites time state"], Float[Array, " starts"]]:
    """Levenberg-Marquardt from every start: standardised states, and what is left of the cost."""
    shape = starts.shape[1:]

    def residual(v: Float[Array, " unknowns"]) -> Float[Array, " residuals"]:
        states = v.reshape(shape) * spread + mean
        found = _mean_gradient(weights, fixed, states, loss=loss, clip=clip)
        return jnp.concatenate([scale * found - sent, doubt * v])

    def cost(v: Float[Array, " unknowns"]) -> Float[Array, ""]:
        return jnp.sum(residual(v) ** 2)

    def step(_: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        v, damping, before = carry
        slope, left = jax.jacfwd(residual)(v), residual(v)
        normal = slope.T @ slope
        damped = normal + damping * (jnp.diag(jnp.diag(normal)) + 1e-12 * jnp.eye(len(v)))
        there = v - jnp.linalg.solve(damped, slope.T @ left)
        after = cost(there)
        better = after < before
        return (
            jnp.where(better, there, v),
            jnp.clip(jnp.where(better, damping / 3, damping * 4), 1e-12, 1e12),
            jnp.where(better, after, before),
        )

    def one(v: Float[Array, " unknowns"]) -> tuple[Array, Array]:
        found, _, left = jax.lax.fori_loop(0, ITERATIONS, step, (v, jnp.asarray(1e-2), cost(v)))
        return found.reshape(shape), left

    return jax.lax.map(one, starts.reshape(len(starts), -1))


def _piece(update: Update, length: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Some consecutive states of one of an update's segments."""
    long = [s for s in update.segments if len(s) >= length]
    one = long[random.integers(len(long))]
    first = random.integers(len(one) - length + 1)
    return np.asarray(one[first : first + length], float)
