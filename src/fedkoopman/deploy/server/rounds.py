"""One round of messages to the sites: whom to ask, requests out, replies in and checked.

A site that does not answer costs the others one deadline, not one per slot: while it stays silent
it is asked less and less often, until it reconnects or answers. One that is not connected costs
nothing, however long it is away.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from fedkoopman.deploy.provisioning.roster import Enrolled, Roster
from fedkoopman.deploy.site.store import now
from fedkoopman.deploy.wire import (
    Acknowledge,
    Acknowledged,
    Answered,
    Ask,
    Envelope,
    Evaluate,
    Evaluated,
    Failure,
    Fleet,
    Mask,
    Masked,
    Offer,
    Offered,
    Poll,
    Polled,
    Refused,
    Reply,
    Request,
    Share,
    Shared,
    Unmask,
    Unmasked,
    decode_replies,
    encode_requests,
)
from fedkoopman.errors import InputError, short
from fedkoopman.federation.messages import Message

REPLY_KINDS: dict[type, type] = {
    Poll: Polled,
    Ask: Answered,
    Offer: Offered,
    Share: Shared,
    Mask: Masked,
    Unmask: Unmasked,
    Evaluate: Evaluated,
    Acknowledge: Acknowledged,
}
STOP_CHECK = 0.2
"""Seconds between looks at the stop event."""
RAREST = 1024
"""A silent site that is connected is asked at least once in so many slots. Until then it is asked
again after as many slots as it has been silent for: k silent slots cost log₂ k deadlines."""
SLOW = 8
"""One that answers, but too late, is asked in every eighth slot."""
PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between attempts to reach any site, at first and after many."""


class Stopped(Exception):
    """The server was asked to stop."""


