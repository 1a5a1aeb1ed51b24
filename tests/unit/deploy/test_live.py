"""Live arrivals: complete files, taken whole and once, whatever else lies in the folder."""

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.deploy.site_lab import SAMPLES, make_site, make_study, recording, write_recording

from fedkoopman.config.site_file import SiteFile
from fedkoopman.data.filter_beliefs import Beliefs
from fedkoopman.data.triage import held_out, holds_out
from fedkoopman.deploy.site.buffer import Buffer
from fedkoopman.deploy.site.estimating import Estimating
from fedkoopman.deploy.site.live import Live
from fedkoopman.deploy.site.store import Store, StoreError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "state") as store:
        yield store


class Site:
    """A site, its data folder and its intake."""

    def __init__(self, folder: Path, store: Store, **data: Any) -> None:
        self.file = make_site(folder / "lab-a", 0, **data)
        self.data = folder / "lab-a" / "data"
        self.data.mkdir(exist_ok=True)
        self.study = make_study(folder, sites__arrivals="live")
        self.store, self.buffer = store, Buffer(store)
        self.restart()

    def restart(self) -> None:
        work = Estimating(self.file, self.study)
        self.intake = Live(self.file, self.study, self.store, work, 0.0)

    def kinds(self) -> dict[str, str]:
        with self.store.looking() as c:
            return dict(c.execute("SELECT name, kind FROM segments ORDER BY number"))


@pytest.fixture
def site(tmp_path: Path, store: Store) -> Site:
    return Site(tmp_path, store)


def test_files_arrive_once_as_they_come(site: Site) -> None:
    assert not site.intake.scan()
    write_recording(site.data / "b.csv", 1)
    assert site.intake.scan()
    assert not site.intake.scan()
    assert site.buffer.poll(1).samples == SAMPLES
    write_recording(site.data / "a.csv", 2)
    write_recording(site.data / "c.csv", 3)
    assert site.intake.scan()
    site.restart()
    assert not site.intake.scan()
    assert site.buffer.poll(1).samples == SAMPLES
    assert site.kinds() == {"b": "train", "a": "train", "c": "held-out"}
    assert site.buffer.poll(2).samples == 2 * SAMPLES


def test_states_are_those_that_the_local_engine_estimates(tmp_path: Path, site: Site) -> None:
    from fedkoopman.runs.site_preparation import prepared_sites

    for n in range(4):
        write_recording(site.data / f"{n}.csv", n)
    site.intake.scan()
    site.buffer.poll(1)
    (local,) = prepared_sites(site.study).sites
    for mine, theirs in zip(site.buffer.states(1), local.train, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.34, 0.5, 0.9])
def test_every_so_many_is_held_out_whatever_comes_later(share: float) -> None:
    running = [holds_out(share, n, ("",)) for n in range(50)]
    names = [str(n) for n in range(50)]
    assert running == list(held_out(share, names, names))


def test_held_out_by_name(tmp_path: Path, store: Store) -> None:
    site = Site(tmp_path, store, held_out=["b", "c:two", "three"], segment="part")
    for n, name in enumerate("abc"):
        parts = [part + "!" * (name == "a") for part in ("one", "two", "three")]
        lines = [f"{x},{v},{part}" for part in parts for x, v in recording(n)]
        (site.data / f"{name}.csv").write_text("\n".join(["x,v,part", *lines]) + "\n")
    site.intake.scan()
    kinds = site.kinds()
    assert {name for name, kind in kinds.items() if kind == "held-out"} == {
        "b:three", "c:two", "c:three"
    }  # fmt: skip
    assert len(kinds) == 9


