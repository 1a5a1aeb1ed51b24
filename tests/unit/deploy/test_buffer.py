"""Exactly once: whatever comes twice, late, out of order or is cut off by a kill."""

import random
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from fedkoopman.deploy.site.buffer import Buffer, account_of
from fedkoopman.deploy.site.store import Store
from fedkoopman.errors import InputError
from fedkoopman.federation.arrivals import succeeded


def stock(store: Store, samples: list[int], deliver: bool = True) -> None:
    """Segments to train on; segment n is full of n."""
    with store.writing() as c:
        ((first,),) = c.execute("SELECT count(*) FROM segments")
        c.execute("INSERT OR IGNORE INTO files VALUES ('f', 1, 1, '', 'taken', '', '')")
        for n, count in enumerate(samples, first):
            c.execute(
                "INSERT INTO segments VALUES (?, ?, 'f', ?, 'train', '')", (n, f"s{n}", count)
            )
            states = np.full((count, 2), float(n)).tobytes()
            c.execute("INSERT INTO contents VALUES (?, ?, NULL)", (n, states))
            if deliver:
                c.execute("INSERT INTO deliveries (segment) VALUES (?)", (n,))


@pytest.fixture
def store(tmp_path: Path):
    with Store(tmp_path) as store:
        yield store


@pytest.fixture
def buffer(store: Store) -> Buffer:
    stock(store, [10, 20, 30])
    return Buffer(store)


def train(buffer: Buffer, slot: int, base: str = "model") -> list[float]:
    """Train, and tell on which segments."""
    states = buffer.states(slot)
    buffer.keep(slot, base, f"{base} {slot}".encode())
    return [float(one[0, 0]) for one in states]


def balance(buffer: Buffer) -> tuple[int, int]:
    """Samples trained and waiting, after a check that together they are all."""
    account = buffer.account()
    assert account.delivered == account.trained + account.buffered
    assert account.trained == sum(buffer.trained().values())
    return account.trained, account.buffered


def test_a_slot_from_poll_to_acknowledgement(store: Store, buffer: Buffer) -> None:
    counted = buffer.poll(1)
    assert (counted.samples, counted.segments) == (60, 3)
    assert train(buffer, 1) == [0.0, 1.0, 2.0]
    assert balance(buffer) == (0, 60)
    assert buffer.account().unacknowledged == 60
    assert buffer.acknowledge(1, 1) == "60 samples of slot 1 are trained on for good"
    assert balance(buffer) == (60, 0)
    assert buffer.trained() == {1: 60}
    assert buffer.poll(2).samples == 0
    with store.looking() as c:  # the states are gone, the account stays
        assert c.execute("SELECT count(*) FROM contents").fetchone() == (0,)
        assert asdict(account_of(c)) == {
            "delivered": 60, "trained": 60, "buffered": 0, "unacknowledged": 0, "segments": 0
        }  # fmt: skip


def test_a_second_poll_counts_the_same_whatever_arrived(store: Store, buffer: Buffer) -> None:
    buffer.poll(1)
    stock(store, [5])
    assert buffer.poll(1).samples == 60
    assert train(buffer, 1) == [0.0, 1.0, 2.0]
    buffer.acknowledge(1, 1)
    assert balance(buffer) == (60, 5)
    assert buffer.poll(2).samples == 5


def test_what_was_not_included_waits_again(buffer: Buffer) -> None:
    buffer.poll(1)
    train(buffer, 1)
    assert buffer.acknowledge(1, 0) == "slot 1 was saved without this site: its data wait again"
    assert balance(buffer) == (0, 60)
    assert buffer.poll(2).samples == 60
    assert train(buffer, 2) == [0.0, 1.0, 2.0]
    buffer.acknowledge(3, 2)
    assert balance(buffer) == (60, 0)
    assert buffer.trained() == {2: 60}


def test_a_polled_site_that_was_not_chosen_keeps_its_data(buffer: Buffer) -> None:
    buffer.poll(1)
    assert buffer.acknowledge(1, 0) == ""
    assert buffer.poll(2).samples == 60


@pytest.mark.parametrize("again", [1, 3])
def test_an_acknowledgement_twice_is_as_once(store: Store, buffer: Buffer, again: int) -> None:
    buffer.poll(1)
    train(buffer, 1)
    for _ in range(again):
        buffer.acknowledge(1, 1)
    stock(store, [7])
    buffer.acknowledge(1, 1)
    assert balance(buffer) == (60, 7)


def test_a_lost_acknowledgement_is_made_up_for_by_a_later_one(buffer: Buffer) -> None:
    buffer.poll(1)
    train(buffer, 1)
    buffer.acknowledge(9, 1)
    assert balance(buffer) == (60, 0)


