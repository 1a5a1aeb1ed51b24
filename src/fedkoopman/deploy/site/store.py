"""A site's store: one SQLite file that stays consistent if the process is killed at any point.

It holds the files that were read, the segments of states made from them, what arrived when, what
was counted for which slot, an update that waits to be acknowledged, the ledger, and what was spent
of the data's privacy. Every change is
one transaction, and is on the disk before it has any effect elsewhere. A transaction that fails, as
on a full disk, changes nothing.

A lock file lets only one process write; others may read meanwhile.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fedkoopman.durable import locked
from fedkoopman.errors import InputError, MachineError

FILE = "store.sqlite"
LOCK = "agent.lock"
CHECKED = 2**28
"""Bytes up to which a store is checked as a whole when it is opened."""
SCHEMA = 1
"""Version of the tables below; a store of another version is refused."""
OPENED = "opened"
"""Under this name stands which secure sums were opened in the last slot; see `masking`."""
APPLICATION = 0x666B6F6F
"""Marks the file as a store of fedkoopman."""

TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- state: reading (its segments are not complete), taken, or aside (with the reason).
-- reason of a taken file: what happened to it since.
CREATE TABLE files (
  path TEXT PRIMARY KEY, size INTEGER NOT NULL, modified INTEGER NOT NULL, digest TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('reading', 'taken', 'aside')),
  reason TEXT NOT NULL DEFAULT '', time TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX digests ON files (digest);

-- number: place among all of the site's segments, from 0. samples: those in use.
-- reason: why it was dropped; of a segment in use, how many samples are left out, and why.
CREATE TABLE segments (
  number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, file TEXT NOT NULL REFERENCES files,
  samples INTEGER NOT NULL, kind TEXT NOT NULL CHECK (kind IN ('train', 'held-out', 'dropped')),
  reason TEXT NOT NULL DEFAULT ''
);
CREATE INDEX kinds ON segments (kind, number);
CREATE INDEX sources ON segments (file);

-- Content of segments: float64, row by row; a row of NaN where samples are left out between others.
-- Deleted when a segment is no longer needed.
CREATE TABLE contents (
  segment INTEGER PRIMARY KEY REFERENCES segments, states BLOB NOT NULL, observations BLOB
);

-- number: order of arrival. arrived: the slot, where arrivals are drawn.
-- consumed: the slot whose saved model was trained on it.
CREATE TABLE deliveries (
  number INTEGER PRIMARY KEY, segment INTEGER NOT NULL REFERENCES segments,
  arrived INTEGER, consumed INTEGER
);
CREATE INDEX waiting ON deliveries (number) WHERE consumed IS NULL;
CREATE INDEX visits ON deliveries (segment);

-- Slots that were polled, and what was counted for each.
CREATE TABLE polls (slot INTEGER PRIMARY KEY);
CREATE TABLE reservations (
  slot INTEGER NOT NULL REFERENCES polls ON DELETE CASCADE,
  delivery INTEGER NOT NULL REFERENCES deliveries, PRIMARY KEY (slot, delivery)
) WITHOUT ROWID;

-- An update that left the site, or is about to, and is not acknowledged.
CREATE TABLE pending (
  slot INTEGER PRIMARY KEY REFERENCES polls, base TEXT NOT NULL, trainings INTEGER NOT NULL,
  reply BLOB NOT NULL
);

CREATE TABLE ledger (
  number INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, peer TEXT NOT NULL,
  kinds TEXT NOT NULL, slot INTEGER, base TEXT NOT NULL, digest TEXT NOT NULL,
  bytes INTEGER NOT NULL, words TEXT NOT NULL
);
CREATE INDEX times ON ledger (time);
"""
LATER_TABLES = """
-- What left the site with noise; stays from study to study, as the data do.
CREATE TABLE IF NOT EXISTS releases (
  study TEXT NOT NULL, slot INTEGER NOT NULL, base TEXT NOT NULL, rate REAL NOT NULL,
  noise REAL NOT NULL, steps INTEGER NOT NULL, level TEXT NOT NULL, time TEXT NOT NULL,
  PRIMARY KEY (study, slot, base)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;

-- Samples from MQTT (`mqtt_journal`), on their way to files; they stay from study to study.
-- marks: how far each segment of each topic has come. segments: state open, closed (complete, and
-- not a file yet) or written. samples: line is empty once it stands in a file.
CREATE TABLE IF NOT EXISTS mqtt_marks (
  topic TEXT NOT NULL, segment TEXT NOT NULL, last REAL NOT NULL, came INTEGER NOT NULL,
  PRIMARY KEY (topic, segment)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS mqtt_segments (
  number INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, segment TEXT NOT NULL,
  header TEXT NOT NULL, samples INTEGER NOT NULL, last REAL NOT NULL, instant REAL,
  state TEXT NOT NULL CHECK (state IN ('open', 'closed', 'written'))
);
CREATE INDEX IF NOT EXISTS mqtt_states ON mqtt_segments (state, topic);
CREATE TABLE IF NOT EXISTS mqtt_samples (
  topic TEXT NOT NULL, segment TEXT NOT NULL, sample REAL NOT NULL,
  number INTEGER NOT NULL REFERENCES mqtt_segments, digest BLOB NOT NULL, line TEXT NOT NULL,
  PRIMARY KEY (topic, segment, sample)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS mqtt_numbers ON mqtt_samples (number);
CREATE TABLE IF NOT EXISTS mqtt_aside (
  number INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, topic TEXT NOT NULL,
  reason TEXT NOT NULL, payload BLOB NOT NULL
);
-- What the broker was asked to deliver to this site.
CREATE TABLE IF NOT EXISTS mqtt_session (topic TEXT PRIMARY KEY) WITHOUT ROWID;
"""
"""Tables that stores of earlier versions lack; earlier versions do not mind them."""
OF_A_STUDY = (
    "pending", "reservations", "polls", "deliveries", "contents", "segments", "files", "meta",
)  # fmt: skip
"""Tables that are emptied for a new study, in this order: a table before those it refers to."""


