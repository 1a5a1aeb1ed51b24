"""Attack (b), membership: was this segment trained on?

The attacker holds a segment and wants to know whether a site used it. It trains shadow models from
the same request, half of them with the segment and half without, sees how the segment's losses and
its gradient look in either case, and asks of the real update which case is more likely (the
likelihood-ratio attack, LiRA: Carlini et al. 2022; here with normal distributions that share one
covariance, as shadows are few). "Offline", it has shadows without the segment only.

Every shadow is also a target, judged by all the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.audit.local_loss import LocalLoss, flat, starts_in, trained_updates, windows
from fedkoopman.audit.statistics import Measured, area_under_curve, measured, true_positives
from fedkoopman.audit.watching import Update, distinct, spread_out
from fedkoopman.federation.algorithm import Asked, Problem
from fedkoopman.federation.workers import Urgency, Workers

__all__ = ["Membership", "likelihood_ratios", "membership_attack"]

SMALL = 0.6
FALSE_POSITIVES = 0.05
LONGEST_POOL = 16
"""Candidates of one target: twice the segments of a round, but no more."""
SHARES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
"""Of the three losses, one by one."""


@dataclass(frozen=True)
class Membership:
    """What the attack reached.

    Attributes:
        area: area under the curve, with shadows of both sorts.
        offline: the same, with shadows that were trained without the segment only.
        found: share of the members found where 5 % of the others are taken for members too.
        cases: questions that were asked.
        shadows: models trained for each site that was attacked.
        together: sites in one sum; 1 where updates are seen alone.
    """

    area: Measured
    offline: Measured
    found: Measured
    cases: int
    shadows: int
    together: int


def membership_attack(
    problem: Problem,
    updates: Sequence[Update],
    workers: Workers,
    *,
    victims: int,
    shadows: int,
    together: int = 1,
    seed: int,
    tell: Callable[[int, int], None] = lambda *_: None,
) -> Membership | str:
    """Train shadows, ask and count; or why that cannot be done.

    Arguments:
        victims: updates whose requests are attacked, spread over time and sites.
        shadows: models trained for each of them.
        together: sites whose mean the server sees.
    """
    trained = trained_updates(problem, updates)
    if not trained:
        return "its sites send sums, and no weights that were trained"
    scores, ones, members, groups = [], [], [], []
    for number, update in enumerate(spread_out(trained, victims)):
        tell(number, victims)
        random = np.random.default_rng([seed, number])
        pool = _candidates(trained, update, random)
        if len(pool) < 2:
            continue
        inside, facts = _shadow_facts(
            problem, trained, update, pool, workers, shadows, together, random
        )
        both, only_out = likelihood_ratios(facts, inside)
        scores.append(both.ravel())
        ones.append(only_out.ravel())
        members.append(inside.ravel())
        groups.append(np.repeat(np.arange(shadows) + number * shadows, len(pool)))
    tell(victims, victims)
    if not scores:
        return "no site has two segments, one to train on and one to leave out"
    score, out_score = np.concatenate(scores), np.concatenate(ones)
    member, group = np.concatenate(members), np.concatenate(groups)
    area = partial(measured, groups=group, chance=0.5, small=SMALL, seed=seed)
    return Membership(
        area=area(lambda c: area_under_curve(score[c], member[c])),
        offline=area(lambda c: area_under_curve(out_score[c], member[c])),
        found=measured(
            lambda c: true_positives(score[c], member[c], FALSE_POSITIVES), group,
            chance=FALSE_POSITIVES, small=2 * FALSE_POSITIVES, seed=seed,
        ),
        cases=len(score), shadows=shadows, together=together,
    )  # fmt: skip


def likelihood_ratios(
    facts: NDArray[np.float64], inside: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How much likelier each shadow's facts are with a segment than without it, (S, C), by all
    other shadows; and how unlikely they are without it, on the side of a smaller loss.

    Arguments:
        facts: (S, C, F), of shadow s and candidate c; the first is a loss.
        inside: (S, C), whether s was trained with c.
    """
    weight = inside[..., None].astype(float)
    within = []
    for part in (weight, 1 - weight):
        # Without itself: every shadow is judged by the others.
        count = part.sum(axis=0) - part
        total = (part * facts).sum(axis=0) - part * facts
        within.append(total / np.maximum(count, 1))
    mean_in, mean_out = within
    rest = facts - np.where(inside[..., None], mean_in, mean_out)
    spread = rest.reshape(-1, facts.shape[-1])
    cov = spread.T @ spread / len(spread)
    scale = np.diag(np.diag(cov)) + 1e-12 * np.eye(len(cov)) * max(np.trace(cov), 1e-300)
    inverse = np.linalg.inv(0.9 * cov + 0.1 * scale)
    middle = facts - (mean_in + mean_out) / 2
    both = np.einsum("scf,fg,scg->sc", mean_in - mean_out, inverse, middle)
    deviation = np.sqrt(np.maximum(cov[0, 0], 1e-300))
    return both, (mean_out - facts)[..., 0] / deviation


