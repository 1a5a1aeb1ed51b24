"""Sites that lie about their sums, and a federation whose server screens what they send.

`Lying` stands for an algorithm: its `conclude` replaces what some clients sent, and hands on what
`screen` leaves of it. A lie sees what the site was asked, its segments and its honest reply.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedkoopman.federation.algorithm import Answered, Asked
from fedkoopman.federation.algorithms.staged import StagedLearning
from fedkoopman.federation.messages import Message
from fedkoopman.federation.streams import subseed

COUNTS = ("pairs", "count", "moved", "range")


@dataclass(frozen=True)
class Told:
    """What a lie may use."""

    reply: Answered
    segments: list
    again: Callable[[list], Message]
    """The site's answer from other segments."""
    before: Answered | None
    """Its last lie of the same kind."""
    random: np.random.Generator


Lie = Callable[[Told], Answered]


class Lying:
    """An algorithm in which some clients lie, screened or not.

    Attributes:
        findings: by slot and client, what the screen says.
        changed: (slot, client) of replies that the screen did not leave as they were.
        asked: by slot, the kind of request that each client got.
    """

    def __init__(
        self,
        inner: Any,
        lies: Mapping[int, Lie],
        *,
        screen: bool = True,
        stages: tuple[str, ...] = ("seen", "sums"),
        since: int = 0,
    ) -> None:
        """Arguments: lies: by identity; stages: kinds of replies that are lies; since: a slot."""
        self.inner, self.lies, self.on, self.stages = inner, lies, screen, stages
        self.since = since
        self.findings: dict[tuple[int, int], Any] = {}
        self.changed: list[tuple[int, int]] = []
        self.asked: dict[int, dict[int, str]] = {}
        self._answers: dict[int, tuple] = {}
        self._before: dict[tuple[str, int], Answered] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def ask(self, problem: Any, state: Any, slot: int, ready: Any) -> Any:
        found = self.inner.ask(problem, state, slot, ready)
        self.asked[slot] = {n: one.kind for n, one in found.items()}
        return found

    def answer(self, problem: Any, request: Any, segments: Any, asked: Asked) -> Message:
        self._answers[asked.seed] = request, list(segments), asked
        return self.inner.answer(problem, request, segments, asked)

    def conclude(
        self, problem: Any, state: Any, slot: int, replies: Mapping[int, Answered]
    ) -> tuple[Any, dict]:
        sent = dict(replies)
        for n, lie in self.lies.items():
            if n in sent and slot >= self.since and sent[n].message.kind in self.stages:
                sent[n] = self._lie(problem, slot, n, sent[n], lie)
        if not self.on:
            return self.inner.conclude(problem, state, slot, sent)
        kept, found = self.inner.screen(problem, state, slot, sent)
        assert kept.keys() | found.keys() == sent.keys() and not kept.keys() & found.keys()
        self.findings |= {(slot, n): one for n, one in found.items()}
        self.changed += [
            (slot, n)
            for n, one in kept.items()
            if any(one.message.arrays[k] is not leaf for k, leaf in sent[n].message.arrays.items())
        ]
        after, told = self.inner.conclude(problem, state, slot, kept) if kept else (state, {})
        return after, told | ({"suspect": list(found)} if found else {})

    def _lie(self, problem: Any, slot: int, n: int, reply: Answered, lie: Lie) -> Answered:
        request, segments, asked = self._answers[subseed(problem.seed, "training", slot, n)]

        def again(others: list) -> Message:
            return self.inner.answer(problem, request, others, asked)

        key = reply.message.kind, n
        random = np.random.default_rng([slot, n])
        told = Told(reply, segments, again, self._before.get(key), random)
        self._before[key] = lie(told)
        return self._before[key]


# Lies about numbers, which some rule of arithmetic contradicts


def _with(reply: Answered, **arrays: Any) -> Answered:
    message = replace(reply.message, arrays={**reply.message.arrays, **arrays})
    return reply._replace(message=message)


def scaled(times: float) -> Lie:
    """All sums but the counts."""

    def lie(told: Told) -> Answered:
        given = told.reply.message.arrays
        return _with(told.reply, **{k: v * times for k, v in given.items() if k not in COUNTS})

    return lie


