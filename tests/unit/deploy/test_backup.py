"""A backup holds what there was at one instant, and comes back to the last byte or not at all."""

import hashlib
import io
import json
import os
import sqlite3
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fedkoopman.deploy.backup import HEAD, LIST, backup, restore
from fedkoopman.deploy.site.buffer import Buffer
from fedkoopman.deploy.site.store import Store
from fedkoopman.errors import ComputationError, InputError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A server's run directory, as far as a backup looks at it."""
    run = tmp_path / "server" / "run"
    (run / "checkpoint").mkdir(parents=True)
    (run / "server" / "logs").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (run / "records.jsonl").write_text("1\n2\n")
    (run / "checkpoint" / "state.safetensors").write_bytes(bytes(range(256)))
    (run / ".lock").write_text("")
    (run / ".records.jsonl.12.34").write_text("1")
    (run / "server" / "agent.lock").write_text("12")
    (run / "server" / "logs" / "loop.log").write_text("much\n")
    (run / "server" / "secret").write_text("s")
    (run / "server" / "secret").chmod(0o600)
    (run / "server" / "server.key").symlink_to("/etc/hostname")
    with sqlite3.connect(run / "server" / "kept.db") as database:
        database.execute("CREATE TABLE t (x)")
    database.close()
    return run


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    fleet = tmp_path / "server" / "fleet"
    (fleet / "kits").mkdir(parents=True)
    (fleet / "proxy" / "body").mkdir(parents=True)
    fleet.chmod(0o700)
    (fleet / "roster.json").write_text("{}")
    (fleet / "ca.key").write_text("key")
    (fleet / "ca.key").chmod(0o600)
    (fleet / "kits" / "lab-ä.kit").write_bytes(b"sealed")
    (fleet / "proxy" / "body" / "0001").write_bytes(b"temporary")
    return fleet


def store(state: Path) -> sqlite3.Connection:
    state.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(state / "store.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS pairs (a INTEGER, b INTEGER)")
    return connection


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_servers_run_and_fleet_come_back_as_they_were(
    run: Path, fleet: Path, tmp_path: Path
) -> None:
    saved = backup([run, fleet], tmp_path / "server.backup")
    assert saved.parts == {"run": "a run", "fleet": "a fleet"}
    assert stat.S_IMODE((tmp_path / "server.backup").stat().st_mode) == 0o600
    restored = restore(tmp_path / "server.backup", tmp_path / "new")
    assert (restored.parts, restored.made) == (saved.parts, saved.made)
    assert set(tree(tmp_path / "new")) == {
        "run/.lock", "run/run.json", "run/records.jsonl", "run/checkpoint/state.safetensors",
        "run/server/secret", "run/server/kept.db", "fleet/roster.json", "fleet/ca.key",
        "fleet/kits/lab-ä.kit",
    }  # fmt: skip
    for name, content in tree(tmp_path / "new").items():
        if not name.endswith(".db"):
            assert content == (tmp_path / "server" / name).read_bytes()
        kept = stat.S_IMODE((tmp_path / "server" / name).stat().st_mode)
        assert stat.S_IMODE((tmp_path / "new" / name).stat().st_mode) == kept
    assert stat.S_IMODE((tmp_path / "new" / "fleet").stat().st_mode) == 0o700
    assert not [path for path in (tmp_path / "new").iterdir() if path.name.startswith(".")]


def test_a_checkpoint_is_saved_before_the_records_that_it_counts(run: Path, tmp_path: Path) -> None:
    """Records may be longer than a checkpoint says, never shorter."""
    backup([run], tmp_path / "b")
    with tarfile.open(tmp_path / "b") as archive:
        names = archive.getnames()
    assert names.index("run/checkpoint/state.safetensors") < names.index("run/records.jsonl")


