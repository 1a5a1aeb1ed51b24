"""A fleet is made once and added to: keys stay, and a call that was killed is made again."""

import json
import os
import signal
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedkoopman.config.study import Study
from fedkoopman.deploy.provisioning.certificates import expires, hosts_of, matches
from fedkoopman.deploy.provisioning.fleet_directory import FleetDirectory
from fedkoopman.deploy.provisioning.kit import normal_code, open_kit, read_kit
from fedkoopman.deploy.provisioning.provision import Provisioned, provision, shared_study
from fedkoopman.deploy.provisioning.roster import Roster
from fedkoopman.errors import InputError

STUDY = """
name = "swings"
slots = 5
[system]
name = "dynamics.py:rhs"
states = ["x", "v"]
parameters = { dt = 0.1 }
[sites]
files = ["a/site.toml", "b/site.toml", "c/site.toml"]
[clients]
count = 3
"""
SITE = """
name = "{name}"
[data]
files = "data/*.csv"
[sensor]
kind = "identity"
"""
CHANGED = "def rhs(x):\n    return -2 * x\n"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study whose site files are on other machines."""
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "dynamics.py").write_text("def rhs(x):\n    return -x\n")
    return tmp_path / "study.toml"


def with_site_files(study: Path, *names: str) -> None:
    for folder, name in zip("abc", names, strict=True):
        (study.parent / folder).mkdir()
        (study.parent / folder / "site.toml").write_text(SITE.format(name=name))


def files_of(fleet: Path) -> dict[str, bytes]:
    return {
        path.relative_to(fleet).as_posix(): path.read_bytes()
        for path in fleet.rglob("*")
        if path.is_file()
    }


def keys_of(done: Provisioned) -> dict[str, bytes]:
    """Node keys by site, from the kits."""
    lines = (done.fleet / "codes.txt").read_text().splitlines()
    codes = dict(line.split() for line in lines)
    return {
        name: read_kit(done.fleet / "kits" / f"{name}.kit", code)["node.key"]
        for name, code in codes.items()
    }


def test_the_first_call_makes_everything(study: Path, tmp_path: Path) -> None:
    done = provision(study, ["a", "b", "c"], hosts=["Learn.example.org"])
    fleet = tmp_path / "fleet"
    assert done.fleet == fleet and done.server == "learn.example.org:8443"
    assert set(files_of(fleet)) == {
        ".lock", "ca.key", "ca.crt", "server.key", "server.crt", "codes.txt", "roster.json",
        "issued.json", "kits/a.kit", "kits/b.kit", "kits/c.kit", "nginx.conf", "logrotate.conf",
        "systemd/fedkoopman-server.service", "systemd/fedkoopman-proxy.service",
        "systemd/fedkoopman-site@.service",
    }  # fmt: skip
    assert hosts_of(fleet / "server.crt")[-1] == "learn.example.org"
    roster = Roster.load(fleet)
    assert roster == done.roster and roster.secure
    assert roster.names == ("a", "b", "c")
    for name, code in done.codes.items():
        kit = open_kit(fleet / "kits" / f"{name}.kit", tmp_path / name / "kit", code)
        enrolled = roster.site(name)
        assert (kit.site, kit.identity, kit.clients) == (name, enrolled.identity, 3)
        assert kit.digest == roster.digest == Study.from_dict(kit.study.to_dict()).digest()
        assert (kit.folder / "node.pub").read_text().strip() == enrolled.public_key
        assert kit.ca.read_bytes() == (fleet / "ca.crt").read_bytes()
    assert len(set(keys_of(done).values())) == 3


def test_all_of_it_is_private(study: Path) -> None:
    done = provision(study, ["a"])
    for path in [done.fleet, *done.fleet.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o077 == 0 or path.name == ".lock", path


def test_the_same_call_again_changes_nothing(study: Path) -> None:
    before = files_of(provision(study, ["a", "b"]).fleet)
    done = provision(study, ["a", "b"])
    assert files_of(done.fleet) == before and not done.codes
    assert "left as they were: a, b" in done.said[0]


def test_further_sites_are_added_and_others_untouched(study: Path) -> None:
    first = provision(study, ["a", "b", "c"])
    before = files_of(first.fleet)
    done = provision(study, ["d"])
    after = files_of(done.fleet)
    assert set(done.codes) == {"d"}
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"roster.json", "codes.txt", "kits/d.kit"}
    assert done.roster.sites[:3] == first.roster.sites
    assert done.roster.site("d").identity == 3
    assert read_kit(done.fleet / "kits" / "d.kit", done.codes["d"])


def test_sites_may_be_enrolled_one_by_one(study: Path, tmp_path: Path) -> None:
    """All expect as many as the study names, whenever they were enrolled."""
    for name in "abc":
        done = provision(study, [name])
        kit = open_kit(done.fleet / "kits" / f"{name}.kit", tmp_path / name, done.codes[name])
        assert kit.clients == 3


def test_a_revoked_site_loses_kit_and_code_and_keeps_its_place(study: Path) -> None:
    provision(study, ["a", "b", "c"])
    done = provision(study, revoke=["b"])
    assert [site.name for site in done.roster.active] == ["a", "c"]
    assert not (done.fleet / "kits" / "b.kit").exists()
    assert "b " not in (done.fleet / "codes.txt").read_text()
    assert provision(study, revoke=["b"]).said == ("b was revoked already",)
    assert provision(study, ["b-2"]).roster.site("b-2").identity == 3
    with pytest.raises(InputError, match="unknown site 'x'"):
        provision(study, revoke=["x"])


def test_a_revoked_site_comes_back_to_its_place_with_a_new_key(study: Path, tmp_path: Path) -> None:
    done = provision(study, ["a", "b", "c"])
    old, kit = keys_of(done)["b"], (done.fleet / "kits" / "b.kit").read_bytes()
    code, public = done.codes["b"], done.roster.site("b").public_key
    provision(study, revoke=["b"])
    # As if the call that revoked it had been killed before it deleted the kit.
    (done.fleet / "kits" / "b.kit").write_bytes(kit)
    with (done.fleet / "codes.txt").open("a") as codes:
        codes.write(f"b {code}\n")
    again = provision(study, ["b"])
    assert [site.name for site in again.roster.active] == ["a", "b", "c"]
    assert again.roster.site("b").identity == 1
    assert again.roster.site("b").public_key != public
    assert keys_of(again)["b"] != old and again.codes["b"] != code
    assert any("taken back to its old place" in line for line in again.said)
    opened = open_kit(done.fleet / "kits" / "b.kit", tmp_path / "b", again.codes["b"])
    assert (opened.identity, opened.clients) == (1, 3)
    assert not any("taken back" in line for line in provision(study, ["b"]).said)


def test_renewing_makes_a_new_certificate_of_the_same_authority(study: Path) -> None:
    done = provision(study, ["a"], hosts=["learn.example.org"])
    before = files_of(done.fleet)
    done = provision(study, renew=True, days=10)
    after = files_of(done.fleet)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"server.key", "server.crt"}
    assert hosts_of(done.fleet / "server.crt")[-1] == "learn.example.org"
    left = expires(done.fleet / "server.crt") - datetime.now(UTC)
    assert timedelta(days=9) < left <= timedelta(days=10)
    assert any("sites need nothing new" in line for line in done.said)
    assert any("in 9 days: renew it" in line for line in done.said)


def test_a_new_host_makes_a_new_certificate(study: Path) -> None:
    provision(study, ["a"], hosts=["learn.example.org"])
    done = provision(study, hosts=["192.0.2.7", "learn.example.org"])
    assert hosts_of(done.fleet / "server.crt")[3:] == ("learn.example.org", "192.0.2.7")
    assert provision(study, hosts=["192.0.2.7"]).said == ()


def test_the_authoritys_key_may_be_elsewhere(study: Path) -> None:
    fleet = provision(study, ["a"]).fleet
    kept = (fleet / "ca.key").rename(study.parent / "elsewhere.key")
    assert provision(study, ["b"]).codes
    with pytest.raises(
        InputError, match=r"ca.key is missing, and no certificate can be made without it"
    ):
        provision(study, renew=True)
    kept.rename(fleet / "ca.key")
    assert provision(study, renew=True).said


@pytest.mark.parametrize("change", ["study", "code", "seed"])
def test_a_changed_study_makes_kits_anew_with_the_same_keys(study: Path, change: str) -> None:
    first = provision(study, ["a", "b", "c"])
    provision(study, revoke=["c"])
    keys = keys_of(first)
    if change == "code":
        (study.parent / "dynamics.py").write_text(CHANGED)
    else:
        new = "slots = 6" if change == "study" else "slots = 5\nseed = 3"
        study.write_text(STUDY.replace("slots = 5", new))
    done = provision(study, renew=True)  # whatever else is asked for
    assert keys_of(done) == keys
    assert not done.codes
    assert done.roster.digest == shared_study(study).digest()
    assert any("kits of a, b anew, with the same keys" in line for line in done.said)
    for name in "ab":
        content = read_kit(done.fleet / "kits" / f"{name}.kit", first.codes[name])
        assert content["dynamics.py"] == (study.parent / "dynamics.py").read_bytes()
        assert content["study.toml"] == shared_study(study).to_toml(lasting=True).encode()
    assert provision(study, ["a", "b"]).said == ("enrolled before, and left as they were: a, b",)


def test_without_its_code_a_kit_is_not_made_anew(study: Path) -> None:
    fleet = provision(study, ["a"]).fleet
    before = files_of(fleet)
    (fleet / "codes.txt").unlink()
    study.write_text(STUDY.replace("slots = 5", "slots = 6"))
    with pytest.raises(InputError, match=r"cannot be made anew without its code in codes.txt"):
        provision(study)
    (fleet / "codes.txt").write_bytes(before["codes.txt"])
    assert files_of(fleet) == before
    assert provision(study).said


def test_an_insecure_fleet_has_neither_keys_nor_seals(study: Path, tmp_path: Path) -> None:
    done = provision(study, ["a", "b"], insecure=True)
    assert not done.roster.secure and not done.codes
    assert done.server == "127.0.0.1:9092"
    names = set(files_of(done.fleet))
    assert names == {".lock", "roster.json", "issued.json", "kits/a.kit", "kits/b.kit"}
    kit = open_kit(done.fleet / "kits" / "a.kit", tmp_path / "kit", None)
    assert not kit.secure and not kit.node_key.exists()
    assert not provision(study, ["c"]).roster.secure
    study.write_text(STUDY.replace("slots = 5", "slots = 6"))
    assert "made the kits of a, b, c anew" in provision(study).said[0]


def test_insecure_and_keys_exclude_each_other(study: Path) -> None:
    provision(study, ["a"])
    with pytest.raises(InputError, match="has keys: leave out --insecure"):
        provision(study, ["b"], insecure=True)
    with pytest.raises(InputError, match="without certificates"):
        provision(study, ["b"], insecure=True, renew=True, fleet=study.parent / "other")


def test_names_come_from_site_files_that_are_here(study: Path) -> None:
    with_site_files(study, "lab-a", "lab-b", "lab-c")
    assert provision(study).roster.names == ("lab-a", "lab-b", "lab-c")
    provision(study, revoke=["lab-b"])
    assert provision(study).said[0].endswith("left as they were: lab-a, lab-c")


def test_names_that_disagree_with_the_site_files_are_told(study: Path) -> None:
    with_site_files(study, "lab-a", "lab-b", "lab-c")
    with pytest.raises(InputError, match=r"would be lab-b, lab-a but sites.files names lab-a"):
        provision(study, ["lab-b", "lab-a"])
    provision(study, ["lab-a", "lab-b"])
    with pytest.raises(InputError, match="would be lab-a, lab-b, other but"):
        provision(study, ["other"])
    provision(study, ["lab-c", "other"])


@pytest.mark.parametrize("name", ["../../etc", "a/b", "..", "", "a b", "-x", "a\0b"])
def test_a_name_that_leads_elsewhere_is_refused_before_anything_is_written(
    study: Path, name: str
) -> None:
    with pytest.raises(InputError, match="a site's name is"):
        provision(study, ["ok", name])
    assert {path.name for path in study.parent.iterdir()} == {"study.toml", "dynamics.py"}


@pytest.mark.parametrize("names", [["a", "a"], ["a", "A"]])
def test_a_name_that_comes_twice_is_refused(study: Path, names: list[str]) -> None:
    with pytest.raises(InputError, match="two sites are called"):
        provision(study, names)


@pytest.mark.parametrize("name", ["kits", "roster.json", "con", "a.kit", "größe", "x" * 100, "0"])
def test_odd_names_are_fine(study: Path, name: str) -> None:
    done = provision(study, [name])
    assert read_kit(done.fleet / "kits" / f"{name}.kit", done.codes[name])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            STUDY.replace("files = [", "# files = [").replace("count = 3", ""),
            "names no sites.files",
        ),
        ('scheme = "centralized"\n' + STUDY, "kf-fedkl"),
        (STUDY.replace("[sites]", "unknown = { k = 1.0 }\n[sites]"), "system.unknown"),
        (STUDY.replace("slots", "slot"), "unknown key 'slot'"),
        (STUDY.replace("dynamics.py:rhs", "dynamics.py:nothing"), "defines no 'nothing'"),
        (STUDY.replace("dynamics.py:rhs", "missing.py:rhs"), "cannot read"),
        (STUDY + "[network]\ncomponents = 1\n", "network.components is 1"),
    ],
)
def test_a_study_that_cannot_be_served_is_told(study: Path, text: str, told: str) -> None:
    study.write_text(text)
    with pytest.raises(InputError, match=told):
        provision(study, ["a"])
    assert not (study.parent / "fleet" / "roster.json").exists()


def test_more_sites_than_values_are_told(study: Path) -> None:
    study.write_text(STUDY.replace("count = 3", "count = 3\nprobability = [1.0, 0.5, 0.5]"))
    assert not any("last value" in line for line in provision(study, ["a", "b", "c"]).said)
    said = provision(study, ["d"]).said
    assert said[0] == "d: of clients.probability, the last value counts for further sites"


def test_without_names_and_files_it_is_told(study: Path) -> None:
    with pytest.raises(InputError, match=r"no sites are named.*give --sites"):
        provision(study)


def test_a_directory_of_something_else_is_left_alone(study: Path, tmp_path: Path) -> None:
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match="is not empty and holds no fleet"):
        provision(study, ["a"])
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        provision(study, ["a"], fleet=tmp_path / "file")
    with pytest.raises(InputError, match="give a --fleet without"):
        provision(study, ["a"], fleet=tmp_path / "a{b}")


def test_what_sites_trust_is_not_made_anew(study: Path) -> None:
    fleet = provision(study, ["a"]).fleet
    (fleet / "ca.crt").unlink()
    with pytest.raises(InputError, match=r"ca.crt, which sites trust, is missing"):
        provision(study, ["b"])


def test_edited_services_are_kept(study: Path) -> None:
    fleet = provision(study, ["a"]).fleet
    (fleet / "nginx.conf").write_text("# mine\n")
    (fleet / "systemd" / "fedkoopman-server.service").unlink()
    assert any("fedkoopman-server.service" in line for line in provision(study, ["b"]).said)
    assert (fleet / "nginx.conf").read_text() == "# mine\n"


def test_two_at_a_time_are_refused(study: Path) -> None:
    fleet = provision(study, ["a"]).fleet
    with FleetDirectory(fleet).locked(), pytest.raises(InputError, match="another process: wait"):
        provision(study, ["b"])


KILLED = """
import os, signal, sys
from pathlib import Path
from fedkoopman.deploy.provisioning.provision import provision
from fedkoopman.config.study import Study