class StoreError(MachineError):
    """The disk cannot be used; what was stored is unchanged."""


class Store:
    """The open store of one site; threads may share it."""

    def __init__(self, state: Path, pages: int | None = None) -> None:
        """Open the store of a state directory, or make one; refused if another process uses it.

        Arguments:
            state: the site's directory.
            pages: the largest size of the file, in pages of 4 KB; None for no limit.
        """
        self.path = state / FILE
        self._pages = pages
        self._guard = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        with _reported(self.path):
            state.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = locked(state / LOCK)
        try:
            with self._guard, _reported(self.path):
                self._open()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Store":
        """The store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the file and release the lock."""
        with self._guard:
            connection, self._connection = self._connection, None
            lock, self._lock = self._lock, -1
            try:
                if connection is not None:
                    connection.close()
            finally:
                if lock >= 0:
                    os.close(lock)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is written, or nothing."""
        with self._guard, _reported(self.path):
            connection = self._open()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if getattr(error, "sqlite_errorname", "").startswith("SQLITE_IOERR"):
                    self._connection = None  # its cache of the file may be wrong
                    connection.close()
                raise

    @contextmanager
    def looking(self) -> Iterator[sqlite3.Connection]:
        """A connection for reading; no other thread writes meanwhile."""
        with self._guard, _reported(self.path):
            yield self._open()

    def note(self, name: str) -> str | None:
        """The value that was noted under a name."""
        with self.looking() as connection:
            return noted(connection, name)

    def notes(self, **facts: str) -> None:
        """Note values by name; older ones are replaced."""
        with self.writing() as connection:
            for name, value in facts.items():
                put_note(connection, name, value)

    def begin_study(self, study: str) -> bool:
        """Use the store for a study; data of another study are deleted, except the ledger.

        Arguments:
            study: digest and seed.

        Returns whether there was another study before.
        """
        with self.writing() as connection:
            before = noted(connection, "study")
            if before not in (None, study):
                for table in OF_A_STUDY:
                    connection.execute(f"DELETE FROM {table}")
            if before != study:
                put_note(connection, "study", study)
        return before not in (None, study)

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        if self._lock < 0:
            raise StoreError(f"{self.path} is closed: open the store again")
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(
            self.path, timeout=30.0, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(connection, self.path)
            if self._pages is not None:
                connection.execute(f"PRAGMA max_page_count = {self._pages:d}")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection


def now(precision: str = "seconds") -> str:
    """The current time, UTC, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec=precision)


def noted(connection: sqlite3.Connection, name: str) -> str | None:
    """The value that was noted under a name."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def put_note(connection: sqlite3.Connection, name: str, value: str) -> None:
    """Note a value, as a part of a transaction."""
    connection.execute(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


@contextmanager
def reading(state: Path) -> Iterator[sqlite3.Connection]:
    """Read a store, whether its agent runs or not."""
    path = state / FILE
    if not path.is_file():
        raise InputError(
            f"there is no {path}: name the site's state directory by --state, or join first"
        )
    with _reported(path):
        connection = _read_only(path)
        try:
            yield connection
        finally:
            connection.close()


def _read_only(path: Path) -> sqlite3.Connection:
    """A connection that cannot write."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    # To read while somebody writes, SQLite makes files beside the store, which a reader may not be
    # allowed to do. If nobody writes, the store is then read as a file that does not change.
    last = address if path.with_name(f"{FILE}-wal").exists() else f"{address}&immutable=1"
    for attempt in dict.fromkeys((address, last)):
        connection = sqlite3.connect(attempt, uri=True, timeout=30.0)
        try:
            _check_version(connection, path)
            return connection
        except BaseException as error:
            connection.close()
            if attempt == last or not isinstance(error, sqlite3.OperationalError):
                raise
    raise AssertionError("the last attempt returns or raises")


def state_directory(site_path: Path, name: str) -> Path:
    """Where a site's state is by default."""
    return site_path.absolute().parent / ".fedkoopman" / name


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    new = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not new:
        _check_version(connection, path)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA journal_size_limit = {2**24}")
    if new:
        connection.executescript(
            f"BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION}; "
            f"PRAGMA user_version = {SCHEMA}; COMMIT;"
        )
    connection.executescript(f"BEGIN IMMEDIATE; {LATER_TABLES} COMMIT;")
    if path.stat().st_size <= CHECKED:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise _damaged(path, str(found))


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if mark != APPLICATION:
        raise InputError(f"{path} is not a site's store: name another directory by --state")
    if version != SCHEMA:
        raise InputError(
            f"{path} has tables of version {version}, this is version {SCHEMA}: use the fedkoopman "
            "that wrote it, or move it away and join anew"
        )


def _damaged(path: Path, cause: str) -> InputError:
    """The error for a damaged store."""
    return InputError(
        f"{path} is damaged ({' '.join(cause.split())[:100]}): restore the site's state from a "
        "backup, or move its directory away and join anew"
    )


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and the disk into one line with the remedy."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", None) or ""
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            raise _damaged(path, str(error)) from error
        raise StoreError(
            f"cannot use {path}: {error}: see that its disk has room and may be written; what was "
            "stored is as it was"
        ) from error
    except OSError as error:
        raise StoreError(
            f"cannot use {path}: {error.strerror or error}: see that its disk has room and may be "
            "written"
        ) from error