def future(times: float) -> Lie:
    """Products with what follows: A and S."""

    def lie(told: Told) -> Answered:
        given = told.reply.message.arrays
        return _with(told.reply, **{k: given[k] * times for k in ("shift", "ahead") if k in given})

    return lie


def zeroed(name: str) -> Lie:
    """One array."""
    return lambda told: _with(told.reply, **{name: 0 * told.reply.message.arrays[name]})


def random_sums(told: Told) -> Answered:
    """Positive definite where sums are, of the honest size."""
    found = {}
    for name in ("gram", "shift", "ahead"):
        one = told.reply.message.arrays[name]
        drawn = told.random.normal(size=one.shape)
        drawn = drawn @ drawn.T if name == "gram" else drawn
        found[name] = drawn * np.linalg.norm(one) / max(np.linalg.norm(drawn), 1e-300)
    return _with(told.reply, **found)


def false_count(told: Told) -> Answered:
    """A million windows, with the honest sums."""
    name = "pairs" if "pairs" in told.reply.message.arrays else "count"
    return _with(told.reply, **{name: np.array([1e6])})


def many(told: Told) -> Answered:
    """Every sample a thousand times, all counts included."""
    given = told.reply.message.arrays
    return _with(told.reply, **{k: v * 1000 for k, v in given.items()})._replace(
        samples=told.reply.samples * 1000
    )


def replayed(told: Told) -> Answered:
    """What it sent the last time."""
    return told.before or told.reply


# Lies that are sums of something: data that are not the system's


def data(change: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Lie:
    """The honest answer to other data."""

    def lie(told: Told) -> Answered:
        others = [change(np.asarray(one), told.random) for one in told.segments]
        message = told.again(others)
        return told.reply._replace(message=message, samples=sum(map(len, others)))

    return lie


def careful(times: float) -> Lie:
    """Products with what follows that are too large, but for those that arithmetic knows."""

    def lie(told: Told) -> Answered:
        given = told.reply.message.arrays
        shift, ahead = given["shift"] * times, given["ahead"] * times
        shift[0, 0] = given["shift"][0, 0]
        return _with(told.reply, shift=shift, ahead=ahead)

    return lie


def turning(states: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Rotations, with the mean and the spread of the honest states: another system."""
    t, d = np.arange(len(states))[:, None], states.shape[1]
    phase, speed = random.uniform(0, 6, d), 0.05 * np.arange(1, d + 1)
    return states.mean(axis=0) + states.std(axis=0) * 1.4 * np.sin(speed * t + phase)


CRUDE: dict[str, Lie] = {
    "sums ×3": scaled(3),
    "sums ×30": scaled(30),
    "sums ×100": scaled(100),
    "future ×3": future(3),
    "future flipped": future(-1),
    "random sums": random_sums,
    "a million windows": false_count,
    "no gram": zeroed("gram"),
    "no shift": zeroed("shift"),
    "no range": zeroed("range"),
    "no count": zeroed("pairs"),
}
"""Each breaks a rule of arithmetic."""
CAREFUL: dict[str, Lie] = {
    "careful ×3": careful(3),
    "careful ×1.1": careful(1.1),
    "careful flip": careful(-1),
    "shuffled time": data(lambda x, r: r.permutation(x)),
    "reversed time": data(lambda x, r: x[::-1]),
    "every second sample": data(lambda x, r: x[::2]),
    "another system": data(turning),
    "other units": data(lambda x, r: 57 * x),
    "states swapped": data(lambda x, r: x[:, ::-1]),
    "noise": data(lambda x, r: x + x.std(axis=0) * r.normal(size=x.shape)),
    "a little noise": data(lambda x, r: x + 0.1 * x.std(axis=0) * r.normal(size=x.shape)),
}
"""Only the other sites contradict these."""
HARMLESS: dict[str, Lie] = {"a thousandfold": many, "replayed": replayed}
"""Of these the cap takes the harm, or there is none."""
SCALE: dict[str, Lie] = {
    "sums ×100": scaled(100),
    "a million": false_count,
    "other units": data(lambda x, r: 57 * x),
    "far away": data(lambda x, r: x + 1000 * (x.std(axis=0) + 1e-9)),
    "a thousandfold": many,
}
"""In the first stage."""

ALGORITHM = Lying(StagedLearning(), {})
"""Nobody lies, all are screened: a study may name it as `lying.py:ALGORITHM`."""
