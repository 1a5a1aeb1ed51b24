"""An algorithm whose updates are judged before they count, in a second exchange of every slot.

`Guarded` stands around any algorithm, and is one itself. After the sites' replies it asks all sites
that are there how the updates of the others change the loss on their held-out data (`judging`),
decides which updates count (`verdicts`), shortens those that are too long, and lets the algorithm
conclude with what is left. Replies that are sums are screened by the algorithm itself, where it
has a method `screen`.

If the model has become ten times worse for the sites since the last judgement, though every update
was harmless by itself, the server goes back to the state before.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.aggregators.history import (
    arrays_of,
    flat,
    lower_median,
    norm_of,
    padded,
    step_of,
    usual_length,
)
from fedkoopman.federation.algorithm import Algorithm, Answered, Asked, Problem, Ready
from fedkoopman.federation.guard.evidence import (
    Evidence,
    copied,
    hash_of,
    likeness,
    opinion,
    sketch,
    told,
)
from fedkoopman.federation.guard.judging import judge_message, judge_schemas, judged
from fedkoopman.federation.guard.verdicts import (
    MOST,
    Verdict,
    capped,
    decided,
    first_standings,
)
from fedkoopman.federation.messages import Arrays, Message, Schema
from fedkoopman.federation.misfits import IMPOSSIBLE

__all__ = ["Guarded"]

GUARD = "guard."
STANDING, STEPS, MODELS, LOSSES, BEFORE = "standing.", "steps", "models", "losses", "before."
"""Before names, or names, of what the guard remembers."""
COLLAPSE = 2.3
"""Logarithm of the factor in most sites' loss beyond which the last step is undone: ten times."""
KEPT_STEPS, KEPT_MODELS = 4, 64
"""Of each site, to recognise what it sends again."""