def test_long_segments_are_cut_and_numbered(tmp_path: Path, store: Store) -> None:
    site = Site(tmp_path, store, longest=SAMPLES, held_out=["a"])
    for n, name in enumerate("ab"):
        write_recording(site.data / f"{name}.csv", n, samples=3 * SAMPLES)
    site.intake.scan()
    assert site.kinds() == {"a.1": "held-out", "a.2": "held-out", "a.3": "held-out"} | {
        f"b.{n}": "train" for n in (1, 2, 3)
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"x,v\n1,2\n3,oops\n", "oops"),
        (b"x\n1\n2\n", "has 1 columns"),
        (b"\x00\xff" * 500, ""),
        (b"x,v\n", "has no rows"),
        (b"x,v\n,\n,\n", "every observation in"),
    ],
)
def test_a_bad_file_is_set_aside_until_it_changes(site: Site, content: bytes, reason: str) -> None:
    bad = site.data / "bad.csv"
    bad.write_bytes(content)
    write_recording(site.data / "good.csv", 1)
    assert site.intake.scan()
    assert list(site.kinds()) == ["good"]
    assert reason in site.intake.aside()["data/bad.csv"]
    assert not site.intake.scan()
    site.restart()
    site.intake.scan()  # tried once more, as the site file may be another
    assert not site.intake.scan()
    write_recording(bad, 2)
    assert site.intake.scan()
    assert list(site.kinds()) == ["good", "bad"]
    assert site.intake.aside() == {}


def test_a_file_that_is_bad_at_its_end_leaves_nothing(tmp_path: Path, store: Store) -> None:
    site = Site(tmp_path, store, segment="part")
    rows = [f"{x},{v},{part}" for part in "abcdef" for x, v in recording(1)]
    path = site.data / "many.csv"
    path.write_text("\n".join(["x,v,part", *rows, "1,nonsense,g"]) + "\n")
    site.intake.scan()
    assert site.kinds() == {}
    assert site.buffer.account().delivered == 0
    path.write_text("\n".join(["x,v,part", *rows]) + "\n")
    site.intake.scan()
    assert len(site.kinds()) == 6
    assert site.buffer.account().delivered == 4 * SAMPLES


def test_what_is_appended_replaced_or_removed_is_told_and_changes_nothing(site: Site) -> None:
    for n, name in enumerate(("a", "b", "c", "d")):
        write_recording(site.data / f"{name}.csv", n)
    site.intake.scan()
    before, delivered = site.kinds(), site.buffer.account().delivered
    with (site.data / "a.csv").open("a") as file:
        file.write("1,2\n")
    write_recording(site.data / "b.csv", 77)
    (site.data / "c.csv").unlink()
    os.utime(site.data / "d.csv", (5, 5))
    assert site.intake.scan()
    assert not site.intake.scan()
    aside = site.intake.aside()
    assert set(aside) == {"data/a.csv", "data/b.csv", "data/c.csv"}
    assert "new rows belong in new files" in aside["data/a.csv"]
    assert "is gone" in aside["data/c.csv"]
    site.restart()
    site.intake.scan()
    assert site.kinds() == before
    assert site.buffer.account().delivered == delivered
    write_recording(site.data / "c.csv", 2)  # and back again
    site.intake.scan()
    assert "data/c.csv" not in site.intake.aside()
    assert site.kinds() == before


def test_a_moved_file_is_not_taken_twice(site: Site) -> None:
    site.file = make_site(site.data.parent, 0, files=["data/**/*.csv"])
    site.restart()
    write_recording(site.data / "a.csv", 1)
    site.intake.scan()
    (site.data / "old").mkdir()
    shutil.move(site.data / "a.csv", site.data / "old" / "a.csv")
    site.intake.scan()
    assert list(site.kinds()) == ["a"]
    assert "holds what data/a.csv holds" in site.intake.aside()["data/old/a.csv"]
    write_recording(site.data / "old" / "b.csv", 2)
    write_recording(site.data / "b.csv", 3)  # another file of this name
    site.intake.scan()
    assert list(site.kinds()) == ["a", "b", "data/old/b.csv"]


def test_files_of_other_columns_are_set_aside(site: Site) -> None:
    write_recording(site.data / "a.csv", 1)
    (site.data / "b.csv").write_text((site.data / "a.csv").read_text().replace("x,v", "v,x"))
    site.intake.scan()
    assert list(site.kinds()) == ["a"]
    assert "has the columns v, x but files before had x, v" in site.intake.aside()["data/b.csv"]