def test_a_store_is_saved_as_it_is_at_one_instant_while_it_is_written(tmp_path: Path) -> None:
    state = tmp_path / "lab-a"
    writer = store(state)
    stop = threading.Event()
    done: list[int] = []

    def write() -> None:
        own = sqlite3.connect(state / "store.sqlite", isolation_level=None, timeout=60)
        i = 0
        while not stop.is_set() or i < 50:
            own.execute("BEGIN IMMEDIATE")
            own.execute("INSERT INTO pairs VALUES (?, NULL)", (i,))
            own.execute("UPDATE pairs SET b = ? WHERE a = ?", (i, i))
            own.execute("COMMIT")
            i += 1
            done.append(i)
        own.close()

    thread = threading.Thread(target=write)
    thread.start()
    while len(done) < 20:
        pass
    before = done[-1]
    for attempt in range(3):
        backup([state], tmp_path / f"{attempt}.backup")
    stop.set()
    thread.join()
    writer.close()
    for attempt in range(3):
        restore(tmp_path / f"{attempt}.backup", tmp_path / f"{attempt}")
        folder = tmp_path / f"{attempt}" / "lab-a"
        assert [path.name for path in folder.iterdir()] == ["store.sqlite"]
        copy = sqlite3.connect(folder / "store.sqlite")
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = copy.execute("SELECT a, b FROM pairs ORDER BY a").fetchall()
        assert rows == [(i, i) for i in range(len(rows))]
        assert len(rows) >= before
        copy.close()


def test_what_is_only_in_the_log_of_a_killed_writer_is_saved_too(tmp_path: Path) -> None:
    code = """
import os, signal, sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("PRAGMA journal_mode = WAL")
c.execute("PRAGMA wal_autocheckpoint = 0")
c.execute("CREATE TABLE pairs (a, b)")
c.execute("INSERT INTO pairs VALUES (1, 2)")
os.kill(os.getpid(), signal.SIGKILL)
"""
    state = tmp_path / "lab-a"
    state.mkdir()
    subprocess.run([sys.executable, "-c", code, str(state / "store.sqlite")])
    assert (state / "store.sqlite-wal").stat().st_size
    backup([state], tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "new")
    copy = sqlite3.connect(tmp_path / "new" / "lab-a" / "store.sqlite")
    assert copy.execute("SELECT * FROM pairs").fetchall() == [(1, 2)]
    copy.close()


def test_a_damaged_store_is_told_and_not_saved(tmp_path: Path) -> None:
    state = tmp_path / "lab-a"
    connection = store(state)
    connection.executemany("INSERT INTO pairs VALUES (?, ?)", [(i, i) for i in range(5000)])
    connection.close()
    with (state / "store.sqlite").open("r+b") as file:
        file.seek(4096 * 3)
        file.write(os.urandom(4096 * 3))
    with pytest.raises(ComputationError, match="nothing was saved"):
        backup([state], tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["lab-a"]


def test_nothing_is_overwritten(run: Path, fleet: Path, tmp_path: Path) -> None:
    backup([run, fleet], tmp_path / "b")
    with pytest.raises(InputError, match="exists: give the name of a new file"):
        backup([run], tmp_path / "b")
    before = tree(tmp_path)
    with pytest.raises(InputError, match="run exists, and nothing is overwritten"):
        restore(tmp_path / "b", tmp_path / "server")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "fleet").symlink_to("/nowhere")
    with pytest.raises(InputError, match="fleet exists, and nothing is overwritten"):
        restore(tmp_path / "b", tmp_path / "other")
    assert tree(tmp_path) == before
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["fleet"]


def test_a_backup_can_be_restored_beside_other_things(run: Path, tmp_path: Path) -> None:
    backup([run], tmp_path / "b")
    (tmp_path / "there").mkdir(mode=0o755)
    (tmp_path / "there" / "mine").write_text("")
    restore(tmp_path / "b", tmp_path / "there")
    assert {path.name for path in (tmp_path / "there").iterdir()} == {"mine", "run"}
    assert stat.S_IMODE((tmp_path / "there").stat().st_mode) == 0o755


def entries_of(path: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(path) as archive:
        return [(one, archive.extractfile(one).read()) for one in archive]  # type: ignore[union-attr]


def written(path: Path, entries: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    with tarfile.open(path, "w:") as archive:
        for info, content in entries:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def info(name: str, **more: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(made, key, value)
    return made


@pytest.mark.parametrize("place", ["content", "name", "mark", "head"])
def test_a_change_is_noticed(run: Path, tmp_path: Path, place: str) -> None:
    path = tmp_path / "b"
    backup([run], path)
    data = bytearray(path.read_bytes())
    word = {
        "content": bytes(range(256)),
        "name": b"run/records.jsonl",
        "mark": hashlib.sha256(b"1\n2\n").hexdigest().encode(),
        "head": b'"format"',
    }[place]
    at = data.index(word) + 5
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"is damaged|is no backup"):
        restore(path, tmp_path / "new")
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99, 1.0])
def test_a_backup_that_was_cut_off_is_noticed(run: Path, tmp_path: Path, share: float) -> None:
    path = tmp_path / "b"
    backup([run], path)
    data = path.read_bytes()
    end = data.rindex(b"}")  # after it, there are zeros
    path.write_bytes(data[: int(share * end)])
    with pytest.raises(InputError, match=r"is damaged|is no backup"):
        restore(path, tmp_path / "new")
    assert not (tmp_path / "new" / "run").exists()


