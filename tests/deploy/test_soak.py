"""Several hundred slots: memory, processes, threads and open files stay what they are.

    pytest -m deploy -s tests/deploy/test_soak.py          (-s shows what was measured)

FEDKOOPMAN_SOAK_SLOTS changes how many slots; a third of them are for warming up.
"""

import os
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from fedkoopman.errors import InputError

from .bookkeeping import check_books
from .federation import ROLES, Federation, command_line, small_study, wait_until

pytestmark = pytest.mark.deploy

SLOTS = int(os.environ.get("FEDKOOPMAN_SOAK_SLOTS", "450"))
WARM = SLOTS // 3
EVERY = 5
"""Slots from one look at the processes to the next."""
FEW, SHARE = 8.0, 0.03
"""Megabytes, and share of what there was, by which a process may grow after warming up.

An allocator that keeps what was freed wanders by a few megabytes. What leaks once per message is
larger: 300 slots are 600 messages to each site and 1,800 through the server, so that a leak of a
model of 20 kB, or of a thread with its stack, is found.
"""
FILES = 3
"""Threads and open files that may come and go: a page being written, a request being answered."""
ARRIVED = int(os.environ.get("FEDKOOPMAN_SOAK_SEGMENTS", "1000"))
"""Segments to train on that arrive at an agent to which nobody speaks."""
BOUND = 40.0
"""Megabytes by which its peak may grow from a tenth of them to all: the allocator's wandering, and
what is remembered of each file, some hundred bytes. All that a segment costs on its way, such as
its rows as text and its covariances, would be more than that if it were kept."""
PERIOD, ROWS = 1.0, 250
"""Of live arrivals: seconds from slot to slot, and rows of a file."""
HELD_OUT = ROWS * 8 * 4
"""Bytes of a segment; one of five is kept for good, to score models on, if it is live."""
STORE = 4096
"""Bytes per slot by which a site's store may grow.

A slot leaves at a site two rows in the ledger, with words and hashes, and a row for a segment that
arrived.
"""