def test_a_file_that_changes_while_it_is_read_is_read_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_recording(site.data / "a.csv", 1)
    read = site.intake._read

    def slow(*arguments: Any) -> None:
        read(*arguments)
        write_recording(path, 1, samples=2 * SAMPLES)
        monkeypatch.undo()

    monkeypatch.setattr(site.intake, "_read", slow)
    assert not site.intake.scan()
    assert site.kinds() == {}
    assert site.intake.scan()
    assert site.buffer.account().delivered == 2 * SAMPLES


def test_a_full_disk_delays_a_file_and_loses_nothing(site: Site) -> None:
    with site.store.looking() as c:
        ((used,),) = c.execute("PRAGMA page_count")
        c.execute(f"PRAGMA max_page_count = {used + 1}")
    for n in range(8):
        write_recording(site.data / f"{n}.csv", n)
    with pytest.raises(StoreError, match="see that its disk has room"):
        site.intake.scan()
    with site.store.looking() as c:
        c.execute("PRAGMA max_page_count = 100000")
    assert site.intake.scan()
    assert site.intake.aside() == {}
    assert len(site.kinds()) == 8
    assert site.buffer.account().segments == 6


def test_names_that_patterns_would_take_for_their_own(site: Site) -> None:
    for n, name in enumerate(("a[1]", "b ?", "c*", "ö")):
        write_recording(site.data / f"{name}.csv", n)
    site.intake.scan()
    assert list(site.kinds()) == ["a[1]", "b ?", "c*", "ö"]


def auto(site: Site) -> None:
    """Let the site estimate its noise."""
    text = site.file.path.read_text().replace("observation = 1e-4", 'observation = "auto"')
    site.file.path.write_text(text)
    site.file = SiteFile.load(site.file.path)
    site.restart()


def test_noise_is_estimated_anew_when_there_is_twice_as_much(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto(site)
    seen = []

    def learn(files: list[str], held_out: list[str]) -> Beliefs:
        seen.append(len(files))
        noise = np.eye(2) / len(seen)
        return Beliefs(noise, 1e-6 * np.eye(2), np.zeros(2), np.eye(2))

    monkeypatch.setattr(site.intake.work, "learn", learn)
    rests_on = []
    for n in range(7):
        write_recording(site.data / f"{n}.csv", n)
        site.intake.scan()
        beliefs, samples = site.intake.remembered_noise()  # type: ignore[misc]
        rests_on.append(samples // SAMPLES)
        np.testing.assert_array_equal(beliefs.observation_noise, np.eye(2) / len(seen))
    assert seen == [1, 3, 6]  # each time of all files, of which every third is held out
    assert rests_on == [1, 1, 2, 2, 2, 4, 4]
    site.restart()
    again = site.intake.remembered_noise()
    assert again is not None
    np.testing.assert_array_equal(again[0].observation_noise, np.eye(2) / 3)


@pytest.mark.slow  # half a minute where nothing is compiled yet
def test_noise_is_estimated_from_the_first_files(site: Site) -> None:
    auto(site)
    for n in range(4):
        write_recording(site.data / f"{n}.csv", n)
        site.intake.scan()
    remembered = site.intake.remembered_noise()
    assert remembered is not None
    noise = np.diag(remembered[0].observation_noise)
    assert np.all((noise > 3e-5) & (noise < 3e-4))


@pytest.mark.slow
def test_memory_is_bounded_while_a_thousand_segments_arrive(site: Site) -> None:
    def arrive(first: int, count: int) -> int:
        for n in range(first, first + count):
            write_recording(site.data / f"{n:04d}.csv", n, samples=500)
        site.intake.scan()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = arrive(0, 100)
    after = arrive(100, 900)
    assert site.intake.catalogue.count() == 1000
    assert after - before < 50_000  # KB; all states would take 8,000, and XLA keeps some
