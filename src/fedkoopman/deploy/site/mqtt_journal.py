"""Samples from MQTT in the site's store: each once, until its segment is a file.

Messages are kept in one transaction, and acknowledged to the broker only after that: what was
acknowledged is on the disk. A broker that was not acknowledged delivers again, and so may a
sender. So every sample has a number that grows within its topic and segment (its place in the
sequence, or its time); one that came before, with the same values, is not counted again.

A segment's rows are complete when it is closed; its file's name and content follow from them, so
that a file that was being written when the process was killed is written again, the same. Then
rows are deleted; numbers and digests of the last samples stay. `deploy.site.live` takes the files.
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedkoopman.deploy.site.mqtt_messages import Layout, Sample
from fedkoopman.deploy.site.store import Store, now
from fedkoopman.durable import write_whole, writing
from fedkoopman.errors import InputError

REMEMBERED = 100_000
"""Samples of a topic that are known, at least, when they come again. Older ones are set aside."""
ASIDE = 1000
"""Messages that are kept of those that were set aside."""
KEPT_BYTES = 2**16
"""Of a message that is set aside."""


@dataclass(frozen=True)
class Arrived:
    """A message as the broker delivered it; `again` is its own mark for another attempt."""

    topic: str
    payload: bytes
    again: bool = False


@dataclass(frozen=True)
class Kept:
    """What became of a message: how many samples are new and how many were known; or a reason."""

    new: int = 0
    known: int = 0
    reason: str = ""


@dataclass(frozen=True)
class _Open:
    """The segment of a topic that is not complete."""

    number: int
    name: str
    header: str
    samples: int
    last: float
    instant: float | None


class Journal:
    """What came, in the store of a site; one thread uses it."""

    def __init__(
        self, store: Store, layout: Layout, folder: Path, samples: int, gap: float
    ) -> None:
        """Arguments:

        folder: where segments' files are written.
        samples: how many make a segment.
        gap: between two instants of a segment, at most.
        """
        self._store, self._layout, self._folder = store, layout, folder
        self._samples, self._gap = samples, gap

    def keep(self, messages: Sequence[Arrived]) -> list[Kept]:
        """Keep messages; when this returns, they are on the disk."""
        with self._store.writing() as c:
            return [self._kept(c, message) for message in messages]

    def close(self, topics: Sequence[str]) -> None:
        """End the open segments of topics."""
        with self._store.writing() as c:
            for topic in topics:
                c.execute(
                    "UPDATE mqtt_segments SET state = 'closed' WHERE topic = ? AND state = 'open'",
                    (topic,),
                )

    def open_topics(self) -> list[str]:
        """Topics with a segment that is not complete."""
        with self._store.looking() as c:
            rows = c.execute("SELECT topic FROM mqtt_segments WHERE state = 'open'")
            return [topic for (topic,) in rows]

    def write(self) -> list[Path]:
        """Write the files of all closed segments."""
        with self._store.looking() as c:
            closed = c.execute(
                "SELECT number, topic, header FROM mqtt_segments WHERE state = 'closed' "
                "ORDER BY number"
            ).fetchall()
        return [self._written(*segment) for segment in closed]

    def counts(self) -> dict[str, int]:
        """Samples that came, those of them whose segment is open, and messages set aside."""
        with self._store.looking() as c:
            ((came,),) = c.execute("SELECT total(came) FROM mqtt_marks")
            ((waiting,),) = c.execute(
                "SELECT total(samples) FROM mqtt_segments WHERE state = 'open'"
            )
            ((aside,),) = c.execute("SELECT ifnull(max(number), 0) FROM mqtt_aside")
        return {
            "mqtt_samples": int(came), "mqtt_open": int(waiting), "mqtt_set_aside": int(aside)
        }  # fmt: skip

    def aside(self, most: int = 20) -> list[str]:
        """The last messages that were set aside, with the reasons."""
        with self._store.looking() as c:
            rows = c.execute(
                "SELECT number, topic, reason FROM mqtt_aside ORDER BY number DESC LIMIT ?", (most,)
            ).fetchall()
        return [f"{number} of {topic}: {reason}" for number, topic, reason in reversed(rows)]

    def subscribed(self) -> list[str]:
        """The filters that the broker remembers for this site."""
        with self._store.looking() as c:
            return [topic for (topic,) in c.execute("SELECT topic FROM mqtt_session")]

    def remember_subscribed(self, topics: Sequence[str]) -> None:
        """Note them."""
        with self._store.writing() as c:
            c.execute("DELETE FROM mqtt_session")
            c.executemany("INSERT INTO mqtt_session VALUES (?)", [(t,) for t in topics])

    def _kept(self, c: sqlite3.Connection, message: Arrived) -> Kept:
        c.execute("SAVEPOINT message")  # it counts as a whole, or not at all
        try:
            samples = self._layout.read(message.payload, message.topic)
            new = sum(self._added(c, message.topic, sample) for sample in samples)
        except InputError as error:
            c.execute("ROLLBACK TO message")
            self._set_aside(c, message, str(error))
            return Kept(reason=str(error))
        finally:
            if c.in_transaction:
                c.execute("RELEASE message")
        return Kept(new, len(samples) - new)

    def _added(self, c: sqlite3.Connection, topic: str, sample: Sample) -> bool:
        """Keep a sample, and tell whether it is new."""
        digest = hashlib.sha256(sample.row.encode()).digest()[:8]
        which = (topic, sample.segment, sample.number)
        known = c.execute(
            "SELECT digest FROM mqtt_samples WHERE topic = ? AND segment = ? AND sample = ?", which
        ).fetchone()
        word = f"{self._layout.sequence or self._layout.time} {sample.number:.15g}"
        if known is not None:
            if known[0] == digest:
                return False
            raise InputError(
                f"{word} came before with other values: a clock or counter that starts again "
                "needs a new segment's name"
            )
        mark = c.execute(
            "SELECT last FROM mqtt_marks WHERE topic = ? AND segment = ?", which[:2]
        ).fetchone()
        if mark is not None and sample.number <= mark[0]:
            raise InputError(f"{word} goes back from {mark[0]:.15g}: send samples in order")
        current = self._current(c, topic, sample)
        c.execute(
            "INSERT INTO mqtt_samples VALUES (?, ?, ?, ?, ?, ?)",
            (*which, current, digest, sample.row),
        )
        c.execute(
            "UPDATE mqtt_segments SET samples = samples + 1, last = ?, instant = ?, "
            "state = CASE WHEN samples + 1 < ? THEN 'open' ELSE 'closed' END WHERE number = ?",
            (sample.number, sample.time, self._samples, current),
        )
        c.execute(
            "INSERT INTO mqtt_marks VALUES (?, ?, ?, 1) ON CONFLICT (topic, segment) "
            "DO UPDATE SET last = excluded.last, came = came + 1",
            which,
        )
        return True

    def _current(self, c: sqlite3.Connection, topic: str, sample: Sample) -> int:
        """The open segment that a sample belongs to; a new one where it does not go on."""
        row = c.execute(
            "SELECT number, segment, header, samples, last, instant FROM mqtt_segments "
            "WHERE topic = ? AND state = 'open'",
            (topic,),
        ).fetchone()
        if row is not None:
            if self._goes_on(_Open(*row), sample):
                return int(row[0])
            c.execute("UPDATE mqtt_segments SET state = 'closed' WHERE number = ?", row[:1])
        made = c.execute(
            "INSERT INTO mqtt_segments (topic, segment, header, samples, last, instant, state) "
            "VALUES (?, ?, ?, 0, ?, ?, 'open')",
            (topic, sample.segment, sample.header, sample.number, sample.time),
        )
        assert made.lastrowid is not None
        return made.lastrowid

    def _goes_on(self, segment: _Open, sample: Sample) -> bool:
        if (segment.name, segment.header) != (sample.segment, sample.header):
            return False
        if sample.time is None or segment.instant is None:
            return sample.number == segment.last + 1  # rows are one dt apart: none may be missing
        return 0 < sample.time - segment.instant <= self._gap

    def _set_aside(self, c: sqlite3.Connection, message: Arrived, reason: str) -> None:
        kept = message.payload[:KEPT_BYTES]
        if (
            message.again
            and c.execute(
                "SELECT 1 FROM mqtt_aside WHERE topic = ? AND payload = ?", (message.topic, kept)
            ).fetchone()
        ):
            return  # it was set aside, and the broker had not been told
        c.execute(
            "INSERT INTO mqtt_aside (time, topic, reason, payload) VALUES (?, ?, ?, ?)",
            (now(), message.topic, reason, kept),
        )
        c.execute(
            "DELETE FROM mqtt_aside WHERE number <= (SELECT max(number) FROM mqtt_aside) - ?",
            (ASIDE,),
        )

    def _written(self, number: int, topic: str, header: str) -> Path:
        """Write a segment's file, then delete its rows."""
        with self._store.looking() as c:
            rows = c.execute(
                "SELECT line FROM mqtt_samples WHERE number = ? ORDER BY sample", (number,)
            ).fetchall()
        content = (header + "".join(line for (line,) in rows)).encode()
        # The digest keeps files of a store that was lost from being replaced by those of a new one.
        digest = hashlib.sha256(content).hexdigest()[:12]
        path = self._folder / f"mqtt-{number:08d}-{digest}.csv"
        with writing(path):
            self._folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
        with self._store.writing() as c:
            c.execute("UPDATE mqtt_segments SET state = 'written' WHERE number = ?", (number,))
            c.execute("UPDATE mqtt_samples SET line = '' WHERE number = ?", (number,))
            _forget(c, topic)
        return path


def _forget(c: sqlite3.Connection, topic: str) -> None:
    """Delete segments so old that nobody sends their samples again."""
    old = c.execute(
        "SELECT number FROM (SELECT number, sum(samples) OVER (ORDER BY number DESC) - samples "
        "AS later FROM mqtt_segments WHERE topic = ? AND state = 'written') WHERE later >= ?",
        (topic, REMEMBERED),
    ).fetchall()
    c.executemany("DELETE FROM mqtt_samples WHERE number = ?", old)
    c.executemany("DELETE FROM mqtt_segments WHERE number = ?", old)