def _candidates(
    updates: Sequence[Update], update: Update, random: np.random.Generator
) -> list[NDArray]:
    """Segments of the update's site: those of the update, and as many others of any time."""
    own = distinct(update.segments)[: LONGEST_POOL // 2]
    keys = {segment.tobytes() for segment in own}
    every = distinct([s for u in updates if u.client == update.client for s in u.segments])
    others = [segment for segment in every if segment.tobytes() not in keys]
    return own + [others[i] for i in random.permutation(len(others))[: len(own)]]


def _shadow_facts(
    problem: Problem,
    updates: Sequence[Update],
    update: Update,
    pool: Sequence[NDArray],
    workers: Workers,
    shadows: int,
    together: int,
    random: np.random.Generator,
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Shadows from one request, each trained with half of the pool: which half, and what the
    attacker sees of each candidate."""
    half = len(pool) // 2
    inside = np.zeros((shadows, len(pool)), bool)
    for row in inside:
        row[random.permutation(len(pool))[:half]] = True
    seeds = random.integers(2**62, size=(2, shadows))

    def answer(segments: Sequence[NDArray], seed: int) -> NDArray[np.float64]:
        asked = _other(update.asked, int(seed))
        reply = problem.algorithm.answer(problem, update.request, segments, asked)
        return flat(reply.arrays)

    jobs: list[tuple[Sequence[NDArray], int]] = [
        ([pool[i] for i in np.flatnonzero(row).tolist()], s)
        for row, s in zip(inside, seeds[0], strict=True)
    ]
    others = [u.segments for u in updates if u.client != update.client]
    if together > 1 and others:
        jobs += [(others[random.integers(len(others))], s) for s in seeds[1]]
    replies = np.stack(workers.map(Urgency.TRAIN, lambda job: answer(*job), jobs))
    seen = replies[:shadows]
    for _ in range(together - 1 if len(replies) > shadows else 0):
        seen = seen + replies[shadows:][random.permutation(shadows)]
    if len(replies) > shadows:
        seen = seen / together
    return inside, _facts(LocalLoss.of(problem, update), update, seen, pool)


def _other(asked: Asked, seed: int) -> Asked:
    """The same with other draws, those of noise that protects records included."""
    secret = {"secret": seed} if "secret" in asked._fields else {}
    return asked._replace(seed=seed, **secret)


def _facts(
    loss: LocalLoss, update: Update, seen: NDArray[np.float64], pool: Sequence[NDArray]
) -> NDArray[np.float64]:
    """Losses of every candidate under every model that is seen, and how the step agrees with the
    candidate's gradient."""
    length = min(len(segment) for segment in pool)
    states = np.stack([segment[:length] for segment in pool])
    start, fixed = loss.given(update)
    with jax.enable_x64(True):
        values, slopes = map(np.asarray, _looked_at(start, fixed, seen, states, loss=loss))
    steps = seen - start
    norms = np.linalg.norm(steps, axis=1)[:, None] * np.linalg.norm(slopes, axis=1)[None]
    agreement = -(steps @ slopes.T) / np.maximum(norms, 1e-300)
    return np.concatenate(
        [np.log(np.maximum(values, 1e-300)), agreement[..., None]], axis=-1
    )  # fmt: skip


@partial(jax.jit, static_argnames="loss")
def _looked_at(
    start: Float[Array, " parameters"],
    fixed: dict[str, Array],
    seen: Float[Array, "shadows parameters"],
    states: Float[Array, "candidates time state"],
    *,
    loss: LocalLoss,
) -> tuple[Float[Array, "shadows candidates losses"], Float[Array, "candidates parameters"]]:
    """The losses, and each candidate's gradient at the start."""
    starts = starts_in(loss.kind, states.shape[1])

    def losses(vector: Float[Array, " parameters"], one: Float[Array, "time state"]) -> Array:
        x, ahead = windows(loss.kind, one, starts)
        return jnp.stack([loss(vector, fixed, x, ahead, shares) for shares in (None, *SHARES)])

    each = jax.vmap(losses, in_axes=(None, 0))
    values = jax.lax.map(lambda vector: each(vector, states), seen)
    return values, jax.vmap(lambda one: loss.gradient(start, fixed, one))(states)
