"""What the README shows is what happens."""

import re
from pathlib import Path

import pytest

from fedkoopman.studies.sensor_file import KEYS, read_sensor

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block("python"), "README.md", "exec"), {})
    error, std, _, ok = capsys.readouterr().out.split()
    assert ok == "True"
    assert 0.1 < float(error) < 2 and 0.1 < float(std) < 2


def test_the_sensor_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sensor.toml"
    path.write_text(block("toml"), encoding="utf-8")
    assert read_sensor(path).columns == ("first", "third")


@pytest.mark.parametrize("page", ["README.md", "docs/cli.md", "docs/sensor-files.md"])
def test_links_lead_somewhere(page: str) -> None:
    path = REPOSITORY / page
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), f"{page} links to {target}"


def test_every_key_of_a_sensor_file_is_documented() -> None:
    page = (REPOSITORY / "docs" / "sensor-files.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == KEYS
