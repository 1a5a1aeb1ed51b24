"""What is released: wheel and sdist, installed into an empty environment, and the demo from there.

`pip` takes dependencies from the index that it is configured for, at the pinned versions.
"""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import fedkoopman

REPOSITORY = Path(__file__).parents[2]
PINS = REPOSITORY / "constraints.txt"
NO_WHEEL = {"3.13": {"edf"}}
"""Extras whose pinned package has no wheel for a version of Python."""
EXTRAS = "deploy,control,docs,edf,hdf5,mqtt,onnx,privacy,ros,ulog,wfdb"


def run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(w) for w in words], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a wheel and an sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=REPOSITORY)
    return folder


def test_the_change_log_has_the_version() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{fedkoopman.__version__}]" in text
    citation = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {fedkoopman.__version__}\n" in citation


def test_all_extras_are_checked_for_other_versions_of_python() -> None:
    made = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(EXTRAS.split(",")) <= set(made["project"]["optional-dependencies"])


@pytest.mark.slow
def test_wheel_and_sdist_hold_what_they_should(dist: Path) -> None:
    [wheel], [sdist] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = REPOSITORY / "src" / "fedkoopman"
    expected = {
        path.relative_to(REPOSITORY / "src").as_posix()
        for path in sources.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert expected <= names
    assert all(name.startswith(("fedkoopman/", "fedkoopman-")) for name in names)
    with tarfile.open(sdist) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    for name in (
        "README.md",
        "CITATION.cff",
        "mkdocs.yml",
        "docs/picture.png",
        "tests/conftest.py",
    ):
        assert name in inside, name


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_the_demo_runs_from_an_empty_environment(dist: Path, kind: str, tmp_path: Path) -> None:
    [package] = dist.glob(kind)
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    pip = (tmp_path / "env" / "bin" / "python", "-m", "pip", "install", "-q", "-c", PINS)
    run(*pip, package, cwd=tmp_path)
    program, small = tmp_path / "env" / "bin" / "fedkoopman", ("--set", "slots=6")
    assert run(program, "--version", cwd=tmp_path) == f"fedkoopman {fedkoopman.__version__}\n"
    run(program, "run", "--seeds", "2", *small, "--out", "paper", cwd=tmp_path)
    said = run(
        program, "run", "--recommended", "--seeds", "2", *small, "--out", "ours",
        "--beside", "paper", cwd=tmp_path,
    )  # fmt: skip
    assert "report: ours/report.html" in said
    assert "<html" in (tmp_path / "ours" / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_wheels_of_all_dependencies_exist(version: str, dist: Path, tmp_path: Path) -> None:
    """Resolved for these versions of Python, not run by them."""
    [wheel] = dist.glob("*.whl")
    extras = ",".join(set(EXTRAS.split(",")) - NO_WHEEL.get(version, set()))
    run(
        sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--only-binary=:all:",
        "--python-version", version, "--target", tmp_path / "target", "-c", PINS,
        f"{wheel}[{extras}]", cwd=tmp_path,
    )  # fmt: skip
