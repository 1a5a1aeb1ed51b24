"""Lying sites: attacks on what a site sends, and an algorithm around another in which some lie.

An attack makes what is sent of the weights w that a site received and of its honest step δ, so an
honest site sends w + δ. Sites that lie together know each other: they drift in one direction, and
as judges of other sites' updates they call the honest ones ruinous and their own good.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.aggregators.history import arrays_of, flat
from fedkoopman.federation.algorithm import Algorithm, Answered, Asked, Problem, Ready
from fedkoopman.federation.messages import Arrays, Message, Schema
from fedkoopman.federation.streams import subseed

__all__ = ["ATTACKS", "CLAIMS", "Lying"]

Vector = NDArray[np.float64]
NOISE = 0.05
"""Of a copy that is not exact, as a share of its length."""


@dataclass
class Past:
    """What a liar knows when it sends something.

    Attributes:
        random: for this slot and site alone.
        shared: the same in every slot and for all liars of a seed.
        step: δ of what it sent last; None if it never sent anything.
        kept: the weights that it sent last before it began to lie.
    """

    random: np.random.Generator
    shared: np.random.Generator
    step: Vector | None
    kept: Vector | None


Attack = Callable[[Vector, Vector, Past], Vector]


def _times(factor: float) -> Attack:
    return lambda w, step, past: w + factor * step


def _of_length(direction: Vector, like: Vector) -> Vector:
    return direction * (np.linalg.norm(like) / np.linalg.norm(direction))


def _random(w: Vector, step: Vector, past: Past) -> Vector:
    return w + _of_length(past.random.normal(size=len(w)), step)


def _random_weights(w: Vector, step: Vector, past: Past) -> Vector:
    return _of_length(past.random.normal(size=len(w)), w)


def _constant(w: Vector, step: Vector, past: Past) -> Vector:
    """The same weights in every slot, of a usual size."""
    return np.full(len(w), 0.1)


def _yesterday(w: Vector, step: Vector, past: Past) -> Vector:
    """The step that it sent last; so, once it lies, always the same."""
    return w + (step if past.step is None else past.step)


def _copy(w: Vector, step: Vector, past: Past) -> Vector:
    """The same with noise, so that it is no exact repetition."""
    again = step if past.step is None else past.step
    noise = NOISE * _of_length(past.random.normal(size=len(w)), again)
    return w + _of_length(again + noise, again)


def _old_model(w: Vector, step: Vector, past: Past) -> Vector:
    """The weights that it sent last before it began to lie, in every slot."""
    return w + step if past.kept is None else past.kept


def _drift(honest: float, drift: float) -> Attack:
    def sent(w: Vector, step: Vector, past: Past) -> Vector:
        direction = _of_length(past.shared.normal(size=len(w)), step)
        return w + honest * step + drift * direction

    return sent


ATTACKS: dict[str, Attack] = {
    "none": _times(1.0),
    "nan": lambda w, step, past: np.full(len(w), np.nan),
    "times-3": _times(3.0),
    "times-30": _times(30.0),
    "times-100": _times(100.0),
    "flip": _times(-1.0),
    "flip-times-3": _times(-3.0),
    "random": _random,
    "random-weights": _random_weights,
    "constant": _constant,
    "tenfold": _times(-1.0),
    "million": _times(-1.0),
    "yesterday": _yesterday,
    "copy": _copy,
    "old-model": _old_model,
    "nothing": _times(0.0),
    "drift": _drift(1.0, 1.0),
    "half-drift": _drift(0.5, 0.5),
    "tenth-drift": _drift(0.9, 0.1),
}
CLAIMS: dict[str, Callable[[int], int]] = {
    "tenfold": lambda samples: 10 * samples,
    "million": lambda samples: 10**6,
}
"""How many samples are claimed, where that is part of the attack."""


class Lying:
    """An algorithm in which some sites lie; one with a second exchange has it here too."""

    def __new__(cls, algorithm: Algorithm, *given: Any, **options: Any) -> "Lying":
        """Engines look whether an algorithm has `review`, so only those may have it that do."""
        return super().__new__(_LyingJudges if hasattr(algorithm, "review") else cls)

    def __init__(
        self, algorithm: Algorithm, liars: Sequence[int], attack: str, first: int = 50
    ) -> None:
        """Wrap an algorithm.

        Arguments:
            algorithm: what all sites should do.
            liars: identities of the sites that lie; in a simulation also their places.
            attack: a name in `ATTACKS`.
            first: the slot from which on they lie.
        """
        self.inner, self.liars, self.first = algorithm, tuple(liars), first
        self.attack, self.name = ATTACKS[attack], attack
        self._last: dict[int, tuple[Vector, Vector]] = {}

    def __getattr__(self, name: str) -> Any:
        """What else the algorithm has, as `check_kind`."""
        return getattr(self.inner, name)

    def messages(self, problem: Problem) -> Mapping[str, Schema]:
        return self.inner.messages(problem)

    def begin(self, problem: Problem) -> Arrays:
        return self.inner.begin(problem)

    def ask(self, problem: Problem, state: Arrays, slot: int, ready: Ready) -> dict[int, Message]:
        return self.inner.ask(problem, state, slot, ready)

    def answer(
        self, problem: Problem, request: Message, segments: Sequence[NDArray[Any]], asked: Asked
    ) -> Message:
        """The honest answer, altered if it is a liar's update."""
        honest = self.inner.answer(problem, request, segments, asked)
        liar = self._liar(problem, asked)
        if liar is None or not self.messages(problem)[honest.kind].changes:
            return honest
        return Message(
            honest.kind, self._altered(problem, request, honest, asked, liar), honest.numbers
        )

    def conclude(
        self, problem: Problem, state: Arrays, slot: int, replies: Mapping[int, Answered]
    ) -> tuple[Arrays, dict[str, Any]]:
        return self.inner.conclude(problem, state, slot, self._claimed(slot, replies))

    def model(self, problem: Problem, state: Arrays) -> Arrays:
        return self.inner.model(problem, state)

    def warm(self, problem: Problem, samples: int) -> None:
        self.inner.warm(problem, samples)

    def _liar(self, problem: Problem, asked: Asked) -> int | None:
        """Who is asked, if it is a liar: a site's seed is its own in every slot."""
        for one in self.liars:
            if subseed(problem.seed, "training", asked.slot, one) == asked.seed:
                return one
        return None

    def _altered(
        self, problem: Problem, request: Message, honest: Message, asked: Asked, liar: int
    ) -> Arrays:
        current = {name: request.arrays[name] for name in honest.arrays}
        w = flat(current)
        step = flat(honest.arrays, current) - w
        before = self._last.get(liar, (None, None))
        lies = asked.slot >= self.first and self.name != "none"
        past = Past(
            np.random.default_rng([problem.seed, asked.slot, liar]),
            np.random.default_rng([problem.seed, 1]),
            *before,
        )
        # An honest update is passed on as it is, not rebuilt from its step.
        sent = arrays_of(current, self.attack(w, step, past)) if lies else honest.arrays
        whole = flat(sent, current)
        kept = past.kept if lies and past.kept is not None else whole
        self._last[liar] = (whole - w, kept)
        return sent

    def _claimed(self, slot: int, replies: Mapping[int, Answered]) -> dict[int, Answered]:
        """The replies with the sample counts that liars claim."""
        claim = CLAIMS.get(self.name)
        if claim is None or slot < self.first:
            return dict(replies)
        return {
            n: one._replace(samples=claim(one.samples)) if n in self.liars else one
            for n, one in replies.items()
        }


