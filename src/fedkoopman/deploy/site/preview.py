"""What a site would send, for `fedkoopman join --dry-run`: computed on its data, sent to nobody.

A server is played to a real agent, whose state is thrown away: slots in which no other site has
data, until the algorithm asks this one.
"""

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.deploy.secure.masks import threshold_of
from fedkoopman.deploy.secure.site_session import begin
from fedkoopman.deploy.site.agent import Agent
from fedkoopman.deploy.site.masking import keys_of
from fedkoopman.deploy.wire import (
    Acknowledge,
    Acknowledged,
    Answered,
    Ask,
    Evaluate,
    Evaluated,
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
    decode_replies,
    encode_requests,
)
from fedkoopman.errors import ComputationError
from fedkoopman.federation.messages import Arrays, Message
from fedkoopman.federation.slot import ask

Kind = TypeVar("Kind", bound=Reply)
NOBODY = "nobody (dry run)"


def preview_lines(site: SiteFile, study: Study, identity: int, clients: int) -> list[str]:
    """What would be sent, name by name."""
    with (
        tempfile.TemporaryDirectory(prefix="fedkoopman-") as folder,
        Agent(site, study, identity, clients, Path(folder), settle=0.0) as agent,
    ):
        agent.scan()
        problem, schemas = agent.work.problem, agent.work.schemas
        state = problem.algorithm.begin(problem)
        model = problem.algorithm.model(problem, state)
        slot, message = _first_request(agent, state, identity)
        lines = _told(agent, "poll", Poll(slot), "in every slot")
        if message is not None:
            when = f"here in slot {slot}, the first in which this site is asked"
            if study.aggregation.secure:
                lines += _masked(agent, slot, message, identity, when)
            else:
                lines += _told(agent, message.kind, Ask(slot, message), when)
        else:
            lines.append(f"this site is asked for nothing in any of the {study.slots} slots")
        others = [kind for kind in schemas if message is None or kind != message.kind]
        for kind in others:
            if reply := schemas.get(schemas[kind].reply):
                lines.append(f"{kind}: {reply.words}")
                lines += [
                    f"  {name}: {one.dtype} {one.shape}" for name, one in reply.arrays.items()
                ]
        lines += _told(agent, "evaluate", Evaluate(slot - 1, model), "when the model has changed")
        lines += _told(
            agent,
            "evaluate",
            Evaluate(study.slots, model, measure=True),
            "once, after the last slot",
        )
        lines += _compared(agent)
        lines += _told(agent, "acknowledge", Acknowledge(slot, 0), "in every slot")
        status = agent.status()
        lines += [f"left out: {name}: {why}" for name, why in status["set_aside"].items()]
        if status["dropped"]:
            lines.append(f"of no use: {len(status['dropped'])} segments; see fedkoopman check")
        lines += [f"not used: {line}" for line in status["left_out"]]
        lines.append("nothing of this was sent; observations and states have no message to go in")
        return lines


def _masked(agent: Agent, slot: int, message: Message, identity: int, when: str) -> list[str]:
    """What is sent in place of an answer, where the server learns only the sum over sites; a
    made-up site takes part in it."""
    session, own, other = "preview", str(identity), str(identity + 1)
    peer = begin(session, other)
    offered = _reply(agent, Offer(slot, session), Offered)
    keys = {own: offered.keys, other: b"".join(peer.public)}
    request = Share(slot, session, threshold_of(2), keys)
    shared = _reply(agent, request, Shared)
    _, given = peer.share({place: keys_of(both) for place, both in keys.items()}, threshold_of(2))
    size, reply = _asked(agent, Mask(slot, session, {other: given[own]}, message))
    assert isinstance(reply, Masked)
    words = agent.work.schemas[reply.reply].words
    return [
        f"{message.kind} ({when}): {size:,} bytes",
        f"  {words}, masked: {len(reply.words):,} words of 64 bits, of which the server learns "
        "the sum over sites",
        f"  before it, two new public keys, and {len(next(iter(shared.shares.values()))):,} bytes "
        "sealed for each other site; after it, shares that open the sum",
    ]


def _reply(agent: Agent, request: Request, kind: type[Kind]) -> Kind:
    _, reply = _asked(agent, request)
    assert isinstance(reply, kind)
    return reply


def _compared(agent: Agent) -> list[str]:
    """What is sent to compare the finished model with others."""
    known = agent.comparison.schemas
    lines = []
    for kind, schema in known.items():
        if schema.reply:
            reply = known[schema.reply]
            size = sum(math.prod(one.shape) for one in reply.arrays.values())
            masked = ", masked" if agent.study.aggregation.secure and reply.additive else ""
            lines.append(
                f"{kind} (once, after the last slot): {reply.words}, {size:,} numbers{masked}"
            )
    return lines


def _first_request(agent: Agent, state: Arrays, identity: int) -> tuple[int, Message | None]:
    """The first slot in which the algorithm asks this site, and what; or the last one."""
    problem = agent.work.problem
    for slot in range(1, problem.slots + 1):
        _, reply = _asked(agent, Poll(slot))
        assert isinstance(reply, Polled)
        waiting = np.zeros(problem.clients, np.int64)
        waiting[identity] = reply.buffered
        asked = ask(problem, state, slot, waiting)
        if identity in asked:
            return slot, asked[identity]
    return problem.slots, None


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
        case Answered():
            words = agent.work.schemas[reply.message.kind].words
            lines.append(f"  {words}, from {reply.samples:,} samples")
            lines += _tensors(reply.message.arrays)
            lines += [f"  {name}: {value:g}" for name, value in reply.message.numbers.items()]
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
