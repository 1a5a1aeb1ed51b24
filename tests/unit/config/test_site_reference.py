"""docs/own-data.md: its reference is that of the site files, and what it shows is good."""

import re
import tomllib
from pathlib import Path

import pytest

from fedkoopman.config.formats import FORMATS
from fedkoopman.config.reference import SITE, refreshed
from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.sensors import SENSORS

REPOSITORY = Path(__file__).parents[3]
PAGE = REPOSITORY / "docs" / "own-data.md"
TEXT = PAGE.read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def test_the_reference_is_not_stale() -> None:
    assert refreshed(TEXT) == TEXT, "docs/own-data.md is stale: run `make docs`"
    assert refreshed(TEXT.replace("longest = 10000", "longest = 9999")) == TEXT


def test_the_reference_has_every_key_with_its_comment() -> None:
    site = SiteFile.from_dict(SITE)
    table = tomllib.loads(blocks(TEXT, "toml")[-1])
    assert table == site.to_dict()
    lines = blocks(TEXT, "toml")[-1].splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if line and not line.startswith("#") and not line.startswith(("matrix", "kind", "theta")):
            assert before.startswith("#"), line


@pytest.mark.parametrize("block", blocks(TEXT, "toml")[:-1])
def test_parts_of_studies_are_read(block: str) -> None:
    Study.from_dict(tomllib.loads(block))


def test_all_formats_and_kinds_of_sensor_are_told() -> None:
    rows = " ".join(line for line in TEXT.splitlines() if line.startswith("|"))
    for suffix in FORMATS:
        assert re.search(rf"\b{suffix}\b", rows, re.I), suffix
    for kind in SENSORS:
        assert f"| `{kind}` |" in rows


def test_the_five_commands_are_the_same_everywhere() -> None:
    """Here, in the quickstart and in what `fedkoopman init --example pendulum` writes."""

    def words(path: Path) -> list[str]:
        block = next(b for b in blocks(path.read_text("utf-8"), "sh") if "inspect runs/" in b)
        return [" ".join(line.partition("#")[0].split()) for line in block.splitlines()]

    ours = words(PAGE)
    assert len([line for line in ours if line.startswith("fedkoopman")]) == 5
    assert words(REPOSITORY / "docs" / "quickstart.md") == ours
    assert words(REPOSITORY / "examples" / "pendulum" / "README.md") == ours
    template = REPOSITORY / "src/fedkoopman/config/templates/pendulum/README.md"
    assert words(template) == ours[2:]
