"""`fedkoopman provision`, `backup` and `restore` as a coordinator types them."""

import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fedkoopman.cli import main
from fedkoopman.deploy.provisioning.kit import open_kit

CODE = re.compile(r"unlock code of (\S+): ((?:\w{5}-){4}\w{5})$")


def told(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedkoopman.cli", *words], cwd=folder, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def swings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the example study, provisioned for its three sites."""
    folder = tmp_path_factory.mktemp("coordinator")
    assert main(["init", str(folder / "swings"), "--example", "pendulum"]) == 0
    done = told("provision", "swings/study.toml", "--host", "learn.example.org", folder=folder)
    assert done.returncode == 0, done.stderr
    (folder / "said").write_text(done.stdout)
    return folder


def test_it_says_what_it_made_each_code_and_what_is_next(swings: Path, tmp_path: Path) -> None:
    lines = (swings / "said").read_text().splitlines()
    codes = dict(found.groups() for line in lines if (found := CODE.match(line)))
    assert list(codes) == ["lab-a", "lab-b", "lab-c"]
    assert "made swings/fleet/kits/lab-b.kit" in lines
    assert any(line.endswith("join site.toml --server learn.example.org:8443") for line in lines)
    assert lines[-1] == "next: fedkoopman serve swings/study.toml --out runs/pendulum"
    for name, code in codes.items():
        kit = open_kit(swings / "swings/fleet/kits" / f"{name}.kit", tmp_path / name, code)
        assert kit.site == name and set(kit.code) == {"dynamics.py"}


def test_codes_are_said_once(swings: Path) -> None:
    done = told("provision", "swings/study.toml", folder=swings)
    assert done.returncode == 0 and not CODE.search(done.stdout)
    assert "left as they were: lab-a, lab-b, lab-c" in done.stdout


def test_what_it_left_is_private(swings: Path) -> None:
    for path in (swings / "swings" / "fleet").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path.name == ".lock", path


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ("--sites ../../etc", "a site's name is '../../etc'"),
        ("--sites lab-a,lab-a", "two sites are called 'lab-a'"),
        ("--sites lab-a,", "a site's name is ''"),
        ("--revoke nobody", "unknown site 'nobody'"),
        ("--host http://x", "--host is 'http://x'"),
        ("--days 0", "0 is below 1"),
        ("--insecure --renew", "--insecure is for one machine"),
    ],
)
def test_a_mistake_is_one_line(
    swings: Path, options: str, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (swings / "swings/fleet/roster.json").read_bytes()
    code = main(["provision", str(swings / "swings/study.toml"), *shlex.split(options)])
    err = capsys.readouterr().err
    assert code == 2 and err.startswith("error: ") and err.count("\n") == 1
    assert cause in err
    assert (swings / "swings/fleet/roster.json").read_bytes() == before


def test_a_missing_study_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["provision", str(tmp_path / "none.toml"), "--sites", "a"]) == 2
    assert "does not exist: check the path" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_sites_are_added_and_revoked(swings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = str(swings / "swings/study.toml")
    assert main(["provision", study, "--sites", "lab-d"]) == 0
    out = capsys.readouterr().out
    assert [found[1] for line in out.splitlines() if (found := CODE.match(line))] == ["lab-d"]
    assert main(["provision", study, "--revoke", "lab-d"]) == 0
    assert "revoked lab-d" in capsys.readouterr().out
    assert main(["provision", study, "--renew", "--days", "20"]) == 0
    out = capsys.readouterr().out
    assert "in 19 days: renew it with fedkoopman provision" in out
    assert "sites need nothing new" in out


def test_a_fleet_is_saved_and_restored(
    swings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet, file = swings / "swings" / "fleet", tmp_path / "fleet.backup"
    assert main(["backup", str(fleet), "--to", str(file)]) == 0
    assert "saved fleet: a fleet" in capsys.readouterr().out
    assert main(["restore", str(file), "--to", str(tmp_path / "new")]) == 0
    assert "a fleet, as it was at 20" in capsys.readouterr().out
    for name in ("ca.key", "roster.json", "codes.txt", "kits/lab-a.kit"):
        assert (tmp_path / "new/fleet" / name).read_bytes() == (fleet / name).read_bytes()
    assert main(["restore", str(file), "--to", str(tmp_path / "new")]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err
    assert main(["backup", str(tmp_path), "--to", str(tmp_path / "x")]) == 2
    assert "holds neither a run" in capsys.readouterr().err


def test_a_restored_fleet_goes_on(swings: Path, tmp_path: Path) -> None:
    study, file = swings / "swings" / "study.toml", tmp_path / "fleet.backup"
    assert main(["backup", str(study.parent / "fleet"), "--to", str(file)]) == 0
    assert main(["restore", str(file), "--to", str(tmp_path)]) == 0
    fleet = str(tmp_path / "fleet")
    assert main(["provision", str(study), "--fleet", fleet, "--sites", "lab-e"]) == 0
    assert (tmp_path / "fleet/kits/lab-e.kit").exists()
    assert not (study.parent / "fleet/kits/lab-e.kit").exists()


def test_without_the_library_it_is_one_line(swings: Path, tmp_path: Path) -> None:
    code = """
import sys
sys.modules["cryptography"] = None
from fedkoopman.cli import main
sys.exit(main(sys.argv[1:]))
"""
    words = ["provision", "swings/study.toml", "--fleet", str(tmp_path / "fleet")]
    for extra, status in (([], 2), (["--insecure"], 0)):
        done = subprocess.run(
            [sys.executable, "-c", code, *words, *extra],
            cwd=swings, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        if status:
            assert "pip install 'fedkoopman[deploy]'" in done.stderr
            assert done.stderr.count("\n") == 1
