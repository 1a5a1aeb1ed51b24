"""Files count when they stopped changing; drawn ones are read once, as the local engine does."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from unit.deploy.site_lab import make_site, make_study, write_recording

from fedkoopman.deploy.site.estimating import Estimating, site_system
from fedkoopman.deploy.site.intake import (
    Drawn,
    Settling,
    candidates,
    content_digest,
    file_key,
)
from fedkoopman.deploy.site.store import Store
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.runs.site_preparation import prepared_sites


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "state") as store:
        yield store


def stored(store: Store) -> dict[str, tuple[str, str, np.ndarray | None]]:
    with store.looking() as c:
        rows = c.execute(
            "SELECT name, kind, reason, samples, states FROM segments "
            "LEFT JOIN contents ON segment = number ORDER BY number"
        ).fetchall()
    return {
        name: (kind, reason, None if b is None else np.frombuffer(b).reshape(n, -1))
        for name, kind, reason, n, b in rows
    }


def test_segments_are_those_of_the_local_engine(tmp_path: Path, store: Store) -> None:
    site = make_site(tmp_path / "lab-a", 7)
    write_recording(tmp_path / "lab-a" / "data" / "r9.csv", 9, samples=1)  # too short
    study = make_study(tmp_path)
    (local,) = prepared_sites(study).sites
    intake = Drawn(site, study, store, Estimating(site, study), settle=0.0)
    seen = []
    intake.prepare(lambda done, total: seen.append((done, total)))
    assert seen[-1] == (8, 8)
    found = stored(store)
    train = [states for kind, _, states in found.values() if kind == "train"]
    held = intake.catalogue.held_out()
    assert len(train) == len(local.train)
    for mine, theirs in zip(train, local.train, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert [one.name for one in held] == [one.name for one in local.held_out]
    for mine, theirs in zip(held, local.held_out, strict=True):
        np.testing.assert_array_equal(mine.states, theirs.states)
        np.testing.assert_array_equal(mine.observations, theirs.observations)
    assert intake.catalogue.dropped() == list(local.dropped) != []
    assert intake.beliefs is not None
    np.testing.assert_array_equal(intake.beliefs.observation_noise, local.observation_noise)
    assert held[-1].name == held[1].name
    assert [one.name for one in held[:1]] == [held[0].name]


def test_reading_is_taken_up_where_it_was_cut_off(tmp_path: Path, store: Store) -> None:
    site, study = make_site(tmp_path / "lab-a", 6), make_study(tmp_path)

    class Killed(BaseException):
        pass

    def kill(done: int, total: int) -> None:
        if done == 4:
            raise Killed

    with pytest.raises(Killed):
        Drawn(site, study, store, Estimating(site, study), settle=0.0).prepare(kill)
    assert len(stored(store)) == 4
    seen = []
    Drawn(site, study, store, Estimating(site, study), settle=0.0).prepare(
        lambda done, total: seen.append(done)
    )
    assert seen == [4, 5, 6]  # the file that was not finished is read again
    Drawn(site, study, store, Estimating(site, study), settle=0.0).prepare(
        lambda *_: pytest.fail("all is read")
    )
    with Store(tmp_path / "other") as other:
        Drawn(site, study, other, Estimating(site, study), settle=0.0).prepare()
        assert {n: k for n, (k, *_) in stored(other).items()} == {
            n: k for n, (k, *_) in stored(store).items()
        }


def test_other_files_after_a_cut_begin_anew(tmp_path: Path, store: Store) -> None:
    site, study = make_site(tmp_path / "lab-a", 4), make_study(tmp_path)

    def kill(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Drawn(site, study, store, Estimating(site, study), settle=0.0).prepare(kill)
    write_recording(tmp_path / "lab-a" / "data" / "a.csv", 9)
    Drawn(site, study, store, Estimating(site, study), settle=0.0).prepare()
    assert list(stored(store)) == ["a", "r000", "r001", "r002", "r003"]


def test_files_that_come_or_change_later_are_left_out(tmp_path: Path, store: Store) -> None:
    site, study = make_site(tmp_path / "lab-a", 4), make_study(tmp_path)
    intake = Drawn(site, study, store, Estimating(site, study), settle=0.0)
    intake.prepare()
    before = stored(store)
    assert not intake.scan()
    data = tmp_path / "lab-a" / "data"
    write_recording(data / "s.csv", 9)
    with (data / "r001.csv").open("a") as file:
        file.write("1,2\n")
    os.utime(data / "r002.csv", (1, 1))  # touched, but the same
    (data / "r003.csv").unlink()
    assert intake.scan()
    assert not intake.scan()
    aside = intake.aside()
    assert set(aside) == {"data/s.csv", "data/r001.csv", "data/r003.csv"}
    assert "is gone" in aside["data/r003.csv"]
    assert 'use "live"' in aside["data/s.csv"]
    assert "segments stay as they were" in aside["data/r001.csv"]
    again = Drawn(site, study, store, Estimating(site, study), settle=0.0)
    again.prepare()
    assert not again.scan()
    assert list(stored(store)) == list(before)


def test_a_changed_site_file_is_told_and_changes_nothing(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    site, study = make_site(tmp_path / "lab-a", 4), make_study(tmp_path)
    Drawn(site, study, store, Estimating(site, study), settle=0.0).prepare()
    text = site.path.read_text().replace("observation = 1e-4", "observation = 2e-4")
    site.path.write_text(text)
    site = type(site).load(site.path)
    intake = Drawn(site, study, store, Estimating(site, study), settle=0.0)
    intake.prepare()
    assert intake.beliefs is None
    assert "has changed since its data were read" in caplog.text


def test_a_site_without_anything_to_train_on_is_refused(tmp_path: Path, store: Store) -> None:
    site, study = make_site(tmp_path / "lab-a", 0), make_study(tmp_path)
    with pytest.raises(InputError, match="matches no file"):
        Drawn(site, study, store, Estimating(site, study), settle=0.0).prepare()
    for n in range(3):
        write_recording(tmp_path / "lab-a" / "data" / f"{n}.csv", n, samples=1)
    with pytest.raises(ComputationError, match=r"no segment to train on; dropped: 0: 1 samples"):
        Drawn(site, study, store, Estimating(site, study), settle=0.0).prepare()


def test_a_site_sees_its_system_without_the_other_sites(tmp_path: Path) -> None:
    site = make_site(tmp_path / "here", 2)
    study = make_study(
        tmp_path / "kit", ["lab-a", "lab-b", "lab-c"], clients__probability=[1, 1, 1]
    )
    assert site_system(study, site).names == ("theta", "omega")
    text = site.path.read_text() + "[bounds]\nz = [0.0, 1.0]\n"
    site.path.write_text(text)
    with pytest.raises(InputError, match="unknown state in bounds 'z'"):
        site_system(study, type(site).load(site.path))


@pytest.mark.slow  # half a minute where nothing is compiled yet
def test_noise_that_was_estimated_is_the_same_after_a_restart(tmp_path: Path, store: Store) -> None:
    site, study = make_site(tmp_path / "lab-a", 4), make_study(tmp_path)
    site.path.write_text(
        site.path.read_text().replace("observation = 1e-4", 'observation = "auto"')
    )
    site = type(site).load(site.path)
    intake = Drawn(site, study, store, Estimating(site, study), settle=0.0)
    intake.prepare()
    assert intake.beliefs is not None
    noise = json.loads(store.note("noise") or "")
    assert noise["observation_noise"] == intake.beliefs.observation_noise.tolist()
    (local,) = prepared_sites(study).sites
    np.testing.assert_array_equal(intake.beliefs.observation_noise, local.observation_noise)
    again = Drawn(site, study, store, Estimating(site, study), settle=0.0)
    again.prepare()
    assert again.beliefs is not None
    np.testing.assert_array_equal(again.beliefs.observation_noise, intake.beliefs.observation_noise)


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_a_file_is_settled_when_it_has_not_changed_for_long_enough(tmp_path: Path) -> None:
    clock = Clock()
    settling = Settling(2.0, clock)
    path = tmp_path / "a"
    path.write_text("1")
    assert not settling.settled([path])
    clock.time += 1.9
    assert not settling.settled([path])
    path.write_text("12")
    clock.time += 1.9
    assert not settling.settled([path])
    assert settling.unsettled == 1
    clock.time += 2.0
    assert list(settling.settled([path])) == [path]
    assert settling.unsettled == 0


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path) -> None:
    clock = Clock()
    settling = Settling(2.0, clock)
    path = tmp_path / "a"
    path.write_text("1")
    for instant in (4e9, 0.0):  # in a hundred years, and long ago
        os.utime(path, (instant, instant))
        assert not settling.settled([path])
        clock.time += 2.0
        assert settling.settled([path])


def test_a_file_that_comes_back_settles_anew(tmp_path: Path) -> None:
    clock = Clock()
    settling = Settling(2.0, clock)
    path = tmp_path / "a"
    path.write_text("1")
    settling.settled([path])
    path.unlink()
    clock.time += 5
    assert not settling.settled([path])
    path.write_text("1")
    assert not settling.settled([path])


def test_unfinished_files_are_no_candidates(tmp_path: Path) -> None:
    site = make_site(tmp_path, count=2, files=["data/*", "data/r001.csv"])
    for name in (".r.csv", "r.csv.part", "r.csv.TMP", "r.csv~", "~r.csv", "#r.csv#", "r.partial"):
        (tmp_path / "data" / name).write_text("x")
    (tmp_path / "data" / "folder.csv").mkdir()
    (tmp_path / "data" / "link.csv").symlink_to("r000.csv")
    found = candidates(site)
    assert [path.name for path in found] == ["link.csv", "r001.csv"]  # one of two names
    assert file_key(site, found[1]) == "data/r001.csv"
    assert file_key(site, Path("/else/where.csv")) == "/else/where.csv"
    assert file_key(site, tmp_path / os.fsdecode(b"\xff.csv")) == "\\udcff.csv"


def test_a_site_without_files_is_no_error(tmp_path: Path) -> None:
    site = make_site(tmp_path, count=0)
    assert candidates(site) == []


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*: No such file"):
        content_digest(tmp_path / "a")