class Guarded:
    """An algorithm with a guard; `federation.algorithm` says when each method is called."""

    def __init__(self, inner: Algorithm) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        """What the algorithm may have: checks of a study, and what an answer releases."""
        if name.startswith("check_") or name == "planned":
            return getattr(self.inner, name)
        raise AttributeError(name)

    def messages(self, problem: Problem) -> Mapping[str, Schema]:
        """Those of the algorithm, and those of the second exchange."""
        found = dict(self.inner.messages(problem))
        kinds = _changing(found)
        return {**found, **(judge_schemas(*kinds) if kinds else {})}

    def begin(self, problem: Problem) -> Arrays:
        """The algorithm's state, and nothing held against anybody."""
        state = self.inner.begin(problem)
        memory = {
            f"{STANDING}{name}": leaf
            for name, leaf in first_standings(problem.clients, problem.aggregation.history).items()
        }
        if kinds := _changing(self.inner.messages(problem)):
            size = sum(math.prod(one.shape) for one in kinds[1].arrays.values())
            memory[STEPS] = np.zeros((problem.clients, KEPT_STEPS, len(sketch(np.zeros(size)))))
        memory[MODELS] = np.zeros((problem.clients, KEPT_MODELS))
        memory[LOSSES] = np.zeros(problem.clients)
        return {**state, **_put(GUARD, memory)}

    def ask(self, problem: Problem, state: Arrays, slot: int, ready: Ready) -> dict[int, Message]:
        """As the algorithm; also those that are set aside, as only so they can come back."""
        return self.inner.ask(problem, _inner(state), slot, ready)

    def answer(
        self, problem: Problem, request: Message, segments: Sequence[NDArray[Any]], asked: Asked
    ) -> Message:
        """A judgement, or what the algorithm answers."""
        if request.kind == "judge":
            return judged(problem, request, segments)
        return self.inner.answer(problem, request, segments, asked)

    def review(
        self,
        problem: Problem,
        state: Arrays,
        slot: int,
        replies: Mapping[int, Answered],
        present: Sequence[int],
    ) -> dict[int, Message]:
        """All updates to everybody who is there, if the replies are updates."""
        changing = self._updates(problem, replies)
        if not changing or problem.clients < 2:
            return {}
        given = _given(next(iter(changing.values())))
        request = judge_message(given, [_landed(one, given) for one in changing.values()])
        # Its own update is among them, so that the server sends one message; nobody believes what
        # a site says of itself.
        others = [n for n in present if set(changing) != {n}]
        return dict.fromkeys(others, request)

    def conclude(
        self, problem: Problem, state: Arrays, slot: int, replies: Mapping[int, Answered]
    ) -> tuple[Arrays, dict[str, Any]]:
        """Without judges: what can be told without them."""
        return self.settle(problem, state, slot, replies, {}, {})

    def settle(
        self,
        problem: Problem,
        state: Arrays,
        slot: int,
        replies: Mapping[int, Answered],
        reviews: Mapping[int, Message],
        broken: Mapping[int, str],
    ) -> tuple[Arrays, dict[str, Any]]:
        """The algorithm's conclusion from the replies that count."""
        memory, inner = _padded(_get(GUARD, state), problem.clients), _inner(state)
        changing = self._updates(problem, replies)
        if not changing:
            return self._screened(problem, memory, inner, slot, replies, broken)
        if _collapsed(memory, reviews):
            before = _get(BEFORE, memory)
            memory = {**_without(memory, BEFORE), LOSSES: np.zeros(problem.clients)}
            return {**inner, **before, **_put(GUARD, memory)}, {
                "rolled_back": True,
                **_aside(memory),
            }
        evidence = self._evidence(memory, changing, reviews) | _ruinous(broken)
        standings, verdicts = decided(_get(STANDING, memory), slot, evidence)
        kept = {
            n: _bounded(problem, standings, n, reply)
            for n, reply in changing.items()
            if verdicts[n].counts
        }
        memory = _remembered(_without(memory, BEFORE), changing, reviews)
        memory |= _put(STANDING, standings)
        after, said = self.inner.conclude(problem, inner, slot, kept) if kept else (inner, {})
        if kept:
            changed = {
                n: x for n, x in inner.items() if n in after and not np.array_equal(x, after[n])
            }
            memory |= _put(BEFORE, changed)
        rows = [
            {"site": n, **told(evidence[n]), **_became(verdicts[n], kept.get(n), changing[n])}
            for n in changing
        ]
        rows += [_fault_row(n, reason, verdicts[n]) for n, reason in broken.items()]
        return {**after, **_put(GUARD, memory)}, {**said, "trust": rows, **_aside(memory)}

    def model(self, problem: Problem, state: Arrays) -> Arrays:
        """As the algorithm."""
        return self.inner.model(problem, _inner(state))

    def warm(self, problem: Problem, samples: int) -> None:
        """As the algorithm; what judges is compiled at the first judgement."""
        self.inner.warm(problem, samples)

    def _updates(self, problem: Problem, replies: Mapping[int, Answered]) -> dict[int, Answered]:
        """The replies that are updates of what the sites were given."""
        schemas = self.inner.messages(problem)
        return {
            n: reply
            for n, reply in replies.items()
            if schemas[reply.message.kind].changes and reply.request is not None
        }

    def _evidence(
        self, memory: Arrays, replies: Mapping[int, Answered], reviews: Mapping[int, Message]
    ) -> dict[int, Evidence]:
        length = usual_length(memory[f"{STANDING}lengths"])
        found = {}
        for place, (n, reply) in enumerate(replies.items()):
            step = _step(reply)
            own = sketch(step)
            harm, judges = opinion(place, n, reviews)
            others = [rows[-1] for m, rows in enumerate(memory[STEPS]) if m != n and rows[-1].any()]
            distance, cosine = likeness(own, others, length)
            again = hash_of(reply.message.arrays) in memory[MODELS][n]
            found[n] = Evidence(
                length=norm_of(step),
                samples=reply.samples,
                harm=harm,
                judges=judges,
                distance=distance,
                cosine=cosine,
                copy=bool(again) or copied(own, memory[STEPS][n]),
            )
        return found

    def _screened(
        self,
        problem: Problem,
        memory: dict[str, NDArray[Any]],
        inner: Arrays,
        slot: int,
        replies: Mapping[int, Answered],
        broken: Mapping[int, str],
    ) -> tuple[Arrays, dict[str, Any]]:
        """The conclusion from replies that are no updates, but sums."""
        kept, faults, misfits = dict(replies), dict(broken), dict[int, float]()
        if replies:
            memory = {**_without(memory, BEFORE), LOSSES: np.zeros(problem.clients)}
        if replies and (screen := getattr(self.inner, "screen", None)):
            kept, findings = screen(problem, inner, slot, replies)
            faults |= {n: finding.reason for n, finding in findings.items()}
            misfits = {n: finding.measure for n, finding in findings.items()}
        evidence = _ruinous(broken) | {n: _misfitting(one) for n, one in misfits.items()}
        standings, verdicts = decided(_get(STANDING, memory), slot, evidence)
        memory |= _put(STANDING, standings)
        rows = [_fault_row(n, why, verdicts[n], misfits.get(n)) for n, why in faults.items()]
        after, said = self.inner.conclude(problem, inner, slot, kept) if kept else (inner, {})
        said = {**said, "trust": rows} if rows else dict(said)
        return {**after, **_put(GUARD, memory)}, {**said, **_aside(memory)}


def _ruinous(faults: Mapping[int, str]) -> dict[int, Evidence]:
    """A reply that breaks a rule is as bad as an update that ruins the model, and counts as one."""
    return {n: Evidence(0.0, 0, harm=math.inf) for n in faults}


def _misfitting(misfit: float) -> Evidence:
    """Sums that no data could give are as bad as that; others that do not fit, may be by chance."""
    return Evidence(0.0, 0, harm=math.inf if misfit >= IMPOSSIBLE else MOST)


def _fault_row(
    client: int, reason: str, verdict: Verdict, misfit: float | None = None
) -> dict[str, Any]:
    """A record's entry about a reply that breaks a rule."""
    more = {} if misfit is None or not math.isfinite(misfit) else {"misfit": float(f"{misfit:.4g}")}
    return {"site": client, **more, **_became(Verdict(False, reason, verdict.named))}


