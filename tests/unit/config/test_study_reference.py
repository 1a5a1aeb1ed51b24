"""The reference of study files, `--set` and `fedkoopman config`."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedkoopman.cli import main
from fedkoopman.cli.options import read_study, settings
from fedkoopman.config.reference import refreshed
from fedkoopman.config.study import Study
from fedkoopman.errors import InputError
from fedkoopman.sensors import SENSORS

PAGE = Path(__file__).parents[3] / "docs" / "studies.md"
DEFAULT = Study.paper_default()


def test_words_of_the_command_line_become_values() -> None:
    assert settings(None) == {}
    assert settings(["slots=5", "name = a=b", "slots=6"]) == {"slots": "6", "name": "a=b"}
    assert read_study(None, ["slots=5"]) == DEFAULT.with_values({"slots": 5})
    with pytest.raises(InputError, match=r"network\.components is 2"):
        read_study(None, ["network.components=2"])
    for word in ("slots", "=5", "slots="):
        with pytest.raises(InputError, match="write KEY=VALUE") as raises:
            settings([word])
        assert repr(word) in str(raises.value)


def test_every_key_has_its_comment() -> None:
    lines = DEFAULT.to_toml(comments=True).splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        assert len(line) <= 100
        if line and not line.startswith("#"):
            assert before.startswith("#"), line
    assert "# Time slots (M). A whole number >= 1." in lines


def test_a_changed_value_is_shown_with_its_default() -> None:
    text = DEFAULT.with_values({"slots": 5}).to_toml(comments=True)
    assert "# Time slots (M). A whole number >= 1. Default: 200.\nslots = 5" in text
    assert text.count("Default:") == 1


def test_the_written_reference_is_not_stale() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == refreshed(page), "docs/studies.md is stale: run `make docs`"


def test_a_stale_page_is_mended_and_a_page_without_markers_refused() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert refreshed(page.replace("slots = 200", "slots = 201")) == page
    with pytest.raises(InputError, match="no place for the reference"):
        refreshed("# Study files")


def test_the_page_names_every_section_and_kind_of_sensor() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Reference")[0]
    sections = set(re.findall(r"^\| `\[(\w+)\]` \|", text, re.MULTILINE))
    assert sections == {name for name, v in DEFAULT.to_dict().items() if isinstance(v, dict)}
    assert set(re.findall(r"^\| `([\w-]+)` \| `\w+` \|", text, re.MULTILINE)) == set(SENSORS)


@pytest.mark.parametrize("block", re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.S))
def test_the_pages_studies_are_good(block: str) -> None:
    Study.from_dict(tomllib.loads(block)).check()


@pytest.mark.parametrize(
    "line", re.findall(r"^fedkoopman config (.*)$", PAGE.read_text("utf-8"), re.M)
)
def test_the_pages_settings_are_good(line: str) -> None:
    read_study(None, [word for word in shlex.split(line) if word != "--set"])


@pytest.mark.parametrize(
    "code",
    [
        "from fedkoopman.config.study import Study; Study.paper_default().to_toml(comments=True)",
        "from fedkoopman.config.study import Study; Study().with_values({'slots': '5'}).digest()",
        "from fedkoopman.cli import main; assert main(['config']) == 0",
        "from fedkoopman.cli import main; assert main(['config', '--help']) == 0",
    ],
)
def test_no_jax_and_no_numpy_for_the_default(code: str) -> None:
    code += "\nimport sys; print(*{'jax', 'numpy', 'equinox'}.intersection(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == ""


def test_config_prints_a_study_that_reads_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "--set", "slots=50", "--set", "scheme=centralized"]) == 0
    text = capsys.readouterr().out
    study = Study.from_dict(tomllib.loads(text))
    assert study == DEFAULT.with_values({"slots": 50, "scheme": "centralized"})
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    assert main(["config", str(path), "--set", "slots=51"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["slots"] == 51


def test_a_bad_study_ends_config_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--set", "trainig.epochs=5"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: unknown key 'trainig.epochs': did you mean 'training.epochs'?")
    assert err.count("\n") == 1
