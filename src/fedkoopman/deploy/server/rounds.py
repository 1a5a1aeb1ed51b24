"""Whom the server asks in a round, for how long it waits, and what it remembers of who was silent.

A site that is lost costs the others one deadline, and not one per slot: while it stays silent it is
asked less and less often, until it connects anew or answers.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedkoopman.deploy.provisioning.roster import Enrolled, Roster
from fedkoopman.deploy.server.asking import Answers, Fleet, Stopped, ask
from fedkoopman.deploy.server.status import now
from fedkoopman.deploy.wire import Envelope, Refused, Request

__all__ = ["Rounds"]

RAREST = 8
"""Slots at least every so many of which a silent site that is connected is asked."""
PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between attempts to reach somebody, at first and after many."""


class Rounds:
    """The sites of a run, as they are asked."""

    def __init__(
        self,
        fleet: Fleet,
        roster: Callable[[], Roster],
        envelope: Envelope,
        deadline: float,
        unhurried: bool,
        stop: threading.Event,
        say: Callable[[str], None],
    ) -> None:
        """Arguments:
        deadline: seconds that an answer may take.
        unhurried: whether a slot lasts longer anyway, so that silent sites cost nothing.
        stop: ends everything.
        say: tells people.
        """
        self.fleet, self._load, self._envelope = fleet, roster, envelope
        self._deadline, self._unhurried = deadline, unhurried
        self._stop, self._say = stop, say
        self.roster = roster()
        self.seen: dict[str, dict[str, Any]] = {}
        """By site: whether it is online, how often it missed in a row, what troubles it."""
        self._nodes: dict[str, int] = {}
        self._again: dict[str, int] = {}
        """By silent site, the slot from which on it is asked again."""
        self._told: set[str] = set()

    def refresh(self) -> None:
        """Look who is enrolled and who is online."""
        self.roster = self._load()
        nodes = dict(self.fleet.online())
        for site in self.roster.active:
            name = site.name
            about = self.seen.setdefault(name, {"online": False, "missed": 0, "trouble": ""})
            if name in nodes and nodes[name] != self._nodes.get(name):
                about["missed"] = 0  # connected anew
                self._again.pop(name, None)
            about["online"] = name in nodes
        self._nodes = nodes

    def gather(
        self,
        slot: int,
        requests: Callable[[str], Sequence[Request]],
        lacking: Callable[[set[str]], Sequence[str]] | None = None,
        patience: float = math.inf,
    ) -> Answers:
        """Ask everybody who can be reached. If nobody answers, that is waited for.

        Arguments:
            requests: what a site is asked.
            lacking: given who has answered, whom to wait for; None asks once.
            patience: seconds for which `lacking` is asked.
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
            if answered and (late or not waited_for):
                self.over("waiting")
                if waited_for:
                    self._say(f"going on without {', '.join(waited_for)}")
                return found
            names = waited_for or [site.name for site in self.roster.active]
            self.say_once(
                f"waiting for {', '.join(names) or 'sites to be enrolled'}", about="waiting"
            )
            self.pause(wait)
            wait = min(1.5 * wait, LONGEST_PAUSE)

    def _reachable(self, slot: int, everybody: bool) -> list[Enrolled]:
        """Sites that are asked in a slot: those online, silent ones now and then."""
        online = [site for site in self.roster.active if site.name in self._nodes]
        if everybody or self._unhurried:
            return online
        return [site for site in online if self._again.get(site.name, 0) <= slot] or online

    def ask(self, slot: int, requests: Mapping[str, Sequence[Request]]) -> Answers:
        """Ask sites, and note who answered."""
        found = ask(self.fleet, self._envelope, requests, self._deadline, self._stop)
        for name in requests:
            about = self.seen.setdefault(name, {"online": True})
            if name in found.replies or name in found.broken:
                about |= {"missed": 0, "trouble": found.failures.get(name, ""), "answered": now()}
                self._again.pop(name, None)
            else:
                missed = about.get("missed", 0) + 1
                about |= {"missed": missed, "trouble": found.failures.get(name, "silent")}
                self._again[name] = slot + min(2 ** (missed - 1), RAREST)
            self._report(name, about["trouble"])
        return found

    @property
    def answered(self) -> dict[str, str]:
        """When sites last answered since the server was started."""
        return {name: str(about.get("answered", "")) for name, about in self.seen.items()}

    def pause(self, seconds: float) -> None:
        """Wait, unless it is time to end."""
        if self._stop.wait(max(0.0, seconds)):
            raise Stopped

    def until(self, moment: float) -> None:
        """Wait for a moment of the monotonic clock."""
        while (left := moment - time.monotonic()) > 0:
            self.pause(left)
        self.pause(0.0)

    def say_once(self, line: str, *, about: str) -> None:
        """Tell something that goes on for some time when it begins, or changes."""
        known = f"{about}: {line}"
        if known not in self._told:
            self.over(about)
            self._told.add(known)
            self._say(line)

    def over(self, about: str) -> None:
        """Something that went on is over; when it comes again it is told again."""
        self._told = {one for one in self._told if not one.startswith(f"{about}: ")}

    def _report(self, name: str, trouble: str) -> None:
        about = f"site {name}"
        if not trouble:
            if any(one.startswith(f"{about}: ") for one in self._told):
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
