"""A slot's record: begun when the slot is saved, completed when its model is scored."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedkoopman.deploy.provisioning.roster import Roster
from fedkoopman.deploy.server.scores import Scored
from fedkoopman.deploy.server.server_state import ServerState
from fedkoopman.deploy.server.updates import Update
from fedkoopman.deploy.wire import Polled

__all__ = ["begun", "completed"]


def begun(
    slot: int,
    roster: Roster,
    polled: Mapping[str, Polled],
    arrived: Sequence[str],
    updates: Sequence[Update],
    state: ServerState,
) -> dict[str, Any]:
    """A slot's record, as a local run has it; sites stand in it by their identities.

    What a local run does not know is told only where there is something to tell: `late` were asked
    to train and sent nothing to judge, `missing` did not answer at all, `set_aside` are not asked.
    """
    place = {site.name: site.identity for site in roster.sites}
    told = [one for one in updates if one.answered]
    present = [site.name for site in roster.active]
    lists = {
        "refused": [one.site for one in told if one.reason],
        "late": [one.site for one in updates if not one.answered],
        "missing": [name for name in present if name not in polled],
        "set_aside": [name for name in present if state.of(name).set_aside],
    }
    return {
        "slot": slot,
        "arrived": sorted(place[name] for name in arrived),
        "buffered": [
            polled[site.name].buffered if site.name in polled else 0 for site in roster.sites
        ],
        "active": [place[one.site] for one in told],
        "samples": sum(one.samples for one in told),
        "dropped": [],
        **{key: [place[name] for name in names] for key, names in lists.items() if names},
    }


def completed(
    record: Mapping[str, Any], found: Scored, roster: Roster, seconds: float
) -> dict[str, Any]:
    """The record with its model's scores; `unscored` are sites whose scores are not part of it."""
    left_out = [site.identity for site in roster.sites if site.name in found.left_out]
    notes = {"unscored": left_out} if left_out else {}
    return {**record, **notes, **found.or_unknown(), "seconds": round(seconds, 3)}
