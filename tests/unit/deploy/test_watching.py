"""Complete files: those that stopped changing, whatever the clock says."""

import os
from pathlib import Path

import pytest
from unit.deploy.site_lab import make_site

from fedkoopman.deploy.site.intake import Settling, candidates, content_digest, file_key
from fedkoopman.deploy.site.site_socket import Rate
from fedkoopman.errors import InputError


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


def test_a_rate_allows_some_at_once_and_then_so_many_a_second() -> None:
    clock = Clock()
    rate = Rate(20.0, 40, clock)
    assert sum(rate.allows() for _ in range(100)) == 40
    clock.time += 1.0
    assert sum(rate.allows() for _ in range(100)) == 20
    clock.time += 1000.0
    assert sum(rate.allows() for _ in range(100)) == 40
