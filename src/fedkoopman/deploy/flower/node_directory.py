"""Which node is which site.

A site is identified by its key: the SuperLink admits a node only if it holds a registered private
key, and tells the public key of each node. Without keys, on one machine, a node is asked for its
name.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import Message, MessageType
from flwr.superlink.grid import HttpGrid

from fedkoopman.deploy.exchange import Failure
from fedkoopman.deploy.flower.control import key_bytes
from fedkoopman.deploy.flower.courier import content_of
from fedkoopman.deploy.provisioning.roster import Roster
from fedkoopman.errors import InputError

log = logging.getLogger(__name__)
HELLO_TIMEOUT = 5.0
"""Seconds that a node has to tell its name before it is asked again."""


@dataclass(frozen=True)
class Place:
    """Where a site is: its node, and since when that node's process runs."""

    node: int
    since: str


class NodeDirectory:
    """Finds the node of each site.

    Arguments:
        grid: through which nodes are listed.
        roster: who may take part now.
        site_of: the site that a reply claims to come from; raises InputError if it is malformed.
        hello: a request that every site answers and that changes nothing.

    Attributes:
        asked: nodes that were asked for their names, by the message that asked them.
        unknown: nodes that belong to no site.
    """

    def __init__(
        self,
        grid: HttpGrid,
        roster: Callable[[], Roster],
        site_of: Callable[[bytes], str],
        hello: bytes,
    ) -> None:
        self.asked: dict[str, int] = {}
        self.unknown: set[int] = set()
        self._grid = grid
        self._roster = roster
        self._site_of = site_of
        self._hello = hello
        self._names: dict[int, str] = {}
        self._asked_at: dict[int, float] = {}

    def places(self) -> dict[str, Place]:
        """The nodes of sites that may take part; of two nodes with one name, the later one."""
        roster = self._roster()
        active = {site.name: site.public_key for site in roster.active}
        owners = {key_bytes(key): name for name, key in active.items() if roster.secure}
        places: dict[str, Place] = {}
        for node in sorted(self._grid.get_nodes(), key=lambda node: node.last_activated_at):
            id = node.node_id
            name = owners.get(node.public_key) if roster.secure else self._names.get(id)
            if name in active:
                places[str(name)] = Place(id, node.last_activated_at)
            elif name is None and not roster.secure:
                self._ask_name(id)
            elif id not in self.unknown:
                self.unknown.add(id)
                log.warning("node %d belongs to no site that may take part: left out", id)
        return places

    def learn(self, message: str, answer: bytes | Failure) -> None:
        """Note what a node answered that was asked for its name."""
        node = self.asked.pop(message)
        try:
            if isinstance(answer, Failure):
                raise InputError(answer.reason)
            self._names[node] = self._site_of(answer)
        except InputError as error:
            log.info("node %d does not tell its name: %s", node, error)

    def _ask_name(self, node: int) -> None:
        """Ask a node for its name, if it has not just been asked."""
        if time.monotonic() - self._asked_at.get(node, -HELLO_TIMEOUT) < HELLO_TIMEOUT:
            return
        self._asked_at[node] = time.monotonic()
        content = content_of(self._hello)
        message = Message(content, node, MessageType.QUERY, ttl=HELLO_TIMEOUT, group_id="hello")
        self.asked |= {id: node for id in self._grid.push_messages([message]) if id}
