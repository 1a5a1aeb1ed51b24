"""What a site's store says of its samples: none lost, none doubled."""

import sqlite3
from dataclasses import asdict, dataclass

__all__ = ["Account", "Counted", "account_of", "counted", "counts_of", "trained_by_slot"]


@dataclass(frozen=True)
class Counted:
    """What waits for a slot."""

    samples: int
    segments: int


@dataclass(frozen=True)
class Account:
    """Samples, of which `delivered` is always `trained` and `buffered` together.

    Attributes:
        delivered: that ever arrived.
        trained: that a saved model holds.
        buffered: that wait, those of an unacknowledged update among them.
        unacknowledged: of these.
        segments: how many wait.
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
    """All that arrived, and where it is."""
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
    """Samples by the slot whose saved model holds them."""
    rows = c.execute(
        "SELECT consumed, sum(samples) FROM deliveries JOIN segments ON segment = segments.number "
        "WHERE consumed IS NOT NULL GROUP BY consumed ORDER BY consumed"
    )
    return {int(slot): int(samples) for slot, samples in rows}
