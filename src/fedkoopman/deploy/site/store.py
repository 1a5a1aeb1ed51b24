"""A site's durable memory: one SQLite file that outlasts a kill at any instruction.

It holds the files that were read, the segments of states made of them, what arrived when, what was
counted for which slot, an update that waits to be acknowledged, and the ledger. Every change is one
transaction that is on the disk before anybody hears of it; a transaction that fails, as on a full
disk, leaves everything as it was.

One process writes, which a lock sees to; others may read meanwhile.
"""

import hashlib
import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fedkoopman.deploy.site.store_errors import StoreError, damaged, told
from fedkoopman.deploy.site.store_tables import APPLICATION, OF_A_STUDY, SCHEMA, TABLES
from fedkoopman.durable import locked
from fedkoopman.errors import InputError

__all__ = ["FILE", "Store", "StoreError", "reading", "socket_path", "state_directory"]

FILE = "store.sqlite"
LOCK = "agent.lock"
CHECKED = 2**28
"""Bytes up to which a store is read through when it is opened."""


class Store:
    """The open store of one site; threads may share it."""

    def __init__(self, state: Path, pages: int | None = None) -> None:
        """Open the store of a state directory, or make one; refused if another process has it.

        Arguments:
            state: the site's directory.
            pages: the most that the file may grow to, of 4 KB; None for no limit.
        """
        self.path = state / FILE
        self._pages = pages
        self._guard = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        with told(self.path):
            state.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = locked(state / LOCK)
        try:
            with self._guard, told(self.path):
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
        """Let go of the file and of the lock."""
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
        """One transaction: all that is written in it stays, or nothing of it."""
        with self._guard, told(self.path):
            connection = self._open()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if getattr(error, "sqlite_errorname", "").startswith("SQLITE_IOERR"):
                    self._connection = None  # what it knows of the file may be wrong
                    connection.close()
                raise

    @contextmanager
    def looking(self) -> Iterator[sqlite3.Connection]:
        """Several questions that see one state."""
        with self._guard, told(self.path):
            yield self._open()

    def note(self, name: str) -> str | None:
        """A fact that was noted under a name."""
        with self.looking() as connection:
            return noted(connection, name)

    def notes(self, **facts: str) -> None:
        """Note facts, each instead of what its name had."""
        with self.writing() as connection:
            for name, value in facts.items():
                put_note(connection, name, value)

    def begin_study(self, study: str) -> bool:
        """Let the store be of a study; what it held of another one goes, but for the ledger.

        Arguments:
            study: digest and seed.

        Returns whether there was another one.
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
    """The instant, UTC, as it stands in files."""
    return datetime.now(UTC).isoformat(timespec=precision)


def noted(connection: sqlite3.Connection, name: str) -> str | None:
    """A fact that was noted under a name."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def put_note(connection: sqlite3.Connection, name: str, value: str) -> None:
    """Note a fact, as a part of a transaction."""
    connection.execute(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


@contextmanager
def reading(state: Path) -> Iterator[sqlite3.Connection]:
    """Look into a store, while its agent runs or not."""
    path = state / FILE
    if not path.is_file():
        raise InputError(
            f"there is no {path}: name the site's state directory by --state, or join first"
        )
    with told(path):
        connection = _looked_into(path)
        try:
            yield connection
        finally:
            connection.close()


def _looked_into(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    # Beside a store that nobody writes, a reader may not be allowed to make the files that it takes
    # to read while somebody does: then it is read as a file that does not change.
    last = address if path.with_name(f"{FILE}-wal").exists() else f"{address}&immutable=1"
    for attempt in dict.fromkeys((address, last)):
        connection = sqlite3.connect(attempt, uri=True, timeout=30.0)
        try:
            _recognise(connection, path)
            return connection
        except BaseException as error:
            connection.close()
            if attempt == last or not isinstance(error, sqlite3.OperationalError):
                raise
    raise AssertionError("the last attempt returns or raises")


def state_directory(site_path: Path, name: str) -> Path:
    """Where a site's state is, if nobody says otherwise.

    Arguments:
        site_path: of the site file.
        name: of the site.
    """
    return site_path.absolute().parent / ".fedkoopman" / name


def socket_path(state: Path) -> Path:
    """The agent's socket: elsewhere than the state, as the paths of sockets must be short."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    short = hashlib.sha256(os.path.abspath(state).encode("utf-8", "surrogateescape")).hexdigest()
    return Path(base) / f"fedkoopman-{os.getuid()}" / f"{short[:16]}.sock"


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    new = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not new:
        _recognise(connection, path)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA journal_size_limit = {2**24}")
    if new:
        connection.executescript(
            f"BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION}; "
            f"PRAGMA user_version = {SCHEMA}; COMMIT;"
        )
    if path.stat().st_size <= CHECKED:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise damaged(path, str(found))


def _recognise(connection: sqlite3.Connection, path: Path) -> None:
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if mark != APPLICATION:
        raise InputError(f"{path} is no site's store: name another directory by --state")
    if version != SCHEMA:
        raise InputError(
            f"{path} has tables of version {version}, this is version {SCHEMA}: use the fedkoopman "
            "that wrote it, or move it away and join anew"
        )