def test_an_older_acknowledgement_changes_nothing(buffer: Buffer) -> None:
    buffer.acknowledge(4, 0)
    buffer.poll(5)
    train(buffer, 5)
    for slot in range(5):
        buffer.acknowledge(slot, 0)
    assert buffer.kept(5) is not None
    buffer.acknowledge(5, 5)
    assert balance(buffer) == (60, 0)


def test_an_update_is_kept_until_it_is_acknowledged(buffer: Buffer) -> None:
    buffer.poll(1)
    train(buffer, 1, "a")
    kept = buffer.kept(1)
    assert kept is not None
    assert (kept.base, kept.trainings, kept.reply) == ("a", 1, b"a 1")
    assert train(buffer, 1, "b") == [0.0, 1.0, 2.0]  # another model: anew, on the same data
    kept = buffer.kept(1)
    assert kept is not None
    assert (kept.base, kept.trainings) == ("b", 2)
    buffer.acknowledge(1, 1)
    assert buffer.kept(1) is None
    assert balance(buffer) == (60, 0)


def test_a_slot_that_is_over_is_not_trained(buffer: Buffer) -> None:
    buffer.poll(1)
    train(buffer, 1)
    buffer.acknowledge(1, 0)
    for late in (lambda: buffer.poll(1), lambda: buffer.states(1), lambda: buffer.keep(1, "", b"")):
        with pytest.raises(InputError, match=r"slot 1 is over, .*saved slot 1.*--rewind"):
            late()
    assert balance(buffer) == (0, 60)


def test_no_other_slot_while_an_update_is_in_the_balance(buffer: Buffer) -> None:
    buffer.poll(1)
    buffer.poll(2)
    train(buffer, 1)
    for other in (lambda: buffer.poll(2), lambda: buffer.states(2), lambda: buffer.poll(3)):
        with pytest.raises(InputError, match="update of slot 1 is not acknowledged: acknowledge"):
            other()


def test_what_was_counted_twice_is_spent_once(store: Store, buffer: Buffer) -> None:
    buffer.poll(1)
    stock(store, [5])
    assert buffer.poll(2).samples == 65
    train(buffer, 1)
    buffer.acknowledge(1, 1)
    assert buffer.poll(2).samples == 5
    assert train(buffer, 2) == [3.0]
    buffer.acknowledge(2, 2)
    assert balance(buffer) == (65, 0)


def test_training_without_poll_or_data_is_refused(store: Store) -> None:
    buffer = Buffer(store)
    with pytest.raises(InputError, match="slot 1 was not polled"):
        buffer.states(1)
    assert buffer.poll(1).samples == 0
    with pytest.raises(InputError, match="nothing waits for slot 1"):
        buffer.states(1)


def test_included_beyond_what_is_saved_is_refused(buffer: Buffer) -> None:
    buffer.poll(1)
    train(buffer, 1)
    with pytest.raises(InputError, match="slot 3 is acknowledged as included but only 2 as saved"):
        buffer.acknowledge(2, 3)
    assert balance(buffer) == (0, 60)


def test_a_server_that_was_set_back_is_heard_after_a_rewind(buffer: Buffer) -> None:
    buffer.poll(8)
    train(buffer, 8)
    buffer.acknowledge(7, 0)
    with pytest.raises(InputError, match="over"):
        buffer.poll(3)
    buffer.rewind()
    assert buffer.poll(3).samples == 60
    assert balance(buffer) == (0, 60)


def test_an_older_store_spends_what_the_federation_has_trained_on(store: Store) -> None:
    stock(store, [4] * 6, deliver=False)
    buffer = Buffer(store, lambda slot: True)
    buffer.poll(2)
    train(buffer, 2)
    buffer.acknowledge(2, 2)
    # from here on this is a backup; meanwhile slot 4 has trained on what came in 3 and 4
    for _ in range(2):
        buffer.acknowledge(5, 4)
        assert balance(buffer) == (16, 0)
    assert buffer.trained() == {2: 8, 4: 8}
    assert buffer.poll(6).samples == 8
    assert train(buffer, 6) == [4.0, 5.0]


def test_an_older_store_of_files_keeps_what_nobody_knows_of(buffer: Buffer) -> None:
    assert buffer.acknowledge(5, 4) == ""
    assert balance(buffer) == (0, 60)
    buffer.poll(6)
    train(buffer, 6)
    buffer.acknowledge(6, 6)
    assert balance(buffer) == (60, 0)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("repeat", [False, True])