@dataclass(frozen=True)
class Answers:
    """The outcome of a round.

    Attributes:
        replies: by site, one per request, in their order.
        failures: by site, why nothing was done: it said so itself, or could not be reached.
        broken: by site, which rule its reply breaks.
    """

    replies: dict[str, tuple[Reply, ...]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def joined(self, later: "Answers") -> "Answers":
        """Together with the outcome of asking again."""
        return Answers(
            self.replies | later.replies,
            self.failures | later.failures,
            self.broken | later.broken,
        )


class Rounds:
    """Asks the sites of a run, and remembers which of them did not answer."""

    def __init__(
        self,
        fleet: Fleet,
        roster: Callable[[], Roster],
        envelope: Envelope,
        deadline: float,
        always_ask: bool,
        stop: threading.Event,
        say: Callable[[str], None],
    ) -> None:
        """Arguments:
        deadline: seconds that an answer may take.
        always_ask: ask silent sites in every slot too: a slot lasts longer than the deadline
            anyway, so that they cost nothing.
        stop: raises `Stopped` when it is set.
        say: is called with lines for people.
        """
        self.fleet, self._load, self._envelope = fleet, roster, envelope
        self._deadline, self._always_ask = deadline, always_ask
        self._stop, self._say = stop, say
        self.roster = roster()
        self.seen: dict[str, dict[str, Any]] = {}
        """By site: whether it is online, how many deadlines in a row it missed, its last error."""
        self._nodes: dict[str, int] = {}
        self._ask_from: dict[str, int] = {}
        """By silent site, the slot in which it is asked again."""
        self._asked_in: dict[str, int] = {}
        """By silent site, the slot in which it was last asked."""
        self._said: set[str] = set()

    def refresh(self) -> None:
        """Look who is enrolled and who is online."""
        self.roster = self._load()
        nodes = dict(self.fleet.online())
        for site in self.roster.sites:
            if site.revoked and self.seen.pop(site.name, {}):
                self._ask_from.pop(site.name, None)
                self.over(f"site {site.name}")
        for site in self.roster.active:
            name = site.name
            about = self.seen.setdefault(name, {"online": False, "missed": 0, "trouble": ""})
            if name in nodes and nodes[name] != self._nodes.get(name):
                about["missed"] = 0  # it has reconnected
                self._ask_from.pop(name, None)
            about["online"] = name in nodes
        for name in getattr(self.fleet, "slow", ()):
            if name in self._ask_from:
                soon = self._asked_in[name] + SLOW
                self._ask_from[name] = min(self._ask_from[name], soon)
        self._nodes = nodes

    def gather(
        self,
        slot: int,
        requests: Callable[[str], Sequence[Request]],
        lacking: Callable[[set[str]], Sequence[str]] | None = None,
        patience: float = math.inf,
        least: int = 1,
        waiting: Callable[[], None] = lambda: None,
    ) -> Answers:
        """Ask all sites that can be reached; waits until enough of them have answered.

        Arguments:
            requests: what a site is asked.
            lacking: given who has answered, whom to wait for; None: ask once.
            patience: seconds after which `lacking` no longer counts.
            least: sites that must have answered and still be there, however long that takes.
            waiting: is called whenever there are too few, before it is tried again.
        """
        found, answered = Answers(), set[str]()
        began, wait = time.monotonic(), PAUSE
        while True:
            self.refresh()
            sites = self._reachable(slot, everybody=wait > PAUSE)
            left = [site.name for site in sites if site.name not in answered]
            found = found.joined(self.ask(slot, {name: requests(name) for name in left}))
            answered = {
                name
                for name, replies in found.replies.items()
                if not all(isinstance(reply, Refused) for reply in replies)
            }
            waited_for = list(lacking(answered)) if lacking else []
            late = time.monotonic() - began > patience
            here = [name for name in answered if name in self._nodes]
            enough = len(here) >= least if least > 1 else bool(answered)
            if enough and (late or not waited_for):
                self.over("waiting")
                if waited_for:
                    self._say(f"going on without {', '.join(waited_for)}")
                return found
            self.say_once(f"waiting for {self._missed(waited_for, here, least)}", about="waiting")
            waiting()
            self.pause(wait)
            wait = min(1.5 * wait, LONGEST_PAUSE)

    def _missed(self, waited_for: Sequence[str], here: Sequence[str], least: int) -> str:
        """What a slot waits for, in words."""
        if waited_for:
            return ", ".join(waited_for)
        names = [site.name for site in self.roster.active if site.name not in here]
        if least > 1:
            return (
                f"sites: {len(here)} can be reached, and the study needs {least} (clients.least); "
                f"away: {', '.join(names) or 'nobody, enrol more'}"
            )
        return ", ".join(names) or "sites to be enrolled"

    def _reachable(self, slot: int, everybody: bool) -> list[Enrolled]:
        """Sites that are asked in a slot: those online, but silent ones only now and then."""
        online = [site for site in self.roster.active if site.name in self._nodes]
        if everybody or self._always_ask:
            return online
        return [site for site in online if self._ask_from.get(site.name, 0) <= slot] or online

    def ask(self, slot: int, requests: Mapping[str, Sequence[Request]]) -> Answers:
        """Ask sites, and note who answered."""
        found = ask(self.fleet, self._envelope, requests, self._deadline, self._stop)
        for name in requests:
            about = self.seen.setdefault(name, {"online": True})
            if name in found.replies or name in found.broken:
                about |= {"missed": 0, "trouble": found.failures.get(name, ""), "answered": now()}
                self._ask_from.pop(name, None)
            else:
                missed = about.get("missed", 0) + 1
                about |= {"missed": missed, "trouble": found.failures.get(name, "silent")}
                self._ask_from[name] = slot + min(2 ** (missed - 1), RAREST)
                self._asked_in[name] = slot
            self._report(name, about["trouble"])
        return found

    @property
    def answered(self) -> dict[str, str]:
        """When sites last answered since the server was started."""
        return {name: str(about.get("answered", "")) for name, about in self.seen.items()}

    def pause(self, seconds: float) -> None:
        """Wait, unless the server is asked to stop."""
        if self._stop.wait(max(0.0, seconds)):
            raise Stopped

    def until(self, moment: float) -> None:
        """Wait for a moment of the monotonic clock."""
        while (left := moment - time.monotonic()) > 0:
            self.pause(left)
        self.pause(0.0)

    def say_once(self, line: str, *, about: str) -> None:
        """Say a line about a lasting condition when it begins or changes."""
        known = f"{about}: {line}"
        if known not in self._said:
            self.over(about)
            self._said.add(known)
            self._say(line)

    def over(self, about: str) -> None:
        """A condition has ended; if it comes again it is said again."""
        self._said = {one for one in self._said if not one.startswith(f"{about}: ")}

    def _report(self, name: str, trouble: str) -> None:
        about = f"site {name}"
        if not trouble:
            if any(one.startswith(f"{about}: ") for one in self._said):
                self._say(f"site {name} answers again")
            self.over(about)
        elif trouble == "silent":
            self.say_once(
                f"site {name} did not answer within {self._deadline:g} s: going on without it, "
                "its data stay there",
                about=about,
            )
        else:
            self.say_once(f"site {name}: {trouble}", about=about)


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
    made: dict[Any, bytes] = {}
    bodies = {}
    for site, batch in requests.items():
        same = tuple(map(_what, batch))
        if same not in made:
            made[same] = encode_requests(envelope, batch)
        bodies[site] = made[same]
    for site, reply in _exchange(fleet, bodies, deadline, stop):
        if site not in requests or site in found.replies:
            continue
        if isinstance(reply, Failure):
            kind = found.broken if reply.broken else found.failures
            kind[site] = _line(reply.reason)
            continue
        try:
            replies = _read(reply, envelope, site, requests[site])
        except InputError as error:
            found.broken[site] = _line(str(error))
            continue
        refusals = [one for one in replies if isinstance(one, Refused)]
        if refusals:
            found.failures[site] = refusals[0].reason
        found.replies[site] = replies
    return found


def _what(request: Request) -> Any:
    """The same for requests with the same content, so that a model that goes to thousands of sites
    is encoded, and held, once; by the arrays' place in memory, while they are there."""
    match request:
        case Ask(slot, Message(kind, arrays, numbers)):
            return Ask, slot, kind, id(arrays), tuple(sorted(numbers.items()))
        case Evaluate(slot, model, measure):
            return Evaluate, slot, id(model), measure
        case Acknowledge() | Poll():
            return request
    return id(request)


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
    """The replies of a site, one per request; or one refusal of all requests."""
    theirs, replies = decode_replies(body)
    for reply in replies:
        if reply.site != site:
            raise InputError(f"speaks for {short(reply.site)}")
    if len(replies) == 1 and isinstance(replies[0], Refused):
        return replies
    if theirs.study != envelope.study:
        raise InputError("answers for another study")
    kinds = [REPLY_KINDS[type(request)] for request in requests]
    good = len(kinds) == len(replies) and all(
        isinstance(reply, kind | Refused) for kind, reply in zip(kinds, replies, strict=True)
    )
    if not good:
        raise InputError(f"answers {short([type(reply).__name__ for reply in replies])}")
    return replies


def _line(text: str) -> str:
    """One printable line, as a site may send control characters to the terminal."""
    line = " ".join(text.split())[:300]
    return "".join(c if c.isprintable() else "?" for c in line)


def _exchange(
    fleet: Fleet, bodies: dict[str, bytes], deadline: float, stop: threading.Event
) -> Iterator[tuple[str, bytes | Failure]]:
    """What `fleet.exchange` yields, taken in a thread, so that `stop` is noticed meanwhile."""
    arrived: SimpleQueue[tuple[str, bytes | Failure] | BaseException | None] = SimpleQueue()

    def take() -> None:
        try:
            for one in fleet.exchange(bodies, deadline):
                arrived.put(one)
            arrived.put(None)
        except BaseException as error:
            arrived.put(error)

    threading.Thread(target=take, name="exchange", daemon=True).start()
    while True:
        if stop.is_set():
            raise Stopped
        try:
            one = arrived.get(timeout=STOP_CHECK)
        except Empty:
            continue
        if one is None:
            return
        if isinstance(one, BaseException):
            raise one
        yield one
