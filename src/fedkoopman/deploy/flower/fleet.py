"""The sites of a federation as the server loop reaches them through Flower.

A reply comes from the site that was asked: its request is signed by the site's key, and names a
message that was sent to that site's node (`flower.link`).

A site may get the same request twice, when its node was restarted meanwhile. Sites answer a
repeated request as before, and the second answer is dropped here.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedkoopman.deploy.flower.link import Letter, Link, Node, Parts
from fedkoopman.deploy.flower.parcels import body_of, unpacked
from fedkoopman.deploy.flower.signing import key_bytes
from fedkoopman.deploy.provisioning.roster import Roster
from fedkoopman.deploy.wire import Failure
from fedkoopman.errors import InputError, short

log = logging.getLogger(__name__)
LATE = 60.0
"""Seconds after the deadline for which a reply is still recognised, as a late one."""
STALLED, SILENT = 10.0, 60.0
"""Seconds after which a site is asked again: when its reply was announced and does not come, and
when nothing has come, as the request may be lost. The seconds double each time."""
RESTARTED = 1.0
"""Seconds after which a site is asked again when its node was started anew."""
RETURN = 15.0
"""Seconds that a site has to come back when its node goes away during an exchange."""
LOOK = 0.5
"""Seconds between looks at who is there, while nothing comes."""
EXCLUDED = "it may no longer take part"


@dataclass(frozen=True)
class _Sent:
    site: str
    round: int
    until: float
    """When it is forgotten."""


@dataclass(frozen=True)
class _Asked:
    """Which node of a site was last asked in this round, when, and how often."""

    node: Node
    when: float
    times: int = 1


class FlowerFleet:
    """Sites behind a link.

    Arguments:
        link: carries messages.
        roster: reads who may take part now; it is called often, as that may change.
        site_of: the site that a reply claims to come from; raises InputError if it is malformed.
        say: is called with lines for people.

    Attributes:
        late: replies that came after their deadline.
        duplicates: second replies to the same request.
        slow: sites whose last reply came too late.
    """

    def __init__(
        self,
        link: Link,
        roster: Callable[[], Roster],
        *,
        site_of: Callable[[bytes], str],
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.late = 0
        self.duplicates = 0
        self.slow: set[str] = set()
        self._link, self._roster, self._site_of, self._say = link, roster, site_of, say
        self._enrolled: Roster | None = None
        self._sent: dict[str, _Sent] = {}
        self._round = 0
        self._answered: dict[str, int] = {}
        self.enrol()

    def online(self) -> dict[str, int]:
        """By site that is connected, a number that changes when its node starts anew."""
        return {site: hash((node.id, node.since)) for site, node in self._nodes().items()}

    def exchange(
        self, bodies: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        """Ask sites; gives each one's reply as it comes, or why there is none."""
        self._round += 1
        self._forget()
        try:
            yield from self._exchange(dict(bodies), time.monotonic() + deadline)
        finally:
            self._round += 1  # what comes from now on is late

    def _exchange(
        self, waiting: dict[str, bytes], end: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        """Ask until all have answered; again where a node was restarted or stays silent."""
        nodes, looked = self._nodes(), time.monotonic()
        asked: dict[str, _Asked] = {}
        away: dict[str, float] = {}
        while waiting and (now := time.monotonic()) < end:
            self._ask(waiting, nodes, asked, away, end)
            pause = min(LOOK, end - now)
            found = self._link.take(pause)
            if found is None or time.monotonic() - looked > LOOK:
                nodes, looked = self._nodes(), time.monotonic()
            if found is not None:
                answer = self._taken(*found)
                if answer is not None and waiting.pop(answer[0], None) is not None:
                    yield answer
            for site in [site for site in away if site in waiting]:
                enrolled = self._may(site)
                if time.monotonic() - away[site] > RETURN or not enrolled:
                    del waiting[site]
                    yield site, Failure("its node is not online" if enrolled else EXCLUDED)

    def _ask(
        self,
        waiting: Mapping[str, bytes],
        nodes: Mapping[str, Node],
        asked: dict[str, _Asked],
        away: dict[str, float],
        end: float,
    ) -> None:
        """Send to those who were not asked yet, or are to be asked again."""
        stalled = self._stalled() if len(asked) >= len(waiting) else {}
        due = dict[str, _Asked]()
        for site in waiting:
            if site not in nodes:
                away.setdefault(site, time.monotonic())
            elif (one := self._next(site, nodes[site], asked.get(site), stalled)) is not None:
                due[site] = one
        if not due:
            return
        ttl = end - time.monotonic() + LATE
        letters = [Letter(one.node.id, waiting[site], ttl) for site, one in due.items()]
        until = end + LATE
        for (site, one), id in zip(due.items(), self._link.send(letters), strict=True):
            asked[site] = one
            if id is not None:
                self._sent[id] = _Sent(site, self._round, until)
                away.pop(site, None)

    def _taken(
        self, asked: str, reply: str, parts: Parts | Failure
    ) -> tuple[str, bytes | Failure] | None:
        """A reply to this round's requests; late and second ones are counted and dropped."""
        sent = self._sent.pop(asked, None)
        if sent is None:
            return None
        answer = self._checked(sent.site, reply, parts)
        if isinstance(answer, Failure):
            return (sent.site, answer) if sent.round == self._round else None
        if self._answered.get(sent.site) == sent.round:
            self.duplicates += 1
            log.warning("dropped a second reply of %s", sent.site)
        elif sent.round != self._round:
            self.late += 1
            self.slow.add(sent.site)
            log.warning("dropped a reply of %s that came too late", sent.site)
        else:
            self._answered[sent.site] = sent.round
            self.slow.discard(sent.site)
            return sent.site, answer
        return None

    def _next(
        self, site: str, node: Node, last: _Asked | None, stalled: Mapping[str, float]
    ) -> _Asked | None:
        """How a site is to be asked now; None if it was asked and may still answer."""
        now = time.monotonic()
        if last is None:
            return _Asked(node, now)
        if last.node != node:
            return _Asked(node, now) if now - last.when > RESTARTED else None
        silence, most = (stalled[site], STALLED) if site in stalled else (now - last.when, SILENT)
        if silence <= most * 2 ** (last.times - 1):
            return None
        log.info("%s: nothing more has come for %.0f s: asking again", site, silence)
        return _Asked(node, now, last.times + 1)

    def _stalled(self) -> dict[str, float]:
        """By site, seconds since the last part of an incomplete reply came."""
        found = {id: since for id, since in self._link.stalled().items() if id in self._sent}
        return {
            self._sent[id].site: since
            for id, since in found.items()
            if self._sent[id].round == self._round
        }

    def _checked(self, site: str, reply: str, parts: Parts | Failure) -> bytes | Failure:
        """A reply's body, if its site may still take part and claims no other name."""
        if isinstance(parts, Failure):
            return parts
        if not self._may(site):
            log.warning("dropped a reply of %s, which may no longer take part", site)
            return Failure(EXCLUDED)
        try:
            body = body_of(unpacked(reply, parts).content)
        except InputError as error:
            return Failure(f"sends no reply: {error}", broken=True)
        try:
            claimed = self._site_of(body)
        except InputError as error:
            return Failure(f"sends a malformed reply: {error}", broken=True)
        if claimed != site:
            log.warning("dropped a reply of %s that claims to come from %r", site, claimed)
            return Failure(f"speaks for {short(claimed)}", broken=True)
        return body

    def _may(self, site: str) -> bool:
        return any(enrolled.name == site for enrolled in self._roster().active)

    def _forget(self) -> None:
        """Expect no more of what was asked long ago."""
        now = time.monotonic()
        old = [id for id, sent in self._sent.items() if sent.until < now]
        if old:
            self._link.forget(old)
        for id in old:
            del self._sent[id]

    def _nodes(self) -> dict[str, Node]:
        self.enrol()
        return self._link.nodes()

    def enrol(self) -> None:
        """Let in whom the roster names, if it has changed."""
        roster = self._roster()
        if roster is self._enrolled:
            return
        added, removed = self._link.enrol(
            {
                site.name: key_bytes(site.public_key) if roster.secure else site.name.encode()
                for site in roster.active
            }
        )
        if self._enrolled is not None:
            self._tell("enrolled", added)
        self._tell("shut out", removed)
        self._enrolled = roster

    def _tell(self, what: str, names: Sequence[str]) -> None:
        for name in names:
            self._say(f"{what} {name}")
