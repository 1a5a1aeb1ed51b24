"""How sites' standings change in a slot; with a change come the lines that people should hear."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from fedkoopman.deploy.server.rounds import Answers
from fedkoopman.deploy.server.server_state import STRIKES, ServerState
from fedkoopman.deploy.server.validation import check_polled
from fedkoopman.deploy.wire import Acknowledged, Polled, Reply
from fedkoopman.federation.slot import Judged

Changed = tuple[ServerState, list[str]]
Counted = dict[str, Polled]


def heard(
    state: ServerState, replies: Mapping[str, Sequence[Reply]], when: Mapping[str, str]
) -> ServerState:
    """Note who answered, and who has done what follows from the acknowledgement.

    Arguments:
        replies: by site.
        when: they answered, by site.
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
    polled, arrived = Counted(), list[str]()
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
            after = replace(before, buffered=reply.buffered, segments=reply.segments)
            state = state.with_sites({name: after})
    return state, polled, arrived, lines


def settled(
    state: ServerState, slot: int, judged: Mapping[str, Judged], spending: Collection[str]
) -> Changed:
    """After a slot's answers.

    Arguments:
        judged: by site.
        spending: sites that were asked for what spends their data.
    """
    lines: list[str] = []
    for site, one in judged.items():
        standing = state.of(site)
        if one.accepted and one.answered:
            standing = standing.accepted(slot, one.samples, site in spending)
        elif one.answered and site in spending:
            standing = standing.spent(slot, one.samples)
        state = state.with_sites({site: standing})
        if one.reason:
            state, said = struck(state, site, slot, one.reason)
            lines += said
    return state, lines


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