@dataclass
class Watch:
    """What was seen of the processes, by what they do: (slot, megabytes, threads, open files)."""

    federation: Federation
    seen: dict[str, list[tuple[int, float, int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    processes: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    disk: list[tuple[int, dict[str, int]]] = field(default_factory=list)

    def look(self, slot: int) -> None:
        """Look at every process that belongs to the federation."""
        ours = {pid: command_line(pid) for pid in self.federation.tree("serve")}  # nginx too
        ours |= self.federation.leftovers()
        found = {pid: role for pid, line in ours.items()
                 if (role := self._role(pid, line))}  # fmt: skip
        self.processes.append((slot, frozenset(found)))
        for pid, role in found.items():
            place = Path(f"/proc/{pid}")
            try:
                status = dict(
                    line.split(":", 1) for line in (place / "status").read_text().splitlines()
                )
                opened = len(list((place / "fd").iterdir()))
                memory = int(status["VmRSS"].split()[0]) / 1024
                self.seen[role].append((slot, memory, int(status["Threads"]), opened))
            except (OSError, KeyError, ValueError):
                continue  # it has just ended
        self.disk.append((slot, self._sizes()))

    def _role(self, pid: int, line: str) -> str:
        owners = {process.pid: name for name, process in self.federation.processes.items()}
        if pid in owners:
            return f"{owners[pid]}: itself"
        part = next((role for role, words in ROLES.items() if words in line), "")
        if not part or "prctl" in line:
            return ""
        owner = next((name for parent, name in owners.items() if pid in self._tree(parent)), "?")
        if part == "proxy":
            part = f"proxy {'worker' if 'worker' in line else 'master'}"
        return f"{owner}: {part}"

    def _tree(self, parent: int) -> set[int]:
        name = {p.pid: n for n, p in self.federation.processes.items()}[parent]
        return set(self.federation.tree(name))

    def _sizes(self) -> dict[str, int]:
        """Bytes in use of databases, without the pages that they would use again."""
        labs = self.federation.labs
        return {lab: used(self.federation.state(lab) / "store.sqlite") for lab in labs}

    def values(self, role: str, column: int, late: bool) -> list[float]:
        """What was seen of a process right after warming up, or in the end."""
        span = (SLOTS - WARM) // 3
        first = SLOTS - span if late else WARM
        return [row[column] for row in self.seen[role] if first <= row[0] < first + span]

    def growth(self, name: str) -> float:
        """Bytes per slot of a database, after warming up."""
        rows = [(slot, sizes[name]) for slot, sizes in self.disk if slot >= WARM]
        slots, sizes = zip(*rows, strict=True)
        return float(np.polyfit(slots, sizes, 1)[0])

    def report(self) -> str:
        """What was measured, for people."""
        lines = [f"{'process':22} {'MB at first':>12} {'MB at last':>12} threads  files"]
        for role in sorted(self.seen):
            before, after = (median(self.values(role, 1, late)) for late in (False, True))
            more = [int(max(self.values(role, column, True))) for column in (2, 3)]
            lines.append(f"{role:22} {before:12.1f} {after:12.1f} {more[0]:7} {more[1]:6}")
        lines += [
            f"{name} grows by {self.growth(name):.0f} bytes per slot, to {size:,}"
            for name, size in self.disk[-1][1].items()
        ]
        return "\n".join(lines)


def used(path: Path) -> int:
    """Bytes of a database that hold something."""
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30) as connection:
            pages, free, size = (
                connection.execute(f"PRAGMA {what}").fetchone()[0]
                for what in ("page_count", "freelist_count", "page_size")
            )
        connection.close()
    except sqlite3.Error:
        return 0
    return (pages - free) * size


def soak(federation: Federation, seconds: float) -> Watch:
    """Let a federation run to its end, and watch it."""
    watch, looked = Watch(federation), -EVERY
    end = time.monotonic() + seconds
    while federation.processes["serve"].poll() is None:
        assert time.monotonic() < end, f"slot {federation.slot()} after {seconds:g} s"
        slot = federation.slot()
        if slot >= looked + EVERY and slot < SLOTS:
            looked = slot
            watch.look(slot)
        time.sleep(0.1)
    federation.finish()
    return watch


def check(watch: Watch, store: float = STORE) -> None:
    """Nothing grows, nothing is started anew, nothing is left open.

    Arguments:
        store: bytes per slot by which a site's store may grow.
    """
    print(f"\n{watch.report()}")
    for role in watch.seen:
        before, after = (median(watch.values(role, 1, late)) for late in (False, True))
        assert after < before * (1 + SHARE) + FEW, f"{role}: {before:.1f} MB became {after:.1f}"
        for column, what in ((2, "threads"), (3, "open files")):
            first, last = (watch.values(role, column, late) for late in (False, True))
            assert median(last) <= median(first) + FILES, f"{role} has more {what}: {last}"
            assert max(last) <= max(first) + FILES, f"{role} has more {what}: {last}"
    assert len({pids for slot, pids in watch.processes if slot >= WARM}) == 1, (
        f"processes came, went or were started anew: {watch.processes}"
    )
    for lab in watch.federation.labs:
        assert watch.growth(lab) < store, f"{lab}: {watch.growth(lab):.0f} bytes per slot"


def test_hundreds_of_slots_leave_nothing_behind(tmp_path: Path) -> None:
    """As soon as possible, with recordings that come again and again."""
    study = small_study(tmp_path / "field", slots=SLOTS)
    with Federation(study).start() as federation:
        watch = soak(federation, 120 + 12 * SLOTS)
        assert [federation.stop(lab) for lab in federation.labs] == [0, 0, 0]
    check(watch)
    check_books(federation)


def test_hundreds_of_slots_of_live_files_leave_nothing_behind(tmp_path: Path) -> None:
    """A file for every site and slot, at a fixed period."""
    study = small_study(tmp_path / "field", slots=SLOTS, sites__arrivals="live")
    site = tmp_path / "field" / "lab-b" / "site.toml"
    site.write_text(site.read_text().replace("data/gyroscope.csv", "data/*.csv"))
    with Federation(study) as federation:
        federation.options = ["--period", str(PERIOD)]
        federation.start()
        with fed(federation, PERIOD):
            watch = soak(federation, 120 + 12 * PERIOD * SLOTS)
        assert [federation.stop(lab) for lab in federation.labs] == [0, 0, 0]
    check(watch, STORE + HELD_OUT)
    check_books(federation)


def test_an_agents_memory_is_bounded_while_a_thousand_segments_arrive(tmp_path: Path) -> None:
    """Nobody asks for any of it, so that all of it waits: in the store, and not in memory."""
    study = small_study(tmp_path / "field", sites__arrivals="live")
    with Federation(study, secure=False) as federation:
        federation.join("lab-a")
        agent = federation.pid("lab-a", "agent")
        with fed(federation, 0.01):
            found = [_peak_after(federation, agent, count) for count in (ARRIVED // 10, ARRIVED)]
    print(f"\npeak of an agent: {found[0]:.0f} MB, and {found[1]:.0f} MB after ten times as much")
    assert found[1] < found[0] + BOUND


def _peak_after(federation: Federation, agent: int, segments: int) -> float:
    """Megabytes that an agent has needed at most, until so many segments had arrived."""

    def arrived() -> bool:
        try:
            return federation.accounts("lab-a")["delivered"] >= segments * ROWS
        except InputError:
            return False  # it has not made its store yet

    wait_until(arrived, 1200, lambda: f"{segments} segments\n{federation.said('lab-a')}", 0.5)
    status = Path(f"/proc/{agent}/status").read_text()
    [peak] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peak.split()[1]) / 1024


@contextmanager
def fed(federation: Federation, seconds: float) -> Iterator[None]:
    """Let a file come to every site now and then: a swing that it knows, with other noise."""
    stop = threading.Event()
    noise = np.random.default_rng(0)
    known = {}
    for lab in federation.labs:
        first = min((federation.folder / lab / "data").glob("*.csv"))
        known[lab] = first.read_text().splitlines()[: 1 + ROWS]

    def write() -> None:
        for number in range(10**6):
            for lab, (header, *rows) in known.items():
                path = federation.folder / lab / "data" / f"live-{number:06}.csv"
                digits = noise.integers(0, 10, len(rows))
                rows = [f"{row[:-1]}{digit}" for row, digit in zip(rows, digits, strict=True)]
                path.write_text("\n".join([header, *rows, ""]))
            if stop.wait(seconds):
                return

    feeder = threading.Thread(target=write, daemon=True)
    feeder.start()
    try:
        yield
    finally:
        stop.set()
        feeder.join()