EVIL: list[Callable[[], tuple[tarfile.TarInfo, bytes]]] = [
    lambda: (info("../evil"), b"x"),
    lambda: (info("/tmp/evil-of-a-backup"), b"x"),
    lambda: (info("run/../../evil"), b"x"),
    lambda: (info("run/link", type=tarfile.SYMTYPE, linkname="/etc"), b""),
    lambda: (info("run/link", type=tarfile.LNKTYPE, linkname="run/run.json"), b""),
    lambda: (info("run/pipe", type=tarfile.FIFOTYPE), b""),
    lambda: (info("run/device", type=tarfile.CHRTYPE), b""),
    lambda: (info("run/added"), b"x"),
    lambda: (info("run/run.json"), b"twice"),
]


@pytest.mark.parametrize("number", range(len(EVIL)))
@pytest.mark.parametrize("last", [True, False])
def test_what_was_not_put_in_does_not_come_out(
    run: Path, tmp_path: Path, number: int, last: bool
) -> None:
    path = tmp_path / "b"
    backup([run], path)
    entries = entries_of(path)
    entries.insert(len(entries) - (not last), EVIL[number]())
    written(path, entries)
    with pytest.raises(InputError, match="is damaged, or no backup"):
        restore(path, tmp_path / "new")
    assert not Path("/tmp/evil-of-a-backup").exists()
    assert not (tmp_path / "evil").exists() and not (tmp_path / "new" / "run").exists()


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ({"format": 2}, "made in format 2, this is format 1"),
        ({"format": 1, "parts": {"..": "a run"}, "made": ""}, "is damaged"),
        ({"format": 1, "parts": {"a/b": "a run"}, "made": ""}, "is damaged"),
        ({"format": 1, "parts": {}}, "is no backup"),
        ({"format": 1, "parts": {"gone": "a run"}, "made": ""}, "cannot"),
        ([], "is no backup"),
    ],
)
def test_a_head_that_says_something_else_is_told(
    run: Path, tmp_path: Path, head: object, told: str
) -> None:
    path = tmp_path / "b"
    backup([run], path)
    entries = entries_of(path)
    assert entries[0][0].name == HEAD and entries[-1][0].name == LIST
    entries[0] = info(HEAD), json.dumps(head).encode()
    written(path, entries)
    with pytest.raises(InputError, match=told):
        restore(path, tmp_path / "new")


def test_what_is_no_backup_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for content in (b"", b"junk" * 1000):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"is damaged, or no backup|is no backup"):
            restore(path, tmp_path / "new")
    written(path, [(info("a"), b"b")])
    with pytest.raises(InputError, match="is no backup: give a file that"):
        restore(path, tmp_path / "new")
    with pytest.raises(InputError, match="does not exist"):
        restore(tmp_path / "none", tmp_path / "new")
    with pytest.raises(InputError, match="is a directory"):
        restore(tmp_path, tmp_path / "new")


def test_what_is_none_of_ours_is_not_saved(run: Path, tmp_path: Path) -> None:
    for path, told in (
        (tmp_path, "holds neither a run"),
        (tmp_path / "none", "does not exist"),
        (run / "run.json", "is a file"),
    ):
        with pytest.raises(InputError, match=told):
            backup([path], tmp_path / "b")
    with pytest.raises(InputError, match="two directories are called run"):
        backup([run, run], tmp_path / "b")
    with pytest.raises(InputError, match="which is to be saved: give another place"):
        backup([run], run / "b")
    with pytest.raises(InputError, match="cannot write"):
        backup([run], tmp_path / "no" / "b")


