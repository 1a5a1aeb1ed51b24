"""A roster keeps places, refuses names that are none, and is whole whenever somebody reads it."""

import json
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from fedkoopman.deploy.provisioning.roster import Enrolled, Roster, check_names
from fedkoopman.errors import InputError

WHEN = "2026-01-01T00:00:00+00:00"


def roster_of(*names: str) -> Roster:
    roster = Roster("0" * 64)
    for name in names:
        roster = roster.add(name, f"ecdsa-sha2-nistp384 AAAA {name}", WHEN)
    return roster


def test_a_roster_is_read_as_it_was_saved(tmp_path: Path) -> None:
    roster = roster_of("lab-a", "lab-b", "größe").revoke("lab-b", WHEN)
    roster.save(tmp_path)
    assert Roster.load(tmp_path) == roster
    assert stat.S_IMODE((tmp_path / "roster.json").stat().st_mode) == 0o600


def test_places_stay_whoever_goes() -> None:
    roster = roster_of("a", "b").revoke("a", WHEN).add("c", "key", WHEN)
    assert [site.identity for site in roster.sites] == [0, 1, 2]
    assert roster.names == ("a", "b", "c")
    assert [site.name for site in roster.active] == ["b", "c"]
    assert roster.site("c") == Enrolled("c", 2, "key", WHEN)


def test_a_name_is_given_once_even_to_a_revoked_site() -> None:
    roster = roster_of("a").revoke("a", WHEN)
    with pytest.raises(InputError, match="two sites are called 'a': give every site its own"):
        roster.add("a", "key", WHEN)
    with pytest.raises(InputError, match="revoked already, on 2026"):
        roster.revoke("a", WHEN)


def test_only_a_revoked_site_is_taken_back_and_only_with_another_key() -> None:
    roster = roster_of("a", "b")
    with pytest.raises(InputError, match="b is not revoked"):
        roster.taken_back("b", "another", WHEN)
    gone = roster.revoke("b", WHEN)
    with pytest.raises(InputError, match="needs a new key"):
        gone.taken_back("b", gone.site("b").public_key, WHEN)
    assert gone.taken_back("b", "another", WHEN).site("b") == Enrolled("b", 1, "another", WHEN)


def test_an_unknown_site_is_told_with_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown site 'lab-x': did you mean 'lab-a'"):
        roster_of("lab-a").revoke("lab-x", WHEN)


def test_an_insecure_roster_has_no_keys() -> None:
    roster = replace(Roster("0" * 64), secure=False)
    assert roster.add("a", "", WHEN).sites[0].public_key == ""
    with pytest.raises(InputError, match="site a has a key"):
        roster.add("a", "key", WHEN)
    with pytest.raises(InputError, match="site a lacks a key"):
        Roster("0" * 64).add("a", "", WHEN)


@pytest.mark.parametrize(
    "name", ["", "..", ".", "../x", "a/b", "/etc", "a b", "a\0", "-a", ".a", "x" * 101, "a\n"]
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="a site's name is"):
        check_names(["b", name])


@pytest.mark.parametrize("pair", [("lab", "LAB"), ("straße", "STRASSE"), ("ﬁt", "fit")])
def test_names_that_file_systems_confuse_are_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(InputError, match=r"two sites are called .*, as "):
        check_names(pair)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.update(sites=3),
        lambda table: table.update(sites=[{}]),
        lambda table: table["sites"][0].update(identity=1),
        lambda table: table["sites"][0].update(public_key=""),
        lambda table: table["sites"][0].update(revoked=None),
        lambda table: table["sites"][0].update(more=1),
        lambda table: table.update(secure="yes"),
        lambda table: table.pop("study"),
        lambda table: table.pop("format"),
    ],
)
def test_a_damaged_roster_is_told(tmp_path: Path, change: object) -> None:
    roster_of("a").save(tmp_path)
    table = json.loads((tmp_path / "roster.json").read_text())
    change(table)  # type: ignore[operator]
    (tmp_path / "roster.json").write_text(json.dumps(table))
    with pytest.raises(InputError, match=r"roster.json is damaged: put it back from a backup"):
        Roster.load(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "[" * 10**5])
def test_what_is_no_roster_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "roster.json").write_text(content)
    with pytest.raises(InputError, match="damaged"):
        Roster.load(tmp_path)


def test_a_name_written_in_by_hand_is_checked(tmp_path: Path) -> None:
    roster_of("a").save(tmp_path)
    text = (tmp_path / "roster.json").read_text().replace('"a"', '"../a"')
    (tmp_path / "roster.json").write_text(text)
    with pytest.raises(InputError, match="a site's name is"):
        Roster.load(tmp_path)


def test_another_format_and_a_missing_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="make the fleet with fedkoopman provision"):
        Roster.load(tmp_path)
    (tmp_path / "roster.json").write_text('{"format": 2}')
    with pytest.raises(InputError, match="written in format 2, this is format 1"):
        Roster.load(tmp_path)


def test_whoever_reads_while_it_is_replaced_reads_a_whole_one(tmp_path: Path) -> None:
    """As a running server does when a site is added."""
    roster = roster_of("a")
    roster.save(tmp_path)
    done = threading.Event()

    def replace_it() -> None:
        for i in range(40):
            roster_of("a", *(f"b{k}" for k in range(i))).save(tmp_path)
        done.set()

    writer = threading.Thread(target=replace_it)
    writer.start()
    seen = 0
    while not done.is_set():
        found = Roster.load(tmp_path)
        assert len(found.sites) >= seen
        seen = len(found.sites)
    writer.join()
    assert len(Roster.load(tmp_path).sites) == 40
