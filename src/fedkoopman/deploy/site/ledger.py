"""The ledger: everything that left the site, to whom and how much, written before it left.

Each row stands for one body of bytes. What cannot be written in the ledger is not sent, but for
refusals, which say nothing of the data: where the disk is full, they are written as soon as it has
room again.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from fedkoopman.deploy.site.store import Store, StoreError, now, reading
from fedkoopman.deploy.wire import (
    Acknowledged,
    Answered,
    Evaluated,
    Masked,
    Offered,
    Polled,
    Refused,
    Reply,
    Shared,
    Unmasked,
)

REMEMBERED = 1_000
"""Refusals that are remembered while they cannot be written."""


@dataclass(frozen=True)
class LedgerEntry:
    """One body of bytes that left the site.

    Attributes:
        time: when, UTC.
        peer: to whom.
        kinds: the kinds of its replies, as "acknowledged + polled".
        slot: the latest slot that it is about; None if about none.
        base: digest of the message that was answered, or of the model that was scored.
        digest: sha256 of the bytes.
        bytes: how many.
        words: what it says.
    """

    time: str
    peer: str
    kinds: str
    slot: int | None
    base: str
    digest: str
    bytes: int
    words: str


_COLUMNS = ", ".join(field.name for field in fields(LedgerEntry))
_INSERT = f"INSERT INTO ledger ({_COLUMNS}) VALUES ({', '.join('?' * len(fields(LedgerEntry)))})"


class Ledger:
    """Writes the ledger of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.about: Callable[[], str] = str
        """What is added to the words of every answer of the algorithm."""
        self._late: list[LedgerEntry] = []
        self._flood = 0

    def write(self, peer: str, replies: Sequence[Reply], body: bytes) -> None:
        """Write down what is about to leave; what cannot be written must not leave."""
        entry = _entry(peer, replies, body, self.about)
        rows = [*self._late, *self._flooded(), entry]
        try:
            with self._store.writing() as c:
                c.executemany(_INSERT, [tuple(vars(row).values()) for row in rows])
        except StoreError:
            if not all(isinstance(reply, Refused) for reply in replies):
                raise
            self._late = [*self._late, entry][-REMEMBERED:]
        else:
            self._late.clear()
            self._flood = 0

    def count_refusal(self) -> None:
        """Count a refusal of one too many messages; the next row is preceded by their number."""
        self._flood += 1

    def _flooded(self) -> list[LedgerEntry]:
        if not self._flood:
            return []
        words = f"refused {self._flood:,} messages that came too fast"
        return [LedgerEntry(now("milliseconds"), "", "refused", None, "", "", 0, words)]


def ledger_entries(state: Path, since: datetime | None = None) -> list[LedgerEntry]:
    """The ledger of a site's state directory, oldest first; its agent may run."""
    with reading(state) as connection:
        return list(_rows(connection, since))


def ledger_totals(entries: Sequence[LedgerEntry]) -> dict[str, tuple[int, int]]:
    """How often, and how many bytes, by what was said."""
    found: dict[str, tuple[int, int]] = {}
    for entry in entries:
        times, amount = found.get(entry.kinds, (0, 0))
        found[entry.kinds] = times + 1, amount + entry.bytes
    return found


def said(reply: Reply) -> str:
    """What a reply says, in words."""
    match reply:
        case Polled():
            return f"{reply.buffered:,} samples in {reply.segments:,} segments wait"
        case Answered():
            size = _size(reply.message.arrays) + len(reply.message.numbers)
            return f"{reply.message.kind} of {size:,} numbers, from {reply.samples:,} samples"
        case Offered():
            return "two new public keys"
        case Shared():
            return f"secrets of this session in shares, sealed for {len(reply.shares):,} sites"
        case Masked():
            return f"masked {reply.reply} of {len(reply.words):,} words of 64 bits"
        case Unmasked():
            return f"shares to open the sum of {len(reply.seeds):,} sites"
        case Evaluated():
            more = [
                f"sums of errors, {_size(reply.measured):,} numbers" if reply.measured else "",
                "tables of errors by steps ahead" if reply.scores else "",
            ]
            scores = f"{len(reply.metrics)} mean scores over {reply.windows:,} held-out windows"
            return ", ".join([scores, *filter(None, more)])
        case Acknowledged():
            return f"slot {reply.slot} is heard of"
        case Refused():
            return f"refused: {reply.reason}"


def _kind(reply: Reply) -> str:
    match reply:
        case Answered():
            return reply.message.kind
        case Masked():
            return f"masked {reply.reply}"
    return type(reply).__name__.lower()


def _entry(
    peer: str, replies: Sequence[Reply], body: bytes, about: Callable[[], str]
) -> LedgerEntry:
    answers = any(isinstance(reply, Answered) for reply in replies)
    more = about() if answers else ""
    slots = [reply.slot for reply in replies if not isinstance(reply, Refused)]
    bases = [reply.base for reply in replies if isinstance(reply, Answered | Masked | Evaluated)]
    return LedgerEntry(
        time=now("milliseconds"),
        peer=peer,
        kinds=" + ".join(dict.fromkeys(map(_kind, replies))),
        slot=max(slots, default=None),
        base=bases[-1] if bases else "",
        digest=hashlib.sha256(body).hexdigest(),
        bytes=len(body),
        words="; ".join([*map(said, replies), *([more] if more else [])]),
    )


def _rows(connection: sqlite3.Connection, since: datetime | None) -> Iterator[LedgerEntry]:
    first = "" if since is None else since.astimezone(UTC).isoformat(timespec="milliseconds")
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM ledger WHERE time >= ? ORDER BY number", (first,)
    )
    return (LedgerEntry(*row) for row in rows)


def _size(tensors: Mapping[str, object]) -> int:
    return sum(int(getattr(leaf, "size", 0)) for leaf in tensors.values())
