"""States from real updates: their many steps, written out (`unrolled`), are followed back.

Adam on the states. It starts at the mean of the prior: where nothing is learned, the error stays
that of guessing the mean.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.audit.local_loss import LocalLoss, flat, trained_updates
from fedkoopman.audit.reconstruction import DOUBT, Prior, Reconstruction, judged, ratios
from fedkoopman.audit.unrolled import batches_of, trained
from fedkoopman.audit.watching import Update, spread_out
from fedkoopman.federation.algorithm import Problem

__all__ = ["update_attack"]

RATE = 0.05
"""Of Adam on states, in units of their spread."""


def update_attack(
    problem: Problem,
    updates: Sequence[Update],
    *,
    victims: int,
    iterations: int,
    summed: bool = False,
    seed: int,
    tell: Callable[[int, int], None] = lambda *_: None,
) -> Reconstruction | str:
    """States from real updates.

    Arguments:
        victims: updates that are attacked.
        iterations: of Adam on the states.
        summed: whether the server sees the weighted mean of a slot's updates only; then slots in
            which at least two sites trained are attacked.
    """
    kept = trained_updates(problem, updates)
    if not kept or problem.architecture.algorithm != "fedavg-m":
        return "only updates of whole models, trained by FedAvg-M, are written out"
    slots: dict[int, list[Update]] = {}
    for update in kept:
        slots.setdefault(update.slot, []).append(update)
    groups = [[u] for u in spread_out(kept, victims)]
    if summed:
        several = sorted(
            (g for g in slots.values() if len(g) > 1), key=lambda g: (len(g), g[0].slot)
        )
        groups = several[:victims]
    if not groups:
        return "fewer than two sites ever trained in one slot, so that there were no sums to attack"
    found, states = [], 0
    for number, group in enumerate(groups):
        tell(number, len(groups))
        random = np.random.default_rng([seed, number])
        prior = Prior.besides(kept, {u.client for u in group})
        guess, first = _followed_back(problem, group, prior, iterations, random)
        truth = [np.concatenate(u.segments).astype(float) for u in group]
        states = max(states, len(truth[0]))
        pairs = [
            ratios(g[None], t[None], f[None, None], prior)
            for g, t, f in zip(guess, truth, first, strict=True)
        ]
        found.append((float(np.mean([a for a, _ in pairs])), float(np.mean([b for _, b in pairs]))))
    tell(len(groups), len(groups))
    together = max(len(group) for group in groups)
    return judged(found, samples=states, together=together, seed=seed)


def _followed_back(
    problem: Problem,
    group: Sequence[Update],
    prior: Prior,
    iterations: int,
    random: np.random.Generator,
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """States of every site of a sum with which training would send what was sent, standardised;
    and draws from the prior of the same lengths."""
    loss, training = LocalLoss.of(problem, group[0]), problem.training
    start, _ = loss.given(group[0])
    shares = np.array([u.samples for u in group], float) / sum(u.samples for u in group)
    sent = sum(s * (flat(u.reply.arrays) - start) for s, u in zip(shares, group, strict=True))
    lengths = [[len(s) for s in u.segments] for u in group]
    steps = []
    for own, u in zip(lengths, group, strict=True):
        starts, parts, rates = batches_of(loss, training, own, u.asked.seed)
        steps.append((starts, parts, rates * u.asked.learning_rate))
    drawn = [prior.draw(sum(n), random) for n in lengths]
    dtype = problem.dtype
    # From the mean, a little apart: where nothing is learned, the error stays that of the mean.
    first = [np.asarray(0.1 * random.standard_normal(d.shape), dtype) for d in drawn]
    with jax.enable_x64(dtype == np.float64):
        found = _descended(
            first, start.astype(dtype), np.asarray(sent, dtype), tuple(steps), shares.astype(dtype),
            prior.mean.astype(dtype), prior.spread.astype(dtype),
            loss=loss, weight_decay=training.weight_decay, iterations=iterations,
        )  # fmt: skip
    return [np.asarray(one, np.float64) for one in found], drawn


@partial(jax.jit, static_argnames=("loss", "weight_decay", "iterations"))
def _descended(
    first: list[Float[Array, "time state"]],
    start: Float[Array, " parameters"],
    sent: Float[Array, " parameters"],
    steps: tuple[tuple[Array, Array, Array], ...],
    shares: Float[Array, " sites"],
    mean: Float[Array, " state"],
    spread: Float[Array, " state"],
    *,
    loss: LocalLoss,
    weight_decay: float,
    iterations: int,
) -> list[Float[Array, "time state"]]:
    """Adam on the states of all sites; what comes nearest to the sum is kept."""
    adam, size = optax.adam(RATE), jnp.maximum(jnp.sum(sent**2), 1e-30)

    def cost(guess: list[Array]) -> Float[Array, ""]:
        total = jnp.zeros_like(start)
        for states, (starts, each, rates), share in zip(guess, steps, shares, strict=True):
            after = trained(
                start, {}, states * spread + mean, starts, each, rates,
                loss=loss, weight_decay=weight_decay,
            )  # fmt: skip
            total = total + share * (after - start)
        doubt = sum(jnp.mean(states**2) for states in guess)
        return jnp.sum((total - sent) ** 2) / size + DOUBT * doubt

    def step(_: int, carry: Any) -> Any:
        guess, memory, best, least = carry
        value, slope = jax.value_and_grad(cost)(guess)
        better = value < least
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), guess, best)
        move, memory = adam.update(slope, memory)
        return optax.apply_updates(guess, move), memory, best, jnp.minimum(value, least)

    begin = (first, adam.init(first), first, jnp.asarray(jnp.inf, start.dtype))
    found: list[Array] = jax.lax.fori_loop(0, iterations, step, begin)[2]
    return found