class _LyingJudges(Lying):
    """The same around an algorithm in which sites judge each other's updates."""

    _rows: tuple[int, ...] = ()
    """Places of the liars' updates among those that are judged."""

    def review(
        self,
        problem: Problem,
        state: Arrays,
        slot: int,
        replies: Mapping[int, Answered],
        present: Sequence[int],
    ) -> dict[int, Message]:
        self._rows = tuple(row for row, n in enumerate(replies) if n in self.liars)
        claimed = self._claimed(slot, replies)
        return self.inner.review(problem, state, slot, claimed, present)  # type: ignore[attr-defined]

    def settle(
        self,
        problem: Problem,
        state: Arrays,
        slot: int,
        replies: Mapping[int, Answered],
        *rest: Any,
    ) -> tuple[Arrays, dict[str, Any]]:
        claimed = self._claimed(slot, replies)
        return self.inner.settle(problem, state, slot, claimed, *rest)  # type: ignore[attr-defined]

    def answer(
        self, problem: Problem, request: Message, segments: Sequence[NDArray[Any]], asked: Asked
    ) -> Message:
        """As a judge, a liar calls others' updates ruinous and the liars' own good."""
        found = super().answer(problem, request, segments, asked)
        judges = request.kind == "judge" and self.name != "none"
        if not judges or asked.slot < self.first or self._liar(problem, asked) is None:
            return found
        current = found.arrays["current"]
        losses = np.empty_like(found.arrays["losses"])
        for row in range(len(losses)):
            losses[row] = 0.5 if row in self._rows else 1e6
        return Message(found.kind, {**found.arrays, "losses": losses * current}, found.numbers)
