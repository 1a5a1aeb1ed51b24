"""`fedkoopman audit` as a user calls it: refusals in one line, and a small audit in full."""

import json

import pytest

from fedkoopman.cli import main

SMALL = [
    "--set", "clients.count=3", "--set", "slots=24", "--set", "policy.segments=1",
    "--set", "segments.steps=40", "--set", "training.epochs=2",
]  # fmt: skip


def refused(capsys, *arguments):
    assert main(["audit", *map(str, arguments)]) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    return line


@pytest.fixture
def at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_path_that_is_nothing_is_refused(at, capsys):
    assert "gone.toml" in refused(capsys, "gone.toml", "--out", "leaks")
    assert not (at / "leaks").exists()


def test_a_directory_without_a_run_is_refused(at, capsys):
    assert "holds no run: give the directory of one" in refused(capsys, at, "--out", "leaks")
    assert not (at / "leaks").exists()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("clients.count=1", "the study has 1 site, and an audit asks which site"),
        ("scheme=single-client", "the study has 1 site"),
        ("scheme=observations", "whose model knows no states to look for"),
        ("scheme=centralized", "sites send their data: there is nothing to audit"),
    ],
)
def test_a_study_without_several_sites_is_refused(at, capsys, setting, words):
    assert words in refused(capsys, "--set", setting, "--out", "leaks")
    assert not (at / "leaks").exists()


def test_a_file_in_the_place_of_the_directory_is_refused(at, capsys):
    (at / "leaks").write_text("mine")
    assert "leaks is a file: give a directory" in refused(capsys, "--out", "leaks")
    assert (at / "leaks").read_text() == "mine"


def test_sites_that_never_train_are_told(at, capsys):
    words = refused(capsys, "--set", "slots=2", "--quick", "--no-progress", "--out", "leaks")
    assert "no site ever trained in 2 slots" in words
    assert not (at / "leaks").exists()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "small"
    assert main(["run", *SMALL, "--no-progress", "--out", str(path)]) == 0
    return path


@pytest.fixture
def changed(run):
    """Changes run.json for one test."""
    before = (run / "run.json").read_text()
    yield lambda **values: (run / "run.json").write_text(json.dumps(json.loads(before) | values))
    (run / "run.json").write_text(before)


def test_a_run_of_another_version_is_refused(run, changed, at, capsys):
    changed(versions="fedkoopman 0.1, jaxlib 0.1")
    words = refused(capsys, run, "--out", "leaks")
    assert "was run with fedkoopman 0.1" in words
    assert "study.toml instead" in words
    assert not (at / "leaks").exists()


def test_a_served_run_is_refused(run, changed, at, capsys):
    changed(sites=["a", "b", "c"])
    assert "whose data are with its sites" in refused(capsys, run, "--out", "leaks")


def test_an_unfinished_run_is_refused(run, at, capsys):
    summary = (run / "summary.json").read_text()
    (run / "summary.json").unlink()
    try:
        assert "is not finished: fedkoopman run --resume" in refused(capsys, run)
    finally:
        (run / "summary.json").write_text(summary)


def test_settings_with_a_run_are_refused(run, capsys):
    assert "leave --set out" in refused(capsys, run, "--set", "slots=3")


@pytest.mark.slow
def test_a_run_is_audited_and_again_with_the_same_numbers(run, at, capsys):
    for out in ("first", "second"):
        assert main(["audit", str(run), "--quick", "--no-progress", "--out", out]) == 0
    told = capsys.readouterr().out
    assert "The paper's claim: " in told
    assert "page: second/audit.html" in told
    numbers = (at / "first" / "audit.json").read_text()
    assert numbers == (at / "second" / "audit.json").read_text()
    arms = {arm["name"]: arm for arm in json.loads(numbers)["arms"]}
    assert list(arms)[:2] == ["raw", "smoothed"]
    assert arms["raw"]["source"]["area"]["value"] > arms["smoothed"]["source"]["area"]["value"]
    assert arms["secure"]["source"]["area"]["value"] == 0.5
    assert sorted(path.name for path in (at / "first").iterdir()) == ["audit.html", "audit.json"]
    assert "fedkoopman run" not in told


@pytest.mark.slow
def test_real_sites_are_audited_where_their_data_are(at, capsys):
    assert main(["init", "swings", "--example", "pendulum"]) == 0
    study = str(at / "swings" / "study.toml")
    assert main(["audit", study, "--quick", "--no-progress", "--out", "leaks"]) == 0
    arms = {
        arm["name"]: arm for arm in json.loads((at / "leaks" / "audit.json").read_text())["arms"]
    }
    assert arms["smoothed"]["source"]["sites"] == 3
    assert "too few" in arms["smoothed"]["noise"]