def test_arrivals_are_those_of_the_local_engine(store: Store, seed: int, repeat: bool) -> None:
    from fedkoopman.federation.arrivals import Deliveries, arrivals, schedule

    class Client:
        def __init__(self, identity: int) -> None:
            self.identity, self.probability = identity, 0.6

    class Experiment:
        clients = tuple(map(Client, range(3)))
        slots = 15
        deliveries = Deliveries(tuple((np.zeros((4, 2)),) * 5 for _ in range(3)), ((),) * 3, repeat)

    Experiment.seed = seed  # type: ignore[attr-defined]
    expected = schedule(Experiment())  # type: ignore[arg-type]
    assert any(arrivals(seed, 1, Experiment.clients)) or seed  # type: ignore[arg-type]
    stock(store, [4] * 5, deliver=False)
    buffer = Buffer(store, lambda slot: succeeded(seed, slot, 2, 0.6), repeat)
    for slot in (1, 2, 3, 7, 8, 15):  # the site is away in between
        buffer.poll(slot)
    with store.looking() as c:
        rows = c.execute("SELECT arrived, segment FROM deliveries ORDER BY number").fetchall()
    assert rows == [(slot, one[2]) for slot, one in enumerate(expected) if 2 in one]
    assert len(rows) > 5 if repeat else len(rows) == 5


def test_segments_that_come_again_are_kept(store: Store) -> None:
    stock(store, [4, 4], deliver=False)
    buffer = Buffer(store, lambda slot: True, repeat=True)
    seen = []
    for slot in range(1, 6):
        assert buffer.poll(slot).samples == 4
        seen += train(buffer, slot)
        buffer.acknowledge(slot, slot)
    assert seen == [0.0, 1.0, 0.0, 1.0, 0.0]
    assert balance(buffer) == (20, 0)


def test_a_slot_counts_only_what_had_arrived_by_then(store: Store) -> None:
    stock(store, [4, 4, 4], deliver=False)
    buffer = Buffer(store, lambda slot: True)
    assert buffer.poll(3).samples == 12
    assert buffer.poll(2).samples == 8


SITE = """
import sys
from pathlib import Path
import numpy as np
from fedkoopman.deploy.site.buffer import Buffer
from fedkoopman.deploy.site.store import Store
from fedkoopman.errors import InputError
with Store(Path(sys.argv[1])) as store:
    buffer = Buffer(store, lambda slot: slot % 3 > 0)
    print("ready", flush=True)
    for line in sys.stdin:
        kind, *numbers = line.split()
        slot, *rest = map(int, numbers)
        try:
            if kind == "poll":
                print(buffer.poll(slot).samples, flush=True)
            elif kind == "train":
                kept = buffer.kept(slot)
                if kept is None:
                    states = buffer.states(slot)
                    buffer.keep(slot, "model", repr([float(x[0, 0]) for x in states]).encode())
                    kept = buffer.kept(slot)
                print(kept.reply.decode(), flush=True)
            else:
                buffer.acknowledge(slot, *rest)
                print("ok", flush=True)
        except InputError as error:
            print("refused", error, flush=True)
"""


SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 10))]


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_at_any_moment_neither_lose_nor_double(tmp_path: Path, seed: int) -> None:
    """A server that forgets nothing, a site that is killed again and again, mid-request or not."""
    luck = random.Random(seed)
    with Store(tmp_path) as store:
        stock(store, [4 + n for n in range(30)], deliver=False)
    site: subprocess.Popen[str] | None = None
    deadline = 0.0

    def ask(*words: object) -> str:
        nonlocal site, deadline
        while True:
            if site is None:
                site = subprocess.Popen(
                    [sys.executable, "-c", SITE, str(tmp_path)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                )  # fmt: skip
                assert site.stdout is not None
                assert site.stdout.readline() == "ready\n"
                deadline = time.monotonic() + luck.random() * 0.08
            assert site.stdin is not None and site.stdout is not None
            try:
                site.stdin.write(" ".join(map(str, words)) + "\n")
                site.stdin.flush()
                if time.monotonic() > deadline:
                    time.sleep(luck.random() * 0.004)  # somewhere inside the request
                    site.kill()
                answer = site.stdout.readline()
            except BrokenPipeError:
                answer = ""
            if answer.endswith("\n"):
                return answer.strip()
            site.kill()
            site.communicate()
            site = None

    included, used = 0, list[float]()
    for slot in range(1, 41):
        ask("acknowledge", slot - 1, included)
        waiting = int(ask("poll", slot))
        if waiting and luck.random() < 0.6:
            answer = ask("train", slot)
            if luck.random() < 0.3:
                answer = ask("train", slot)  # twice
            if luck.random() < 0.8:  # otherwise it comes too late
                used += eval(answer)
                included = slot
    ask("acknowledge", 40, included)
    assert site is not None
    site.kill()
    site.communicate()
    with Store(tmp_path) as store:
        buffer = Buffer(store, lambda slot: slot % 3 > 0)
        trained, waiting = balance(buffer)
        assert len(used) == len(set(used)), "trained twice"
        assert trained == sum(4 + int(n) for n in used)
        arrived = sum(slot % 3 > 0 for slot in range(1, 41))
        assert trained + waiting == sum(4 + n for n in range(min(arrived, 30)))
