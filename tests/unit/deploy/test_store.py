"""The store: durable, whole or not at all, one writer; refused in one line when it is damaged."""

import os
import random
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from fedkoopman.deploy.site.site_socket import socket_path
from fedkoopman.deploy.site.store import (
    FILE,
    Store,
    StoreError,
    reading,
    state_directory,
)
from fedkoopman.errors import InputError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    with Store(tmp_path / "a" / "state") as store:
        store.notes(x="1")
        assert mode(store.path.parent) == 0o700
        assert {mode(path) for path in store.path.parent.iterdir()} == {0o600}


def test_what_is_written_is_on_the_disk(tmp_path: Path) -> None:
    with Store(tmp_path) as store, store.looking() as c:
        assert c.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert c.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert c.execute("PRAGMA foreign_keys").fetchone() == (1,)


def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.notes(x="old")
        with pytest.raises(RuntimeError), store.writing() as c:
            c.execute("UPDATE meta SET value = 'new'")
            raise RuntimeError
        assert store.note("x") == "old"
    with Store(tmp_path) as store:
        assert store.note("x") == "old"
        assert store.note("y") is None


def test_one_process_writes(tmp_path: Path) -> None:
    with (
        Store(tmp_path),
        pytest.raises(InputError, match=rf"another agent \(process {os.getpid()}\): stop that"),
    ):
        Store(tmp_path)
    Store(tmp_path).close()  # and then another one may


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.note("x")


@pytest.mark.parametrize("damage", ["noise", "cut", "page"])
def test_a_damaged_store_is_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    with Store(tmp_path) as store, store.writing() as c:
        c.execute("INSERT INTO files VALUES ('f', 1, 1, '', 'taken', '', '')")
        for n in range(200):
            c.execute("INSERT INTO segments VALUES (?, ?, 'f', 9, 'train', '')", (n, f"s{n}"))
            c.execute("INSERT INTO contents VALUES (?, ?, NULL)", (n, bytes(500)))
    path = tmp_path / FILE
    content = bytearray(path.read_bytes())
    if damage == "noise":
        content[:] = random.Random(0).randbytes(len(content))
    elif damage == "cut":
        del content[len(content) // 2 :]
    else:
        content[8192:20480] = random.Random(0).randbytes(12288)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"is damaged \(.*\): restore the site's state") as told:
        Store(tmp_path)
    assert "\n" not in str(told.value)
    path.unlink()
    Store(tmp_path).close()  # the lock was let go


def test_somebody_elses_file_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as c:
        c.execute("CREATE TABLE mine (x)")
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(InputError, match="is not a site's store"):
        Store(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path) as store, store.looking() as c:
        c.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="tables of version 99, this is version 1: use the"):
        Store(tmp_path)
    with pytest.raises(InputError, match="version 99"), reading(tmp_path):
        pass


def fill(store: Store, number: int) -> None:
    with store.writing() as c:
        c.execute("INSERT INTO meta VALUES (?, ?)", (f"n{number}", "x" * 20_000))


def test_a_full_file_leaves_the_old_state_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with Store(tmp_path, pages=60) as store:
        stored = 0
        with pytest.raises(StoreError, match=r"full: see that its disk has room.*as it was"):
            while True:
                fill(store, stored)
                stored += 1
        with store.looking() as c:
            assert c.execute("SELECT count(*) FROM meta").fetchone() == (stored,)
            c.execute("PRAGMA max_page_count = 1000")
        fill(store, stored)
    with Store(tmp_path) as store, store.looking() as c:
        assert c.execute("SELECT count(*) FROM meta").fetchone() == (stored + 1,)


