"""The server's side of a sum that shows no single site: four rounds, and what came of them.

A site that does not answer in a round is not asked in the next. Whoever has sent a masked vector
is part of the sum, whether it answers the last round or not. Where too few are left, nothing is
learned and nobody's data are spent; the next slot tries again, with new keys.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedkoopman.deploy.secure.server_session import NoSum, ServerSession, begin
from fedkoopman.deploy.server.rounds import Rounds
from fedkoopman.deploy.site.masking import keys_of
from fedkoopman.deploy.wire import (
    Mask,
    Masked,
    Offer,
    Offered,
    Reply,
    Request,
    Share,
    Shared,
    Unmask,
    Unmasked,
    Words,
    message_digest,
)
from fedkoopman.errors import InputError
from fedkoopman.federation.algorithm import Answered, Problem
from fedkoopman.federation.messages import Message, Schema
from fedkoopman.federation.quantised import layout_of
from fedkoopman.federation.slot import Judged

__all__ = ["MASKED_STEPS", "Summed", "sum_of"]

MASKED_STEPS = ("offered", "shared", "masked", "unmasked")
"""Rounds, in order, by which tests kill the server."""
Questions = Mapping[str, tuple[int, int, Message]]
"""By site, its place, the samples that wait there, and what it is asked."""
Kind = TypeVar("Kind", bound=Reply)


@dataclass(frozen=True)
class Summed:
    """What came of a session.

    Attributes:
        total: the sum, as one reply of all whose samples it holds; None if there is none.
        sites: who is in the sum, by name.
        broken: by site, which rule its reply breaks.
        trouble: why there is no sum; empty if there is.
    """

    total: Answered | None = None
    sites: tuple[str, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""

    def judged(self, asked: "Questions") -> dict[str, Judged]:
        """What became of every request: who is not part of the sum has sent nothing to judge."""
        found = {}
        for name, (place, samples, _) in asked.items():
            if self.total is not None and name in self.sites:
                found[name] = Judged(place, samples, self.total.message)
            else:
                reason = self.broken.get(name, "")
                found[name] = Judged(place, samples, reason=reason, answered=False)
        return found

    @property
    def blamed(self) -> dict[str, str]:
        """By site, which rule was broken by one that is part of the sum."""
        return {name: self.broken[name] for name in self.sites if name in self.broken}

    @property
    def told(self) -> dict[str, Any]:
        """What a slot's record tells of it."""
        if self.trouble:
            return {"unsummed": self.trouble}
        return {} if self.total is None else {"samples": self.total.samples}


class Session:
    """One session with some sites, round by round."""

    def __init__(self, rounds: Rounds, slot: int, places: Mapping[str, int]) -> None:
        """Arguments: places: of the sites that are asked, by name."""
        self._rounds, self._slot = rounds, slot
        self._names = {str(place): name for name, place in places.items()}
        self.state: ServerSession = begin(self._names)
        self.broken: dict[str, str] = {}

    def asked(self, requests: Mapping[str, Request], kind: type[Kind]) -> dict[str, Kind]:
        """Replies by place; whatever else comes counts as none."""
        batches = {self._names[place]: [request] for place, request in requests.items()}
        answers = self._rounds.ask(self._slot, batches)
        self.broken |= answers.broken
        found = dict[str, Kind]()
        for place in requests:
            [reply] = answers.replies.get(self._names[place], (None,))
            if not isinstance(reply, kind):
                continue
            about = getattr(reply, "slot", None), getattr(reply, "session", None)
            if about == (self._slot, self.state.name):
                found[place] = reply
            else:
                self.blame({place: "answers in another session"})
        return found

    def blame(self, faults: Mapping[str, str]) -> None:
        """Note which rules were broken, by place."""
        self.broken |= {self._names[place]: reason for place, reason in faults.items()}

    def step(self, state: ServerSession, faults: Mapping[str, str]) -> None:
        """Go on to a session's next state."""
        self.state = state
        self.blame(faults)

    def name_of(self, place: str) -> str:
        """The site in a place."""
        return self._names[place]


def sum_of(
    rounds: Rounds,
    problem: Problem,
    schemas: Mapping[str, Schema],
    slot: int,
    asked: Questions,
    passed: Callable[[str], None] = lambda _: None,
) -> Summed:
    """Ask sites for the sum of their answers.

    Arguments:
        schemas: of the messages.
        asked: by site, its place, the samples that waited there, and what it is asked; all with
            the same kind of reply.
        passed: is called after each round with its name in `MASKED_STEPS`.
    """
    session = Session(rounds, slot, {name: place for name, (place, _, _) in asked.items()})
    requests = {str(place): message for place, _, message in asked.values()}
    first = next(iter(requests.values()))
    layout = layout_of(schemas, first)
    try:
        _agree(session, slot, passed)
        vectors = _vectors(session, slot, requests, layout.kind)
        session.step(*session.state.with_vectors(vectors, layout.size))
        passed("masked")
        words = _opened(session, slot, passed)
    except NoSum as error:
        return Summed(broken=session.broken, trouble=str(error))
    places = sorted(map(int, session.state.vectors))
    names = tuple(session.name_of(str(place)) for place in places)
    try:
        message, samples = layout.decoded(first, words, len(places))
        waited = sum(asked[name][1] for name in names)
        if samples != waited and all(schemas[r.kind].data == "waiting" for r in requests.values()):
            raise InputError(f"claims {samples:,} samples where {waited:,} waited")
    except InputError as error:
        return Summed(broken=session.broken, trouble=f"the sum of {', '.join(names)} {error}")
    return Summed(Answered(message, samples, tuple(places)), names, session.broken)


def _agree(session: Session, slot: int, passed: Callable[[str], None]) -> None:
    """Keys, and shares of their secret halves."""
    name = session.state.name
    offered = session.asked({p: Offer(slot, name) for p in session.state.asked}, Offered)
    keys = {}
    for place, offer in offered.items():
        try:
            keys[place] = keys_of(offer.keys)
        except InputError:
            session.blame({place: "sends keys that are none"})
    session.step(*session.state.with_keys(keys))
    passed("offered")
    both = {place: b"".join(pair) for place, pair in session.state.keys.items()}
    request = Share(slot, name, session.state.threshold, both)
    shared = session.asked(dict.fromkeys(session.state.keys, request), Shared)
    session.step(*session.state.with_shares({p: one.shares for p, one in shared.items()}))
    passed("shared")


def _vectors(
    session: Session, slot: int, requests: Mapping[str, Message], kind: str
) -> dict[str, Words]:
    """Masked vectors, by place."""
    state = session.state
    wanted = {
        place: Mask(slot, state.name, state.shares_for(place), requests[place])
        for place in state.sealed
    }
    found = {}
    for place, one in session.asked(wanted, Masked).items():
        if one.base != message_digest(requests[place]) or one.reply != kind:
            session.blame({place: "answers another message than it was sent"})
        else:
            found[place] = one.words
    return found


def _opened(session: Session, slot: int, passed: Callable[[str], None]) -> Words:
    """The sum, without masks."""
    state = session.state
    request = Unmask(slot, state.name, tuple(sorted(state.vectors)))
    answers = session.asked(dict.fromkeys(state.vectors, request), Unmasked)
    passed("unmasked")
    total, faults = state.opened({p: (one.seeds, one.keys) for p, one in answers.items()})
    session.blame(faults)
    return total
