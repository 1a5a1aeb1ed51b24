"""A data format is one file of another package: JSON lines, here, through every command."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from reference.extension import file_of

import fedkoopman as fk
from fedkoopman.cli import main
from fedkoopman.config.formats import FORMATS
from fedkoopman.config.site_file import SiteFile
from fedkoopman.data.segments import segments
from fedkoopman.errors import InputError


@pytest.fixture
def jsonl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that adds the suffix .jsonl."""
    packages = tmp_path / "packages"
    about = packages / "jsonl-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: jsonl\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fedkoopman.formats]\njsonl = json_lines:FORMAT\n")
    shutil.copy(file_of("json_lines"), packages)
    known = dict(vars(FORMATS))
    monkeypatch.syspath_prepend(packages)
    for name in ("names", "_foreign"):
        vars(FORMATS).pop(name, None)
    yield
    vars(FORMATS).clear()
    vars(FORMATS).update(known)


def as_json_lines(path: Path) -> None:
    """Replace a CSV file by one of JSON lines with the same cells."""
    header, *rows = [line.split(",") for line in path.read_text().splitlines()]

    def value(name: str, cell: str) -> object:
        return cell if name in ("segment", "swing") else float(cell) if cell else None

    lines = [json.dumps({n: value(n, c) for n, c in zip(header, row, strict=True)}) for row in rows]
    path.with_suffix(".jsonl").write_text("\n".join(lines) + "\n")
    path.unlink()


STUDY = """
name = "tiny"
slots = 2
[system]
name = "van-der-pol"
[sites]
files = ["site.toml"]
[clients]
count = 1
probability = 1.0
[network]
components = 3
hidden_layers = 1
width = 4
[training]
epochs = 1
[policy]
segments = 1
[evaluation]
horizon = 2
"""
SITE = """
name = "lab"
[data]
files = "z.csv"
columns = ["x", "y"]
segment = "swing"
[sensor]
kind = "identity"
[noise]
observation = 0.01
process = 0.01
"""


def write_study(folder: Path) -> None:
    folder.mkdir()
    (folder / "study.toml").write_text(STUDY)
    (folder / "site.toml").write_text(SITE)
    swings = fk.simulate(fk.systems.VanDerPol(), steps=40, batch=3)
    rows = [f"s{n},{x!r},{y!r}" for n, swing in enumerate(swings) for x, y in swing.tolist()]
    (folder / "z.csv").write_text("\n".join(["swing,x,y", *rows]) + "\n")


@pytest.mark.usefixtures("jsonl")
def test_it_is_read_by_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (Path("text"), Path("json")):
        write_study(folder)
    as_json_lines(Path("json/z.csv"))
    Path("json/site.toml").write_text(SITE.replace(".csv", ".jsonl"))
    assert main(["check", "json/study.toml", "--no-progress"]) == 0
    for name in ("text", "json"):
        assert main(["run", f"{name}/study.toml", "--no-progress", "--out", f"{name}/run"]) == 0
    models = [Path(f"{name}/run/model.safetensors").read_bytes() for name in ("text", "json")]
    assert models[0] == models[1]

    Path("sensor.toml").write_text('kind = "identity"\n')
    Path("z.csv").write_text("segment,time,x,y\n" + "a,0.02,1,\na,0.04,1.1,2\nb,0.02,1,2\n")
    estimate = ["estimate", "z.csv", "--system", "van-der-pol", "--sensor", "sensor.toml"]
    assert main([*estimate, "--out", "text.csv"]) == 0
    as_json_lines(Path("z.csv"))
    estimate[1] = "z.jsonl"
    assert main([*estimate, "--out", "json.csv"]) == 0
    assert Path("text.csv").read_text() == Path("json.csv").read_text()


@pytest.mark.usefixtures("jsonl")
def test_messages_name_its_rows_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "z.jsonl").write_text('{"x": 1}\n{"x": 1e300}\n')
    table = {"name": "lab", "data": {"files": "z.jsonl"}, "sensor": {"kind": "identity"}}
    site = SiteFile.from_dict(table, tmp_path / "site.toml")
    with pytest.raises(InputError, match=r"row 2 of .*z\.jsonl \(line 2\) holds 1e\+300 in column"):
        list(segments(site, 1.0))


def test_without_the_package_the_suffix_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "z.jsonl").write_text('{"x": 1}\n')
    table = {"name": "lab", "data": {"files": "z.jsonl"}, "sensor": {"kind": "identity"}}
    with pytest.raises(InputError, match=r"'\.jsonl', which names no format .* \.csv, \.mat, "):
        SiteFile.from_dict(table, tmp_path / "site.toml").files()


def test_our_own_formats_are_listed_without_loading_them() -> None:
    assert FORMATS.names[:5] == ("csv", "mat", "npy", "npz", "parquet")
