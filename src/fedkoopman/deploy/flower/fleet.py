"""The sites of a federation as the server loop reaches them through Flower.

The SuperLink delivers a reply only if it names the node and the message that it answers. It does
not check that the sender is that node. But only the node that got a message knows its id (`_send`),
so a reply comes from the site that was asked.

A site may get the same request twice, when its SuperNode was restarted meanwhile. Sites answer a
repeated request as before, and the second answer is dropped here.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from flwr.app import Message, MessageType
from flwr.superlink.grid import HttpGrid

from fedkoopman.deploy.flower.courier import content_of
from fedkoopman.deploy.flower.nodes import HELLO_TIMEOUT, Inbox, NodeDirectory, Place
from fedkoopman.deploy.flower.programs import AdaptiveInterval
from fedkoopman.deploy.provisioning.roster import Roster
from fedkoopman.deploy.wire import Failure
from fedkoopman.errors import ComputationError, InputError, short

log = logging.getLogger(__name__)
LATE = 60.0
"""Seconds after the deadline for which a reply is still recognised, as a late one."""
STALLED, SILENT = 10.0, 60.0
"""Seconds after which a site is asked again: when its reply was announced and does not come, and
when nothing has come, as the request may be lost. The seconds double each time."""
RETURN = 15.0
"""Seconds that a site has to come back when its node goes away during an exchange."""
EXCLUDED = "it may no longer take part"


class LinkLost(ComputationError):
    """The SuperLink is gone, or has forgotten this run: the server loop must be started again."""


@dataclass(frozen=True)
class _Sent:
    site: str
    round: int


@dataclass(frozen=True)
class _Asked:
    """Which node of a site was last asked in this round, when, and how often."""

    place: Place
    when: float
    times: int = 1


class FlowerFleet:
    """Sites behind a SuperLink.

    Arguments:
        grid: of the run, see `tasks.acquire_server_task`.
        roster: reads who may take part now; it is called often, as that may change.
        site_of: the site that a reply claims to come from; raises InputError if it is malformed.
        hello: a request that every site answers and that changes nothing, for unknown nodes.
        lost: whether the SuperLink has given this run up.

    Attributes:
        late: replies that came after their deadline.
        duplicates: second replies to the same request.
    """

    def __init__(
        self,
        grid: HttpGrid,
        roster: Callable[[], Roster],
        *,
        site_of: Callable[[bytes], str],
        hello: bytes,
        lost: Callable[[], bool] = lambda: False,
    ) -> None:
        self.late = 0
        self.duplicates = 0
        self._grid = grid
        self._inbox = Inbox(grid)
        self._roster = roster
        self._site_of = site_of
        self._directory = NodeDirectory(grid, roster, site_of, hello)
        self._lost = lost
        self._sent: dict[str, _Sent] = {}
        self._round = 0
        self._answered: dict[str, int] = {}

    @property
    def unknown_nodes(self) -> int:
        """How many nodes were seen that belong to no site."""
        return len(self._directory.unknown)

    def online(self) -> dict[str, int]:
        """Node ids by site, of those that are enrolled, not revoked, and connected."""
        places, end = self._places(), time.monotonic() + HELLO_TIMEOUT
        while self._directory.asked and time.monotonic() < end:
            time.sleep(0.05)
            self._answers()
            places = places if self._directory.asked else self._places()
        return {site: place.node for site, place in places.items()}

    def exchange(
        self, bodies: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        """Ask sites; gives each one's reply as it comes, or why there is none."""
        self._round += 1
        try:
            yield from self._exchange(dict(bodies), time.monotonic() + deadline)
        finally:
            self._round += 1  # what comes from now on is late

    def _exchange(
        self, waiting: dict[str, bytes], end: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        """Ask until all have answered; again where a node was restarted or stays silent."""
        places, looked = self._places(), time.monotonic()
        interval = AdaptiveInterval(0.02, 0.5)
        asked: dict[str, _Asked] = {}
        away: dict[str, float] = {}
        while waiting and time.monotonic() < end:
            for site, body in waiting.items():
                if site not in places:
                    away.setdefault(site, time.monotonic())
                elif (one := self._next(site, places[site], asked.get(site))) is not None:
                    asked[site] = one
                    if self._send(site, one.place, body, end - time.monotonic()):
                        away.pop(site, None)
            for site, answer in self._answers():
                if isinstance(answer, Failure) and answer.absent:
                    log.info("%s went away: %s", site, answer.reason)
                    away.setdefault(site, time.monotonic())
                elif waiting.pop(site, None) is not None:
                    interval.refresh()
                    yield site, answer
            for site in [site for site in away if site in waiting]:
                enrolled = self._enrolled(site)
                if time.monotonic() - away[site] > RETURN or not enrolled:
                    del waiting[site]
                    yield site, Failure("its node is not online" if enrolled else EXCLUDED)
            if waiting:
                time.sleep(min(interval.seconds(), max(0.0, end - time.monotonic())))
            if time.monotonic() - looked > 1.0:
                places, looked = self._places(), time.monotonic()

    def _answers(self) -> list[tuple[str, bytes | Failure]]:
        """Replies to this round's requests; late and second ones are counted and dropped."""
        with self._link():
            found = self._inbox.collect([*self._sent, *self._directory.asked])
        answers: list[tuple[str, bytes | Failure]] = []
        for id, answer in found:
            if id in self._directory.asked:
                self._directory.learn(id, answer)
                continue
            sent = self._sent.pop(id)
            if not isinstance(answer, Failure):
                answer = self._checked(sent.site, answer)
            if isinstance(answer, Failure):
                if sent.round == self._round:
                    answers.append((sent.site, answer))
            elif self._answered.get(sent.site) == sent.round:
                self.duplicates += 1
                log.warning("dropped a second reply of %s", sent.site)
            elif sent.round != self._round:
                self.late += 1
                log.warning("dropped a reply of %s that came too late", sent.site)
            else:
                self._answered[sent.site] = sent.round
                answers.append((sent.site, answer))
        return answers

    def _next(self, site: str, place: Place, last: _Asked | None) -> _Asked | None:
        """How a site is to be asked now; None if it was asked and may still answer."""
        now = time.monotonic()
        if last is None or last.place != place:
            return _Asked(place, now)
        stalled = self._stalled(site)
        silence, most = (now - last.when, SILENT) if stalled is None else (stalled, STALLED)
        if silence <= most * 2 ** (last.times - 1):
            return None
        log.info("%s: nothing more has come for %.0f s: asking again", site, silence)
        return _Asked(place, now, last.times + 1)

    def _stalled(self, site: str) -> float | None:
        """Seconds since the last part of an incomplete reply came; None if no reply has begun."""
        found = [
            silence
            for id, silence in self._inbox.stalled().items()
            if self._sent.get(id) == _Sent(site, self._round)
        ]
        return min(found, default=None)

    def _checked(self, site: str, body: bytes) -> bytes | Failure:
        """A reply, if its site may still take part and claims no other name."""
        if not self._enrolled(site):
            log.warning("dropped a reply of %s, which may no longer take part", site)
            return Failure(EXCLUDED)
        try:
            claimed = self._site_of(body)
        except InputError as error:
            return Failure(f"sends a malformed reply: {error}", broken=True)
        if claimed != site:
            log.warning("dropped a reply of %s that claims to come from %r", site, claimed)
            return Failure(f"speaks for {short(claimed)}", broken=True)
        return body

    def _enrolled(self, site: str) -> bool:
        return site in {enrolled.name for enrolled in self._roster().active}

    def _send(self, site: str, place: Place, body: bytes, seconds: float) -> bool:
        """Give a request to the SuperLink; returns whether it was accepted.

        The group id is a random number and enters the message's id. So nobody can guess that id:
        only the node that was asked knows which message to answer.
        """
        message = Message(
            content_of(body),
            place.node,
            MessageType.QUERY,
            ttl=seconds + LATE,
            group_id=secrets.token_hex(16),
        )
        with self._link():
            ids = [id for id in self._grid.push_messages([message]) if id]
        self._sent |= {id: _Sent(site, self._round) for id in ids}
        return bool(ids)

    def _places(self) -> dict[str, Place]:
        with self._link():
            return self._directory.places()

    @contextmanager
    def _link(self) -> Iterator[None]:
        """Turn a failure between here and the SuperLink into one line that ends the loop."""
        if self._lost():
            raise LinkLost("the SuperLink has given this run up; the server loop starts again")
        try:
            yield
        except httpx.HTTPStatusError as error:
            code = error.response.status_code
            raise LinkLost(
                f"the SuperLink refuses this run ({code}); it is started anew"
            ) from error
        except httpx.TransportError as error:
            cause = " ".join(str(error).split()) or type(error).__name__
            raise LinkLost(f"the SuperLink does not answer: {cause}") from error