def _changing(schemas: Mapping[str, Schema]) -> tuple[Schema, Schema] | None:
    """The request and the reply of an algorithm's updates; None where it has none."""
    for request in schemas.values():
        if request.reply and schemas[request.reply].changes:
            return request, schemas[request.reply]
    return None


def _given(reply: Answered) -> Arrays:
    """What the site was given."""
    assert reply.request is not None
    return reply.request.arrays


def _current(reply: Answered) -> dict[str, NDArray[Any]]:
    """Those of the arrays that the site was given which its update changes."""
    given = _given(reply)
    return {name: given[name] for name in reply.message.arrays}


def _step(reply: Answered) -> NDArray[np.float64]:
    """δ: by how much an update changes what its site was given."""
    return step_of(_current(reply), reply.message.arrays)


def _landed(reply: Answered, given: Arrays) -> Arrays:
    """An update as if its site had been given these arrays, which it nearly always was."""
    if _given(reply) is given:
        return reply.message.arrays
    current = {name: given[name] for name in reply.message.arrays}
    return arrays_of(current, flat(current) + _step(reply))


def _bounded(problem: Problem, standings: Arrays, n: int, reply: Answered) -> Answered:
    """An update that is no longer, and counts no more, than is usual, within the study's bounds."""
    reply = reply._replace(samples=capped(standings, n, reply.samples))
    current, step = _current(reply), _step(reply)
    bound, length = problem.aggregation.clip * usual_length(standings["lengths"]), norm_of(step)
    if length <= bound:
        return reply
    arrays = arrays_of(current, flat(current) + step * (bound / length))
    return reply._replace(message=Message(reply.message.kind, arrays, reply.message.numbers))


def _remembered(
    memory: Mapping[str, NDArray[Any]],
    replies: Mapping[int, Answered],
    reviews: Mapping[int, Message],
) -> dict[str, NDArray[Any]]:
    """The memory with the updates of this slot, and with what judges said of the present model."""
    steps, models = np.array(memory[STEPS]), np.array(memory[MODELS])
    losses = np.zeros_like(memory[LOSSES])
    for n, reply in replies.items():
        own = sketch(_step(reply))
        steps[n] = [*steps[n][1:], own]
        models[n] = [*models[n][1:], hash_of(reply.message.arrays)]
    for n, review in reviews.items():
        value = float(review.arrays["current"][0])
        if review.arrays["windows"][0] > 0 and math.isfinite(value):
            losses[n] = value
    return {**memory, STEPS: steps, MODELS: models, LOSSES: losses}


def _collapsed(memory: Arrays, reviews: Mapping[int, Message]) -> bool:
    """Whether the present model is ten times worse, for most sites, than the one before it."""
    if not _get(BEFORE, memory):
        return False
    ratios = []
    for n, review in reviews.items():
        now, then = float(review.arrays["current"][0]), float(memory[LOSSES][n])
        if review.arrays["windows"][0] > 0 and then > 0:
            ratios.append(math.log(now / then) if 0 < now < math.inf else math.inf)
    return len(ratios) > 1 and lower_median(ratios) > COLLAPSE


def _became(
    verdict: Verdict, kept: Answered | None = None, sent: Answered | None = None
) -> dict[str, Any]:
    """What became of an update, for the record."""
    shortened = kept is not None and sent is not None and kept.message is not sent.message
    word = "shortened" if shortened else "used" if verdict.counts else "refused"
    more = {
        "why": verdict.reason,
        "set_aside": verdict.named,
        "back": verdict.back,
    }
    return {"became": word, **{name: value for name, value in more.items() if value}}


def _aside(memory: Arrays) -> dict[str, list[int]]:
    """Who is set aside after this slot; left out where nobody is."""
    found = np.flatnonzero(memory[f"{STANDING}set_aside"]).tolist()
    return {"suspects": found} if found else {}


def _padded(memory: Arrays, clients: int) -> dict[str, NDArray[Any]]:
    """The memory with room for clients that were enrolled later."""
    fresh = first_standings(clients, memory[f"{STANDING}lengths"].shape[1])
    found = {n: x if n.startswith(BEFORE) else padded(x, clients) for n, x in memory.items()}
    for name, leaf in fresh.items():  # where nothing is known is not zero everywhere
        old = memory.get(f"{STANDING}{name}", leaf[:0])
        found[f"{STANDING}{name}"] = np.concatenate([old, leaf[len(old) :]])
    return found


def _inner(state: Arrays) -> dict[str, NDArray[Any]]:
    return _without(state, GUARD)


def _without(arrays: Arrays, prefix: str) -> dict[str, NDArray[Any]]:
    return {name: leaf for name, leaf in arrays.items() if not name.startswith(prefix)}


def _put(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {f"{prefix}{name}": leaf for name, leaf in arrays.items()}


def _get(prefix: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {n.removeprefix(prefix): leaf for n, leaf in arrays.items() if n.startswith(prefix)}
