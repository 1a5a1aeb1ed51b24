"""The tables of a site's store."""

__all__ = ["APPLICATION", "OF_A_STUDY", "SCHEMA", "TABLES"]

SCHEMA = 1
"""Of the tables below; a store of another one is refused."""
APPLICATION = 0x666B6F6F
"""Marks the file as ours."""

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

-- number: place among all of the site's segments, from 0.
CREATE TABLE segments (
  number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, file TEXT NOT NULL REFERENCES files,
  samples INTEGER NOT NULL, kind TEXT NOT NULL CHECK (kind IN ('train', 'held-out', 'dropped')),
  reason TEXT NOT NULL DEFAULT ''
);
CREATE INDEX kinds ON segments (kind, number);
CREATE INDEX sources ON segments (file);

-- What segments hold: float64, row by row. Gone when a segment is spent for good.
CREATE TABLE contents (
  segment INTEGER PRIMARY KEY REFERENCES segments, states BLOB NOT NULL, observations BLOB
);

-- number: order of arrival. arrived: the slot, where arrivals are drawn.
-- consumed: the slot whose saved aggregate has spent it.
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
OF_A_STUDY = (
    "pending", "reservations", "polls", "deliveries", "contents", "segments", "files", "meta",
)  # fmt: skip
"""Tables that begin anew with a study, in an order in which none refers to one before."""
