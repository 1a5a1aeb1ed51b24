"""Samples from MQTT are kept once, in order, and become files whose content never changes."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.deploy.mqtt_lab import mqtt_site, payload

from fedkoopman.config.site_file import SiteFile
from fedkoopman.data.segments import segments
from fedkoopman.deploy.site import mqtt_journal
from fedkoopman.deploy.site.mqtt_journal import Arrived, Journal, Kept
from fedkoopman.deploy.site.mqtt_messages import Layout
from fedkoopman.deploy.site.store import FILE, Store, StoreError

A = "lab/a"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "state") as store:
        yield store


@pytest.fixture
def site(tmp_path: Path) -> SiteFile:
    return mqtt_site(tmp_path / "lab-a", 1883)


def journal(store: Store, site: SiteFile, samples: int = 10, **layout: Any) -> Journal:
    made = replace(Layout.of(site), **layout)
    return Journal(store, made, site.folder / "data", samples, gap=0.5)


def arrived(*numbers: int, topic: str = A, again: bool = False, **more: Any) -> list[Arrived]:
    return [Arrived(topic, payload(n, **more), again) for n in numbers]


def rows(site: SiteFile) -> dict[str, list[str]]:
    """The files, without headers."""
    found = sorted((site.folder / "data").glob("*.csv"))
    return {path.name[:13]: path.read_text().splitlines()[1:] for path in found}


def times(site: SiteFile) -> list[list[float]]:
    return [[float(line.split(",")[0]) for line in lines] for lines in rows(site).values()]


def test_a_full_segment_is_a_file_that_the_sites_reader_reads(store: Store, site: SiteFile) -> None:
    made = journal(store, site)
    assert made.keep(arrived(*range(12))) == [Kept(1)] * 12
    (path,) = made.write()
    assert made.write() == []
    (read,) = segments(site, 0.05)
    assert (path.name[:14], read.channels) == ("mqtt-00000001-", ("x", "v"))
    np.testing.assert_array_equal(read.observations[:, 0], np.arange(10) / 1000)
    assert made.counts() == {"mqtt_samples": 12, "mqtt_open": 2, "mqtt_set_aside": 0}


def test_what_comes_again_counts_once(store: Store, site: SiteFile) -> None:
    made = journal(store, site)
    made.keep(arrived(*range(8)))
    assert made.keep(arrived(5, 6, 7, again=True)) == [Kept(0, 1)] * 3
    many = json.dumps([json.loads(payload(n)) for n in range(6, 12)]).encode()
    assert made.keep([Arrived(A, many)]) == [Kept(4, 2)]  # a sender may put them together anew
    made.write()
    again = journal(store, site)  # as after a restart
    assert again.keep(arrived(*range(12))) == [Kept(0, 1)] * 12
    again.close([A])
    again.write()
    np.testing.assert_allclose(np.concatenate(times(site)), 0.05 * np.arange(12))


def test_a_number_that_comes_with_other_values_is_no_repetition(
    store: Store, site: SiteFile
) -> None:
    made = journal(store, site)
    made.keep(arrived(0, 1, 2))
    (kept,) = made.keep(arrived(1, x=7.0))
    assert "time 0.05 came before with other values" in kept.reason
    assert made.keep(arrived(1, x=7.0, segment="after the restart")) == [Kept(1)]


def test_what_goes_back_is_set_aside_with_its_payload(store: Store, site: SiteFile) -> None:
    made = journal(store, site)
    made.keep(arrived(0, 5))
    (kept,) = made.keep(arrived(3))
    assert kept.reason == "time 0.15 goes back from 0.25: send samples in order"
    assert made.aside() == [f"1 of {A}: {kept.reason}"]
    with store.looking() as c:
        assert c.execute("SELECT payload FROM mqtt_aside").fetchall() == [(payload(3),)]
    assert made.keep(arrived(3, again=True))[0].reason  # the broker did not hear of it
    assert made.counts()["mqtt_set_aside"] == 1


def test_a_message_counts_as_a_whole_or_not_at_all(store: Store, site: SiteFile) -> None:
    made = journal(store, site)
    pair = [json.loads(payload(2)), json.loads(payload(1))]
    results = made.keep([*arrived(0), Arrived(A, json.dumps(pair).encode()), *arrived(1, 2)])
    assert results[1].reason == "time 0.05 goes back from 0.1: send samples in order"
    assert [results[0], *results[2:]] == [Kept(1)] * 3  # the pair left nothing
    assert made.counts()["mqtt_samples"] == 3


def test_what_ends_a_segment(store: Store, site: SiteFile) -> None:
    made = journal(store, site, samples=4)
    made.keep(arrived(0, 1))
    made.keep(arrived(20, 21))  # after a gap
    made.keep(arrived(22, 23, segment="b"))  # another name
    made.keep(arrived(0, 1, 2, topic="lab/b"))  # another topic, which does not end the first
    made.keep(arrived(24, 25, 26, segment="b"))  # two more are as many as there may be
    made.close([A])  # silence
    made.write()
    found = [[round(t / 0.05) for t in segment] for segment in times(site)]
    assert found == [[0, 1], [20, 21], [22, 23, 24, 25], [26]]
    assert made.open_topics() == ["lab/b"]


def test_without_time_a_missing_number_ends_a_segment(store: Store, tmp_path: Path) -> None:
    site = mqtt_site(tmp_path / "lab-a", 1883, sequence="n", data='time = ""')
    made = journal(store, site)
    made.keep([Arrived(A, json.dumps({"n": n, "x": n, "v": 0}).encode()) for n in (3, 4, 5, 7, 8)])
    made.close([A])
    made.write()
    assert times(site) == [[3, 4, 5], [7, 8]]
    assert [len(found.observations) for found in segments(site, 0.05)] == [3, 2]


def test_with_a_sequence_a_clock_may_start_again(store: Store, tmp_path: Path) -> None:
    site = mqtt_site(tmp_path / "lab-a", 1883, sequence="n")
    made = journal(store, site)
    clock = [0.0, 0.05, 0.1, 0.0, 0.05]
    for _ in range(2):
        made.keep(
            [
                Arrived(A, json.dumps({"n": n, "time": t, "x": n, "v": 0}).encode())
                for n, t in enumerate(clock)
            ]
        )
    made.close([A])
    made.write()
    assert times(site) == [[0, 1, 2], [3, 4]]


def test_equal_values_of_two_topics_are_two_files(store: Store, site: SiteFile) -> None:
    """Intake takes a content once, so that no two files may be equal."""
    made = journal(store, site, samples=3)
    made.keep([*arrived(0, 1, 2), *arrived(0, 1, 2, topic="lab/b")])
    first, second = made.write()
    assert first.read_bytes() != second.read_bytes()


def test_a_file_that_was_written_just_before_a_kill_is_the_same_again(
    store: Store, site: SiteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = journal(store, site)
    made.keep(arrived(*range(10)))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(mqtt_journal, "_forget", killed)  # within the transaction after the file
        made.write()
    before = {path: path.read_bytes() for path in (site.folder / "data").iterdir()}
    assert len(before) == 1
    journal(store, site).write()
    assert before == {path: path.read_bytes() for path in (site.folder / "data").iterdir()}
    assert journal(store, site).write() == []


def test_a_new_store_replaces_no_file_of_a_lost_one(
    store: Store, site: SiteFile, tmp_path: Path
) -> None:
    journal(store, site).keep(arrived(*range(10)))
    (old,) = journal(store, site).write()
    content = old.read_bytes()
    with Store(tmp_path / "another") as another:
        made = journal(another, site)
        made.keep(arrived(*range(30, 40)))
        (new,) = made.write()
    assert old.read_bytes() == content != new.read_bytes()


def test_a_torn_end_of_the_store_costs_only_what_was_not_acknowledged(
    store: Store, site: SiteFile, tmp_path: Path
) -> None:
    """As a power cut leaves it: the last transaction is not all on the disk."""
    made = journal(store, site)
    made.keep(arrived(0, 1, 2))
    wal = store.path.with_name(f"{FILE}-wal")
    whole = wal.stat().st_size
    made.keep(arrived(3, 4, 5))
    assert wal.stat().st_size > whole
    for cut in (1, 100, (wal.stat().st_size - whole) // 2, wal.stat().st_size - whole):
        torn = tmp_path / f"torn-{cut}"
        torn.mkdir()
        shutil.copy(store.path, torn)
        (torn / wal.name).write_bytes(wal.read_bytes()[:-cut])
        with Store(torn) as opened:
            found = journal(opened, site)
            assert found.counts()["mqtt_samples"] == 3
            results = found.keep(arrived(2, 3, 4, 5, again=True))
            assert results == [Kept(0, 1), Kept(1), Kept(1), Kept(1)]


def test_a_full_disk_keeps_nothing_of_a_batch_and_it_is_kept_later(
    store: Store, site: SiteFile
) -> None:
    made = journal(store, site, samples=10_000)
    with store.looking() as c:
        ((used,),) = c.execute("PRAGMA page_count")
        c.execute(f"PRAGMA max_page_count = {used + 1}")
    with pytest.raises(StoreError, match="full"):
        made.keep(arrived(*range(500)))
    assert made.counts()["mqtt_samples"] == 0
    with store.looking() as c:
        c.execute("PRAGMA max_page_count = 100000")
    assert made.keep(arrived(*range(500))) == [Kept(1)] * 500


def test_old_samples_are_forgotten_and_never_counted_twice(
    store: Store, site: SiteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_journal, "REMEMBERED", 20)
    made = journal(store, site)
    made.keep(arrived(*range(60)))
    made.write()
    with store.looking() as c:
        assert c.execute("SELECT count(*) FROM mqtt_samples").fetchone() == (20,)
    assert made.keep(arrived(45)) == [Kept(0, 1)]
    assert "goes back" in made.keep(arrived(5))[0].reason
    assert made.counts()["mqtt_samples"] == 60


def test_messages_set_aside_are_bounded_and_counted(
    store: Store, site: SiteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_journal, "ASIDE", 5)
    made = journal(store, site)
    made.keep([Arrived(A, b"not JSON %d" % n) for n in range(12)])
    assert made.counts()["mqtt_set_aside"] == 12
    assert [line.split()[0] for line in made.aside()] == ["8", "9", "10", "11", "12"]


def test_names_of_segments_and_inputs_reach_the_reader(store: Store, tmp_path: Path) -> None:
    site = mqtt_site(tmp_path / "lab-a", 1883, data='inputs = ["u"]')
    made = journal(store, site)
    made.keep([Arrived(A, payload(n, u=n, segment=f"swing {n // 3}")) for n in range(6)])
    made.close([A])
    made.write()
    found = list(segments(site, 0.05))
    assert [one.name.partition(":")[2] for one in found] == ["swing 0", "swing 1"]
    assert [one.inputs is not None and one.inputs.shape for one in found] == [(3, 1), (3, 1)]
