"""What a site would send, for `fedkoopman join --dry-run`: computed on its data, sent to nobody.

A server is played to a real agent, whose state is thrown away: the first slot in which data wait.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.deploy.site.agent import Agent
from fedkoopman.deploy.wire import (
    Acknowledge,
    Acknowledged,
    Evaluate,
    Evaluated,
    Poll,
    Polled,
    Refused,
    Reply,
    Request,
    Train,
    Trained,
    decode_replies,
    encode_requests,
    tensors_of,
)
from fedkoopman.errors import ComputationError

__all__ = ["preview_lines"]

NOBODY = "nobody (dry run)"


def preview_lines(site: SiteFile, study: Study, identity: int, clients: int) -> list[str]:
    """What would be sent, name by name.

    Arguments:
        site, study, identity, clients: as of an `Agent`.
    """
    with (
        tempfile.TemporaryDirectory(prefix="fedkoopman-") as folder,
        Agent(site, study, identity, clients, Path(folder), settle=0.0) as agent,
    ):
        agent.scan()
        model = tensors_of(agent.work.first_model())
        slot, polled = _first_slot(agent, study.slots)
        lines = _told(agent, "poll", Poll(slot), "in every slot")
        if polled.buffered:
            lines += _told(
                agent,
                "train",
                Train(slot, model),
                f"here in slot {slot}, the first in which data wait",
            )
        else:
            lines.append(f"train: nothing, as no data wait in any of the {study.slots} slots")
        lines += _told(agent, "evaluate", Evaluate(slot - 1, model), "when the model has changed")
        lines += _told(
            agent,
            "evaluate",
            Evaluate(study.slots, model, measure=True),
            "once, after the last slot",
        )
        lines += _told(agent, "acknowledge", Acknowledge(slot, 0), "in every slot")
        status = agent.status()
        lines += [f"left out: {name}: {why}" for name, why in status["set_aside"].items()]
        if status["dropped"]:
            lines.append(f"of no use: {len(status['dropped'])} segments; see fedkoopman check")
        lines.append("nothing of this was sent; observations and states have no message to go in")
        return lines


def _first_slot(agent: Agent, slots: int) -> tuple[int, Polled]:
    """The first slot in which data wait, or the last one."""
    slot = 0
    while True:
        slot += 1
        _, reply = _asked(agent, Poll(slot))
        assert isinstance(reply, Polled)
        if reply.buffered or slot == slots:
            return slot, reply


def _asked(agent: Agent, request: Request) -> tuple[int, Reply]:
    body = agent.exchange(encode_requests(agent.envelope, [request]), NOBODY)
    ((reply,),) = (decode_replies(body)[1],)
    if isinstance(reply, Refused):
        raise ComputationError(f"the agent refuses what a server would ask: {reply.reason}")
    return len(body), reply


def _told(agent: Agent, kind: str, request: Request, when: str) -> list[str]:
    size, reply = _asked(agent, request)
    lines = [f"{kind} ({when}): {size:,} bytes"]
    match reply:
        case Polled():
            lines.append(
                f"  samples that wait: {reply.buffered:,}, in segments: {reply.segments:,}"
            )
        case Trained():
            lines.append(f"  trained on {reply.samples:,} samples")
            lines += _tensors(reply.model)
        case Evaluated():
            lines.append(f"  {reply.windows:,} held-out windows")
            lines += [f"  {name}: {value:.4g}" for name, value in reply.metrics.items()]
            lines += _tensors(reply.measured)
            lines += [f"  {name}: {_shown(value)}" for name, value in reply.scores.items()]
        case Acknowledged():
            lines.append(f"  slot {reply.slot}")
    return lines


def _tensors(tensors: Mapping[str, Any]) -> list[str]:
    return [
        f"  {name}: {leaf.dtype} {' × '.join(map(str, leaf.shape)) or 'number'}, "
        f"{leaf.nbytes:,} bytes"
        for name, leaf in tensors.items()
    ]


def _shown(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 80 else text[:77] + "..."
