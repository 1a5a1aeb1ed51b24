"""What the README shows is what happens."""

import re
from pathlib import Path
from typing import Any

import pytest

from fedkoopman.config.sensor_file import KEYS, read_sensor

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("example", blocks("python"), ids=["run", "estimate", "koopman"])
def test_the_python_examples_run(
    example: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    if "fk.estimate(" in example:
        error, std, _, ok = printed.split()
        assert ok == "True"
        assert 0.1 < float(error) < 2 and 0.1 < float(std) < 2
    elif "fk.run(" in example:
        assert 0 < float(printed.split()[0]) < 200
    else:
        assert float(printed.split()[0]) > 0.9
        assert (tmp_path / "pendulum.safetensors").is_file()


def test_the_page_on_control_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (REPOSITORY / "docs" / "control.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    found: dict[str, Any] = {}
    exec(compile(example, "control.md", "exec"), found)
    assert "no mode grows" in capsys.readouterr().out
    loop, seen = found["loop"], found["seen"]
    assert abs(loop.states[-1] - [1, 0]).max() < 0.01
    assert abs(loop.inputs).max() <= 1 and loop.states[:, 1].max() < 0.5 + 1e-6
    assert abs(seen.states[-1] - [1, 0]).max() < 0.1


def test_the_sensor_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sensor.toml"
    path.write_text(blocks("toml")[0], encoding="utf-8")
    data = tmp_path / "observations.csv"
    data.write_text("first,third\n1,2\n", encoding="utf-8")
    assert read_sensor(path, data).data.columns == ("first", "third")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page} links to {target}"


def test_every_key_of_a_sensor_file_is_documented() -> None:
    page = (REPOSITORY / "docs" / "sensor-files.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == KEYS
