"""Counts of a site's samples: arrived, trained on, waiting."""

import sqlite3
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Counted:
    """Samples and segments that were counted for a slot."""

    samples: int
    segments: int


@dataclass(frozen=True)
class Account:
    """Numbers of samples; `delivered` is always `trained` plus `buffered`.

    Attributes:
        delivered: all that arrived.
        trained: those that a saved model was trained on.
        buffered: those that wait, including those of an unacknowledged update.
        unacknowledged: those of an unacknowledged update.
        segments: how many segments wait.
    """

    delivered: int
    trained: int
    buffered: int
    unacknowledged: int
    segments: int


def counted(c: sqlite3.Connection, slot: int) -> Counted:
    """What was counted for a slot."""
    ((samples, segments),) = c.execute(
        "SELECT total(samples), count(*) FROM reservations JOIN deliveries ON delivery = "
        "deliveries.number JOIN segments ON segment = segments.number WHERE slot = ?",
        (slot,),
    )
    return Counted(int(samples), segments)


def account_of(c: sqlite3.Connection) -> Account:
    """The account of a store."""
    ((delivered, trained, waiting),) = c.execute(
        "SELECT total(samples), total(samples * (consumed IS NOT NULL)), total(consumed IS NULL) "
        "FROM deliveries JOIN segments ON segment = segments.number"
    )
    pending = [counted(c, slot).samples for (slot,) in c.execute("SELECT slot FROM pending")]
    return Account(
        delivered=int(delivered),
        trained=int(trained),
        buffered=int(delivered) - int(trained),
        unacknowledged=sum(pending),
        segments=int(waiting),
    )


def counts_of(c: sqlite3.Connection) -> dict[str, int]:
    """The account, by name."""
    return asdict(account_of(c))


def trained_by_slot(c: sqlite3.Connection) -> dict[int, int]:
    """Samples by the slot whose saved model was trained on them."""
    rows = c.execute(
        "SELECT consumed, sum(samples) FROM deliveries JOIN segments ON segment = segments.number "
        "WHERE consumed IS NOT NULL GROUP BY consumed ORDER BY consumed"
    )
    return {int(slot): int(samples) for slot, samples in rows}
