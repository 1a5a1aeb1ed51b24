"""A site's files and the segments made from them, in the store.

A file is taken whole or not at all: its segments are stored one by one while it is read, and count
only when the last one is stored. After a crash, the segments of an unfinished file are removed.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from fedkoopman.data.triage import HeldOut
from fedkoopman.deploy.site.store import Store, now
from fedkoopman.errors import InputError
from fedkoopman.estimation.left_out import kept_samples

Kind = Literal["train", "held-out", "dropped"]


class Stamp(NamedTuple):
    """Shows whether a file has changed; never compared with a clock."""

    size: int
    modified: int


@dataclass(frozen=True)
class Entry:
    """A file.

    Attributes:
        stamp, digest: when it was read; the digest is empty if it was not read.
        state: "reading", "taken" or "aside".
        reason: why it is aside; for a taken file, what happened to it since.
    """

    stamp: Stamp
    digest: str
    state: str
    reason: str


@dataclass(frozen=True, eq=False)
class Made:
    """A segment and its estimated states.

    Attributes:
        name: unique within the site.
        kind: what it is used for.
        reason: why it was dropped; of a segment in use, the number of samples that are left out,
            with the reason.
        states: (T, d); to train on, with rows of NaN between stretches.
        observations: (T, m); only for held-out segments.
    """

    name: str
    kind: Kind
    reason: str
    states: NDArray[np.float64]
    observations: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Counts:
    """How many segments of each kind were taken, the samples of those to train on, and how many
    samples were left out of segments in use."""

    train: int = 0
    held_out: int = 0
    dropped: int = 0
    samples: int = 0
    left_out: int = 0


class HeldOutSegments(Sequence[HeldOut]):
    """Held-out segments, each read from the store when it is looked at."""

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.looking() as c:
            rows = c.execute(
                "SELECT number, samples FROM segments JOIN files ON file = path "
                "WHERE kind = 'held-out' AND state = 'taken' ORDER BY number"
            )
            self._found: list[tuple[int, int]] = rows.fetchall()

    @property
    def lengths(self) -> list[int]:
        """Samples of each."""
        return [samples for _, samples in self._found]

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, place: int) -> HeldOut: ...
    @overload
    def __getitem__(self, place: slice) -> list[HeldOut]: ...
    def __getitem__(self, place: int | slice) -> HeldOut | list[HeldOut]:
        if isinstance(place, slice):
            return [self[i] for i in range(len(self))[place]]
        number, samples = self._found[place]
        with self._store.looking() as c:
            name, states, observations = c.execute(
                "SELECT name, states, observations FROM segments JOIN contents ON segment = number "
                "WHERE number = ?",
                (number,),
            ).fetchone()
        return HeldOut(
            name, *(np.frombuffer(b).reshape(samples, -1) for b in (states, observations))
        )


class Catalogue:
    """The files and segments of a store; one thread writes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def files(self) -> dict[str, Entry]:
        """All known files, by path."""
        with self._store.looking() as c:
            rows = c.execute("SELECT path, size, modified, digest, state, reason FROM files")
            return {path: Entry(Stamp(a, b), digest, *rest) for path, a, b, digest, *rest in rows}

    def begin(self, path: str, stamp: Stamp, digest: str) -> None:
        """Begin to read a file; its stored segments are removed, unless it was taken."""
        with self._store.writing() as c:
            _remove(c, path)
            _put(c, path, stamp, digest, "reading", "")

    def add(self, path: str, made: Made) -> None:
        """Store the next segment of the file that is being read."""
        samples = len(made.states) if made.kind == "dropped" else kept_samples(made.states)
        with self._store.writing() as c:
            ((number,),) = c.execute("SELECT ifnull(max(number), -1) + 1 FROM segments")
            try:
                c.execute(
                    "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?)",
                    (number, made.name, path, samples, made.kind, made.reason),
                )
            except sqlite3.IntegrityError as error:
                raise InputError(
                    f"{path} has a segment {made.name!r}, as another file has: give one of them "
                    "another name"
                ) from error
            if made.kind != "dropped":
                c.execute(
                    "INSERT INTO contents VALUES (?, ?, ?)",
                    (number, _bytes(made.states), _bytes(made.observations)),
                )

    def finish(self, path: str, deliver: bool) -> int:
        """Take the file that was read; gives how many samples arrived with it.

        Arguments:
            deliver: whether its segments arrive now.
        """
        with self._store.writing() as c:
            c.execute("UPDATE files SET state = 'taken' WHERE path = ?", (path,))
            if not deliver:
                return 0
            chosen = "FROM segments WHERE file = ? AND kind = 'train'"
            c.execute(
                f"INSERT INTO deliveries (segment) SELECT number {chosen} ORDER BY number", (path,)
            )
            ((samples,),) = c.execute(f"SELECT total(samples) {chosen}", (path,))
            return int(samples)

    def set_aside(self, path: str, stamp: Stamp, reason: str) -> None:
        """Leave a file out, until it changes."""
        with self._store.writing() as c:
            _remove(c, path)
            _put(c, path, stamp, "", "aside", reason)

    def remark(self, path: str, reason: str) -> None:
        """Remember what happened to a file after it was taken."""
        with self._store.writing() as c:
            c.execute("UPDATE files SET reason = ? WHERE path = ?", (reason, path))

    def clear(self) -> None:
        """Remove all files and segments, none of which has arrived yet."""
        with self._store.writing() as c:
            for table in ("contents", "segments", "files"):
                c.execute(f"DELETE FROM {table}")

    def drop_unfinished(self) -> None:
        """Remove the segments of files that were not read to the end."""
        with self._store.writing() as c:
            unfinished = c.execute("SELECT path FROM files WHERE state = 'reading'").fetchall()
            for (path,) in unfinished:
                _remove(c, path)

    def taken_as(self, digest: str) -> str | None:
        """The taken file with this content."""
        with self._store.looking() as c:
            row = c.execute(
                "SELECT path FROM files WHERE digest = ? AND state = 'taken'", (digest,)
            ).fetchone()
        return None if row is None else str(row[0])

    def count(self) -> int:
        """How many segments there are, of all kinds."""
        with self._store.looking() as c:
            ((number,),) = c.execute("SELECT count(*) FROM segments")
            return int(number)

    def counts(self) -> Counts:
        """How many segments there are, by kind, of files that were taken."""
        with self._store.looking() as c:
            rows = c.execute(
                "SELECT kind, count(*), sum(samples), total(CAST(segments.reason AS INTEGER)) "
                "FROM segments JOIN files ON file = path WHERE state = 'taken' GROUP BY kind"
            )
            found = {kind: (number, samples, int(left)) for kind, number, samples, left in rows}
        nothing = (0, 0, 0)
        train, held, dropped = (found.get(k, nothing) for k in ("train", "held-out", "dropped"))
        return Counts(train[0], held[0], dropped[0], train[1], train[2] + held[2])

    def dropped(self) -> list[str]:
        """The dropped segments, with the reasons."""
        return self._reasons("kind = 'dropped'")

    def left_out(self) -> list[str]:
        """The segments in use of which samples are left out, with their number and the reason."""
        return self._reasons("kind <> 'dropped' AND reason <> ''")

    def _reasons(self, which: str) -> list[str]:
        with self._store.looking() as c:
            rows = c.execute(f"SELECT name, reason FROM segments WHERE {which} ORDER BY number")
            return [f"{name}: {reason}" for name, reason in rows]

    def held_out(self) -> HeldOutSegments:
        """The held-out segments of files that were taken."""
        return HeldOutSegments(self._store)


def _put(
    c: sqlite3.Connection, path: str, stamp: Stamp, digest: str, state: str, reason: str
) -> None:
    c.execute(
        "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (path) DO UPDATE SET "
        "size = excluded.size, modified = excluded.modified, digest = excluded.digest, "
        "state = excluded.state, reason = excluded.reason, time = excluded.time",
        (path, *stamp, digest, state, reason, now()),
    )


def _remove(c: sqlite3.Connection, path: str) -> None:
    """Remove a file that was not taken, and its segments."""
    row = c.execute("SELECT state FROM files WHERE path = ?", (path,)).fetchone()
    if row is None:
        return
    if row[0] == "taken":
        raise AssertionError(f"{path} was taken: its segments stay")
    mine = "(SELECT number FROM segments WHERE file = ?)"
    c.execute(f"DELETE FROM contents WHERE segment IN {mine}", (path,))
    c.execute("DELETE FROM segments WHERE file = ?", (path,))
    c.execute("DELETE FROM files WHERE path = ?", (path,))


def _bytes(array: NDArray[np.float64] | None) -> bytes | None:
    return None if array is None else np.ascontiguousarray(array, np.float64).tobytes()
