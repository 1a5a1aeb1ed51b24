"""Data that wait at a site to be trained on, each of them exactly once.

A delivery is a segment that arrived. `poll` counts what waits and remembers for which slot it
counted what; training in that slot uses exactly this, whatever arrives meanwhile. An update is kept
until the server says what became of it: `acknowledge` then spends its data for good, if the saved
model holds them, or lets them wait again.

At most one update is unacknowledged, and no slot is trained that the server said is over. So a
message that comes twice, late or out of order can neither lose data nor have them trained twice.

Where the algorithm takes answers in later slots (`Schema.lasting`), an update that came too late
for its slot is kept. The next poll counts for its slot exactly what the update was trained on, so
that whoever asks the same again gets it; what arrived meanwhile waits for the poll after that.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkoopman.deploy.site.store import OPENED, Store, noted, put_note
from fedkoopman.errors import InputError
from fedkoopman.federation.arrivals import drawn


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


@dataclass(frozen=True)
class Kept:
    """An update that waits for its acknowledgement.

    Attributes:
        base: digest of the model from which it was trained.
        trainings: how many models were trained in this slot.
        reply: as it was sent.
    """

    base: str
    trainings: int
    reply: bytes


@dataclass(frozen=True, eq=False)
class History:
    """What arrived during a study.

    Attributes:
        segments: states (T, d), each segment once; none if some of them were deleted.
        arrivals: slots, rising, each with the place in `segments` of what arrived then.
    """

    segments: tuple[NDArray[np.float64], ...]
    arrivals: tuple[tuple[int, int], ...]


class Buffer:
    """What waits in a store."""

    def __init__(
        self,
        store: Store,
        succeeds: Callable[[int], bool] | None = None,
        repeat: bool = False,
        keep: bool = False,
        lasting: bool = False,
    ) -> None:
        """Arguments:

        succeeds: whether a recorded segment arrives in a slot; None where files bring them.
        repeat: whether the first recorded segment follows the last.
        keep: whether states are kept when they are spent, as the algorithm looks at them again.
        lasting: whether an update that its slot was saved without may be part of a later one.
        """
        self._store, self._succeeds, self._repeat = store, succeeds, repeat
        self._keep, self._lasting = keep, lasting

    def poll(self, slot: int) -> Counted:
        """How much waits for a slot; asked again, the same."""
        with self._store.writing() as c:
            _check_current(c, slot)
            if not _polled(c, slot):
                self._count(c, slot)
                _carry_over(c, slot)
            return counted(c, slot)

    def kept(self, slot: int) -> Kept | None:
        """The update of a slot, if there is one that is not acknowledged."""
        with self._store.looking() as c:
            row = c.execute(
                "SELECT base, trainings, reply FROM pending WHERE slot = ?", (slot,)
            ).fetchone()
        return None if row is None else Kept(*row)

    def states(self, slot: int) -> list[NDArray[np.float64]]:
        """States (T, d) of what was counted for a slot, in the order of arrival."""
        with self._looking(slot) as c:
            rows = c.execute(
                "SELECT samples, states FROM reservations JOIN deliveries ON delivery = "
                "deliveries.number JOIN segments ON segment = segments.number "
                "JOIN contents USING (segment) WHERE slot = ? ORDER BY delivery",
                (slot,),
            ).fetchall()
            if len(rows) != counted(c, slot).segments:
                raise InputError(f"states of slot {slot} are missing in the store: restore it")
        if not rows:
            raise InputError(f"nothing waits for slot {slot}: train sites that have data")
        return [_states(samples, states) for samples, states in rows]

    def arrived(self, slot: int) -> list[NDArray[np.float64]]:
        """States (T, d) of all that ever arrived, up to what was counted for a slot."""
        with self._looking(slot) as c:
            rows = c.execute(
                "SELECT samples, states FROM deliveries JOIN segments ON segment = segments.number "
                "JOIN contents USING (segment) WHERE consumed IS NOT NULL OR deliveries.number IN "
                "(SELECT delivery FROM reservations WHERE slot = ?) ORDER BY deliveries.number",
                (slot,),
            ).fetchall()
        return [_states(samples, states) for samples, states in rows]

    def history(self, last: int) -> History:
        """What arrived, and in which slots; where files bring segments, in which slot they were
        trained on or, of those that wait, in the last one.

        States that were deleted after training are missing: then there is no history to tell.
        """
        with self._store.looking() as c:
            rows = c.execute(
                "SELECT segment, ifnull(arrived, ifnull(consumed, ?)) FROM deliveries "
                "ORDER BY 2, number",
                (last,),
            ).fetchall()
            places = {segment: place for place, (segment, _) in enumerate(dict(rows).items())}
            found = [
                c.execute(
                    "SELECT samples, states FROM segments JOIN contents ON segment = number "
                    "WHERE number = ?",
                    (segment,),
                ).fetchone()
                for segment in places
            ]
        if any(row is None for row in found):
            return History((), ())
        states = tuple(_states(samples, states) for samples, states in found)
        return History(states, tuple((slot, places[segment]) for segment, slot in rows))

    @contextmanager
    def _looking(self, slot: int) -> Iterator[sqlite3.Connection]:
        """A connection for reading what was counted for a slot."""
        with self._store.looking() as c:
            _check_current(c, slot)
            if not _polled(c, slot):
                raise InputError(f"slot {slot} was not polled: poll before asking")
            yield c

    def keep(self, slot: int, base: str, reply: bytes) -> None:
        """Keep an update until it is acknowledged, instead of another one of the same slot."""
        with self._store.writing() as c:
            _check_current(c, slot)
            c.execute(
                "INSERT INTO pending VALUES (?, ?, 1, ?) ON CONFLICT (slot) DO UPDATE SET "
                "base = excluded.base, trainings = trainings + 1, reply = excluded.reply",
                (slot, base, reply),
            )

    def acknowledge(self, slot: int, included: int) -> str:
        """Do what follows from what the server saved, and tell it in words; twice is as once.

        Arguments:
            slot: the last that is saved.
            included: the last whose saved model holds data of this site.
        """
        if included > slot:
            raise InputError(
                f"slot {included} is acknowledged as included but only {slot} as saved: refused"
            )
        told = ""
        with self._store.writing() as c:
            for (k,) in c.execute("SELECT slot FROM pending").fetchall():
                if included >= k:
                    spent = counted(c, k)
                    self._consume(c, k)
                    told = f"{spent.samples} samples of slot {k} are trained on for good"
                elif slot >= k and self._lasting:
                    if slot > _acknowledged(c):
                        told = f"slot {k} was saved without this site: its update is kept for later"
                elif slot >= k:
                    told = f"slot {k} was saved without this site: its data wait again"
                    c.execute("DELETE FROM pending WHERE slot = ?", (k,))
            if included > _last_spent(c):
                told = self._catch_up(c, included) or told
            c.execute(
                "DELETE FROM polls WHERE slot <= ? AND slot NOT IN (SELECT slot FROM pending)",
                (slot,),
            )
            if slot > _acknowledged(c):
                put_note(c, "acknowledged", str(slot))
        return told

    def rewind(self) -> None:
        """Forget which slots are over, where the server was set back to an earlier state; an
        unacknowledged update is given up, and its data wait again."""
        with self._store.writing() as c:
            c.execute("DELETE FROM pending")
            c.execute("DELETE FROM polls")
            put_note(c, "acknowledged", "0")
            put_note(c, OPENED, "")

    def account(self) -> Account:
        """All that arrived, and where it is."""
        with self._store.looking() as c:
            return account_of(c)

    def trained(self) -> dict[int, int]:
        """Samples by the slot whose saved model holds them."""
        with self._store.looking() as c:
            return trained_by_slot(c)

    def _count(self, c: sqlite3.Connection, slot: int) -> None:
        """Count what waits for a slot; drawn segments have a slot in which they arrive."""
        self._draw(c, slot)
        c.execute("INSERT INTO polls VALUES (?)", (slot,))
        c.execute(
            "INSERT INTO reservations SELECT ?, number FROM deliveries "
            "WHERE consumed IS NULL AND (arrived IS NULL OR arrived <= ?)",
            (slot, slot),
        )

    def _draw(self, c: sqlite3.Connection, slot: int) -> None:
        """Let arrive what arrives up to a slot, as in a local run."""
        if self._succeeds is None:
            return
        before, successes = int(noted(c, "drawn") or 0), int(noted(c, "lucky") or 0)
        ((count,),) = c.execute("SELECT count(*) FROM segments WHERE kind = 'train'")
        slots = range(before + 1, slot + 1)
        for m, place in drawn(self._succeeds, slots, successes, count, self._repeat):
            if place is not None:
                c.execute(
                    "INSERT INTO deliveries (segment, arrived) SELECT number, ? FROM segments "
                    "WHERE kind = 'train' ORDER BY number LIMIT 1 OFFSET ?",
                    (m, place),
                )
            successes += 1
        put_note(c, "drawn", str(max(before, slot)))
        put_note(c, "lucky", str(successes))

    def _catch_up(self, c: sqlite3.Connection, slot: int) -> str:
        """Spend what an update of this site has spent that the store knows nothing of, as it is a
        backup from before; what was done is told.

        A poll counts all that waits. So what was trained on in a slot is what was counted for it
        or, if that came later than the backup, all that had arrived by then. Where files bring
        segments, nobody knows when they had arrived: those are left, and may be trained on again.
        """
        if not _polled(c, slot):
            if self._succeeds is None:
                return ""
            self._count(c, slot)
        spent = counted(c, slot)
        self._consume(c, slot)
        return (
            f"this store is older than the federation, which has trained on this site's data in "
            f"slot {slot}: {spent.samples} samples that waited are spent"
        )

    def _consume(self, c: sqlite3.Connection, slot: int) -> None:
        """Spend what was counted for a slot; its states go, unless they will come again."""
        spent = "(SELECT delivery FROM reservations WHERE slot = ?)"
        c.execute(f"UPDATE deliveries SET consumed = ? WHERE number IN {spent}", (slot, slot))
        if not self._keep and not (self._succeeds and self._repeat):
            c.execute(
                "DELETE FROM contents WHERE segment IN "
                f"(SELECT segment FROM deliveries WHERE number IN {spent}) AND segment NOT IN "
                "(SELECT segment FROM deliveries WHERE consumed IS NULL)",
                (slot,),
            )
        # Counted for another slot too, as an earlier poll may have: they are there no more.
        c.execute(f"DELETE FROM reservations WHERE slot <> ? AND delivery IN {spent}", (slot, slot))
        c.execute("DELETE FROM pending WHERE slot = ?", (slot,))
        c.execute("DELETE FROM polls WHERE slot = ?", (slot,))


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


def trained_by_slot(c: sqlite3.Connection) -> dict[int, int]:
    """Samples by the slot whose saved model was trained on them."""
    rows = c.execute(
        "SELECT consumed, sum(samples) FROM deliveries JOIN segments ON segment = segments.number "
        "WHERE consumed IS NOT NULL GROUP BY consumed ORDER BY consumed"
    )
    return {int(slot): int(samples) for slot, samples in rows}


def _states(samples: int, content: bytes) -> NDArray[np.float64]:
    """A segment's states (T, d): so many samples, and rows of NaN between stretches of them."""
    numbers = np.frombuffer(content)
    return numbers.reshape(-1, np.count_nonzero(~np.isnan(numbers)) // samples)


def _check_current(c: sqlite3.Connection, slot: int) -> None:
    """Refuse a slot that is over, or that comes while another one's update is in the balance."""
    over = _acknowledged(c)
    if slot <= over:
        raise InputError(
            f"slot {slot} is over, as the server has saved slot {over}: refused; if the server was "
            "set back to an earlier state, join once with --rewind"
        )
    # One of a slot that is over is there only if it may be part of a later one.
    other = c.execute("SELECT slot FROM pending WHERE slot > ? AND slot <> ?", (over, slot))
    if (other := other.fetchone()) is not None:
        raise InputError(
            f"slot {slot} comes while the update of slot {other[0]} is not acknowledged: "
            "acknowledge first"
        )


def _carry_over(c: sqlite3.Connection, slot: int) -> None:
    """Let an update that came too late be one of this slot, with what it was trained on."""
    for (k,) in c.execute("SELECT slot FROM pending WHERE slot < ?", (slot,)).fetchall():
        c.execute("DELETE FROM reservations WHERE slot = ?", (slot,))
        c.execute("UPDATE reservations SET slot = ? WHERE slot = ?", (slot, k))
        c.execute("UPDATE pending SET slot = ?, trainings = 1 WHERE slot = ?", (slot, k))
        c.execute("DELETE FROM polls WHERE slot = ?", (k,))


def _acknowledged(c: sqlite3.Connection) -> int:
    return int(noted(c, "acknowledged") or 0)


def _last_spent(c: sqlite3.Connection) -> int:
    """The last slot that has spent anything, as far as is known here."""
    return int(c.execute("SELECT max(consumed) FROM deliveries").fetchone()[0] or 0)


def _polled(c: sqlite3.Connection, slot: int) -> bool:
    return c.execute("SELECT 1 FROM polls WHERE slot = ?", (slot,)).fetchone() is not None