Study.check = lambda self, sites: None  # JAX takes a second to load
left = int(sys.argv[2])
replace = os.replace

def count(*given):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*given)

os.replace = count
provision(Path(sys.argv[1]), ["a", "b"], renew=sys.argv[3] == "renew")
"""


def killed_after(study: Path, files: int, renew: str = "") -> bool:
    """Whether a call was killed before it put so many files in their places."""
    command = [sys.executable, "-c", KILLED, str(study), str(files), renew]
    code = subprocess.run(command, capture_output=True).returncode
    assert code in (0, -signal.SIGKILL)
    return code != 0


@pytest.mark.parametrize("files", range(0, 17, 2))
def test_killed_anywhere_it_can_be_called_again(study: Path, files: int) -> None:
    killed_after(study, files)
    done = provision(study, ["a", "b"])
    assert done.roster.names == ("a", "b")
    fleet, keys = done.fleet, keys_of(done)
    assert set(keys) == {"a", "b"}
    codes = dict(line.split() for line in (fleet / "codes.txt").read_text().splitlines())
    for name in "ab":
        assert normal_code(codes[name]) == codes[name]
        content = read_kit(fleet / "kits" / f"{name}.kit", codes[name])
        assert content["node.pub"].decode().strip() == done.roster.site(name).public_key
        assert content["ca.crt"] == (fleet / "ca.crt").read_bytes()
        assert json.loads(content["manifest.json"])["identity"] == "ab".index(name)
    assert matches((fleet / "server.key").read_bytes(), (fleet / "server.crt").read_bytes())
    assert not list(fleet.rglob("*.partial"))


def test_killed_between_key_and_certificate_it_mends_itself(study: Path) -> None:
    fleet = provision(study, ["a", "b"]).fleet
    assert killed_after(study, 1, "renew")

    def fit() -> bool:
        return matches((fleet / "server.key").read_bytes(), (fleet / "server.crt").read_bytes())

    assert not fit()
    provision(study, ["a", "b"])
    assert fit()


def test_killed_while_kits_are_made_anew_it_goes_on(study: Path) -> None:
    first = provision(study, ["a", "b"])
    study.write_text(STUDY.replace("slots = 5", "slots = 6"))
    assert killed_after(study, 1)  # one kit is new, the other old
    study.write_text(STUDY)
    done = provision(study, ["a", "b"])
    assert "made the kits of a, b anew" in done.said[0]
    for name in "ab":
        content = read_kit(done.fleet / "kits" / f"{name}.kit", first.codes[name])
        assert content["study.toml"] == shared_study(study).to_toml(lasting=True).encode()


def test_a_full_disk_is_told(study: Path) -> None:
    """A limit on the size of files stands for it."""
    code = """
import resource, signal, sys
from pathlib import Path
from fedkoopman.deploy.provisioning.provision import provision
from fedkoopman.errors import MachineError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
try:
    provision(Path(sys.argv[1]), ["a"])
except MachineError as error:
    print(error)
"""
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(study)], capture_output=True, text=True, env=environment
    )
    assert "cannot write" in done.stdout and "room" in done.stdout, done.stderr
    assert provision(study, ["a"]).codes


def test_many_sites_are_enrolled_at_once(study: Path) -> None:
    done = provision(study, [f"site-{i}" for i in range(12)])
    assert len(done.roster.active) == len(set(keys_of(done).values())) == 12


def test_what_is_refused_leaves_no_fleet_behind(study: Path) -> None:
    fleet = study.parent / "fleet"
    with pytest.raises(InputError):
        provision(study, revoke=["lab-x"])
    assert not fleet.exists()
    provision(study, ["lab-a", "lab-b", "lab-c"], insecure=True)
    with pytest.raises(InputError):
        provision(study, revoke=["lab-x"])
    assert (fleet / "roster.json").exists()