def test_a_full_disk_leaves_the_old_state_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root mounts disks")
    try:
        with Store(disk) as store:
            stored = 0
            (disk / "ballast").write_bytes(bytes(300_000))
            with pytest.raises(StoreError, match="see that its disk has room"):
                while True:
                    fill(store, stored)
                    stored += 1
            with pytest.raises(StoreError):
                fill(store, stored)
            (disk / "ballast").unlink()
            fill(store, stored)
            with store.looking() as c:
                assert c.execute("SELECT count(*) FROM meta").fetchone() == (stored + 1,)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_others_read_while_it_is_written_and_afterwards(tmp_path: Path) -> None:
    told = r"there is no .*: name the site's state"
    with pytest.raises(InputError, match=told), reading(tmp_path):
        pass
    with Store(tmp_path) as store:
        store.notes(x="1")
        with reading(tmp_path) as c:
            assert c.execute("SELECT value FROM meta WHERE name = 'x'").fetchone() == ("1",)
            store.notes(x="2")
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                c.execute("DELETE FROM meta")
            # what a reader does is told as it is, and ends no writer
    # a store that nobody writes, also where nothing may be written
    with reading(tmp_path) as c:
        assert c.execute("SELECT value FROM meta WHERE name = 'x'").fetchone() == ("2",)


def test_a_new_study_begins_with_an_empty_store_but_the_ledger(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        assert not store.begin_study("one:0")
        with store.writing() as c:
            c.execute("INSERT INTO files VALUES ('f', 1, 1, '', 'taken', '', '')")
            c.execute("INSERT INTO segments VALUES (0, 's', 'f', 9, 'train', '')")
            c.execute("INSERT INTO contents VALUES (0, x'00', NULL)")
            c.execute("INSERT INTO deliveries VALUES (0, 0, 1, NULL)")
            c.execute("INSERT INTO polls VALUES (1)")
            c.execute("INSERT INTO reservations VALUES (1, 0)")
            c.execute("INSERT INTO pending VALUES (1, '', 1, x'00')")
            c.execute("INSERT INTO ledger VALUES (1, '', '', '', 1, '', '', 1, '')")
        assert not store.begin_study("one:0")
        assert store.begin_study("two:0")
        with store.looking() as c:
            tables = [
                name for (name,) in c.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            left = {
                name: c.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables
            }
        assert {name for name, count in left.items() if count} == {
            "ledger", "meta", "sqlite_sequence"
        }  # fmt: skip
        assert store.note("study") == "two:0"


def test_sockets_have_short_paths_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    path = socket_path(tmp_path / ("x" * 200))
    assert path.parent == Path(f"/run/user/1/fedkoopman-{os.getuid()}")
    assert len(str(path)) < 100
    assert path != socket_path(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert socket_path(Path("x")) == socket_path(tmp_path / "x")
    assert state_directory(Path("a/site.toml"), "lab") == tmp_path / "a" / ".fedkoopman" / "lab"


WRITER = """
import sys
from pathlib import Path
from fedkoopman.deploy.site.store import Store, noted, put_note
with Store(Path(sys.argv[1])) as store:
    print("ready", flush=True)
    while True:
        with store.writing() as c:
            n = int(noted(c, "n") or 0)
            put_note(c, "n", str(n + 1))
            c.execute("INSERT INTO meta VALUES (?, ?)", (f"k{n}", "x" * (n * 37 % 9000)))
        print(n + 1, flush=True)
"""


def test_a_kill_loses_nothing_that_was_told(tmp_path: Path) -> None:
    random.seed(0)
    for _ in range(12):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            time.sleep(random.random() * 0.05)
            writer.kill()
            told = [
                int(line) for line in writer.stdout.read().splitlines(keepends=True) if "\n" in line
            ]
        with Store(tmp_path) as store, store.looking() as c:
            kept = int(store.note("n") or 0)
            assert kept in ((told[-1], told[-1] + 1) if told else (kept,))
            rows = c.execute("SELECT count(*) FROM meta WHERE name LIKE 'k%'").fetchone()[0]
            assert rows == kept


def test_a_kill_while_a_store_is_made_leaves_one_that_can_be_made(tmp_path: Path) -> None:
    luck = random.Random(1)
    for n in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / str(n))], stdout=subprocess.DEVNULL
        )
        while not (tmp_path / str(n) / FILE).exists():
            time.sleep(0.0005)
        time.sleep(luck.random() * 0.02)
        writer.kill()
        writer.wait()
        with Store(tmp_path / str(n)) as store:
            store.notes(x="1")