def test_a_full_disk_is_told_and_leaves_nothing(run: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for it."""
    code = """
import resource, signal, sys
from pathlib import Path
from fedkoopman.errors import MachineError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
if sys.argv[1] == "backup":
    from fedkoopman.deploy.backup import backup
    act = lambda: backup([Path(sys.argv[2])], Path(sys.argv[3]))
else:
    from fedkoopman.deploy.backup import restore
    act = lambda: restore(Path(sys.argv[2]), Path(sys.argv[3]))
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    act()
except MachineError as error:
    print(error)
"""
    (run / "large").write_bytes(bytes(50_000))

    def told(*words: str) -> str:
        command = [sys.executable, "-c", code, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "cannot write" in told("backup", str(run), str(tmp_path / "b"))
    assert [path.name for path in tmp_path.iterdir()] == ["server"]
    backup([run], tmp_path / "b")
    assert "cannot write" in told("restore", str(tmp_path / "b"), str(tmp_path / "new"))
    assert not list((tmp_path / "new").iterdir())


SAMPLES = 10


def stocked(state: Path, segments: int = 5, delivered: bool = False) -> Store:
    """A site's store with recorded segments, delivered at once where files bring them."""
    store = Store(state)
    with store.writing() as c:
        c.execute("INSERT INTO files VALUES ('f', 1, 1, '', 'taken', '', '')")
        for n in range(segments):
            c.execute(
                "INSERT INTO segments VALUES (?, ?, 'f', ?, 'train', '')", (n, f"s{n}", SAMPLES)
            )
            c.execute("INSERT INTO contents VALUES (?, ?, NULL)", (n, bytes(16 * SAMPLES)))
            if delivered:
                c.execute("INSERT INTO deliveries (segment) VALUES (?)", (n,))
    return store


class Server:
    """Trains a site in every second slot, and tells it what was saved."""

    def __init__(self) -> None:
        self.included, self.trained = 0, 0

    def slot(self, buffer: Buffer, m: int, until: str = "acknowledged") -> None:
        buffer.acknowledge(m - 1, self.included)
        samples = buffer.poll(m).samples
        if until == "polled" or m % 2:
            return
        buffer.states(m)
        buffer.keep(m, "model", b"")
        self.included, self.trained = m, self.trained + samples


@pytest.mark.parametrize("saved_after", [1, 2, 3, 4])
@pytest.mark.parametrize("until", ["polled", "acknowledged"])
@pytest.mark.parametrize("lost_after", [0, 1, 2, 5])
def test_an_older_state_of_a_site_trains_on_nothing_twice(
    tmp_path: Path, saved_after: int, until: str, lost_after: int
) -> None:
    """A segment arrives in every slot; after all, as many were trained on as arrived."""
    state, server = tmp_path / "lab-a", Server()
    with stocked(state) as store:
        buffer = Buffer(store, lambda m: True, repeat=True)
        for m in range(1, saved_after):
            server.slot(buffer, m)
        server.slot(buffer, saved_after, until)
        backup([state], tmp_path / "b")
        if until == "polled":
            server.slot(buffer, saved_after)
        for m in range(saved_after + 1, saved_after + 1 + lost_after):
            server.slot(buffer, m)
    restore(tmp_path / "b", tmp_path / "new")
    with Store(tmp_path / "new" / "lab-a") as store:
        buffer = Buffer(store, lambda m: True, repeat=True)
        last = 20
        for m in range(saved_after + lost_after + 1, last + 1):
            server.slot(buffer, m)
        buffer.acknowledge(last, server.included)
        assert server.trained == last * SAMPLES
        account = buffer.account()
        assert (account.delivered, account.trained) == (last * SAMPLES, last * SAMPLES)


def test_a_site_that_lost_all_its_state_trains_on_nothing_twice(tmp_path: Path) -> None:
    server = Server()
    with stocked(tmp_path / "old") as store:
        for m in range(1, 7):
            server.slot(Buffer(store, lambda m: True, repeat=True), m)
    with stocked(tmp_path / "new") as store:
        buffer = Buffer(store, lambda m: True, repeat=True)
        told = buffer.acknowledge(6, server.included)
        assert "older than the federation" in told and "60 samples" in told
        assert buffer.acknowledge(6, server.included) == ""
        for m in range(7, 11):
            server.slot(buffer, m)
        assert server.trained == 10 * SAMPLES


def test_where_files_bring_segments_what_was_counted_is_spent_and_the_rest_waits(
    tmp_path: Path,
) -> None:
    state, server = tmp_path / "lab-a", Server()
    with stocked(state, delivered=True) as store:
        server.slot(Buffer(store), 2, "polled")
        backup([state], tmp_path / "b")
        server.slot(Buffer(store), 2)
    restore(tmp_path / "b", tmp_path / "new")
    with Store(tmp_path / "new" / "lab-a") as store:
        Buffer(store).acknowledge(2, server.included)
        assert Buffer(store).account().buffered == 0
    with stocked(tmp_path / "empty", delivered=True) as store:  # a limit: see docs/deployment.md
        Buffer(store).acknowledge(2, server.included)
        assert Buffer(store).account().buffered == 5 * SAMPLES
