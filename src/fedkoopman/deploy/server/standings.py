"""What sites are asked in a slot, what their answers are worth, and how their standings change.

With a change of a standing come the lines that people should read.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedkoopman.deploy.provisioning.roster import Roster
from fedkoopman.deploy.server.rounds import Answers
from fedkoopman.deploy.server.server_state import STRIKES, ServerState, Standing
from fedkoopman.deploy.server.validation import Accepted, Expected, check_answered, check_polled
from fedkoopman.deploy.wire import (
    Acknowledge,
    Acknowledged,
    Answered,
    Ask,
    Evaluate,
    Poll,
    Polled,
    Reply,
    Request,
    message_digest,
)
from fedkoopman.federation.messages import Arrays, Message, Schema
from fedkoopman.federation.slot import Judged

Changed = tuple[ServerState, list[str]]
Counted = dict[str, Polled]
Requests = Callable[[str], Sequence[Request]]
"""By site."""


def first_requests(state: ServerState, model: Arrays) -> Requests:
    """Acknowledge the last slot, score its model if it is new, and count for the next slot."""

    def requests(name: str) -> Sequence[Request]:
        standing = state.of(name)
        batch: list[Request] = [Acknowledge(state.slot, standing.included)]
        if state.scores is None and not standing.set_aside:
            batch.append(Evaluate(state.slot, model))
        return [*batch, Poll(state.slot + 1)]

    return requests


def slot_requests(slot: int, asked: Mapping[str, Message]) -> dict[str, list[Request]]:
    """What the algorithm asks, by site."""
    return {name: [Ask(slot, message)] for name, message in asked.items()}


def last_requests(state: ServerState, model: Arrays) -> Requests:
    """Acknowledge the last slot, and measure the finished model."""

    def requests(name: str) -> Sequence[Request]:
        standing = state.of(name)
        batch: list[Request] = [Acknowledge(state.slot, standing.included)]
        return batch if standing.set_aside else [*batch, Evaluate(state.slot, model, True)]

    return requests


def away_before(state: ServerState, roster: Roster) -> set[str]:
    """Sites that a restarted server need not wait for: they were missing in its last slot."""
    if state.pending is None:
        return set()
    known, missing = len(state.pending["buffered"]), state.pending.get("missing", ())
    return {one.name for one in roster.sites if one.identity >= known or one.identity in missing}


def judged(
    answers: Answers,
    asked: Mapping[str, tuple[int, int, Message]],
    slot: int,
    schemas: Mapping[str, Schema],
    recent: Sequence[Accepted],
) -> tuple[tuple[Judged, ...], tuple[Accepted, ...]]:
    """What became of every request, and the updates that will be remembered.

    Arguments:
        asked: by site in the order of the roster, its place, the samples that waited there, and
            what it was asked.
        recent: accepted updates of earlier slots.
    """
    found, accepted = [], []
    for site, (place, samples, request) in asked.items():
        [reply] = answers.replies.get(site, (None,))
        if not isinstance(reply, Answered):
            reason = answers.broken.get(site, "")
            found.append(Judged(place, samples, reason=reason, answered=False, request=request))
            continue
        verdict = check_answered(reply, Expected(site, slot, request, samples, schemas), recent)
        fresh = not verdict.stale
        size = reply.samples if fresh and not verdict.reason else samples
        found.append(Judged(place, size, reply.message, verdict.reason, fresh, (), request))
        if fresh and not verdict.reason and verdict.norm == verdict.norm:
            accepted.append(Accepted(verdict.norm, reply.samples))
    return tuple(found), tuple(accepted)


def heard(
    state: ServerState, replies: Mapping[str, Sequence[Reply]], when: Mapping[str, str]
) -> ServerState:
    """Note who answered, and who has done what follows from the acknowledgement.

    Arguments:
        when: by site, the time of its answer.
    """
    changes = {}
    for name, batch in replies.items():
        standing = replace(state.of(name), last_seen=when.get(name, ""))
        if any(isinstance(one, Acknowledged) and one.slot == state.slot for one in batch):
            standing = replace(standing, heard=state.slot)
        changes[name] = standing
    return state.with_sites(changes)


def counted(
    state: ServerState, answers: Answers, slot: int, drawn: bool
) -> tuple[ServerState, Counted, list[str], list[str]]:
    """What waits at each site; where more has come since it was last asked; and what to tell.

    Arguments:
        drawn: whether at most one segment arrives per slot.
    """
    polled, arrived, changes = Counted(), list[str](), dict[str, Standing]()
    state, lines = all_struck(state, answers.broken, slot)
    for name, replies in answers.replies.items():
        for reply in replies:
            if not isinstance(reply, Polled):
                continue
            if reason := check_polled(reply, slot, drawn):
                state, said = struck(state, name, slot, reason)
                lines += said
                continue
            polled[name] = reply
            before = state.of(name)
            if reply.buffered > before.buffered:
                arrived.append(name)
            changes[name] = replace(before, buffered=reply.buffered, segments=reply.segments)
    return state.with_sites(changes), polled, arrived, lines


def settled(
    state: ServerState, slot: int, judged: Mapping[str, Judged], spending: Collection[str]
) -> Changed:
    """After a slot's answers.

    Arguments:
        judged: by site.
        spending: sites that were asked for what spends their data.
    """
    changes: dict[str, Standing] = {}
    for site, one in judged.items():
        standing = state.of(site)
        if one.answered:
            standing = replace(standing, owes=0, owes_base="")
        if one.accepted and one.answered:
            standing = standing.accepted(slot, one.samples, site in spending)
        elif one.answered and site in spending:
            standing = standing.spent(slot, one.samples)
        changes[site] = standing
    broken = {site: one.reason for site, one in judged.items() if one.reason}
    return all_struck(state.with_sites(changes), broken, slot)


def trusted(
    state: ServerState, slot: int, told: Mapping[str, Any], names: Sequence[str]
) -> Changed:
    """After the other sites have judged a slot's updates.

    Arguments:
        told: what the algorithm adds to the record.
        names: of the sites, by the places in it.
    """
    lines: list[str] = []
    for row in told.get("trust", ()):
        site, about = names[row["site"]], {key: one for key, one in row.items() if key != "site"}
        standing = replace(state.of(site), trust={"slot": slot, **about})
        if row.get("set_aside"):
            standing = replace(standing, suspect=slot)
            lines.append(
                f"SUSPECT in slot {slot}: site {site} {row['why']}; its updates do not count until "
                "three in a row are good"
            )
        elif row.get("back"):
            standing = replace(standing, suspect=0)
            lines.append(f"site {site} is trusted again: its last updates were good")
        elif row.get("why") and not standing.suspect:
            lines.append(f"an update does not count in slot {slot}: site {site} {row['why']}")
        state = state.with_sites({site: standing})
    if told.get("rolled_back"):
        lines.append(
            f"ROLLED BACK in slot {slot}: the model had become ten times worse for most sites; the "
            "one before it was taken again"
        )
    return state, lines


def owing(
    state: ServerState, slot: int, judged: Mapping[str, Judged], lasting: Mapping[str, Message]
) -> ServerState:
    """With the debts of sites that have not answered, and may do so in a later slot.

    Arguments:
        judged: by site.
        lasting: by site, requests that may be answered later.
    """
    late = [site for site in lasting if not judged[site].answered]
    return state.with_sites(
        {site: state.of(site).owing(slot, message_digest(lasting[site])) for site in late}
    )


def all_struck(state: ServerState, reasons: Mapping[str, str], slot: int) -> Changed:
    """After several sites broke rules."""
    lines: list[str] = []
    for name, reason in reasons.items():
        state, said = struck(state, name, slot, reason)
        lines += said
    return state, lines


def struck(state: ServerState, site: str, slot: int, reason: str) -> Changed:
    """After a site broke a rule."""
    before = state.of(site)
    after = before.struck(slot, reason)
    lines = [f"REJECTED in slot {slot}: site {site} {reason}"]
    if after.set_aside and not before.set_aside:
        lines.append(
            f"SET ASIDE: site {site}, after {STRIKES} rejections in a row, is not asked to train "
            f"any more; when it is mended: fedkoopman status DIR --readmit {site}"
        )
    return state.with_sites({site: after}), lines
