"""One round of messages: requests out, replies in, each read with suspicion.

A thread takes the replies from Flower, so that whoever asked can be told to stop meanwhile.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Protocol

from fedkoopman.deploy.wire import (
    Acknowledge,
    Acknowledged,
    Answered,
    Ask,
    Envelope,
    Evaluate,
    Evaluated,
    Poll,
    Polled,
    Refused,
    Reply,
    Request,
    decode_replies,
    encode_requests,
)
from fedkoopman.errors import InputError, short

__all__ = ["Answers", "Broken", "Fleet", "Stopped", "ask", "site_of"]

ANSWERS: dict[type, type] = {
    Poll: Polled,
    Ask: Answered,
    Evaluate: Evaluated,
    Acknowledge: Acknowledged,
}
"""What answers what."""
HEED = 0.2
"""Seconds within which a wish to stop is heard."""


class Broken(str):
    """Which rule a reply breaks, as whoever carries it saw: the site is at fault, not the way."""


class Fleet(Protocol):
    """Who can be asked, and how."""

    def online(self) -> Mapping[str, int]:
        """Node ids by the names of enrolled sites."""
        ...

    def exchange(
        self, bodies: dict[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | str]]:
        """Replies as they come, or reasons why there is none (`Broken` if the site is at fault);
        nothing from who is late."""
        ...


class Stopped(Exception):
    """Somebody wants the server to end."""


@dataclass(frozen=True)
class Answers:
    """What came of a round.

    Attributes:
        replies: by site, one per request, in their order.
        failures: by site, why nothing was done: it said so itself, or could not be reached.
        broken: by site, which rule its reply breaks.
    """

    replies: dict[str, tuple[Reply, ...]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def joined(self, later: "Answers") -> "Answers":
        """With what came of asking again."""
        return Answers(
            self.replies | later.replies,
            self.failures | later.failures,
            self.broken | later.broken,
        )


def ask(
    fleet: Fleet,
    envelope: Envelope,
    requests: Mapping[str, Sequence[Request]],
    deadline: float,
    stop: threading.Event,
) -> Answers:
    """Ask sites, and wait for their answers until the deadline.

    Arguments:
        requests: by site.
        deadline: seconds from now.
        stop: raises `Stopped` when it is set.
    """
    found = Answers()
    if not requests:
        return found
    bodies = {site: encode_requests(envelope, batch) for site, batch in requests.items()}
    for site, body in _heedful(fleet, bodies, deadline, stop):
        if site not in requests or site in found.replies:
            continue
        if isinstance(body, str):
            told = found.broken if isinstance(body, Broken) else found.failures
            told[site] = _line(body)
            continue
        try:
            replies = _read(body, envelope, site, requests[site])
        except InputError as error:
            found.broken[site] = _line(str(error))
            continue
        refusals = [reply for reply in replies if isinstance(reply, Refused)]
        if refusals:
            found.failures[site] = refusals[0].reason
        found.replies[site] = replies
    return found


def site_of(body: bytes) -> str:
    """The site that a reply claims to come from."""
    _, replies = decode_replies(body)
    names = {reply.site for reply in replies}
    if len(names) != 1:
        raise InputError(f"a reply of {len(names)} sites: refused")
    return names.pop()


def _read(
    body: bytes, envelope: Envelope, site: str, requests: Sequence[Request]
) -> tuple[Reply, ...]:
    """The replies of a site, in the order of what was asked; or only why it refuses all."""
    theirs, replies = decode_replies(body)
    for reply in replies:
        if reply.site != site:
            raise InputError(f"speaks for {short(reply.site)}")
    if len(replies) == 1 and isinstance(replies[0], Refused):
        return replies
    if theirs.study != envelope.study:
        raise InputError("answers for another study")
    kinds = [ANSWERS[type(request)] for request in requests]
    good = len(kinds) == len(replies) and all(
        isinstance(reply, kind | Refused) for kind, reply in zip(kinds, replies, strict=True)
    )
    if not good:
        raise InputError(f"answers {short([type(reply).__name__ for reply in replies])}")
    return replies


def _line(text: str) -> str:
    """One line that a terminal only shows: a site may have put anything into it."""
    line = " ".join(text.split())[:300]
    return "".join(c if c.isprintable() else "?" for c in line)


def _heedful(
    fleet: Fleet, bodies: dict[str, bytes], deadline: float, stop: threading.Event
) -> Iterator[tuple[str, bytes | str]]:
    """What `exchange` yields, by way of a thread."""
    came: SimpleQueue[tuple[str, bytes | str] | BaseException | None] = SimpleQueue()

    def take() -> None:
        try:
            for one in fleet.exchange(bodies, deadline):
                came.put(one)
            came.put(None)
        except BaseException as error:
            came.put(error)

    threading.Thread(target=take, name="exchange", daemon=True).start()
    while True:
        if stop.is_set():
            raise Stopped
        try:
            one = came.get(timeout=HEED)
        except Empty:
            continue
        if one is None:
            return
        if isinstance(one, BaseException):
            raise one
        yield one
